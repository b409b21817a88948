"""Suites: named sets of operators, most of them by rule, so that a new operator joins by itself.

A suite's version is the digest of its members' definitions: results over different versions are
never ranked together.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import torch

from kernelmark.operators.records import Operator, Pointers
from kernelmark.operators.registry import (
    SOURCES,
    UnknownName,
    all_operators,
    get_operator,
    source_operators,
)

CORE_SIZE = 40

#: seconds each on the interpreter, all three sources, a reduction, a matrix product, a mutation
DEMO = (
    "aten::add",
    "aten::silu",
    "aten::softmax",
    "aten::sum",
    "aten::mm",
    "vllm::rms_norm",
    "vllm::reshape_and_cache",
    "cublas::cublasSaxpy_v2",
)

#: the operators that the first release was built on
FIRST = (
    "aten::add",
    "aten::mul",
    "aten::rsub",
    "aten::silu",
    "aten::rsqrt",
    "aten::softmax",
    "aten::sum",
    "aten::mean",
    "aten::argmax",
    "aten::cumsum",
    "aten::sort",
    "aten::embedding",
    "aten::gather",
    "aten::cat",
    "aten::mm",
    "aten::bmm",
    "vllm::rms_norm",
    "vllm::fused_add_rms_norm",
    "vllm::rotary_embedding",
    "vllm::reshape_and_cache",
    "cublas::cublasSgemm_v2",
    "cublas::cublasHgemmStridedBatched",
    "cublas::cublasSaxpy_v2",
    "cublas::cublasSdot_v2",
)

#: dtypes that every chip's Triton can load, store and compute with
_PORTABLE_DTYPES = frozenset(
    {torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.bool}
)


@dataclass(frozen=True)
class Suite:
    """A named set of operators, in a fixed order."""

    name: str
    description: str
    operators: tuple[Operator, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the members."""
        return tuple(operator.id for operator in self.operators)

    @property
    def digest(self) -> str:
        """sha256 over the members' ids and definitions, 64 hex digits: the suite's version."""
        members = sorted((operator.id, operator_digest(operator)) for operator in self.operators)
        return hashlib.sha256(json.dumps(members).encode()).hexdigest()


@cache
def operator_digest(operator: Operator) -> str:
    """sha256 over what a result depends on: signatures, cases, tolerance, what it is compared with.

    The oracle's code is not part of it: a corrected oracle is a new release, said in the changelog.
    """
    definition = [
        operator.id,
        operator.kind,
        operator.signatures,
        operator.baseline_name,
        repr(operator.tolerance),
        [repr(case) for case in operator.cases()],
    ]
    return hashlib.sha256(json.dumps(definition).encode()).hexdigest()


def suite_names() -> tuple[str, ...]:
    """Names of all suites."""
    return tuple(_SUITES)


def get_suite(name: str) -> Suite:
    """The suite `name`; a single operator's id is a suite of one. Raises `UnknownName`."""
    if "::" in name:
        return Suite(name, "one operator", (get_operator(name),))
    if name not in _SUITES:
        raise UnknownName("suite", name, list(_SUITES))
    description, members = _SUITES[name]
    return Suite(name, description, tuple(members()))


def _core() -> list[Operator]:
    """Families in turn, each giving its operators in the order of a hash, until there are 40."""
    families: dict[tuple[str, str], list[Operator]] = defaultdict(list)
    for operator in all_operators().values():
        if operator.kind == "compute":
            families[operator.source, operator.family].append(operator)
    for members in families.values():
        members.sort(key=lambda operator: hashlib.sha256(operator.id.encode()).digest())
    chosen: list[Operator] = []
    depth = 0
    while len(chosen) < CORE_SIZE and any(len(m) > depth for m in families.values()):
        chosen += [members[depth] for members in families.values() if len(members) > depth]
        depth += 1
    return sorted(chosen[:CORE_SIZE], key=_order)


def _portable() -> list[Operator]:
    """Compute operators of every vendor, in dtypes that every chip has, without address tables."""
    return [operator for operator in all_operators().values() if _is_portable(operator)]


def _is_portable(operator: Operator) -> bool:
    if operator.kind != "compute" or operator.chips:
        return False
    cases = operator.cases()
    if any(isinstance(arg, Pointers) for case in cases for arg in case.args):
        return False
    return all(set(case.dtypes) <= _PORTABLE_DTYPES for case in cases)


def _order(operator: Operator) -> tuple[int, str]:
    return SOURCES.index(operator.source), operator.id


def _named(ids: Iterable[str]) -> Callable[[], list[Operator]]:
    return lambda: [get_operator(id) for id in ids]


def _of_source(source: str) -> Callable[[], list[Operator]]:
    return lambda: list(source_operators(source).values())


_SUITES: dict[str, tuple[str, Callable[[], list[Operator]]]] = {
    "demo": ("a few operators of every source, minutes on a laptop", _named(DEMO)),
    "first": ("the 24 operators of the first release", _named(FIRST)),
    "core": (f"{CORE_SIZE} operators spread over all families", _core),
    "portable": ("operators that make sense on every chip, in dtypes that all have", _portable),
    "aten": ("every ATen operator", _of_source("aten")),
    "vllm": ("every vLLM operator", _of_source("vllm")),
    "cublas": ("every cuBLAS routine", _of_source("cublas")),
    "all": ("every operator", lambda: list(all_operators().values())),
}
