"""A function of the benchmark as a file of its own: its text, and that of all it refers to.

Candidates run where the benchmark's operators are out of reach, so a statement in torch has to be
carried over whole. Only what a candidate of language `library` may hold can be carried: functions,
numbers, texts, dtypes, tables of those, and torch and math. A function that remembers its results
(`functools.cache`) is carried without its memory, as `torch.compile` looks through it too.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from collections.abc import Callable
from typing import Any

import torch

_MODULES = {"torch": "torch", "math": "math"}


class NotInlined(Exception):
    """What cannot be carried over."""


def inlined(function: Callable[..., Any]) -> str:
    """The source of `function` and all it refers to, imports first. Raises `NotInlined`."""
    parts: dict[str, str] = {}
    modules: set[str] = set()
    _add(function, function.__name__, parts, modules)
    imports = "".join(f"import {name}\n" for name in sorted(modules))
    return imports + "".join(f"\n\n{text}" for text in parts.values())


def _add(value: Any, name: str, parts: dict[str, str], modules: set[str]) -> None:
    if isinstance(value, functools._lru_cache_wrapper):
        value = value.__wrapped__
    if isinstance(value, types.FunctionType):
        _add_function(value, name, parts, modules)
    elif isinstance(value, types.ModuleType) and _MODULES.get(name) == value.__name__:
        modules.add(name)
    else:
        text = f"{name} = {_literal(value, name, modules)}\n"
        _put(name, text, parts)


def _add_function(
    function: types.FunctionType, name: str, parts: dict[str, str], modules: set[str]
) -> None:
    if function.__name__ != name or function.__closure__:
        raise NotInlined(f"{name} is made at run time")
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    (node,) = tree.body
    if not isinstance(node, ast.FunctionDef) or not all(map(_remembers, node.decorator_list)):
        raise NotInlined(f"{name} is decorated")
    node.decorator_list.clear()
    _without_words(node)
    text = ast.unparse(node) + "\n"
    if parts.get(name) == text:
        return
    for used in sorted(_globals(node)):
        if used in function.__globals__ and used != name:
            _add(function.__globals__[used], used, parts, modules)
    _put(name, text, parts)


def _remembers(decorator: ast.expr) -> bool:
    """Whether a decorator is `functools.cache`, by either name."""
    return ast.unparse(decorator) in ("cache", "functools.cache")


def _put(name: str, text: str, parts: dict[str, str]) -> None:
    if parts.setdefault(name, text) != text:
        raise NotInlined(f"two things are called {name}")


def _without_words(node: ast.FunctionDef) -> None:
    """Drops docstrings and annotations, which may refer to anything."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef):
            inner.returns = None
            first = inner.body[0]
            words = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            if words and len(inner.body) > 1:
                inner.body.pop(0)
        elif isinstance(inner, ast.arg):
            inner.annotation = None
        for field, statements in ast.iter_fields(inner):
            if isinstance(statements, list):
                setattr(inner, field, [_plain(item) for item in statements])


def _plain(item: Any) -> Any:
    if isinstance(item, ast.AnnAssign) and item.value is not None:
        return ast.copy_location(ast.Assign([item.target], item.value), item)
    return item


def _globals(node: ast.FunctionDef) -> set[str]:
    loads = (n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return {name.id for name in loads}


def _literal(value: Any, name: str, modules: set[str]) -> str:
    if isinstance(value, torch.dtype):
        modules.add("torch")
        return str(value)
    if value is None or isinstance(value, bool | int | float | complex | str):
        return repr(value)
    if isinstance(value, tuple | list | set | frozenset) and value:
        items = ", ".join(_literal(item, name, modules) for item in value)
        return f"({items},)" if isinstance(value, tuple) else f"[{items}]"
    if isinstance(value, dict):
        pairs = (
            f"{_literal(k, name, modules)}: {_literal(v, name, modules)}" for k, v in value.items()
        )
        return "{" + ", ".join(pairs) + "}"
    raise NotInlined(f"its statement uses {name}, which is no number, text or table of those")
