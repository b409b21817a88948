"""The source text of an oracle with everything of the project that it calls.

For readers: what is computed, without the package at hand. Not meant to be executed as it stands
(imports and the records of `operators.records` are left out).
"""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

_PACKAGE = "kernelmark.operators"
_INFRASTRUCTURE = (f"{_PACKAGE}.records", f"{_PACKAGE}.registry", f"{_PACKAGE}.draws")
_LONGEST = 600  # characters of a bound value that are printed


def oracle_source(oracle: Callable[..., Any]) -> str:
    """Source of `oracle`, then of the functions and values that it reaches, first reached first.

    Functions made by others (closures) come with the values that they are bound to.
    """
    parts: dict[str, None] = {}
    waiting: list[tuple[str, Any]] = [("", inspect.unwrap(oracle))]
    seen: set[int] = set()
    while waiting:
        name, value = waiting.pop(0)
        if id(value) in seen:
            continue
        if _is_own(value):
            seen.add(id(value))
            parts[textwrap.dedent(inspect.getsource(value)).rstrip()] = None
            waiting += _reached(value) if isinstance(value, FunctionType) else []
        else:
            parts[f"{name} = {_describe(value)}"] = None
            waiting += [("", function) for function in _functions_in(value)]
    return "\n\n".join(parts) + "\n"


def _reached(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What the function's code names: functions of the project, constants, bound values."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    names = list(dict.fromkeys(_names(function.__code__)))
    spaces = [function.__globals__]
    spaces += [vars(m) for m in map(function.__globals__.get, names) if _is_own_module(m)]
    for name in names:
        if name in cells:
            yield name, cells[name].cell_contents
            continue
        for space in spaces:
            if name in space and (_is_own(space[name]) or _is_constant(name, space[name])):
                yield name, space[name]


def _names(code: CodeType) -> Iterator[str]:
    """Global, attribute and free names of a code object and of those inside it, in order."""
    yield from code.co_freevars
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _functions_in(value: Any) -> Iterator[FunctionType]:
    """The project's functions in a nest of containers and dataclasses."""
    if isinstance(value, FunctionType) and _is_own(value):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _functions_in(getattr(value, field.name))
    elif isinstance(value, dict):
        yield from _functions_in(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _functions_in(item)


def _describe(value: Any) -> str:
    """A bound value as text that is the same in every process."""
    text = _text(value)
    return text if len(text) <= _LONGEST else f"...  # a {type(value).__name__} of {len(value)}"


def _text(value: Any) -> str:
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, FunctionType) and value.__name__ == "<lambda>":
        return "<lambda>"  # its source follows
    if callable(value):
        name = str(getattr(value, "__name__", type(value).__name__))
        module = getattr(value, "__module__", None) or ""
        return name if module.startswith(_PACKAGE) else f"{module.split('.')[0] or 'torch'}.{name}"
    if dataclasses.is_dataclass(value):
        shown = [f for f in dataclasses.fields(value) if getattr(value, f.name) != f.default]
        fields = ", ".join(f"{f.name}={_text(getattr(value, f.name))}" for f in shown)
        return f"{type(value).__name__}({fields})"
    if isinstance(value, dict):
        items = ", ".join(f"{_text(key)}: {_text(item)}" for key, item in value.items())
        return "{" + items + "}"
    if isinstance(value, tuple | list):
        items = ", ".join(map(_text, value)) + ("," if len(value) == 1 else "")
        return f"({items})" if isinstance(value, tuple) else f"[{items}]"
    if isinstance(value, frozenset | set):
        return "{" + ", ".join(sorted(map(_text, value))) + "}"
    text = repr(value)
    return f"<{type(value).__name__}>" if " at 0x" in text else text


def _is_own(value: Any) -> bool:
    """Whether a function or class is the project's, and not of its infrastructure."""
    module = getattr(value, "__module__", None) or ""
    if not isinstance(value, FunctionType | type) or not module.startswith(_PACKAGE):
        return False
    return module not in _INFRASTRUCTURE


def _is_own_module(value: Any) -> bool:
    return isinstance(value, ModuleType) and value.__name__.startswith(_PACKAGE)


def _is_constant(name: str, value: Any) -> bool:
    simple = isinstance(value, bool | int | float | complex | str | tuple | list | dict | frozenset)
    return simple and not name.startswith("__")
