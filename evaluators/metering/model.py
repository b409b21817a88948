"""A model as methods call it: litellm's client, with the gateway as its only endpoint.

litellm's own retries, price map and callbacks are off; tokens are counted by the gateway alone.
Programs that call the model themselves get a line to the gateway instead.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.grading.records import Status
from kernelmark.evaluators.metering.budget import Limits, Scope
from kernelmark.evaluators.metering.gateway import Gateway, Grant, Upstream, open_gateway
from kernelmark.evaluators.metering.ledger import LedgerRow, read_ledger
from kernelmark.evaluators.methods.base import Line, Message, MethodError, Reply

REQUEST_TIMEOUT_S = 900.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Model:
    """One model of one run. `clients`: litellm and openai, None where only lines are used."""

    def __init__(
        self,
        name: str,
        gateway: Gateway,
        socket: Path,
        ledger_path: Path,
        secrets: tuple[str, ...],
        clients: tuple[Any, Any] | None,
    ) -> None:
        self._name = name
        self._gateway = gateway
        self._socket = socket
        self._ledger_path = ledger_path
        self._secrets = secrets
        self._litellm: Any = clients and clients[0]
        self._openai: Any = clients and clients[1]

    def complete(
        self, operator: str, attempt: int, messages: Sequence[Message], parameters: dict[str, Any]
    ) -> Reply:
        """One request. Raises `MethodError`: refused, over budget, or (an infrastructure error,
        tried again when the run is resumed) unreachable, overloaded, cut off."""
        if self._litellm is None:
            raise MethodError("this method calls its model itself")
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

    def line(self, operator: str, attempt: int) -> Line:
        """A line for programs that make the requests of one attempt themselves."""
        grant = self._gateway.grant(operator, attempt)

        def trouble() -> str:
            rows = [row for row in read_ledger(self._ledger_path) if _of(row, grant)]
            return _trouble(rows[-1]) if rows else ""

        return Line(
            model=self._name,
            url=grant.root_url,
            path=grant.path,
            token=grant.token,
            socket=self._socket,
            secrets=(grant.token, *self._secrets),
            refused=lambda: str(grant.stop or ""),
            trouble=trouble,
        )

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
    provider: str = "openai",
    only_lines: bool = False,
) -> Iterator[Model]:
    """`model` at `base_url`, behind a gateway that writes `ledger_path` and holds the budget.

    What the ledger already holds counts against the budget. `provider`: whose words are spoken at
    `base_url`. `only_lines`: no clients of our own. `UserError` where a key is needed and
    `key_name`, where it was looked for, is empty.
    """
    if not key and urlsplit(base_url).hostname not in _LOOPBACK:
        raise UserError(f"{key_name} is not set: it holds the key for {base_url}")
    limits: dict[Scope, Limits] = {"run": Limits(tokens=budget_tokens)}
    upstreams = {provider: Upstream(base_url, key)}
    clients = None if only_lines else _load_clients()
    with tempfile.TemporaryDirectory(prefix="kernelmark-") as folder:
        socket = Path(folder) / "gateway.sock"
        with open_gateway(run, upstreams, ledger_path, limits, socket=socket) as gateway:
            yield Model(model, gateway, socket, ledger_path, (key,), clients)


def _of(row: LedgerRow, grant: Grant) -> bool:
    return (row.operator, row.attempt) == (grant.operator, grant.attempt)


def _trouble(row: LedgerRow) -> str:
    """What kept the provider from answering; empty where it answered, if only by refusing."""
    status = row.http_status
    if row.outcome in ("timeout", "upstream_abort", "gateway_abort"):
        return f"{row.outcome}: {row.detail}"
    if row.outcome == "error" and (status is None or status in (408, 429) or status >= 500):
        return f"provider unreachable or overloaded (status {status}): {row.detail}"
    return ""


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
