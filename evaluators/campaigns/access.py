"""How a run reaches its model: which provider, which key, in whose words; behind the gateway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.budgets import limits_of
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.records import Run
from kernelmark.evaluators.campaigns.scripted import MODEL as SCRIPTED
from kernelmark.evaluators.campaigns.scripted import load_script, serve_script
from kernelmark.evaluators.methods.base import CallsModelItself, Method
from kernelmark.evaluators.methods.registry import make_method

if TYPE_CHECKING:
    from kernelmark.evaluators.metering.model import Model


@dataclass(frozen=True)
class Access:
    """How a model's provider is reached. `key_name`: where the key was looked for."""

    base_url: str
    key: str
    key_name: str


#: each provider's public endpoint, and the variable that its clients take the key from
_PUBLIC = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic": ("https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    "gemini": ("https://generativelanguage.googleapis.com", "GEMINI_API_KEY"),
}


def access_of(run: Run, base_url: str, key_name: str, environment: Mapping[str, str]) -> Access:
    """How a run reaches its model; what is left empty is the public endpoint's of the provider
    whose words the run's method speaks. The key is looked up in `environment`."""
    method = make_method(run.method, run.options)
    public_url, public_name = _PUBLIC[provider_of(method)]
    name = key_name or public_name
    return Access(base_url or public_url, environment.get(name, ""), name)


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
    if isinstance(method, CallsModelItself) and method.uses_model:
        return method.provider
    return "openai"


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
