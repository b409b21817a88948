"""Gather of sequences out of a paged cache: a program moves 32 tokens by 256 elements.

Which sequence a token belongs to is counted, not searched: it is the number of sequences that end
at or before it. That costs one load of the lengths, and every program does it for itself. An entry
is a run of elements, whatever its shape, moved in pieces of 16 bytes.
"""

import torch
import triton
import triton.language as tl

_TOKENS = 32
_COLUMNS = 256


@triton.jit
def _gather(
    cache, out, table, lengths, starts, tokens, batch, width, block_size, entry,
    HAS_STARTS: tl.constexpr, TOKENS: tl.constexpr, COLUMNS: tl.constexpr, BATCH: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    owner = tl.zeros([TOKENS], tl.int32)
    for first in range(0, batch, BATCH):
        sequence = first + tl.arange(0, BATCH)
        end = tl.load(lengths + 1 + sequence, mask=sequence < batch, other=0x7FFFFFFF)
        owner += tl.sum((end[None, :] <= token[:, None]).to(tl.int32), axis=1)
    inside = (token < tokens) & (owner < batch)
    position = token - tl.load(lengths + owner, mask=inside, other=0)
    if HAS_STARTS:
        position += tl.load(starts + owner, mask=inside, other=0)
    block = tl.load(table + owner * width + position // block_size, mask=inside, other=0)
    source = (block.to(tl.int64) * block_size + position % block_size) * entry

    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    both = inside[:, None] & (column < entry)[None, :]
    target = token.to(tl.int64) * entry
    x = tl.load(cache + source[:, None] + column[None, :], mask=both)
    tl.store(out + target[:, None] + column[None, :], x, mask=both)


def cp_gather_cache(
    src_cache: torch.Tensor,
    dst: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    batch_size: int,
    seq_starts: torch.Tensor | None = None,
) -> None:
    tokens, entry = dst.shape[0], dst.stride(0)
    if tokens == 0 or entry == 0:
        return
    columns = min(triton.next_power_of_2(entry), _COLUMNS)
    _gather[(triton.cdiv(tokens, _TOKENS), triton.cdiv(entry, columns))](
        src_cache, dst, block_table, cu_seq_lens, seq_starts, tokens, batch_size,
        block_table.stride(0), src_cache.shape[1], entry, HAS_STARTS=seq_starts is not None,
        TOKENS=_TOKENS, COLUMNS=columns, BATCH=min(triton.next_power_of_2(batch_size), 64),
        num_warps=8,
    )  # fmt: skip
