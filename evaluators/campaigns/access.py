"""How a run reaches its model: which provider, which key, in whose words; behind the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.budgets import limits_of
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.scripted import MODEL as SCRIPTED
from kernelmark.evaluators.campaigns.scripted import load_script, serve_script
from kernelmark.evaluators.methods.base import CallsModelItself, Method

if TYPE_CHECKING:
    from kernelmark.evaluators.metering.model import Model


@dataclass(frozen=True)
class Access:
    """How a model's provider is reached. `key_name`: where the key was looked for."""

    base_url: str
    key: str
    key_name: str


def model_for(name: str, method: Method, model: str) -> str:
    """The model of a run of `method`, called `name`. `UserError` where that and `model` clash."""
    if name == SCRIPTED and model in ("", SCRIPTED):
        return SCRIPTED
    if name == SCRIPTED:
        raise UserError(
            f"method {name} has recorded replies in place of a model; leave --model out"
        )
    if method.uses_model and not model:
        raise UserError(f"method {name} calls a model: --model names it")
    if model and not method.uses_model:
        raise UserError(f"method {name} calls no model; leave --model out")
    if model == SCRIPTED and isinstance(method, CallsModelItself):
        raise UserError(f"method {name} calls its model itself: recorded replies are not for it")
    return model


def provider_of(method: Method) -> str:
    """Whose words the method's requests are in."""
    return method.provider if isinstance(method, CallsModelItself) else "openai"


@contextmanager
def open_model(folder: RunFolder, access: Access, method: Method) -> Iterator[Model | None]:
    """The run's model until the block ends; None for a method that calls none."""
    if not method.uses_model:
        yield None
    elif folder.run.model == SCRIPTED:
        script = load_script(folder.run.options.get("replies", "demo"))
        with (
            serve_script(script) as provider,
            _metered(folder, Access(provider.url, "", ""), method) as model,
        ):
            yield model
    else:
        with _metered(folder, access, method) as model:
            yield model


@contextmanager
def _metered(folder: RunFolder, access: Access, method: Method) -> Iterator[Model]:
    from kernelmark.evaluators.metering.model import metered_model

    run = folder.run
    with metered_model(
        run=run.id,
        model=run.model,
        ledger_path=folder.ledger_path,
        base_url=access.base_url,
        key=access.key,
        key_name=access.key_name,
        limits=limits_of(run),
        provider=provider_of(method),
        only_lines=isinstance(method, CallsModelItself),
        answers=folder.workspaces,
    ) as model:
        yield model
