"""What a method is told about an operator: one text for models, agents and people.

The track says who is asked: a `model` answers with the file, an `agent` writes it in a workspace.
Small cases beyond those that are told stay hidden: `told_cases` is the one list of what is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import torch

from kernelmark.operators.records import (
    Case,
    OnDevice,
    Operator,
    Parameter,
    Pointers,
    TensorSpec,
    Tolerance,
    contiguous_strides,
)
from kernelmark.operators.registry import UnknownName

Track = Literal["model", "agent"]

#: full-tier cases are what is timed, so all are told; of the small ones so many
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


#: how values of a type in a signature come, for types that do not say it themselves
_TYPES = {
    "Scalar": "Scalar is a Python number",
    "ScalarType": "ScalarType is a torch.dtype",
    "Device": "Device is a torch.device",
    "Layout": "Layout is a torch.layout",
    "MemoryFormat": "MemoryFormat is a torch.memory_format",
    "Generator": "Generator is a torch.Generator, or None",
    "int[]": "int[] is a tuple of ints",
    "Tensor[]": "Tensor[] is a tuple of tensors",
}

#: what a tensor holds, where it is not normal random numbers
_FILLS = {
    "wide": "normal times 10^-3 to 10^3",
    "bits": "random bytes",
    "permutation": "a permutation along the last dimension",
    "zeros": "zeros",
    "ones": "ones",
    "nan": "NaN: memory that must not be read",
}


@dataclass(frozen=True)
class Setting:
    """Where a candidate is to run, what it is to be written in, and who is asked."""

    chip: str
    chip_notes: str
    language: str
    template: str
    track: Track = "model"


def build_prompt(operator: Operator, setting: Setting) -> str:
    """The task as a text: what to write, for which calls, how it is judged, how to hand it in."""
    sections = [
        f"# Write {operator.id} in {setting.language} for {setting.chip}",
        operator.description.strip(),
        f"Note: {operator.note.strip()}" if operator.note else "",
        _titled("Signature", _signature(operator)),
        _titled("Called with", _calls(operator)),
        _titled("Judged by", _judgement(operator)),
        _titled(f"The chip: {setting.chip}", setting.chip_notes.strip()),
        _titled(f"The language: {setting.language}", setting.template.strip()),
        _titled("Hand in", _hand_in(operator, setting.track)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def track_named(name: str) -> Track:
    """The track called `name`. Raises `UnknownName`."""
    if name not in get_args(Track):
        raise UnknownName("track", name, list(get_args(Track)))
    return cast(Track, name)


def told_cases(operator: Operator) -> list[Case]:
    """The cases that a method is told: all full-tier ones, and of the small ones so many that
    every overload is among them."""
    small = operator.tier("small")
    firsts = list({case.overload: case for case in reversed(small)}.values())
    rest = [case for case in small if case not in firsts]
    chosen = [*firsts, *rest][: max(SMALL_CASES_TOLD, len(firsts))]
    return [case for case in operator.cases() if case.tier == "full" or case in chosen]


def case_lines(operator: Operator) -> list[str]:
    """One line a case that is told, and how many are not."""
    told = told_cases(operator)
    small = [case for case in told if case.tier == "small"]
    lines = [f"- {describe_case(operator, case)}" for case in small]
    hidden = len(operator.tier("small")) - len(small)
    if hidden:
        lines.append(f"- and {hidden} more small calls of the same kinds, not shown")
    full = [case for case in told if case.tier == "full"]
    return lines + [f"- timed: {describe_case(operator, case)}" for case in full]


def _signature(operator: Operator) -> str:
    lines = [f"    {line}" for line in operator.signatures]
    return "\n".join([*lines, "", *_conventions(operator)])


def _conventions(operator: Operator) -> list[str]:
    """How the function is called: in Python, by overload, what comes and what goes back."""
    overloads = [operator.parameters(i) for i in range(len(operator.signatures))]
    one = "" if len(overloads) == 1 else ", one function for all overloads"
    lines = [f"Called as Python{one}:", "", f"    {_definition(operator.name, overloads)}", ""]
    types = {p.type for parameters in overloads for p in parameters}
    known = [text for name, text in _TYPES.items() if any(_is(name, type) for type in types)]
    if known:
        lines.append(f"{'; '.join(known)}. A type with `?` may be None.")
    results = [signature.rpartition("-> ")[2] for signature in operator.signatures]
    if any(p.mutable for parameters in overloads for p in parameters):
        returned = any("!" in result for result in results)
        back = "; it is itself what is returned where the signature says so" if returned else ""
        lines.append(f"A parameter with `!` is written in place{back}.")
    if "()" in results:
        lines.append("`-> ()` returns None.")
    if any("Tensor" in result.replace("Tensor!", "") for result in results):
        kind = "views of the arguments" if operator.kind == "metadata" else "new tensors"
        lines.append(f"Other results are {kind}, on the arguments' device.")
    return lines


def _is(name: str, type: str) -> bool:
    plain = type.replace("!", "").replace("?", "")
    return plain.startswith(name) if name.endswith("[]") else plain.removesuffix("[]") == name


def _definition(name: str, overloads: list[tuple[Parameter, ...]]) -> str:
    """One ``def`` that takes every overload's calls, where there is one."""
    merged: dict[str, Parameter] = {}
    for parameters in overloads:
        positional = [p.name for p in parameters if not p.keyword_only]
        known = [p.name for p in merged.values() if not p.keyword_only]
        if any(a != b for a, b in zip(positional, known, strict=False)):
            return f"def {name}(*args, **kwargs):  # positional arguments differ by overload"
        for p in parameters:
            if p.name not in merged or (merged[p.name].keyword_only and not p.keyword_only):
                merged[p.name] = p
    everywhere = set.intersection(*({p.name for p in parameters} for parameters in overloads))
    texts = [_parameter(p, p.name in everywhere) for p in merged.values() if not p.keyword_only]
    keywords = [_parameter(p, p.name in everywhere) for p in merged.values() if p.keyword_only]
    return f"def {name}({', '.join([*texts, *(['*'] if keywords else []), *keywords])}):"


def _parameter(parameter: Parameter, always: bool) -> str:
    default = parameter.default if parameter.default is not None or always else "None"
    return parameter.name if default is None else f"{parameter.name}={default}"


def _calls(operator: Operator) -> str:
    lines = case_lines(operator)
    return "\n".join(
        [
            "Tensors as dtype[shape], contiguous where no strides are given; normal random values "
            "where no others are named. Nothing may be assumed beyond the description: any shape "
            "that it allows can come.",
            "",
            *lines,
        ]
    )


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
        return f"addresses of {value.count} x {describe_argument(value.member)}"
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
        steps = "one step" if tolerance.limit == 1 else f"up to {tolerance.limit:g} steps"
        return f"quantised codes must be equal; {share} of them may be {steps} off"
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
    return text + _contents(spec)


def _contents(spec: TensorSpec) -> str:
    if spec.fill == "integers":
        return f" in [{spec.low:g}, {spec.high:g})"
    if spec.fill == "uniform" and (spec.low, spec.high) != (0.0, 1.0):
        return f" in [{spec.low:g}, {spec.high:g})"
    if spec.fill == "uniform":
        return " in [0, 1)"
    return f" ({_FILLS[spec.fill]})" if spec.fill in _FILLS else ""


def _judgement(operator: Operator) -> str:
    overloads = (operator.parameters(i) for i in range(len(operator.signatures)))
    mutated = dict.fromkeys(p.name for overload in overloads for p in overload if p.mutable)
    changes = f"Only {', '.join(mutated)} may be written to" if mutated else "No argument may be"
    values = (
        f"Values: {describe_tolerance(operator.tolerance)}. Every call is drawn several times: as "
        "declared, scaled by 1e-3 and by 64, structured; some calls come twice, some in the very "
        "memory of the call before. Results are compared whole: shape, dtype, every element. "
        f"{changes}{'' if mutated else ' written to'}."
    )
    if operator.kind == "metadata":
        return f"{values}\n\nNothing is computed, so no kernel is asked for and nothing is timed."
    return (
        f"{values} With the kernels switched off the answer must be wrong.\n\n"
        f"Speed: device time of the timed calls, caches cold, against {operator.baseline_name}; "
        "what counts is the geometric mean of the speedups, and only when every call is right."
    )


def _hand_in(operator: Operator, track: Track) -> str:
    kernels = (
        "It makes views with tensor methods and needs no kernel."
        if operator.kind == "metadata"
        else "Everything that is computed must be computed by kernels in this file: calling a "
        "vendor's or framework's routine for it is refused."
    )
    file = (
        f"One self-contained file that defines `{operator.name}` at its top level, called as said "
        f"above, whichever overload. {kernels}"
    )
    if track == "agent":
        return file
    return f"{file} Reply with one fenced code block that holds the whole file, nothing left out."


def _titled(title: str, text: str) -> str:
    return f"## {title}\n\n{text}" if text else ""
