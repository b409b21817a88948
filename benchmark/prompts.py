"""What a method is told about an operator: one text for models, agents and people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from kernelmark.operators.records import (
    Case,
    OnDevice,
    Operator,
    Pointers,
    TensorSpec,
    Tolerance,
    contiguous_strides,
)

#: full-tier cases are what is timed, so all are told; of the small ones a few of each overload
SMALL_CASES_TOLD = 12

_SHORT = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.bool: "bool",
}


@dataclass(frozen=True)
class Setting:
    """Where a candidate is to run and what it is to be written in."""

    chip: str
    chip_notes: str
    language: str
    template: str


def build_prompt(operator: Operator, setting: Setting) -> str:
    """The task as a text: what to write, for which calls, how it is judged, how to hand it in."""
    sections = [
        f"# Write {operator.id} in {setting.language} for {setting.chip}",
        operator.description.strip(),
        _titled("Signature", "\n".join(f"    {line}" for line in operator.signatures)),
        _titled("Called with", "\n".join(case_lines(operator))),
        _titled("Judged by", _judgement(operator)),
        _titled(f"The chip: {setting.chip}", setting.chip_notes.strip()),
        _titled(f"The language: {setting.language}", setting.template.strip()),
        _titled("Hand in", _hand_in(operator)),
    ]
    if operator.note:
        sections.insert(2, f"Note: {operator.note.strip()}")
    return "\n\n".join(section for section in sections if section) + "\n"


def case_lines(operator: Operator) -> list[str]:
    """One line a case that is told: every full-tier one, the first few small ones."""
    small, full = operator.tier("small"), operator.tier("full")
    told = small[:SMALL_CASES_TOLD]
    lines = [f"- {describe_case(operator, case)}" for case in told]
    if len(small) > len(told):
        lines.append(f"- and {len(small) - len(told)} more small calls of the same kinds")
    lines += [f"- timed: {describe_case(operator, case)}" for case in full]
    return lines


def describe_case(operator: Operator, case: Case) -> str:
    """One call as text: ``self=f16[4096, 4096], dim=-1``."""
    positional = [p.name for p in operator.parameters(case.overload) if not p.keyword_only]
    named = [*zip(positional, case.args, strict=False), *case.kwargs.items()]
    text = ", ".join(f"{name}={describe_argument(value)}" for name, value in named)
    return f"{text} ({case.origin})" if case.origin else text


def describe_argument(value: Any) -> str:
    """An argument as text: dtype and shape of tensors, strides where they are not contiguous."""
    if isinstance(value, TensorSpec):
        return _describe_tensor(value)
    if isinstance(value, Pointers):
        inner = describe_argument(value.tensors[0]) if value.tensors else "nothing"
        return f"addresses of {len(value.tensors)} x {inner}"
    if isinstance(value, OnDevice):
        return "the device"
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(describe_argument(item) for item in value)}]"
    return repr(value)


def dtype_name(dtype: torch.dtype) -> str:
    """Short name of a dtype: ``f32``, ``bf16``, ``int64``."""
    return _SHORT.get(dtype, str(dtype).removeprefix("torch."))


def dtype_names(cases: Iterable[Case]) -> list[str]:
    """Short names of the dtypes that the cases' tensors have, in order of appearance."""
    return list(dict.fromkeys(dtype_name(dtype) for case in cases for dtype in case.dtypes))


def describe_tolerance(tolerance: Tolerance) -> str:
    """How close a result must be, in a sentence."""
    if tolerance.kind == "exact":
        return "results must be equal bit for bit"
    if tolerance.kind == "distribution":
        return "results must follow the distribution"
    if tolerance.kind == "codes":
        share = f"{tolerance.max_mismatch:.2%}" if tolerance.max_mismatch else "none"
        return f"quantised codes must be equal; {share} of them may be one step off"
    accumulator = tolerance.accumulator or "the output dtype"
    return (
        f"each element within {tolerance.limit:g} units of rounding of a float64 oracle "
        f"(accumulate in {str(accumulator).removeprefix('torch.')})"
    )


def _describe_tensor(spec: TensorSpec) -> str:
    text = f"{dtype_name(spec.dtype)}{list(spec.shape)}"
    if spec.strides is not None and spec.strides != contiguous_strides(spec.shape):
        text += f" strides {list(spec.strides)}"
    if spec.offset:
        text += f" at element {spec.offset}"
    return text


def _judgement(operator: Operator) -> str:
    mutated = [p.name for p in operator.parameters(0) if p.mutable]
    changes = f"Only {', '.join(mutated)} may be written to" if mutated else "No argument may be"
    return (
        f"Values: {describe_tolerance(operator.tolerance)}, on fresh random inputs of several "
        f"scales. {changes}{'' if mutated else ' written to'}. Speed: device time of the timed "
        f"calls with a cold cache, against {operator.baseline_name}."
    )


def _hand_in(operator: Operator) -> str:
    return (
        f"One self-contained file that defines `{operator.name}`, called with the arguments of the "
        "signature, whichever overload. Everything that is computed must be computed by kernels in "
        "this file: calling a vendor's or framework's routine for it is refused. Reply with one "
        "fenced code block that holds the whole file."
    )


def _titled(title: str, text: str) -> str:
    return f"## {title}\n\n{text}" if text else ""
