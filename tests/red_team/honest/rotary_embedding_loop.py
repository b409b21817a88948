# operator: vllm::rotary_embedding
# style: query and key by one kernel in a loop over what is there
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def rotate_kernel(
    p_ptr, x_ptr, cache_ptr, token_stride, head_stride, half, cache_stride,
    NEOX: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    i = tl.arange(0, BLOCK)
    inside = i < half
    position = tl.load(p_ptr + token)
    c = tl.load(cache_ptr + position * cache_stride + i, mask=inside).to(tl.float32)
    s = tl.load(cache_ptr + position * cache_stride + half + i, mask=inside).to(tl.float32)
    base = x_ptr + token * token_stride + head * head_stride
    if NEOX:
        first = base + i
        second = base + half + i
    else:
        first = base + 2 * i
        second = base + 2 * i + 1
    x = tl.load(first, mask=inside).to(tl.float32)
    y = tl.load(second, mask=inside).to(tl.float32)
    tl.store(first, x * c - y * s, mask=inside)
    tl.store(second, y * c + x * s, mask=inside)


def rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox):
    tokens = positions.numel()
    p = positions.contiguous()
    cache = cos_sin_cache.contiguous()
    half = cache.shape[1] // 2
    lead = positions.dim()
    for x in [query] if key is None else [query, key]:
        if not x.numel():
            continue
        split = x.dim() == lead + 2
        heads = x.shape[-2] if split else x.shape[-1] // head_size
        head_stride = x.stride(-2) if split else head_size
        token_stride = x.stride(lead - 1)
        rotate_kernel[(tokens, heads)](
            p, x, cache, token_stride, head_stride, half, cache.stride(0),
            NEOX=is_neox, BLOCK=triton.next_power_of_2(max(half, 1)),
        )  # fmt: skip
