# operator: vllm::cp_gather_indexer_k_quant_cache
# style: reads how many tokens there are, for the grid and the bound
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl

_TOKENS = 32


@triton.jit
def _gather(
    cache, words, out, out_scale, table, lengths, tokens, batch, width, block_size, head_dim,
    block_bytes, SCALES: tl.constexpr, TOKENS: tl.constexpr, DIM: tl.constexpr,
    BATCH: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    inside = token < tokens
    owner = tl.zeros([TOKENS], tl.int32)
    for first in range(0, batch, BATCH):
        sequence = first + tl.arange(0, BATCH)
        end = tl.load(lengths + 1 + sequence, mask=sequence < batch, other=0x7FFFFFFF)
        owner += tl.sum((end[None, :] <= token[:, None]).to(tl.int32), axis=1)
    inside = inside & (owner < batch)
    position = token - tl.load(lengths + owner, mask=inside, other=0)
    block = tl.load(table + owner * width + position // block_size, mask=inside, other=0)
    place = position % block_size
    start = block.to(tl.int64) * block_bytes

    column = tl.arange(0, DIM)
    both = inside[:, None] & (column < head_dim)[None, :]
    source = start + place * head_dim
    key = tl.load(cache + source[:, None] + column[None, :], mask=both)
    target = token.to(tl.int64) * head_dim
    tl.store(out + target[:, None] + column[None, :], key, mask=both)
    source = (start + block_size * head_dim) // 4 + place * SCALES
    for k in tl.static_range(SCALES):
        scale = tl.load(words + source + k, mask=inside)
        tl.store(out_scale + token.to(tl.int64) * SCALES + k, scale, mask=inside)


def cp_gather_indexer_k_quant_cache(kv_cache, dst_k, dst_scale, block_table, cu_seq_lens):
    head_dim = dst_k.shape[1]
    batch = cu_seq_lens.shape[0] - 1
    tokens = cu_seq_lens[batch].item()
    if tokens == 0:
        return
    _gather[(triton.cdiv(tokens, _TOKENS),)](
        kv_cache, kv_cache.view(torch.int32), dst_k, dst_scale.view(torch.int32), block_table,
        cu_seq_lens, tokens, batch, block_table.stride(0), kv_cache.shape[1], head_dim,
        kv_cache.stride(0), SCALES=dst_scale.shape[1] // 4, TOKENS=_TOKENS,
        DIM=triton.next_power_of_2(head_dim), BATCH=min(triton.next_power_of_2(batch), 64),
        num_warps=4,
    )  # fmt: skip
