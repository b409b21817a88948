"""Suites: named sets of operators, most of them by rule, so that a new operator joins by itself.

A suite's version is the digest of its members' definitions: results over different versions are
never ranked together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from kernelmark.operators.records import Case, Operator, Tolerance
from kernelmark.operators.registry import (
    UnknownName,
    all_operators,
    get_operator,
    source_operators,
)

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

#: A fast, representative run. 40 operators in the proportion of the sources (110 : 50 : 50 gives
#: 21, 10 and 9); within a source, every large family is there, first the operator that models call
#: most, then one that is hard in another way (latency, irregular access, matrix units, precision).
CORE = (
    # pointwise, backward, loss, casts
    "aten::add",
    "aten::mul",
    "aten::div",
    "aten::silu",
    "aten::mish_backward",
    "aten::binary_cross_entropy_with_logits",
    "aten::_to_copy",
    # reductions, normalisation, scans
    "aten::sum",
    "aten::mean",
    "aten::argmax",
    "aten::softmax",
    "aten::cumsum",
    "aten::sort",
    # irregular access and layout
    "aten::embedding",
    "aten::gather",
    "aten::index_put_",
    "aten::masked_fill_",
    "aten::cat",
    "aten::upsample_nearest2d_backward",
    # matrix products
    "aten::mm",
    "aten::bmm",
    # norms, positions, caches, attention, routing, quantisation
    "vllm::rms_norm",
    "vllm::fused_add_rms_norm",
    "vllm::rotary_embedding",
    "vllm::reshape_and_cache",
    "vllm::paged_attention_v1",
    "vllm::merge_attn_states",
    "vllm::moe_align_block_size",
    "vllm::topk_softmax",
    "vllm::scaled_fp8_quant",
    "vllm::awq_gemm",
    # levels 1, 2, 3, extensions; half, single, double, complex; strided and pointer batches
    "cublas::cublasSaxpy_v2",
    "cublas::cublasSdot_v2",
    "cublas::cublasDgemv_v2",
    "cublas::cublasCgemvBatched_64",
    "cublas::cublasSger_v2",
    "cublas::cublasSgeam",
    "cublas::cublasSgemm_v2",
    "cublas::cublasHgemmStridedBatched",
    "cublas::cublasSsyrk_v2",
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

    @cached_property
    def digest(self) -> str:
        """sha256 over the members' ids and definitions, 64 hex digits: the suite's version."""
        return suite_digest({operator.id: operator_digest(operator) for operator in self.operators})


def suite_digest(members: Mapping[str, str]) -> str:
    """The digest of a suite from those of its members' definitions, by operator id."""
    return hashlib.sha256(json.dumps(sorted(members.items())).encode()).hexdigest()


@cache
def operator_digest(operator: Operator) -> str:
    """sha256 over what a result depends on: signatures, cases, tolerance, what it is compared with.

    The oracle's code is not part of it: a corrected oracle is a new release, said in the changelog.
    """
    return definition_digest(
        operator.id,
        operator.kind,
        operator.signatures,
        operator.baseline_name,
        operator.tolerance,
        operator.cases(),
    )


def definition_digest(
    id: str,
    kind: str,
    signatures: Iterable[str],
    baseline_name: str,
    tolerance: Tolerance,
    cases: Iterable[Case],
) -> str:
    """`operator_digest` of an operator of which these are known, as of a published one."""
    definition = [
        id,
        kind,
        list(signatures),
        baseline_name,
        repr(tolerance),
        [repr(case) for case in cases],
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


def _portable() -> list[Operator]:
    """What needs no NVIDIA: ATen, and vLLM's operators that name no vendor."""
    operators = (*source_operators("aten").values(), *source_operators("vllm").values())
    return [operator for operator in operators if not operator.chips]


def _named(ids: Iterable[str]) -> Callable[[], list[Operator]]:
    return lambda: [get_operator(id) for id in ids]


def _of_source(source: str) -> Callable[[], list[Operator]]:
    return lambda: list(source_operators(source).values())


_SUITES: dict[str, tuple[str, Callable[[], list[Operator]]]] = {
    "demo": ("a few operators of every source, minutes on a laptop", _named(DEMO)),
    "first": ("the 24 operators of the first release", _named(FIRST)),
    "core": (f"{len(CORE)} operators, representative of all", _named(CORE)),
    "portable": ("ATen, and the vLLM operators that run on every vendor's chips", _portable),
    "aten": ("every ATen operator", _of_source("aten")),
    "vllm": ("every vLLM operator", _of_source("vllm")),
    "cublas": ("every cuBLAS routine", _of_source("cublas")),
    "all": ("every operator", lambda: list(all_operators().values())),
}
