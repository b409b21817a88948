"""Finds presets: one file each in this folder; the file's name is the preset's (``claude_code`` is
``claude-code``). Listing names imports nothing."""

from __future__ import annotations

import importlib
import pkgutil
import typing

from kernelmark.evaluators.methods import agents
from kernelmark.evaluators.methods.agents.base import Preset
from kernelmark.operators.registry import UnknownName

_NOT_PRESETS = {"base", "registry"}


def preset_names() -> list[str]:
    """Names of all presets, sorted."""
    names = (info.name for info in pkgutil.iter_modules(agents.__path__))
    return sorted(name.replace("_", "-") for name in names if name not in _NOT_PRESETS)


def get_preset(name: str) -> Preset:
    """The preset `name`. Raises `UnknownName`."""
    if name not in preset_names():
        raise UnknownName("preset", name, preset_names())
    module = importlib.import_module(f"{agents.__name__}.{name.replace('-', '_')}")
    return typing.cast(Preset, module.PRESET)
