# operator: aten::rsub
# style: the same for a reversed difference
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def combine_kernel(
    x_ptr, y_ptr, z_ptr, scalar, alpha, n, n1, n2, n3, n4,
    x0, x1, x2, x3, x4, y0, y1, y2, y3, y4, z0, z1, z2, z3, z4,
    KIND: tl.constexpr, SCALAR: tl.constexpr, EITHER: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    c4 = at % n4
    c3 = at // n4 % n3
    c2 = at // (n4 * n3) % n2
    c1 = at // (n4 * n3 * n2) % n1
    c0 = at // (n4 * n3 * n2 * n1)
    x = tl.load(x_ptr + c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3 + c4 * x4, mask=inside, other=0)
    x = x.to(KIND)
    if SCALAR:
        y = scalar
    else:
        y = tl.load(y_ptr + c0 * y0 + c1 * y1 + c2 * y2 + c3 * y3 + c4 * y4, mask=inside, other=0)
        y = y.to(KIND)
    z = y - alpha * x
    z_at = z_ptr + c0 * z0 + c1 * z1 + c2 * z2 + c3 * z3 + c4 * z4
    tl.store(z_at, z.to(z_ptr.dtype.element_ty), mask=inside)


def five(values, filler):
    return [filler] * (5 - len(values)) + list(values)


def parts(x):
    """A complex tensor as a real one with one dimension more."""
    return torch.view_as_real(x) if x.is_complex() else x


def rsub(self, other, alpha=1, *, out=None):
    dtype = torch.result_type(self, other)
    is_tensor = isinstance(other, torch.Tensor)
    x, y = torch.broadcast_tensors(self, other) if is_tensor else (self, self)
    z = torch.empty(x.shape, dtype=dtype, device=self.device) if out is None else out
    if not z.numel():
        return z
    scalar = 0 if is_tensor else other
    if dtype.is_complex:
        x, y = x.to(dtype), y.to(dtype)
    a, b, c = parts(x), parts(y), parts(z)
    if dtype == torch.bool:
        a, b, c = (t.view(torch.uint8) for t in (a, b, c))
    floating = dtype.is_floating_point or dtype.is_complex
    combine_kernel[(triton.cdiv(c.numel(), 256),)](
        a, b, c, float(scalar) if floating else int(scalar), float(alpha) if floating else int(alpha),
        c.numel(), *five(c.shape, 1)[1:],
        *five(a.stride(), 0), *five(b.stride(), 0), *five(c.stride(), 0),
        KIND=tl.float32 if floating else tl.int64, SCALAR=not is_tensor,
        EITHER=dtype == torch.bool, BLOCK=256,
    )  # fmt: skip
    return z
