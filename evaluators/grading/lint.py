"""Finds what is wrong with an operator's definition: an oracle that cannot be trusted, a tolerance
that lets wrong kernels pass or keeps right ones out, cases that do not fit.

Runs on any device over small cases (`python -m kernelmark.evaluators.grading.lint ID ...`).
A definition is sound when the oracle, its second statement and the baseline agree within the
tolerance, and every mutant is told apart on at least one case.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kernelmark.evaluators.grading.compare import compare
from kernelmark.operators import calling
from kernelmark.operators.draws import FILLS, VARIATIONS, Call, copy_view, draw, map_tensors
from kernelmark.operators.records import EXACT, Alias, Case, Expected, Operator
from kernelmark.operators.registry import SOURCES, get_operator, source_operators

MIN_FULL_CASES = 6
MIN_MUTANTS = 4


def lint(operator: Operator, device: str = "cpu", seeds: Sequence[int] = (1, 2)) -> list[str]:
    """Everything wrong with `operator`, one line each; empty if it is sound."""
    problems = list(_form(operator))
    if problems:
        return problems
    cases = operator.tier("small")
    target = torch.device(device)
    told_apart: dict[str, bool] = {}
    for case in cases:
        for variation in dict.fromkeys(case.draws):
            for seed in seeds if variation == "base" else seeds[:1]:
                call = draw(operator, case, variation, _seed(case, seed), target)
                where = f"{operator.id} {case.name} [{variation}]"
                problems += [f"{where}: {text}" for text in _agreement(operator, case, call)]
                _try_mutants(operator, case, call, variation, told_apart)
    if len(told_apart) < MIN_MUTANTS and operator.kind == "compute":
        problems.append(f"{operator.id}: {len(told_apart)} mutants apply, {MIN_MUTANTS} needed")
    problems += [
        f"{operator.id}: mutant {name!r} cannot be told apart (dominated term or loose tolerance)"
        for name, seen in told_apart.items()
        if not seen
    ]
    return problems


def judge_results(
    operator: Operator,
    case: Case,
    expected: Sequence[Any],
    results: Sequence[Any],
    given: Call | None = None,
) -> str:
    """The first disagreement between results and the oracle's list, or an empty string.

    With `given`, the call that the results came from, their layout is judged too: required strides,
    and views of its arguments. Random operators judge for themselves (`Operator.accepts`).
    """
    if len(results) != len(expected):
        return f"{len(results)} results, the oracle has {len(expected)}"
    for i, (want, got) in enumerate(zip(expected, results, strict=True)):
        if isinstance(want, Expected):
            if not isinstance(got, torch.Tensor):
                return f"result {i} is {type(got).__name__}, not a tensor"
            if given is not None and want.strides is not None and not _laid_out(got, want.strides):
                return f"result {i}: strides {got.stride()}, expected {want.strides}"
            if operator.tolerance.kind == "distribution":
                if (got.shape, got.dtype) != (want.value.shape, want.dtype):
                    return f"result {i}: {got.dtype} of shape {tuple(got.shape)}"
                continue
            said = compare(want, got.to(want.value.device), operator.tolerance, case.name, "", i)
            if said.status != "passed":
                return said.detail or (
                    f"result {i} {said.worst_index}: {said.got}, expected {said.expected}, "
                    f"error {said.max_error:.3g} over limit {said.limit:.3g}"
                )
        elif isinstance(want, Alias):
            fault = _wrong_view(want, got, given)
            if fault:
                return f"result {i}: {fault}"
        elif not _same_scalar(want, got):
            return f"result {i} is {got!r}, expected {want!r}"
    if operator.accepts is not None and given is not None:
        return operator.accepts(case, given.args, list(results))
    return ""


def _wrong_view(want: Alias, got: torch.Tensor, given: Call | None) -> str:
    """How `got` differs from the view that it should be; which memory it is in, where known."""
    if tuple(got.shape) != want.shape or not _laid_out(got, want.strides):
        return f"shape {tuple(got.shape)} strides {got.stride()}"
    if got.storage_offset() != want.offset:
        return f"offset {got.storage_offset()}, expected {want.offset}"
    if given is None or 0 in want.shape:
        return ""
    found: list[torch.Tensor] = []
    map_tensors(given.args[want.argument], found.append)
    same = got.untyped_storage().data_ptr() == found[0].untyped_storage().data_ptr()
    return "" if same else "not a view of its argument"


def _laid_out(tensor: torch.Tensor, strides: tuple[int, ...]) -> bool:
    """Equal strides where they matter: not in dimensions of size 1, nor in an empty tensor."""
    triples = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return 0 in tensor.shape or all(a == b for n, a, b in triples if n != 1)


def _form(operator: Operator) -> Iterator[str]:
    """Faults that need no computation."""
    for name in ("family", "description", "baseline_name"):
        if not getattr(operator, name):
            yield f"{operator.id}: {name} is empty"
    if not operator.sources:
        yield f"{operator.id}: no source is named"
    if not operator.tolerance.why:
        yield f"{operator.id}: the tolerance does not say how it was calibrated"
    names = [case.name for case in operator.cases()]
    if len(set(names)) != len(names):
        yield f"{operator.id}: case names repeat"
    full = len(operator.tier("full"))
    untimed = not full and "no full case" in operator.note
    if operator.kind == "compute" and full < MIN_FULL_CASES and not untimed:
        yield f"{operator.id}: fewer than {MIN_FULL_CASES} full cases, and no note says why"
    if not operator.tier("small"):
        yield f"{operator.id}: no small case"
    for case in operator.cases():
        yield from _case_form(operator, case)


def _case_form(operator: Operator, case: Case) -> Iterator[str]:
    where = f"{operator.id} {case.name}"
    try:
        calling.accepts_arguments(operator, case)
    except ValueError as error:
        yield str(error)
    if case.tier == "full" and not case.origin:
        yield f"{where}: does not say which model its shapes come from"
    for spec in case.tensors:
        if spec.fill not in FILLS:
            yield f"{where}: unknown fill {spec.fill!r}"
    for variation in case.draws:
        if variation not in VARIATIONS:
            yield f"{where}: unknown draw {variation!r}"
    if operator.cost(case).nbytes < 0 or operator.cost(case).flops < 0:
        yield f"{where}: negative cost"


def _agreement(operator: Operator, case: Case, call: Call) -> Iterator[str]:
    """Disagreements between oracle, second statement and baseline; moved inputs."""
    before = call.clone()
    expected = calling.expected_of(operator, call)
    if draw_bytes(call) != draw_bytes(before):
        yield "the oracle changed the judge's inputs"
    fed = all(tensor.numel() for tensor in call.tensors())  # the mean of nothing may be NaN
    for i, want in enumerate(expected):
        numbers = isinstance(want, Expected) and want.value.numel() > 0
        if fed and numbers and bool(want.value.isnan().all()):
            yield f"result {i} of the oracle is all NaN"
    if operator.tolerance.kind != "distribution":
        private = _on_cpu(call)
        second = operator.second(*private.args, **private.kwargs)
        values = _as_values(expected, call)
        fault = judge_results(operator, case, values, _cast(second, values))
        if fault:
            yield f"oracle and second statement differ: {fault}"
    fault = baseline_fault(operator, case, call, expected)
    if fault:
        yield f"the baseline does not pass (wrong oracle or unreachable tolerance): {fault}"


def baseline_fault(
    operator: Operator, case: Case, call: Call, expected: Sequence[Any] | None = None
) -> str:
    """Why the baseline's answer to `call` is refused, or an empty string.

    `expected` is the oracle's answer, where it has been asked already.
    """
    expected = calling.expected_of(operator, call) if expected is None else expected
    fault = _refusal(operator.baseline, operator, case, call, expected)
    if not fault and _repeats(operator.baseline, operator, case, call, expected):
        return "the same random numbers in every call"
    return fault


def _refusal(
    function: Callable[..., Any],
    operator: Operator,
    case: Case,
    call: Call,
    expected: Sequence[Any],
) -> str:
    """Why what `function` gives for a private copy of `call` is refused, or an empty string."""
    given = call.clone()
    results = calling.results_in(function, operator, case, given)
    # Views are judged against the memory that was given; `accepts` gets what went in, as drawn.
    pristine = given if operator.accepts is None else call
    return judge_results(operator, case, expected, results, pristine)


def _on_cpu(call: Call) -> Call:
    """A private copy of `call` for a second statement: storages whole, devices named the CPU."""
    cpu = torch.device("cpu")
    args, kwargs = map_tensors((call.args, call.kwargs), lambda t: copy_view(t, cpu))
    named = {k: cpu if isinstance(v, torch.device) else v for k, v in kwargs.items()}
    return Call(tuple(cpu if isinstance(a, torch.device) else a for a in args), named)


def _try_mutants(
    operator: Operator, case: Case, call: Call, variation: str, told_apart: dict[str, bool]
) -> None:
    """Records for every mutant that applies to this call whether the comparison refused it."""
    expected = calling.expected_of(operator, call)
    right = calling.results_of(operator.baseline, operator, case, call)
    untouched = calling.mutable_tensors(operator, case, call)
    for mutant in operator.mutants:
        if told_apart.get(mutant.name):
            continue
        fault = _refusal(mutant.function, operator, case, call, expected)
        told_apart[mutant.name] = bool(
            fault or _repeats(mutant.function, operator, case, call, expected)
        )
    random = operator.tolerance.kind == "distribution"
    values = expected if random else _as_values(expected, call)
    if all(isinstance(want, Expected) and _undefined(want) for want in values):
        return
    for name, transform in GENERIC_MUTANTS.items():
        results = transform(right, untouched)
        if told_apart.get(name) or _identical(right, results) or (random and name in _STILL_RANDOM):
            continue
        fault = judge_results(operator, case, values, results, call if random else None)
        told_apart[name] = bool(fault)


Transform = Callable[[list[Any], list[torch.Tensor]], list[Any]]


def _each(change: Callable[[torch.Tensor], torch.Tensor]) -> Transform:
    def transform(right: list[Any], untouched: list[torch.Tensor]) -> list[Any]:
        return [change(r) if isinstance(r, torch.Tensor) else r for r in right]

    return transform


def _zero_work(right: list[Any], untouched: list[torch.Tensor]) -> list[Any]:
    """Nothing is written: mutated arguments keep their values, fresh outputs hold poison."""
    fresh = len(right) - len(untouched)
    poisoned = [_poison(r) if isinstance(r, torch.Tensor) else None for r in right[:fresh]]
    return [*poisoned, *untouched]


def _poison(tensor: torch.Tensor) -> torch.Tensor:
    flat = torch.full((tensor.numel() * tensor.dtype.itemsize,), 0xA5, dtype=torch.uint8)
    if tensor.dtype == torch.bool:
        return ~tensor
    return flat.to(tensor.device).view(tensor.dtype).view(tensor.shape)


def _tail_unwritten(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1).clone()
    keep = flat.numel() - max(1, flat.numel() // 8) if flat.numel() else 0
    flat[keep:] = _poison(flat[keep:])
    return flat.view(tensor.shape)


def _rolled(tensor: torch.Tensor) -> torch.Tensor:
    raw = tensor.reshape(-1).contiguous().view(torch.uint8)  # not every dtype can be rolled
    return raw.roll(tensor.dtype.itemsize).view(tensor.dtype).view(tensor.shape)


def _lower_precision(tensor: torch.Tensor) -> torch.Tensor:
    """Rounded to the significand of the next precision down (TF32 and bfloat16 style)."""
    lower = {torch.float64: torch.float32, torch.float32: torch.float16}
    if tensor.dtype in lower:
        return tensor.to(lower[tensor.dtype]).to(tensor.dtype)
    if tensor.dtype == torch.complex128:
        return tensor.to(torch.complex64).to(tensor.dtype)
    if tensor.dtype == torch.complex64:
        parts = torch.view_as_real(tensor).half().float()
        return torch.view_as_complex(parts.contiguous())
    if tensor.dtype in (torch.float16, torch.bfloat16):
        drop = 3  # significand bits fewer: float16 -> bfloat16, bfloat16 -> float8_e4m3 width
        fraction, exponent = torch.frexp(tensor.float())
        bits = (11 if tensor.dtype == torch.float16 else 8) - drop
        rounded = torch.ldexp((fraction * 2**bits).round() / 2**bits, exponent)
        return torch.where(tensor.isfinite(), rounded.to(tensor.dtype), tensor)
    return tensor


#: wrong implementations that need no knowledge of the operator
GENERIC_MUTANTS: dict[str, Transform] = {
    "zeros": _each(torch.zeros_like),
    "constant": _each(lambda t: torch.ones_like(t) if t.dtype != torch.bool else ~t),
    "zero work": _zero_work,
    "tail unwritten": _each(_tail_unwritten),
    "shifted by one": _each(_rolled),
    "one precision lower": _each(_lower_precision),
}
#: those that leave a random result as random as it was
_STILL_RANDOM = {"shifted by one", "one precision lower"}


def draw_bytes(call: Call) -> list[bytes]:
    """Bytes of every tensor of a call."""
    return [
        t.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        for t in call.tensors()
    ]


def _identical(left: list[Any], right: list[Any]) -> bool:
    return all(
        a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
        else a == b
        for a, b in zip(left, right, strict=True)
    )


def _repeats(
    function: Callable[..., Any],
    operator: Operator,
    case: Case,
    call: Call,
    expected: Sequence[Any],
) -> bool:
    """Whether a random operator's function gives the same numbers again, where it can't."""
    if operator.kind != "random" or not calling.must_differ(expected):
        return False
    first, second = (calling.results_of(function, operator, case, call) for _ in range(2))
    return _identical(first, second)


def _undefined(want: Expected) -> bool:
    """Whether nothing of a result is compared (memory that is only allocated)."""
    return want.mask is not None and not bool(want.mask.any())


def _as_values(expected: Sequence[Any], call: Call) -> list[Any]:
    """The same expectations with every view replaced by the values that it shows."""

    def seen(want: Any) -> Any:
        if not isinstance(want, Alias):
            return want
        found: list[torch.Tensor] = []
        map_tensors(call.args[want.argument], found.append)
        view = found[0].as_strided(want.shape, want.strides, want.offset)
        return Expected(view, view.dtype, tolerance=EXACT)

    return [seen(want) for want in expected]


def _cast(values: Sequence[Any], expected: Sequence[Any]) -> list[Any]:
    """Second statements come in any precision; they are compared in the output's dtype."""
    return [
        torch.as_tensor(v).to(e.dtype) if isinstance(e, Expected) else v
        for v, e in zip(values, expected, strict=False)
    ]


def _same_scalar(want: Any, got: Any) -> bool:
    return type(want) is type(got) and (want == got or (want != want and got != got))


def _seed(case: Case, seed: int) -> int:
    return zlib.crc32(case.name.encode()) * 1000 + seed


def main(argv: Sequence[str] | None = None) -> int:
    """Lints the named operators (``aten::softmax``), sources (``aten``), or everything."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help="operator ids or sources; default: all")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(argv)
    operators: list[Operator] = []
    for name in options.names or SOURCES:
        operators += source_operators(name).values() if name in SOURCES else [get_operator(name)]
    faults = 0
    for operator in operators:
        try:
            problems = lint(operator, options.device)
        except Exception as error:  # a definition that breaks is told like one that is wrong
            problems = [f"{type(error).__name__}: {error}"]
        faults += bool(problems)
        print(f"{operator.id}: {'sound' if not problems else ''}", flush=True)
        for problem in problems:
            print(f"  {problem}", flush=True)
    print(f"{len(operators) - faults} sound, {faults} faulty")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
