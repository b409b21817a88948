# operator: aten::sort
# style: counts for every element how many come before it
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def sort_kernel(x_ptr, v_ptr, i_ptr, n, DOWN: tl.constexpr, FLOAT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + i, mask=i < n, other=0)
    rank = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        other = tl.load(x_ptr + row + j, mask=j < n, other=0)
        a = other[None, :]
        b = x[:, None]
        less = (a > b) if DOWN else (a < b)
        same = a == b
        if FLOAT:
            a_nan = a != a
            b_nan = b != b
            less = less | ((a_nan & (b == b)) if DOWN else (b_nan & (a == a)))
            same = same | (a_nan & b_nan)
        before = less | (same & (j[None, :] < i[:, None]))
        rank += tl.sum((before & (j[None, :] < n)).to(tl.int32), 1)
    tl.store(v_ptr + row + rank, x, mask=i < n)
    tl.store(i_ptr + row + rank, i.to(tl.int64), mask=i < n)


def sort(self, dim=-1, descending=False, *, stable=None, values=None, indices=None):
    x = self.reshape(1) if self.dim() == 0 else self.movedim(dim, -1)
    x = x.contiguous()
    v = torch.empty_like(x)
    i = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    n = x.shape[-1]
    if x.numel():
        raw = x.view(torch.uint8) if x.dtype == torch.bool else x
        to = v.view(torch.uint8) if v.dtype == torch.bool else v
        block = min(128, triton.next_power_of_2(n))
        grid = (x.numel() // n, triton.cdiv(n, block))
        real = x.dtype.is_floating_point
        sort_kernel[grid](raw, to, i, n, DOWN=descending, FLOAT=real, BLOCK=block, num_warps=8)
    if self.dim() == 0:
        v, i = v.reshape(()), i.reshape(())
    else:
        v, i = v.movedim(-1, dim), i.movedim(-1, dim)
    if values is not None and indices is not None:
        values.copy_(v)
        indices.copy_(i)
        return values, indices
    return v, i
