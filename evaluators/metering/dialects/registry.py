"""Finds dialects: every file of this folder that defines `DIALECT`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from kernelmark.evaluators.metering import dialects
from kernelmark.evaluators.metering.dialects.base import Dialect

_NOT_DIALECTS = {"base", "registry"}


@cache
def all_dialects() -> tuple[Dialect, ...]:
    """Every dialect, by file name."""
    names = sorted(info.name for info in pkgutil.iter_modules(dialects.__path__))
    modules = [
        importlib.import_module(f"{dialects.__name__}.{name}")
        for name in names
        if name not in _NOT_DIALECTS
    ]
    return tuple(module.DIALECT for module in modules)
