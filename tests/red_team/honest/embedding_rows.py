# operator: aten::embedding
# style: one program a token and a piece of its row
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def embedding_kernel(w_ptr, i_ptr, y_ptr, d, w0, w1, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(i_ptr + token).to(tl.int64)
    w = tl.load(w_ptr + row * w0 + at * w1, mask=at < d)
    tl.store(y_ptr + token * d + at, w, mask=at < d)


def embedding(
    weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False, *, out=None
):
    i = indices.contiguous()
    d = weight.shape[1]
    y = weight.new_empty((*i.shape, d))
    if y.numel():
        block = min(1024, triton.next_power_of_2(d))
        grid = (i.numel(), triton.cdiv(d, block))
        embedding_kernel[grid](weight, i, y, d, *weight.stride(), BLOCK=block)
    if out is not None:
        out.copy_(y)
        return out
    return y
