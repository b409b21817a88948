"""Kernels for the interpreter, each with its check. Run as a program by `test_interpreter`.

Prints one JSON object: name of the check to "" (right) or what is wrong.
"""

from __future__ import annotations

import json
import math
import sys
import traceback

from kernelmark.evaluators.chips.registry import get_chip

if __name__ == "__main__":
    get_chip("interpreter").activate()

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _multiply_add(x, y, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n)
    b = tl.load(y + i, mask=i < n)
    tl.store(o + i, a * b + a, mask=i < n)


def check_bfloat16_arithmetic() -> None:
    x, y = torch.randn(2, 100).bfloat16()
    o = torch.empty_like(x)
    _multiply_add[(2,)](x, y, o, 100, BLOCK=64)
    assert torch.equal(o, x * y + x)


@triton.jit
def _convert(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.load(x + i).to(o.dtype.element_ty))


def check_conversions_round_to_nearest_even() -> None:
    values = torch.cat([torch.randn(250) * 100, torch.tensor([0.0, -0.0, 1e-6, 1e9, -1e9, 3.0])])
    for dtype in (torch.bfloat16, torch.float16):
        o = torch.empty(256, dtype=dtype)
        _convert[(1,)](values, o, 256)
        assert torch.equal(o.view(torch.int16), values.to(dtype).view(torch.int16)), dtype
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        o = torch.empty(256, dtype=dtype)
        _convert[(1,)](values, o, 256)
        top = torch.finfo(dtype).max
        right = values.clamp(-top, top).to(dtype)
        assert torch.equal(o.view(torch.uint8), right.view(torch.uint8)), dtype
        back = torch.empty(256)
        _convert[(1,)](right, back, 256)
        assert torch.equal(back, right.float()), dtype


def check_bfloat16_nan_stays_nan() -> None:
    o = torch.empty(2, dtype=torch.bfloat16)
    _convert[(1,)](torch.tensor([math.nan, math.inf]), o, 2)
    assert o[0].isnan()
    assert o[1] == math.inf


@triton.jit
def _truncate(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.load(x + i).to(tl.bfloat16, fp_downcast_rounding="rtz"))


def check_rounding_toward_zero() -> None:
    x = torch.randn(256) * 10
    o = torch.empty(256, dtype=torch.bfloat16)
    _truncate[(1,)](x, o, 256)
    right = (x.view(torch.int32) & -65536).view(torch.float32)
    assert torch.equal(o.float(), right)


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def _increment(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(x + i, tl.load(x + i) + 1)
    else:
        tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def check_autotuner_takes_the_first_configuration_and_runs_once() -> None:
    for n in (100, 128):
        x = torch.zeros(n)
        _increment[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, n)
        assert torch.equal(x, torch.ones(n)), x
        assert _increment.best_config.kwargs == {"BLOCK": 64}


@triton.autotune([triton.Config({}, num_warps=w) for w in (8, 4)], key=[], use_cuda_graph=True)
@triton.jit
def _with_graph(x):
    tl.store(x, tl.load(x) + 1)


def check_autotuner_with_its_own_benchmark() -> None:
    x = torch.zeros(1)
    _with_graph[(1,)](x)
    assert x.item() == 1
    assert _with_graph.best_config.num_warps == 8


@triton.jit
def _dot(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(x, y))


def check_dot() -> None:
    for dtype in (
        torch.bfloat16,
        torch.float16,
        torch.float32,
        torch.float64,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.int8,
    ):
        if dtype is torch.float64 and triton.__version__ < "3.5":
            continue  # has no tl.dot of float64
        a, b = (torch.randn(16, 32) * 3).to(dtype), (torch.randn(32, 16) * 3).to(dtype)
        exact = {torch.int8: torch.int32, torch.float64: torch.float64}
        c = torch.empty(16, 16, dtype=exact.get(dtype, torch.float32))
        _dot[(1,)](a, b, c, 16, 16, 32)
        assert torch.allclose(c.double(), a.double() @ b.double(), atol=1e-4), dtype


@triton.jit
def _sort(x, o, N: tl.constexpr, DESCENDING: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.sort(tl.load(x + i), descending=DESCENDING))


def check_sort() -> None:
    for dtype in (torch.float32, torch.int32, torch.float16):
        for descending in (False, True):
            x = (torch.randn(128) * 50).to(dtype)
            o = torch.empty_like(x)
            _sort[(1,)](x, o, 128, descending)
            assert torch.equal(o, x.sort(descending=descending).values), (dtype, descending)


@triton.jit
def _softmax_step(m1, s1, m2, s2):
    m = tl.maximum(m1, m2)
    return m, s1 * tl.exp(m1 - m) + s2 * tl.exp(m2 - m)


@triton.jit
def _second(a, b):
    return b


@triton.jit
def _branching(a, b):
    r = b
    if a > b:
        r = a
    return r


@triton.jit
def _scans(x, o, r, last, top, ROWS: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * N + tl.arange(0, N)[None, :]
    rows = tl.arange(0, ROWS)
    v = tl.load(x + i)
    ones = tl.full((ROWS, N), 1.0, tl.float32)
    m, s = tl.associative_scan((v, ones), 1, _softmax_step)
    tl.store(o + i, m + tl.log(s))
    m, s = tl.reduce((v, ones), 1, _softmax_step)
    tl.store(r + rows, m + tl.log(s))
    tl.store(last + rows, tl.reduce(v, 1, _second))
    tl.store(top + rows, tl.reduce(v, 1, _branching))


def check_custom_scans_and_reductions() -> None:
    x, o = torch.randn(4, 32), torch.empty(4, 32)
    r, last, top = torch.empty(3, 4)
    _scans[(1,)](x, o, r, last, top, 4, 32)
    assert torch.allclose(o, x.logcumsumexp(1), atol=1e-5)
    assert torch.allclose(r, x.logsumexp(1), atol=1e-5)
    assert torch.equal(last, x[:, -1])  # associative, not commutative: the order is kept
    assert torch.equal(top, x.max(1).values)  # branches on a value


@triton.jit
def _backwards(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.cumsum(tl.load(x + i), 0, reverse=True))


def check_cumsum_of_bfloat16_backwards() -> None:
    x, o = torch.randn(64).bfloat16(), torch.empty(64)
    _backwards[(1,)](x, o, 64)
    assert torch.allclose(o, x.float().flip(0).cumsum(0).flip(0), atol=1e-5)


@triton.jit
def _plus(a, b):
    return a + b


@triton.jit
def _narrow_sum(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o, tl.reduce(tl.load(x + i), 0, _plus))


def check_reduction_in_bfloat16() -> None:
    x, o = torch.ones(64).bfloat16() * 1.5, torch.empty(1, dtype=torch.bfloat16)
    _narrow_sum[(1,)](x, o, 64)
    assert o.item() == 96


@triton.jit
def _through_pointers(table, o, n, N: tl.constexpr):
    i = tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for j in range(n):
        p = tl.load(table + j).to(tl.pointer_type(tl.float32))
        total += tl.load(p + i)
    tl.store(o + i, total)


def check_pointers_from_addresses() -> None:
    parts = [torch.randn(32) for _ in range(3)]
    table = torch.tensor([p.data_ptr() for p in parts])
    o = torch.empty(32)
    _through_pointers[(1,)](table, o, 3, 32)
    assert torch.allclose(o, sum(parts))


@triton.jit
def _count(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(o + i % 4, tl.load(x + i), mask=i < N - 4)


@triton.jit
def _highest(x, o, N: tl.constexpr):
    tl.atomic_max(o + tl.arange(0, N) * 0, tl.load(x + tl.arange(0, N)))


def check_atomics() -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        x, o = torch.ones(64).to(dtype), torch.zeros(4).to(dtype)
        _count[(2,)](x, o, 64)
        assert o.tolist() == [30] * 4, (dtype, o)
    x = torch.randn(32)
    o = torch.full((1,), -math.inf)
    _highest[(1,)](x, o, 32)
    assert o.item() == x.max().item()


@triton.jit
def _scalars(o, flag, factor, count):
    if flag:
        tl.store(o, factor * count)
    else:
        tl.store(o, -1.0)


def check_scalar_arguments() -> None:
    o = torch.empty(1)
    _scalars[(1,)](o, True, 2.5, 3)
    assert o.item() == 7.5
    _scalars[(1,)](o, False, 2.5, 3)
    assert o.item() == -1


@triton.jit
def _nan_rules(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(o + i, tl.maximum(v, 0.0))
    tl.store(o + N + i, tl.minimum(v, 0.0))
    tl.store(o + 2 * N + i, tl.clamp(v, -1.0, 1.0))
    tl.store(o + 3 * N + i, tl.maximum(v, 0.0, propagate_nan=tl.PropagateNan.ALL))


def check_nan_is_not_propagated_unless_asked() -> None:
    x = torch.tensor([math.nan, 2.0])
    o = torch.empty(4, 2)
    _nan_rules[(1,)](x, o, 2)
    assert o[0].tolist() == [0, 2]
    assert o[1].tolist() == [0, 0]
    assert o[2].tolist() == [-1, 1]
    assert o[3, 0].isnan()
    assert o[3, 1] == 2


@triton.jit
def _libdevice(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(o + i, libdevice.tanh(v))
    tl.store(o + N + i, libdevice.erf(v))
    tl.store(o + 2 * N + i, libdevice.pow(tl.abs(v), 1.5))
    tl.store(o + 3 * N + i, tl.extra.cuda.libdevice.rint(v * 3))
    tl.store(o + 4 * N + i, libdevice.isnan(v).to(tl.float32))
    tl.store(o + 5 * N + i, libdevice.popc(i).to(tl.float32))


def check_libdevice() -> None:
    x = torch.randn(32)
    o = torch.empty(6, 32)
    _libdevice[(1,)](x, o, 32)
    assert torch.allclose(o[0], x.tanh())
    assert torch.allclose(o[1], x.erf())
    assert torch.allclose(o[2], x.abs() ** 1.5)
    assert torch.equal(o[3], (x * 3).round())
    assert not o[4].any()
    assert o[5].tolist() == [float(i.bit_count()) for i in range(32)]


@triton.jit
def _gelu(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(o + i, 0.5 * v * (1 + tl.erf(v * 0.7071067811865476)) * tl.sigmoid(v))


def check_math() -> None:
    x, o = torch.randn(64), torch.empty(64)
    _gelu[(1,)](x, o, 64)
    assert torch.allclose(o, torch.nn.functional.gelu(x) * x.sigmoid(), atol=1e-6)


@triton.jit
def _shapes(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    low, high = tl.split(tl.reshape(v, (N // 2, 2)))
    tl.store(o + i, tl.interleave(high, low))
    tl.store(o + N + i, tl.flip(v, 0))
    tl.store(o + 2 * N + i, tl.gather(v, N - 1 - i, 0))
    tl.store(o + 3 * N + i, tl.ravel(tl.trans(tl.reshape(v, (4, N // 4)))))
    tl.store(o + 4 * N + i, tl.cumprod(tl.where(i % 2 == 0, 1.5, 0.5), 0))
    tl.store(o + 5 * N + i, tl.fma(v, v, v))


def check_shapes() -> None:
    n = 32
    x, o = torch.randn(n), torch.empty(6, n)
    _shapes[(1,)](x, o, n)
    assert torch.equal(o[0], x.view(-1, 2).flip(1).flatten())
    assert torch.equal(o[1], x.flip(0))
    assert torch.equal(o[2], x.flip(0))
    assert torch.equal(o[3], x.view(4, -1).T.flatten())
    assert torch.allclose(o[4], torch.tensor([1.5, 0.5] * (n // 2)).cumprod(0))
    assert torch.allclose(o[5], x * x + x)


@triton.jit
def _integers(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(o + i, v // 3)
    tl.store(o + N + i, v % 3)
    tl.store(o + 2 * N + i, v >> 1)
    tl.store(o + 3 * N + i, tl.histogram(tl.abs(v) % 8, 8)[None, :].broadcast_to(4, 8).reshape(N))
    tl.store(o + 4 * N + i, tl.umulhi(v, v))
    tl.store(o + 5 * N + i, i * 0 + tl.xor_sum(v, 0))


def check_integers() -> None:
    x = torch.randint(-1000, 1000, (32,), dtype=torch.int32)
    o = torch.empty(6, 32, dtype=torch.int32)
    _integers[(1,)](x, o, 32)
    assert torch.equal(o[0], torch.div(x, 3, rounding_mode="trunc"))
    assert torch.equal(o[1], torch.fmod(x, 3))
    assert torch.equal(o[2], x >> 1)
    assert torch.equal(o[3, :8].long(), torch.bincount(x.abs() % 8, minlength=8))
    unsigned = [(v & 0xFFFFFFFF) ** 2 >> 32 for v in x.tolist()]
    assert [v & 0xFFFFFFFF for v in o[4].tolist()] == unsigned
    total = 0
    for v in x.tolist():
        total ^= v
    assert o[5].tolist() == [total] * 32


@triton.jit
def _extremes(x, o, where, ROWS: tl.constexpr, N: tl.constexpr):
    r = tl.arange(0, ROWS)
    v = tl.load(x + r[:, None] * N + tl.arange(0, N)[None, :])
    m, at = tl.max(v, 1, return_indices=True, return_indices_tie_break_left=True)
    tl.store(o + r, m)
    tl.store(where + r, at)
    m, at = tl.min(v, 1, return_indices=True, return_indices_tie_break_left=False)
    tl.store(o + ROWS + r, m)
    tl.store(where + ROWS + r, at)


def check_extremes_with_indices() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        x = (torch.randn(4, 64) * 100).to(dtype)
        o, where = torch.empty(2, 4, dtype=dtype), torch.empty(2, 4, dtype=torch.int32)
        _extremes[(1,)](x, o, where, 4, 64)
        assert torch.equal(o[0], x.max(1).values), dtype
        assert torch.equal(o[1], x.min(1).values), dtype
        assert torch.equal(x.gather(1, where.long().T), o.T), dtype


@triton.jit
def _logic(x, o, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(o + i, v, mask=i < n and v > 0)
    keep = (i < n and v > 0) or (i >= n and not (v > 0))
    tl.store(o + N + i, v, mask=keep)
    if n > 3 and N > 3:
        tl.store(o + 2 * N + i, v)


def check_boolean_operators_on_blocks() -> None:
    x, o = torch.randn(16), torch.zeros(3, 16)
    _logic[(1,)](x, o, 9, 16)
    early, positive = torch.arange(16) < 9, x > 0
    assert torch.equal(o[0], x.where(early & positive, 0))
    assert torch.equal(o[1], x.where(early == positive, 0))
    assert torch.equal(o[2], x)


@triton.jit
def _truth_of_a_block(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    if tl.load(x + i) > 0:
        tl.store(o + i, 1.0)


def check_a_block_has_no_truth_value() -> None:
    message = ""
    try:
        _truth_of_a_block[(1,)](torch.randn(16), torch.zeros(16), 16)
    except Exception as error:
        message = str(error)
    assert "no single truth value" in message


@triton.jit
def _random(o, seed, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.rand(seed, i))
    tl.store(o + N + i, tl.randn(seed, i))


def check_random_numbers() -> None:
    o = torch.empty(2, 1024)
    _random[(1,)](o, 42, 1024)
    assert 0 <= o[0].min() < 0.02
    assert 0.98 < o[0].max() < 1
    assert abs(o[1].mean()) < 0.1
    assert 0.9 < o[1].std() < 1.1


@triton.jit
def _block_pointers(x, o, n, W: tl.constexpr):
    source = tl.make_block_ptr(x, (n,), (1,), (0,), (W,), (0,))
    target = tl.make_block_ptr(o, (n,), (1,), (0,), (W,), (0,))
    for _ in range(0, n, W):
        block = tl.load(source, boundary_check=(0,), padding_option="zero")
        tl.store(target, block * 2, boundary_check=(0,))
        source, target = tl.advance(source, (W,)), tl.advance(target, (W,))


def check_block_pointers() -> None:
    x, o = torch.randn(50), torch.full((64,), 7.0)
    _block_pointers[(1,)](x, o, 50, 16)
    assert torch.equal(o[:50], x * 2)
    assert (o[50:] == 7).all()


def check_device_questions_are_answered() -> None:
    device = triton.runtime.driver.active.get_current_device()
    found = triton.runtime.driver.active.utils.get_device_properties(device)
    assert found["multiprocessor_count"] > 0
    assert torch.cuda.get_device_properties(0).multi_processor_count > 0
    assert torch.cuda.get_device_capability() >= (8, 0)


@triton.jit
def _race(x):
    tl.inline_asm_elementwise("bar.sync 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)


def check_inline_assembly_is_refused_by_name() -> None:
    message = ""
    try:
        _race[(1,)](torch.zeros(1))
    except Exception as error:
        message = str(error)
    assert "not supported in interpreter mode" in message


def check_libdevice_functions_against_numpy() -> None:
    from kernelmark.evaluators.chips import _libdevice

    x = np.linspace(-2.9, 2.9, 40, dtype=np.float64)
    for name, right in {
        "expm1": np.expm1,
        "cbrt": np.cbrt,
        "trunc": np.trunc,
        "sinh": np.sinh,
        "exp10": lambda v: 10.0**v,
        "tgamma": np.vectorize(math.gamma),
        "lgamma": np.vectorize(math.lgamma),
        "round": lambda v: np.trunc(v + np.copysign(0.5, v)),
    }.items():
        got = _libdevice.symbol(f"__nv_{name}", [x])
        assert np.allclose(got, right(x), rtol=1e-12), name
    i = np.array([0, 1, -1, 12, 1 << 30], np.int32)
    assert _libdevice.symbol("__nv_clz", [i]).tolist() == [32, 31, 0, 28, 1]
    assert _libdevice.symbol("__nv_ffs", [i]).tolist() == [0, 1, 1, 3, 31]
    assert _libdevice.symbol("__nv_brev", [np.array([1], np.int32)]).tolist() == [-(2**31)]
    assert _libdevice.symbol("__nv_mulhi", [i, i]).tolist()[-1] == (1 << 60) >> 32
    floats = np.array([1.5, -2.5, 1e20, math.nan], np.float32)
    whole = _libdevice.symbol("__nv_float2int_rn", [floats])
    assert whole.tolist() == [2, -2, 2**31 - 1, 0]
    try:
        _libdevice.symbol("__nv_made_up", [x])
    except NotImplementedError:
        return
    raise AssertionError("an unknown function was computed")


def main() -> None:
    """Runs every check."""
    results = {}
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            torch.manual_seed(0)
            try:
                check()
                results[name] = ""
            except Exception:
                results[name] = traceback.format_exc()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
