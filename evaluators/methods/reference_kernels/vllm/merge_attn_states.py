"""Joining two partial attentions: a program does a few heads of one token.

The two shares are computed once a head and spread over its elements. Everything is read and
written once; bandwidth is the only limit. An lse of +inf counts as -inf (an empty part).
"""

import triton
import triton.language as tl


@triton.jit
def _merge(
    out, prefix, prefix_lse, suffix, suffix_lse, out_lse, tokens, heads, size,
    WITH_LSE: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    here = head < heads
    p = tl.load(prefix_lse + head * tokens + token, mask=here, other=0.0)
    s = tl.load(suffix_lse + head * tokens + token, mask=here, other=0.0)
    p = tl.where(p == float("inf"), float("-inf"), p)
    s = tl.where(s == float("inf"), float("-inf"), s)
    top = tl.maximum(p, s)
    p, s = tl.exp(p - top), tl.exp(s - top)
    total = p + s
    if WITH_LSE:
        tl.store(out_lse + head * tokens + token, tl.log(total) + top, mask=here)
    d = tl.arange(0, SIZE)
    both = here[:, None] & (d < size)[None, :]
    at = (token * heads + head)[:, None] * size + d[None, :]
    a = tl.load(prefix + at, mask=both, other=0.0).to(tl.float32) * (p / total)[:, None]
    b = tl.load(suffix + at, mask=both, other=0.0).to(tl.float32) * (s / total)[:, None]
    tl.store(out + at, a + b, mask=both)


def merge_attn_states(
    output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None
):
    tokens, heads, size = output.shape
    if tokens == 0:
        return
    padded = triton.next_power_of_2(size)
    tile = max(1, min(triton.next_power_of_2(heads), 2048 // padded))
    _merge[(tokens, triton.cdiv(heads, tile))](
        output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse, tokens, heads,
        size, WITH_LSE=output_lse is not None, HEADS=tile, SIZE=padded, num_warps=4,
    )  # fmt: skip
