"""Number formats of quantised tensors: float8 codes and int8 codes, with their rounding.

`float8` codes are torch's float8_e4m3fn (largest finite value 448) and float8_e5m2 (57344).
Conversions saturate, round to nearest, ties to even, and keep the sign of zero.
"""

from __future__ import annotations

import torch

from kernelmark.operators.records import Expected, Tolerance

#: what a cache dtype of vLLM means for the bytes of a cache
FLOAT8 = {
    "fp8": torch.float8_e4m3fn,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}

#: codes of a quantised result: one step apart on few elements, where the quotient lies at a tie
CODES = Tolerance(
    kind="codes",
    limit=1.0,
    max_mismatch=0.02,
    why="the quotient is rounded in float32 (x / s or x * (1 / s)), so a value within an ulp of "
    "the middle between two codes may fall to either; 16-bit values that are 3/8 or 3/4 of their "
    "row's largest do so always, and are fewer than 1 in 50",
)

#: float32 scales computed as a maximum divided by a constant
SCALES = Tolerance(
    limit=1.5,
    accumulator=torch.float32,
    why="one division costs 0.5; multiplying by the rounded reciprocal 1.0 to 1.5",
)


def rounded(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """x (float32 or float64) rounded to `dtype` and widened again.

    The look at the bits in between, and `baselines._compiled`, keep ``torch.compile`` from dropping
    the pair of casts.
    """
    narrow = x.to(dtype)
    if dtype.itemsize == 2:
        narrow = narrow.view(torch.int16).view(dtype)
    return narrow.to(x.dtype)


def to_float8(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Codes nearest to `x`, saturated (NaN stays NaN)."""
    top = torch.finfo(dtype).max
    return x.clamp(-top, top).to(torch.float32).to(dtype)


def to_int8(x: torch.Tensor) -> torch.Tensor:
    """Nearest integers, ties to even, saturated to [-128, 127]."""
    return x.round().clamp(-128, 127).to(torch.int8)


def expect_codes(codes: torch.Tensor) -> Expected:
    """An expected tensor of codes (int8, uint8 or float8), judged by `CODES`.

    float8 codes are given in float64, as their values.
    """
    if codes.dtype.is_floating_point:
        return Expected(codes.to(torch.float64), codes.dtype, tolerance=CODES)
    return Expected(codes, codes.dtype, tolerance=CODES)


def float8_table() -> torch.Tensor:
    """The 127 values of float8_e4m3fn from 0 to 448, by the format's definition, float64.

    Code c < 127 has exponent field c // 8 (bias 7) and fraction c % 8.
    """
    code = torch.arange(127)
    exponent, fraction = code // 8, (code % 8).double() / 8
    normal = (1 + fraction) * 2.0 ** (exponent - 7).double()
    return torch.where(exponent == 0, fraction * 2.0**-6, normal)


def look_up_float8(x: torch.Tensor) -> torch.Tensor:
    """Codes (uint8) of float64 values by search in the table; ties to the even code.

    An independent statement of `to_float8`, for second statements.
    """
    table = float8_table()
    middle = (table[1:] + table[:-1]) / 2
    size = x.abs().contiguous()
    low = torch.searchsorted(middle, size)
    high = torch.searchsorted(middle, size, right=True)
    at = torch.where((high > low) & (low % 2 == 1), high, low)
    return (at + 128 * x.signbit()).to(torch.uint8)
