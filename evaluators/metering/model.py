"""A model as methods call it: litellm's client, with the gateway as its only endpoint.

litellm's own retries, price map and callbacks are off; tokens are counted by the gateway alone.
Programs that call the model themselves get a line to the gateway instead.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.scripted import MODEL as SCRIPTED
from kernelmark.evaluators.campaigns.scripted import tag
from kernelmark.evaluators.metering.answers import ASK_HEADER, Answers
from kernelmark.evaluators.metering.budget import Limits, Scope
from kernelmark.evaluators.metering.gateway import Gateway, Grant, Upstream, open_gateway
from kernelmark.evaluators.metering.ledger import LedgerRow, read_ledger
from kernelmark.evaluators.methods.base import Line, Message, MethodError, Reply

REQUEST_TIMEOUT_S = 900.0
#: what litellm puts before the provider's own words
_PREFIX = re.compile(r"^((litellm\.)?\w+(Error|Exception): )*(\w+Exception - )?")
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
        self,
        operator: str,
        attempt: int,
        ask: int,
        messages: Sequence[Message],
        parameters: dict[str, Any],
    ) -> Reply:
        """One request. `ask` numbers the operator's questions: the same again, after a kill, is
        answered from what was paid for. Raises `MethodError`: refused, over budget, or (an
        infrastructure error, tried again when the run is resumed) unreachable, overloaded, cut off.
        """
        if self._litellm is None:
            raise MethodError("this method calls its model itself")
        grant = self._gateway.grant(operator, attempt)
        grant.stop = None
        if self._name == SCRIPTED:
            parameters = {**parameters, "extra_body": {"user": tag(operator, ask)}}
        try:
            answer = self._litellm.completion(
                model=f"openai/{self._name}",
                messages=[dict(message) for message in messages],
                api_base=grant.base_url,
                api_key=grant.token,
                num_retries=0,
                max_retries=0,
                timeout=REQUEST_TIMEOUT_S,
                extra_headers={ASK_HEADER: str(ask)},
                **parameters,
            )
        except self._refused() as error:
            if grant.stop is not None:
                raise MethodError(str(grant.stop), "budget_exhausted") from error
            raise MethodError(self._explained(error)) from error
        except self._openai.OpenAIError as error:
            text = f"no answer from the provider: {_one_line(error)}"
            raise MethodError(text, "infrastructure_error") from error
        if not answer.choices:  # some providers filter content so
            return Reply("", "", answer.model or "")
        choice = answer.choices[0]
        # Half of a surrogate pair, which JSON can say, would be in no file and no later request.
        text = (choice.message.content or "").encode(errors="replace").decode()
        return Reply(text, choice.finish_reason or "", answer.model or "")

    @property
    def spent_tokens(self) -> int:
        """Tokens of the run so far, every class."""
        return self._gateway.budget.spent_tokens

    @property
    def spent_usd(self) -> float | None:
        """Dollars of the run so far; None where a request had no known price."""
        return self._gateway.budget.spent_usd

    def _explained(self, error: Exception) -> str:
        """What the provider said, after what it means."""
        errors = self._litellm.exceptions
        meaning = {
            errors.AuthenticationError: "the provider refuses the key",
            errors.PermissionDeniedError: "the key may not use this model",
            errors.NotFoundError: f"the provider has no model {self._name}, or no such path",
        }
        text = _one_line(error)
        known = [told for kind, told in meaning.items() if isinstance(error, kind)]
        return f"{known[0]}: {text}" if known else text

    def line(self, operator: str, attempt: int) -> Line:
        """A line for programs that make the requests of one attempt themselves."""
        grant = self._gateway.grant(operator, attempt)

        def last(told: Callable[[LedgerRow], str]) -> str:
            rows = [row for row in read_ledger(self._ledger_path) if _of(row, grant)]
            return told(rows[-1]) if rows else ""

        return Line(
            model=self._name,
            url=grant.root_url,
            path=grant.path,
            token=grant.token,
            socket=self._socket,
            secrets=(grant.token, *self._secrets),
            refused=lambda: str(grant.stop or ""),
            trouble=lambda: last(_trouble),
            refusal=lambda: last(_refusal),
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
    limits: Mapping[Scope, Limits] | None = None,
    answers: Path | None = None,
    provider: str = "openai",
    only_lines: bool = False,
) -> Iterator[Model]:
    """`model` at `base_url`, behind a gateway that writes `ledger_path` and holds the budget.

    What the ledger already holds counts against `limits`. `provider`: whose words are spoken at
    `base_url`. `answers`: folder that keeps what was paid for. `only_lines`: no clients of our own.
    `UserError` where a key is needed and `key_name`, where it was looked for, is empty.
    """
    if not key and urlsplit(base_url).hostname not in _LOOPBACK:
        raise UserError(f"{key_name} is not set: it holds the key for {base_url}")
    upstreams = {provider: Upstream(base_url, key)}
    clients = None if only_lines else _load_clients()
    kept = Answers(answers) if answers else None
    with tempfile.TemporaryDirectory(prefix="kernelmark-") as folder:
        socket = Path(folder) / "gateway.sock"
        with open_gateway(
            run, upstreams, ledger_path, limits, socket=socket, answers=kept
        ) as gateway:
            yield Model(model, gateway, socket, ledger_path, (key,), clients)


def _of(row: LedgerRow, grant: Grant) -> bool:
    return (row.operator, row.attempt) == (grant.operator, grant.attempt)


def _trouble(row: LedgerRow) -> str:
    """What kept the provider from answering; empty where it answered, if only by refusing."""
    if row.outcome in ("timeout", "upstream_abort", "gateway_abort"):
        return f"{row.outcome}: {_plain(row.detail)}"
    if row.outcome != "error" or _refused(row):
        return ""
    if row.http_status is None:
        return f"the provider cannot be reached: {_plain(row.detail)}"
    return f"the provider is overloaded or broken ({row.http_status}): {_plain(row.detail)}"


def _refusal(row: LedgerRow) -> str:
    """How the provider refused; empty where it did not."""
    if row.outcome != "error" or not _refused(row):
        return ""
    return f"the provider refused ({row.http_status}): {_plain(row.detail)}"


def _refused(row: LedgerRow) -> bool:
    """Whether asking again would be of no use."""
    status = row.http_status
    return status is not None and 400 <= status < 500 and status not in (408, 429)


def _plain(text: str) -> str:
    return " ".join(text.split())[:300]


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
    text = _PREFIX.sub("", " ".join(str(error).split()))
    return text if len(text) <= 500 else text[:497] + "..."
