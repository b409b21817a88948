"""How an operator is called and what counts as its results: one answer for judge, lint and tests.

Results are listed as `Operator.oracle` lists them: what is returned, flattened, without those that
are mutated arguments themselves (``-> Tensor!``), then every mutated tensor in parameter order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelmark.operators.draws import Call, arguments_for_candidate, map_tensors
from kernelmark.operators.records import Case, Expected, Operator, parse_signature


def bind(
    operator: Operator, case: Case, args: Sequence[Any], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Arguments by parameter name, in the signature's order; omitted ones are left out."""
    positional = [p for p in operator.parameters(case.overload) if not p.keyword_only]
    if len(args) > len(positional):
        raise ValueError(f"{operator.id} {case.name}: {len(args)} positional arguments")
    bound = {p.name: value for p, value in zip(positional, args, strict=False)}
    known = {p.name for p in operator.parameters(case.overload)}
    unknown = set(kwargs) - known
    if unknown:
        raise ValueError(f"{operator.id} {case.name}: no parameter {sorted(unknown)}")
    return {**bound, **kwargs}


def mutable_tensors(operator: Operator, case: Case, call: Call) -> list[torch.Tensor]:
    """Tensors that the call may change, in parameter order, those behind pointers included."""
    bound = bind(operator, case, call.args, call.kwargs)
    found: list[torch.Tensor] = []
    for parameter in operator.parameters(case.overload):
        if parameter.mutable and parameter.name in bound:
            map_tensors(bound[parameter.name], found.append)
    return found


def return_types(signature: str) -> tuple[str, ...]:
    """Types after the arrow: ``()`` gives none, ``(Tensor, Tensor!)`` two."""
    text = signature[signature.rindex(") ->") + 4 :].strip()
    inside = text[1:-1] if text.startswith("(") else text
    return tuple(part.strip() for part in inside.split(",") if part.strip())


def returned_results(operator: Operator, case: Case, returned: Any) -> list[Any]:
    """What a call returned, flattened, without the positions that are mutated arguments.

    A None in an optional position (``Tensor?``) is left out. Raises ValueError where the number of
    returned values is not the signature's.
    """
    types = return_types(operator.signatures[case.overload])
    if not types:
        return []
    values = [returned] if len(types) == 1 else returned
    if not isinstance(values, tuple | list) or len(values) != len(types):
        raise ValueError(f"returns {_describe(returned)}, not {len(types)} values")
    flat: list[Any] = []
    for kind, value in zip(types, values, strict=True):
        if "!" in kind or (kind.endswith("?") and value is None):
            continue
        flat.extend(value if isinstance(value, tuple | list) else [value])
    return flat


def results_of(
    function: Callable[..., Any], operator: Operator, case: Case, call: Call
) -> list[Any]:
    """Calls `function` as a candidate is called, on a private copy of `call`; its results."""
    return results_in(function, operator, case, call.clone())


def results_in(
    function: Callable[..., Any], operator: Operator, case: Case, call: Call
) -> list[Any]:
    """Calls `function` as a candidate is called, on `call` itself; its results."""
    given = arguments_for_candidate(call)
    returned = function(*given.args, **given.kwargs)
    return [*returned_results(operator, case, returned), *mutable_tensors(operator, case, call)]


def expected_of(operator: Operator, call: Call) -> Sequence[Any]:
    """The oracle's results for a private copy of `call`."""
    private = call.clone()
    return operator.oracle(*private.args, **private.kwargs)


def must_differ(expected: Sequence[Any]) -> bool:
    """Whether two runs of a random operator on the same arguments can't agree by chance.

    For random operators the oracle's `scale` is each element's standard deviation; elements that
    vary this much in all agree with a probability below exp(-40).
    """
    total = 0.0
    for want in expected:
        if isinstance(want, Expected) and want.scale is not None and want.value.numel():
            spread = want.scale.square().clamp_max(0.25).expand(want.value.shape)
            total += float(spread.sum())
    return total >= 20


def baseline_name(operator: Operator, device: torch.device) -> str:
    """What the baseline is on `device`: its own answer (`name_on`) where it can differ."""
    name_on = getattr(operator.baseline, "name_on", None)
    return operator.baseline_name if name_on is None else str(name_on(device))


def accepts_arguments(operator: Operator, case: Case) -> None:
    """Raises ValueError if a case's arguments do not fit its signature."""
    bound = bind(operator, case, case.args, case.kwargs)
    for parameter in parse_signature(operator.signatures[case.overload]):
        if parameter.default is None and parameter.name not in bound:
            raise ValueError(f"{operator.id} {case.name}: {parameter.name!r} is missing")


def _describe(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, tuple | list) else type(value).__name__
