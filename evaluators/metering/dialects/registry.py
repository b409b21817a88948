"""Finds dialects: every file of this folder that defines `DIALECTS`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from kernelmark.evaluators.metering import dialects
from kernelmark.evaluators.metering.dialects.base import Dialect
from kernelmark.evaluators.metering.dialects.providers import spoken

_NOT_DIALECTS = {"base", "events", "providers", "registry"}


@cache
def all_dialects() -> tuple[Dialect, ...]:
    """Every dialect, by file name."""
    names = sorted(info.name for info in pkgutil.iter_modules(dialects.__path__))
    modules = [
        importlib.import_module(f"{dialects.__name__}.{name}")
        for name in names
        if name not in _NOT_DIALECTS
    ]
    return tuple(dialect for module in modules for dialect in module.DIALECTS)


def find_dialect(method: str, path: str, headers: Mapping[str, str]) -> Dialect | None:
    """The dialect of a request. `path` follows the gateway's prefix, without a leading slash."""
    provider = spoken(path, headers)
    for dialect in all_dialects():
        if (
            dialect.provider is provider
            and dialect.method == method
            and dialect.path.fullmatch(path)
        ):
            return dialect
    return None
