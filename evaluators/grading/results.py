"""Judges what one call did: inputs untouched, results of the right form, values within tolerance.

Form is judged from the runner's description; every value from the judge's own copy of the bytes.
Device layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelmark.evaluators.grading.arena import storage_bytes
from kernelmark.evaluators.grading.compare import compare
from kernelmark.evaluators.grading.records import Comparison, Status
from kernelmark.evaluators.grading.session import Got, Outcome
from kernelmark.evaluators.grading.wire import Foreign, Returned
from kernelmark.operators import calling
from kernelmark.operators.draws import Call, map_tensors
from kernelmark.operators.records import Alias, Case, Expected, Operator


class Question:
    """A call that was drawn, and its right answer. Both stay with the judge."""

    def __init__(self, operator: Operator, case: Case, draw: str, call: Call) -> None:
        self.operator = operator
        self.case = case
        self.draw = draw
        self.call = call
        self.device = next((t.device.type for t in call.tensors()), "")  #: "" where none is given
        self.expected = calling.expected_of(operator, call)
        self._mutable = {id(t) for t in calling.mutable_tensors(operator, case, call)}

    def mutable(self) -> list[bool]:
        """For every tensor of the call, whether the operator may write to it."""
        return [id(tensor) in self._mutable for tensor in self.call.tensors()]

    def judge(self, outcome: Outcome) -> list[Comparison]:
        """One comparison a result; where something else is wrong, that alone."""
        for problem in (self._inputs_changed(outcome), self._wrong_return(outcome)):
            if problem is not None:
                return [problem]
        results = self._results(outcome)
        if len(results) != len(self.expected):
            text = f"{len(results)} results, expected {len(self.expected)}"
            return [self._problem("wrong_shape", text)]
        comparisons = [
            self._judge_result(number, want, got)
            for number, (want, got) in enumerate(zip(self.expected, results, strict=True))
        ]
        if self.operator.accepts is not None and all(c.status == "passed" for c in comparisons):
            comparisons.append(self._accepted(results))
        return comparisons

    def must_differ(self) -> bool:
        """Whether two right answers to this question can't be the same by chance."""
        return self.operator.kind == "random" and calling.must_differ(self.expected)

    def informative(self) -> list[int]:
        """Numbers of the results that only a computation gives (`silence`)."""
        return [number for number, why in self.silence().items() if not why]

    def silence(self) -> dict[int, str]:
        """For each tensor that is a result, why its values could be right with nothing computed:
        one of ``empty``, ``undefined``, ``constant``, ``a plain number``, ``a copy of an input``;
        an empty string where they could not."""
        inputs = [t.reshape(-1) for t in self.call.tensors()]
        given = (*self.case.args, *self.case.kwargs.values())
        numbers = [value for value in given if isinstance(value, int | float | complex)]
        return {
            number: _silence(want, inputs, numbers)
            for number, want in enumerate(self.expected)
            if isinstance(want, Expected)
        }

    def _inputs_changed(self, outcome: Outcome) -> Comparison | None:
        if not outcome.intact:
            text = "the layout of an input, or a table of pointers, was changed"
            return self._problem("mutated_input", text)
        tensors = self.call.tensors()
        for i in _differing([storage_bytes(t) for t in tensors], outcome.bytes_after):
            before, after = tensors[i], outcome.bytes_after[i]
            pristine = storage_bytes(before)
            if not self.mutable()[i]:
                return self._problem("mutated_input", f"input tensor {i} was written to")
            outside = ~_own_bytes(before)
            if not torch.equal(pristine[outside], after[outside]):
                text = f"input tensor {i} was written to between or beside its elements"
                return self._problem("mutated_input", text)
        return None

    def _wrong_return(self, outcome: Outcome) -> Comparison | None:
        """What is returned where the signature says that an argument is (``-> Tensor!``)."""
        types = calling.return_types(self.operator.signatures[self.case.overload])
        values = outcome.value if len(types) > 1 else (outcome.value,)
        if not any("!" in kind for kind in types):
            return None
        if not isinstance(values, tuple) or len(values) != len(types):
            return self._problem("wrong_shape", f"must return {len(types)} values")
        for kind, value in zip(types, values, strict=True):
            if "!" not in kind or (isinstance(value, Got) and 0 in value.about.shape):
                continue  # an empty tensor has no memory to know it by
            owner = value.about.owner if isinstance(value, Got) else None
            if owner is None or not self.mutable()[owner]:
                return self._problem("wrong_layout", "must return the argument that it changes")
        return None

    def _results(self, outcome: Outcome) -> list[Any]:
        try:
            returned = calling.returned_results(self.operator, self.case, outcome.value)
        except ValueError:
            return []
        changed = [t for t, m in zip(outcome.tensors, self.mutable(), strict=True) if m]
        return [*returned, *changed]

    def _judge_result(self, number: int, want: Any, got: Any) -> Comparison:
        if isinstance(got, torch.Tensor):  # a mutated argument; its form was the judge's own
            return self._compare(number, want, got)
        if isinstance(want, Expected):
            form = self._wrong_form(number, want, got)
            return form or self._compare(number, want, got.tensor)
        if isinstance(want, Alias):
            return self._judge_alias(number, want, got)
        return self._judge_scalar(number, want, got)

    def _compare(self, number: int, want: Expected, got: torch.Tensor) -> Comparison:
        if self.operator.tolerance.kind == "distribution":
            return self._problem("passed", "", number)  # `accepts` has the say
        got = got.to(want.value.device)  # some oracles compute on the host
        return compare(want, got, self.operator.tolerance, self.case.name, self.draw, number)

    def _wrong_form(self, number: int, want: Expected, got: Any) -> Comparison | None:
        """Shape, dtype, device, aliasing and strides of a returned tensor."""
        if not isinstance(got, Got):
            kind = got.kind if isinstance(got, Foreign) else type(got).__name__
            return self._problem("wrong_layout", f"returns {kind}, not a plain tensor", number)
        about, shape = got.about, tuple(want.value.shape)
        if about.shape != shape:
            text = f"shape {about.shape}, expected {shape}"
            return self._problem("wrong_shape", text, number)
        if about.dtype != want.dtype:
            text = f"dtype {about.dtype}, expected {want.dtype}"
            return self._problem("wrong_dtype", text, number)
        text = _wrong_layout(about, want, self.device or want.value.device.type)
        if text:
            return self._problem("wrong_layout", text, number)
        if got.tensor is None:
            return self._problem("wrong_shape", "more was returned than is asked for", number)
        return None

    def _judge_alias(self, number: int, want: Alias, got: Any) -> Comparison:
        if not isinstance(got, Got):
            return self._problem("wrong_layout", "returns no tensor", number)
        about, owner = got.about, self._argument_tensor(want.argument)
        if about.owner != owner and 0 not in want.shape:
            return self._problem("wrong_layout", "must be a view of its argument", number)
        if about.shape != want.shape:
            text = f"shape {about.shape}, expected {want.shape}"
            return self._problem("wrong_shape", text, number)
        if about.dtype != self.call.tensors()[owner].dtype:
            return self._problem("wrong_dtype", f"dtype {about.dtype}", number)
        if not _same_strides(about, want.strides) or about.offset != want.offset:
            text = (
                f"strides {about.strides} at {about.offset}, "
                f"expected {want.strides} at {want.offset}"
            )
            return self._problem("wrong_layout", text, number)
        return self._problem("passed", "", number)

    def _argument_tensor(self, argument: int) -> int:
        """Number of the first tensor of argument number `argument` among the call's tensors."""
        before: list[torch.Tensor] = []
        map_tensors(self.call.args[:argument], before.append)
        return len(before)

    def _judge_scalar(self, number: int, want: Any, got: Any) -> Comparison:
        if type(got) is not type(want):
            kind = got.kind if isinstance(got, Foreign) else type(got).__name__
            text = f"returns {kind}, expected {type(want).__name__}"
            return self._problem("wrong_dtype", text, number)
        if got == want or (got != got and want != want):
            return self._problem("passed", "", number)
        comparison = self._problem("wrong_values", f"returns {got!r}, expected {want!r}", number)
        return replace(comparison, got=repr(got), expected=repr(want), bad=1, total=1)

    def _accepted(self, results: Sequence[Any]) -> Comparison:
        """What the operator itself says of the results, all together."""
        assert self.operator.accepts is not None
        plain = [got.tensor if isinstance(got, Got) else got for got in results]
        reason = self.operator.accepts(self.case, self.call.args, plain)
        return self._problem("wrong_values" if reason else "passed", reason)

    def _problem(self, status: Status, detail: str, result: int = 0) -> Comparison:
        return Comparison(self.case.name, self.draw, result, status, detail=detail)


def same_bits(first: Outcome, second: Outcome) -> bool:
    """Whether two calls left the same bytes behind, in results and in arguments."""
    pairs = zip(_bytes(first), _bytes(second), strict=False)
    return all(a.shape == b.shape and torch.equal(_words(a), _words(b)) for a, b in pairs)


def _differing(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> list[int]:
    """Numbers of the pairs of flat uint8 tensors whose bytes differ; waits for the device once."""
    flags = [(_words(a) != _words(b)).any() for a, b in zip(first, second, strict=True)]
    differ = torch.stack(flags).tolist() if flags else []
    return [i for i, differs in enumerate(differ) if differs]


def _words(flat: torch.Tensor) -> torch.Tensor:
    """The same bytes, eight at a time where they come out even: an eighth of the work."""
    return flat.view(torch.int64) if flat.numel() % 8 == 0 else flat


def _bytes(outcome: Outcome) -> Iterator[torch.Tensor]:
    yield from outcome.bytes_after
    yield from _tensors_in(outcome.value)


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, tuple):
        for item in value:
            yield from _tensors_in(item)
    elif isinstance(value, Got) and value.tensor is not None:
        yield value.tensor.reshape(-1).view(torch.uint8)


def _own_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Mask over the bytes of the storage: True where an element of `tensor` lies."""
    mask = torch.zeros(
        tensor.untyped_storage().nbytes() // tensor.dtype.itemsize,
        dtype=torch.bool,
        device=tensor.device,
    )
    mask.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(True)
    mask = mask.repeat_interleave(tensor.dtype.itemsize)
    rest = tensor.untyped_storage().nbytes() - mask.numel()
    return torch.cat([mask, mask.new_zeros(rest)])


def _wrong_layout(about: Returned, want: Expected, device: str) -> str:
    if about.device != device:
        return f"is on {about.device}, not on {device}"
    if about.owner is not None and 0 not in about.shape:
        return f"shares memory with input tensor {about.owner}"
    if want.strides is not None and not _same_strides(about, want.strides):
        return f"strides {about.strides}, expected {want.strides}"
    if want.strides is None and not _dense(about):
        return f"strides {about.strides} leave gaps or overlap"
    return ""


def _same_strides(about: Returned, strides: tuple[int, ...]) -> bool:
    """Equal where they matter: not in dimensions of size 1, nor in an empty tensor."""
    if 0 in about.shape:
        return True
    triples = zip(about.shape, about.strides, strides, strict=True)
    return all(a == b for size, a, b in triples if size != 1)


def _dense(about: Returned) -> bool:
    if 0 in about.shape:
        return True
    step = 1
    pairs = sorted((s, n) for n, s in zip(about.shape, about.strides, strict=True) if n != 1)
    for stride, size in pairs:
        if stride != step:
            return False
        step *= size
    return True


def _silence(want: Expected, inputs: Sequence[torch.Tensor], numbers: Sequence[complex]) -> str:
    value = want.value.reshape(-1)
    if want.mask is not None:
        value = value[want.mask.expand(want.value.shape).reshape(-1)]
    if not value.numel():
        return "empty"
    if bool(value.isnan().all()):
        return "undefined"
    if value.numel() == 1:
        if value.item() in numbers:
            return "constant"
        if value.item() in {-1, 0, 1, 2, math.inf, -math.inf, *(x.numel() for x in inputs)}:
            return "a plain number"
    elif bool((value == value[0]).all()):
        return "constant"
    flat = want.value.reshape(-1)
    copied = any(
        x.numel() == flat.numel() and torch.equal(x.to(flat.dtype), flat)
        for x in inputs
        if x.is_complex() == flat.is_complex()
    )
    return "a copy of an input" if copied else ""
