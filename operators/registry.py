"""Finds operators and suites. A family file is found by being in its source's folder.

A family file defines `OPERATORS`, a sequence of `Operator`; nothing else is registered anywhere.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # names are looked up, chips too, before anybody needs torch
    from kernelmark.operators.records import Operator

SOURCES = ("aten", "vllm", "cublas")


#: so many names are all given where none is near
SHORT_LIST = 25


class UnknownName(LookupError):
    """A name that nothing has; the message offers the nearest known ones."""

    def __init__(self, what: str, name: str, known: list[str]) -> None:
        # Ids are compared with and without their source: `softmx` is near `aten::softmax`.
        short = {k.split("::")[-1].lower(): k for k in known}
        near = difflib.get_close_matches(name, known, 3, 0.5) or [
            short[k] for k in difflib.get_close_matches(name.lower(), short, 3, 0.5)
        ]
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        if not near and len(known) <= SHORT_LIST:
            hint = f"; there are {', '.join(sorted(known))}"
        super().__init__(f"unknown {what} {name!r}{hint}")


@cache
def source_operators(source: str) -> dict[str, Operator]:
    """Operators of one source by id, sorted. Imports that source's families only."""
    package = importlib.import_module(f"kernelmark.operators.{source}")
    found: dict[str, Operator] = {}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for operator in getattr(module, "OPERATORS", ()):
            if operator.id in found or operator.source != source:
                raise ValueError(f"{module.__name__}: {operator.id} is defined twice or misplaced")
            found[operator.id] = operator
    return dict(sorted(found.items()))


def all_operators() -> dict[str, Operator]:
    """Every operator by id, source by source."""
    return {id: op for source in SOURCES for id, op in source_operators(source).items()}


def get_operator(id: str) -> Operator:
    """The operator named `id` (``aten::softmax``). Raises `UnknownName`."""
    source = id.split("::")[0]
    if source in SOURCES and "::" in id:
        operators = source_operators(source)
        if id in operators:
            return operators[id]
    raise UnknownName("operator", id, list(all_operators()))
