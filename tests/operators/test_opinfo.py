"""The oracles of ATen operators against PyTorch's own samples of inputs (OpInfo), float32 on CPU.

Every sample of every OpInfo is run, forward and backward, and the ATen calls that it comes down to
are caught on their way; those that one of our signatures takes are judged as a candidate's are.
Operators that PyTorch takes apart before a call can be caught (`reshape`, `matmul`) are called
with the samples of the OpInfo that bears their name. Operators that no sample reaches are listed,
exactly, so that nothing passes for want of samples.
"""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelmark.evaluators.grading.lint import judge_results
from kernelmark.operators import calling
from kernelmark.operators.draws import Call, map_tensors
from kernelmark.operators.records import Case, Operator, Parameter
from kernelmark.operators.registry import source_operators

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the samples are run once, in 100 s
OPERATORS = source_operators("aten")
#: calls of one operator that are judged, and samples of one OpInfo that are run
CALLS, SAMPLES = 60, 24
#: OpInfos that take long and come down to calls that others make too
COSTLY = ("linalg", "fft", "conv", "svd", "attention", "grid_sample", "jiterator", "sparse", "pool")
#: no float32 sample of PyTorch's reaches these
UNREACHED = {
    "aten::_index_put_impl_",  # below index_put_, within one kernel call
    "aten::affine_grid_generator",
    "aten::margin_ranking_loss",
    "aten::poisson",
    "aten::unsafe_split_with_sizes",
}
#: keywords that say what is so anyway, and that the oracles do not take
IMPLIED = {"layout", "pin_memory", "requires_grad"}

Caught = dict[str, list[tuple[int, Call]]]


class Catcher(TorchDispatchMode):
    """Keeps a copy of the arguments of every call that one of our signatures takes."""

    def __init__(self, caught: Caught) -> None:
        super().__init__()
        self.caught = caught

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        operator = OPERATORS.get(func._schema.name)
        overload = operator and _overload_named(operator, func._overloadname)
        if operator is None or overload is None or len(self.caught[operator.id]) >= CALLS:
            return func(*args, **given)
        found: Caught = defaultdict(list)
        _keep(found, operator, overload, args, given)  # before the call, which may change them
        result = func(*args, **given)
        self.caught[operator.id] += found[operator.id]  # after it: some samples are made to fail
        return result


def _overload_named(operator: Operator, name: str) -> int | None:
    start = f"{operator.name}.{name}(" if name != "default" else f"{operator.name}("
    matches = (i for i, text in enumerate(operator.signatures) if text.startswith(start))
    return next(matches, None)


def _keep(
    caught: Caught, operator: Operator, overload: int, args: tuple[Any, ...], kwargs: Any
) -> None:
    kept = {k: v for k, v in kwargs.items() if k not in IMPLIED and v is not None}
    tensors: list[torch.Tensor] = []
    map_tensors((args, kept), tensors.append)
    if tensors:
        kept.pop("device", None)
    if all(_plain(t) for t in tensors):
        copied = map_tensors((args, kept), lambda t: t.detach())
        caught[operator.id].append((overload, Call(*copied).clone()))


def _plain(tensor: torch.Tensor) -> bool:
    strided = tensor.layout == torch.strided and tensor.device.type == "cpu"
    return strided and not tensor.is_conj() and not tensor.is_neg() and type(tensor) in _PLAIN_TYPES


_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)


def _samples(info: Any) -> Iterator[Any]:
    differentiable = torch.float32 in info.supported_backward_dtypes("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from itertools.islice(
            info.sample_inputs("cpu", torch.float32, requires_grad=differentiable), SAMPLES
        )


def _run(function: Any, sample: Any, caught: Caught) -> None:
    """One sample, forward and backward; some samples are made to fail, which is not our matter."""
    arguments = (sample.input, *sample.args)
    try:
        with Catcher(caught):
            result = function(*arguments, **sample.kwargs)
            flat: list[torch.Tensor] = []
            map_tensors(result if isinstance(result, tuple | list) else [result], flat.append)
            outputs = [t.sum() for t in flat if t.requires_grad]
            leaves: list[torch.Tensor] = []
            map_tensors((list(arguments), sample.kwargs), leaves.append)
            inputs = [t for t in leaves if t.requires_grad]
            if outputs and inputs:
                torch.autograd.grad(outputs, inputs, allow_unused=True)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return


def _call_directly(info: Any, sample: Any, caught: Caught) -> None:
    """The sample as arguments of the operator of the same name, where a signature takes them."""
    name = (info.aten_name or info.name).split(".")[-1]
    operator = OPERATORS.get(f"aten::{name}")
    if operator is None or len(caught[operator.id]) >= CALLS:
        return
    args = map_tensors((sample.input, *sample.args), lambda t: t.detach())
    kwargs = {k: v for k, v in sample.kwargs.items() if k != "generator"}
    for overload in range(len(operator.signatures)):
        if _fits(operator.parameters(overload), args, kwargs) and _runs(operator, args, kwargs):
            _keep(caught, operator, overload, args, map_tensors(kwargs, lambda t: t.detach()))
            return


def _fits(parameters: tuple[Parameter, ...], args: tuple[Any, ...], kwargs: Any) -> bool:
    positional = [p for p in parameters if not p.keyword_only]
    known = {p.name: p for p in parameters}
    if len(args) > len(positional) or not set(kwargs) <= set(known):
        return False
    bound = {p.name: v for p, v in zip(positional, args, strict=False)} | dict(kwargs)
    if any(p.default is None and p.name not in bound for p in parameters):
        return False
    return all(_of_type(known[name], value) for name, value in bound.items())


def _of_type(parameter: Parameter, value: Any) -> bool:
    kind = parameter.type.replace("!", "")
    if value is None:
        return kind.endswith("?")
    kind = kind.rstrip("?")
    if "[" in kind:
        return isinstance(value, tuple | list)
    if kind == "Tensor":
        return isinstance(value, torch.Tensor)
    types: dict[str, Any] = {"Scalar": bool | int | float, "int": int, "float": float, "bool": bool}
    types |= {"ScalarType": torch.dtype, "MemoryFormat": torch.memory_format, "str": str}
    return kind in types and isinstance(value, types[kind])


def _runs(operator: Operator, args: tuple[Any, ...], kwargs: Any) -> bool:
    call = Call(args, dict(kwargs)).clone()
    try:
        operator.baseline(*call.args, **call.kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    return True


@pytest.fixture(scope="module")
def caught() -> Caught:
    torch.set_num_threads(1)
    invocations = pytest.importorskip("torch.testing._internal.common_methods_invocations")
    calls: Caught = defaultdict(list)
    for info in invocations.op_db:
        if torch.float32 not in info.supported_dtypes("cpu") or info.name.startswith(COSTLY):
            continue
        for sample in _samples(info):
            _call_directly(info, sample, calls)
            _run(info.op, sample, calls)
        if info.inplace_variant is not None:
            for sample in itertools.islice(info.sample_inputs("cpu", torch.float32), SAMPLES):
                _run(info.inplace_variant, sample, calls)
    return calls


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_the_oracle_agrees_on_pytorchs_samples(name: str, caught: Caught) -> None:
    operator, calls = OPERATORS[name], caught[name]
    assert bool(calls) != (name in UNREACHED), f"{len(calls)} samples reach {name}"
    faults = []
    for overload, call in calls:
        case = Case("opinfo", (), overload=overload)
        private = call.clone()
        expected = operator.oracle(*private.args, **private.kwargs)
        given = call.clone()
        results = calling.results_in(operator.baseline, operator, case, given)
        judged = given if operator.accepts is None else call
        fault = judge_results(operator, case, expected, results, judged)
        if fault:
            faults.append(f"{_described(call)}: {fault}")
    assert not faults, f"{len(faults)} of {len(calls)} samples: " + "; ".join(faults[:5])


def _described(call: Call) -> str:
    def text(t: torch.Tensor) -> str:
        return f"{t.dtype}{tuple(t.shape)}"

    return str(map_tensors((call.args, call.kwargs), text))


def test_enough_samples_are_judged(caught: Caught) -> None:
    assert sum(len(calls) for calls in caught.values()) > 2000
