"""Vertical-slash index sets: a program walks 32 rows of one head in lockstep.

Both lists are sorted, so each row merges them: a step either passes a vertical that lies before the
end of the current range (and keeps it if it lies before the range), or takes the next slash, which
opens a range or grows it. Blocks are written as ranges grow. Rows that are done idle along; at
most slashes + verticals + 2 steps are needed.
"""

import torch
import triton
import triton.language as tl

_ROWS = 32


@triton.jit
def _walk(
    q_lens, kv_lens, verticals, slashes, block_count, block_offset, column_count, column_index,
    heads, rows, vertical_count, slash_count, block_m, block_n,
    CAUSAL: tl.constexpr, EMITS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    line = tl.program_id(0)  # batch * heads + head
    batch = line // heads
    q, kv = tl.load(q_lens + batch), tl.load(kv_lens + batch)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    first_query = row * block_m
    edge = first_query + block_m + (kv - q if CAUSAL else kv)
    at = line.to(tl.int64) * rows + row
    vertical = verticals + line.to(tl.int64) * vertical_count
    slash = slashes + line.to(tl.int64) * slash_count
    offsets = block_offset + at * slash_count
    columns = column_index + at * vertical_count

    busy = inside & (first_query < q)
    v = tl.zeros([ROWS], tl.int32)
    s = tl.zeros([ROWS], tl.int32)
    start = tl.zeros([ROWS], tl.int32)
    end = tl.zeros([ROWS], tl.int32)
    blank = tl.full([ROWS], 1, tl.int1)  # no range has been opened yet
    next_block = tl.zeros([ROWS], tl.int32)
    blocks = tl.zeros([ROWS], tl.int32)
    found = tl.zeros([ROWS], tl.int32)
    finished = tl.zeros([ROWS], tl.int1)  # all slashes are taken
    far = 0x7FFFFFFF
    for _ in range(slash_count + vertical_count + 2):
        column = tl.load(vertical + v, mask=busy & (v < vertical_count), other=far)
        distance = tl.load(slash + s, mask=busy & (s < slash_count), other=0)
        passing = busy & (blank == 0) & (column < end)
        keep = passing & (column < start)
        tl.store(columns + found, column, mask=keep)
        found += keep.to(tl.int32)
        v += passing.to(tl.int32)

        taking = busy & (passing == 0) & (finished == 0)
        more = s < slash_count
        if not CAUSAL:
            more = more & (blank | (distance >= first_query))
        skipped = taking & more & blank & (distance >= edge)
        reach = tl.maximum(edge - distance, block_m)
        opens = taking & more & (skipped == 0) & (blank | (reach > end + block_m))
        grows = taking & more & (blank == 0) & (opens == 0) & (reach > end)
        start = tl.where(opens, reach - block_m, start)
        next_block = tl.where(opens, reach - block_m, next_block)
        end = tl.where(opens, reach, tl.where(grows, end + block_m, end))
        blank = blank & (opens == 0)
        s += (taking & more).to(tl.int32)
        for _ in tl.static_range(EMITS):
            emit = busy & (blank == 0) & (finished == 0) & (next_block < tl.minimum(end, kv))
            tl.store(offsets + blocks, next_block, mask=emit)
            blocks += emit.to(tl.int32)
            next_block += tl.where(emit, block_n, 0)
        ends = taking & (more == 0)
        finished = finished | ends
        if CAUSAL:
            busy = busy & (ends == 0)
        else:  # what is left before the last key is in no range
            start = tl.where(ends, kv, start)
            end = tl.where(ends, kv, end)
            blank = blank & (ends == 0)
            busy = busy & ((finished == 0) | (v < vertical_count))
    tl.store(block_count + at, blocks, mask=inside)
    tl.store(column_count + at, found, mask=inside)


@triton.jit
def _clear(out, count, TILE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    tl.store(out + at, tl.zeros([TILE], tl.int32), mask=at < count)


def convert_vertical_slash_indexes(
    q_seqlens, kv_seqlens, vertical_indexes, slash_indexes, context_size, block_size_M,
    block_size_N, causal=True,
):  # fmt: skip
    batch, heads, slash_count = slash_indexes.shape
    vertical_count = vertical_indexes.shape[2]
    rows = triton.cdiv(context_size, block_size_M)
    shape, kind = (batch, heads, rows), {"dtype": torch.int32, "device": slash_indexes.device}
    block_count, column_count = torch.empty(shape, **kind), torch.empty(shape, **kind)
    block_offset = torch.empty((*shape, slash_count), **kind)
    column_index = torch.empty((*shape, vertical_count), **kind)
    for out in (block_offset, column_index):
        _clear[(triton.cdiv(out.numel(), 4096),)](out, out.numel(), TILE=4096, num_warps=8)
    _walk[(batch * heads, triton.cdiv(rows, _ROWS))](
        q_seqlens, kv_seqlens, vertical_indexes, slash_indexes, block_count, block_offset,
        column_count, column_index, heads, rows, vertical_count, slash_count, block_size_M,
        block_size_N, CAUSAL=causal, EMITS=triton.cdiv(block_size_M, block_size_N), ROWS=_ROWS,
        num_warps=1,
    )  # fmt: skip
    return block_count, block_offset, column_count, column_index
