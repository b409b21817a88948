# operator: aten::mul
# style: broadcast views with strides of zero; complex numbers as pairs
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def mul_kernel(
    x_ptr, y_ptr, z_ptr, scalar, n, n1, n2, n3, n4,
    x0, x1, x2, x3, x4, y0, y1, y2, y3, y4, z0, z1, z2, z3, z4,
    KIND: tl.constexpr, SCALAR: tl.constexpr, COMPLEX: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    c4 = at % n4
    c3 = at // n4 % n3
    c2 = at // (n4 * n3) % n2
    c1 = at // (n4 * n3 * n2) % n1
    c0 = at // (n4 * n3 * n2 * n1)
    x_at = x_ptr + c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3 + c4 * x4
    y_at = y_ptr + c0 * y0 + c1 * y1 + c2 * y2 + c3 * y3 + c4 * y4
    z_at = z_ptr + c0 * z0 + c1 * z1 + c2 * z2 + c3 * z3 + c4 * z4
    x = tl.load(x_at, mask=inside, other=0).to(KIND)
    if SCALAR:
        y = scalar
    else:
        y = tl.load(y_at, mask=inside, other=0).to(KIND)
    if COMPLEX:
        xi = tl.load(x_at + 1, mask=inside, other=0)
        yi = tl.load(y_at + 1, mask=inside, other=0)
        tl.store(z_at, x * y - xi * yi, mask=inside)
        tl.store(z_at + 1, x * yi + xi * y, mask=inside)
    else:
        tl.store(z_at, (x * y).to(z_ptr.dtype.element_ty), mask=inside)


def five(values, filler):
    return [filler] * (5 - len(values)) + list(values)


def real(x):
    return torch.view_as_real(x).select(-1, 0) if x.is_complex() else x


def mul(self, other, *, out=None):
    dtype = torch.result_type(self, other)
    if isinstance(other, torch.Tensor):
        x, y = torch.broadcast_tensors(self, other)
        scalar = 0
    else:
        x, y = self, self
        scalar = other
    z = torch.empty(x.shape, dtype=dtype, device=self.device) if out is None else out
    if dtype.is_complex:
        x, y = x.to(dtype), y.to(dtype)
    if z.numel():
        a, b, c = real(x), real(y), real(z)
        if dtype == torch.bool:
            a, b, c = a.view(torch.uint8), b.view(torch.uint8), c.view(torch.uint8)
        floating = dtype.is_floating_point or dtype.is_complex
        mul_kernel[(triton.cdiv(z.numel(), 256),)](
            a, b, c, scalar, z.numel(), *five(c.shape, 1)[1:],
            *five(a.stride(), 0), *five(b.stride(), 0), *five(c.stride(), 0),
            KIND=tl.float32 if floating else tl.int64,
            SCALAR=not isinstance(other, torch.Tensor), COMPLEX=dtype.is_complex, BLOCK=256,
        )  # fmt: skip
    return z
