# operator: aten::gather
# style: decodes indices of up to four dimensions in the kernel
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def gather_kernel(
    x_ptr, i_ptr, y_ptr, n, n1, n2, n3, x0, x1, x2, x3, i0, i1, i2, i3, size,
    DIM: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    c3 = at % n3
    c2 = at // n3 % n2
    c1 = at // (n3 * n2) % n1
    c0 = at // (n3 * n2 * n1)
    index = tl.load(i_ptr + c0 * i0 + c1 * i1 + c2 * i2 + c3 * i3, mask=inside, other=0)
    index = tl.where(index < 0, index + size, index)
    if DIM == 0:
        c0 = index
    elif DIM == 1:
        c1 = index
    elif DIM == 2:
        c2 = index
    else:
        c3 = index
    x = tl.load(x_ptr + c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3, mask=inside)
    tl.store(y_ptr + at, x, mask=inside)


def four(values, filler):
    return [filler] * (4 - len(values)) + list(values)


def gather(self, dim, index, *, sparse_grad=False, out=None):
    x = self if self.dim() else self.reshape(1)
    i = index if index.dim() else index.reshape(1)
    dim = dim % x.dim()
    y = torch.empty(i.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        gather_kernel[(triton.cdiv(y.numel(), 256),)](
            x, i, y, y.numel(), *four(i.shape, 1)[1:], *four(x.stride(), 0), *four(i.stride(), 0),
            x.shape[dim], DIM=dim + 4 - x.dim(), BLOCK=256,
        )  # fmt: skip
    y = y.view(index.shape)
    if out is not None:
        return out.copy_(y)
    return y
