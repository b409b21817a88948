"""Compares one result with the oracle's, on the device that holds them, in bounded memory.

The error of an element is ``|y - ref| / (eps_out * max(|ref|, tiny) + eps_acc * S)``
(`operators.records.Tolerance`). Where the oracle is not finite the result must be the same
non-finite value; where the oracle overflows the output dtype, infinity or the largest finite value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from kernelmark.evaluators.grading.records import Comparison
from kernelmark.operators.records import Expected, Tolerance

#: elements compared at a time; bounds temporaries to about 1 GB
_CHUNK = 1 << 25
#: elements from which the 99.9th percentile is estimated
_SAMPLE = 1 << 16

_Errors = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.dtype, Tolerance], torch.Tensor]


def compare(
    expected: Expected,
    got: torch.Tensor,
    tolerance: Tolerance,
    case: str = "",
    draw: str = "",
    result: int = 0,
) -> Comparison:
    """Judges `got` (same device as the oracle's tensors): shape, dtype, then every value."""
    want = tuple(expected.value.shape)
    if tuple(got.shape) != want:
        detail = f"shape {tuple(got.shape)}, expected {want}"
        return Comparison(case, draw, result, "wrong_shape", detail=detail)
    if got.dtype != expected.dtype:
        detail = f"dtype {got.dtype}, expected {expected.dtype}"
        return Comparison(case, draw, result, "wrong_dtype", detail=detail)
    tolerance = expected.tolerance or tolerance
    limit = _limit(expected.dtype, tolerance)
    if got.numel() == 0:
        return Comparison(case, draw, result, "passed", 0.0, 0.0, 0.0, limit)
    if expected.canonical is not None:
        got = expected.canonical(got)
    stats = _walk(expected, got, tolerance, limit, _plain_errors).tolist()
    if not stats[4] <= limit:  # the maximum, which is NaN where any error is
        stats = _walk(expected, got, tolerance, limit, _errors).tolist()
    bad, off, total_error, p999_error, max_error = stats[:5]
    codes = tolerance.kind == "codes"
    allowed = math.ceil(tolerance.max_mismatch * got.numel()) if codes else math.inf
    failed = bad > 0 or off > allowed
    index = _unravel(int(stats[5]), want)
    return Comparison(
        case,
        draw,
        result,
        "wrong_values" if failed else "passed",
        max_error=max_error,
        mean_error=total_error / got.numel(),
        p999_error=p999_error,
        limit=limit,
        bad=int(bad if bad or not failed else off),
        total=got.numel(),
        worst_index=index,
        got=_text(got[index]),
        expected=_text(expected.value[index]),
    )


def _limit(dtype: torch.dtype, tolerance: Tolerance) -> float:
    """The error above which an element is wrong; integers and bools, unless codes, allow none."""
    counted = tolerance.kind == "codes" or _is_rounded(dtype, tolerance)
    return tolerance.limit if counted else 0.0


def _walk(
    expected: Expected, got: torch.Tensor, tolerance: Tolerance, limit: float, errors: _Errors
) -> torch.Tensor:
    """Over chunks: sums (bad, off, error), the 99.9th percentile of a sample, the worst error and
    its position. float64 of shape (6,), on the device."""
    want = got.shape
    scale = _scale(expected).expand(want)
    value = expected.value.expand(want)
    mask = None if expected.mask is None else expected.mask.expand(want)
    stride = max(1, got.numel() // _SAMPLE)
    sums = torch.zeros(3, dtype=torch.float64, device=got.device)
    samples: list[torch.Tensor] = []
    highs: list[torch.Tensor] = []
    places: list[torch.Tensor] = []
    start = 0
    for rows in _row_chunks(want):
        error = errors(value[rows], scale[rows], got[rows], expected.dtype, tolerance)
        if mask is not None:
            error = torch.where(mask[rows], error, 0.0)
        error = error.reshape(-1)
        sums += torch.stack([(error > limit).sum(), (error > 0).sum(), error.sum()])
        samples.append(error[::stride])
        high, at = torch.max(error, dim=0)
        highs.append(high)
        places.append(start + at)
        start += error.numel()
    high, chunk = torch.max(torch.stack(highs), dim=0)
    last = [torch.quantile(torch.cat(samples), 0.999), high, torch.stack(places)[chunk].double()]
    return torch.cat([sums, torch.stack(last)])


def _plain_errors(
    reference: torch.Tensor,
    scale: torch.Tensor,
    got: torch.Tensor,
    dtype: torch.dtype,
    tolerance: Tolerance,
) -> torch.Tensor:
    """`_errors` where everything is finite and in range, in a quarter of the passes over memory;
    elsewhere infinity, NaN or too much, never too little."""
    if not _is_rounded(dtype, tolerance):
        return _errors(reference, scale, got, dtype, tolerance)
    info = torch.finfo(dtype)
    bound = reference.abs().clamp_(min=info.smallest_normal).mul_(info.eps)
    bound = torch.add(bound, scale, alpha=_accumulator_eps(dtype, tolerance))
    eight_bits = got.dtype.itemsize == 1  # of which torch does no arithmetic
    y = got.to(reference.dtype) if eight_bits else got
    return torch.sub(y, reference).abs().div_(bound).double()


def _errors(
    reference: torch.Tensor,
    scale: torch.Tensor,
    got: torch.Tensor,
    dtype: torch.dtype,
    tolerance: Tolerance,
) -> torch.Tensor:
    """Error of each element, float64; infinity where finiteness disagrees."""
    if tolerance.kind == "codes":
        steps = (_ordered(got) - _ordered(reference.to(dtype))).abs().double()
        if dtype.is_floating_point:  # NaN lies next to the largest value in order, not in meaning
            steps = torch.where(got.isnan() ^ reference.isnan(), math.inf, steps)
        return steps
    if not _is_rounded(dtype, tolerance):
        wide = got.to(reference.dtype)
        return (~((wide == reference) | (wide.isnan() & reference.isnan()))).double()
    real = reference.real.dtype if reference.is_complex() else reference.dtype
    info = torch.finfo(dtype)
    y, ref = got.to(reference.dtype), reference
    bound = ref.abs().clamp_min(info.smallest_normal) * info.eps
    bound = bound + _accumulator_eps(dtype, tolerance) * scale
    error = (y - ref).abs().to(real) / bound
    same = (y == ref) | (y.isnan() & ref.isnan()) | _both_overflow(y, ref, info)
    error = torch.where(same, 0.0, error)
    finite = y.isfinite() & ref.isfinite()
    return torch.where(same | finite, error, math.inf).nan_to_num(math.inf, math.inf).double()


def _is_rounded(dtype: torch.dtype, tolerance: Tolerance) -> bool:
    """Whether results may differ from the oracle's by rounding."""
    number = dtype.is_floating_point or dtype.is_complex
    return number and tolerance.kind not in ("exact", "codes")


def _accumulator_eps(dtype: torch.dtype, tolerance: Tolerance) -> float:
    return torch.finfo(tolerance.accumulator or dtype).eps


def _both_overflow(y: torch.Tensor, ref: torch.Tensor, info: torch.finfo) -> torch.Tensor:
    """Elements where the oracle is beyond the dtype's range and the result is at its end."""
    if ref.is_complex():
        return torch.zeros_like(ref, dtype=torch.bool)
    edge = info.max * (1 - info.eps)
    return ref.isfinite() & (ref.abs() >= edge) & (y.abs() >= edge) & (y.sign() == ref.sign())


def _ordered(codes: torch.Tensor) -> torch.Tensor:
    """Integers in the order of the values that `codes` stand for, one step apart (int64)."""
    if not codes.dtype.is_floating_point:
        return codes.to(torch.int64)
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[codes.dtype.itemsize]
    bits = codes.contiguous().view(integer).to(torch.int64)
    lowest = -(1 << (8 * codes.dtype.itemsize - 1))
    return torch.where(bits < 0, lowest - bits, bits)


def _scale(expected: Expected) -> torch.Tensor:
    """The condition scale S; without one, the root mean square of the finite oracle values."""
    if expected.scale is not None:
        return expected.scale
    value = expected.value
    if not (value.is_floating_point() or value.is_complex()):
        return torch.zeros((), device=value.device)
    finite = torch.where(value.isfinite(), value, 0.0)
    return torch.linalg.vector_norm(finite.reshape(-1)) / math.sqrt(max(value.numel(), 1))


def _row_chunks(shape: torch.Size) -> Iterator[tuple[slice | int, ...]]:
    """Index tuples that cut a tensor into parts of about `_CHUNK` elements, in memory order."""
    if not shape or math.prod(shape) <= _CHUNK:
        yield (...,)  # type: ignore[misc]
        return
    lead = next(i for i, n in enumerate(shape) if n > 1)
    per_row = math.prod(shape[lead + 1 :])
    step = max(1, _CHUNK // per_row)
    for begin in range(0, shape[lead], step):
        yield (*([slice(None)] * lead), slice(begin, begin + step))


def _unravel(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        position, rest = divmod(position, size)
        index.append(rest)
    return tuple(reversed(index))


def _text(element: torch.Tensor) -> str:
    value = element.item()
    return f"{value:.7g}" if isinstance(value, float) else str(value)
