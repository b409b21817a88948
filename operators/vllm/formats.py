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
    max_mismatch=0.005,
    why="the quotient is rounded in float32 (x / s or x * (1 / s)), so a value within an ulp of "
    "the middle between two codes may fall to either; such are fewer than 1 in 200",
)

#: float32 scales computed as a maximum divided by a constant
SCALES = Tolerance(
    limit=1.5,
    accumulator=torch.float32,
    why="one division costs 0.5; multiplying by the rounded reciprocal 1.0 to 1.5",
)


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
