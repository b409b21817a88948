"""Gather of latent entries out of a paged cache, float8 codes turned into values on the way.

A program moves 32 tokens by 256 elements. The sequence of each token is given, so its place takes
three dependent loads of one number each; then all is runs of elements. Codes are decoded in integer
arithmetic, which every target has: exponent and fraction are moved into a float32.
"""

import torch
import triton
import triton.language as tl

_TOKENS = 32
_COLUMNS = 256


@triton.jit
def _float8_value(code):
    """float32 values of float8_e4m3fn codes (see convert_fp8)."""
    code = code.to(tl.int32)
    fraction = code & 0x7F
    normal = ((fraction << 20) + (120 << 23)).to(tl.float32, bitcast=True)
    magnitude = tl.where(fraction < 8, fraction.to(tl.float32) * 0.001953125, normal)
    magnitude = tl.where(fraction == 0x7F, float("nan"), magnitude)
    return tl.where(code > 127, -magnitude, magnitude)


@triton.jit
def _gather(
    cache, out, table, lengths, owners, starts, scale, tokens, width, block_size, entry,
    CODES: tl.constexpr, HAS_STARTS: tl.constexpr, TOKENS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    inside = token < tokens
    owner = tl.load(owners + token, mask=inside, other=0)
    position = token - tl.load(lengths + owner, mask=inside, other=0)
    if HAS_STARTS:
        position += tl.load(starts + owner, mask=inside, other=0)
    block = tl.load(table + owner * width + position // block_size, mask=inside, other=0)
    source = (block.to(tl.int64) * block_size + position % block_size) * entry

    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    both = inside[:, None] & (column < entry)[None, :]
    target = token.to(tl.int64) * entry
    x = tl.load(cache + source[:, None] + column[None, :], mask=both)
    if CODES:
        x = _float8_value(x) * tl.load(scale)
    tl.store(out + target[:, None] + column[None, :], x, mask=both)


def gather_and_maybe_dequant_cache(
    src_cache: torch.Tensor,
    dst: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    token_to_seq: torch.Tensor,
    num_tokens: int,
    kv_cache_dtype: str,
    scale: torch.Tensor,
    seq_starts: torch.Tensor | None = None,
) -> None:
    if num_tokens == 0:
        return
    entry = dst.shape[1]
    _gather[(triton.cdiv(num_tokens, _TOKENS), triton.cdiv(entry, _COLUMNS))](
        src_cache, dst, block_table, cu_seq_lens, token_to_seq, seq_starts, scale, num_tokens,
        block_table.stride(0), src_cache.shape[1], entry, CODES=kv_cache_dtype != "auto",
        HAS_STARTS=seq_starts is not None, TOKENS=_TOKENS, COLUMNS=_COLUMNS, num_warps=8,
    )  # fmt: skip
