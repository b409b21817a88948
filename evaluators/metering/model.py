"""A model as methods call it: litellm's client, with the gateway as its only endpoint.

litellm's own retries, price map and callbacks are off; tokens are counted by the gateway alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.grading.records import Status
from kernelmark.evaluators.metering.budget import Limits, Scope
from kernelmark.evaluators.metering.gateway import Gateway, Upstream, open_gateway
from kernelmark.evaluators.methods.base import Message, MethodError, Reply

REQUEST_TIMEOUT_S = 900.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Model:
    """One model of one run."""

    def __init__(self, name: str, gateway: Gateway) -> None:
        self._name = name
        self._gateway = gateway
        self._litellm, self._openai = _load_clients()

    def complete(
        self, operator: str, attempt: int, messages: Sequence[Message], parameters: dict[str, Any]
    ) -> Reply:
        """One request. Raises `MethodError`: refused, over budget, or (an infrastructure error,
        tried again when the run is resumed) unreachable, overloaded, cut off."""
        grant = self._gateway.grant(operator, attempt)
        try:
            answer = self._litellm.completion(
                model=f"openai/{self._name}",
                messages=[dict(message) for message in messages],
                api_base=grant.base_url,
                api_key=grant.token,
                num_retries=0,
                max_retries=0,
                timeout=REQUEST_TIMEOUT_S,
                **parameters,
            )
        except self._refused() as error:
            status: Status = "budget_exhausted" if grant.denied else "method_error"
            raise MethodError(_one_line(error), status) from error
        except self._openai.OpenAIError as error:
            raise MethodError(_one_line(error), "infrastructure_error") from error
        choice = answer.choices[0]
        return Reply(choice.message.content or "", choice.finish_reason or "", answer.model or "")

    def _refused(self) -> tuple[type[Exception], ...]:
        """What the provider will answer again however often it is asked."""
        errors = self._litellm.exceptions
        return (
            errors.AuthenticationError,
            errors.PermissionDeniedError,
            errors.NotFoundError,
            errors.BadRequestError,
            errors.UnprocessableEntityError,
            errors.UnsupportedParamsError,
        )


@contextmanager
def metered_model(
    *,
    run: str,
    model: str,
    ledger_path: Path,
    base_url: str,
    key: str,
    key_name: str,
    budget_tokens: int | None,
) -> Iterator[Model]:
    """`model` at `base_url`, behind a gateway that writes `ledger_path` and holds the budget.

    What the ledger already holds counts against the budget. `UserError` where a key is needed and
    `key_name`, where it was looked for, is empty.
    """
    if not key and urlsplit(base_url).hostname not in _LOOPBACK:
        raise UserError(f"{key_name} is not set: it holds the key for {base_url}")
    limits: dict[Scope, Limits] = {"run": Limits(tokens=budget_tokens)}
    upstreams = {"openai": Upstream(base_url, key)}
    with open_gateway(run, upstreams, ledger_path, limits) as gateway:
        yield Model(model, gateway)


def _load_clients() -> tuple[Any, Any]:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import asks the network
    os.environ.setdefault("LITELLM_LOG", "ERROR")
    try:
        import litellm
        import openai
    except ModuleNotFoundError as error:
        raise UserError("models need litellm: pip install 'kernelmark[models]'") from error
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    return litellm, openai


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 500 else text[:497] + "..."
