# operator: aten::mm
# style: a fixed number of programs walks over all tiles
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def mm_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn, cm, cn,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    columns = tl.cdiv(n, N)
    for tile in range(tl.program_id(0), tl.cdiv(m, M) * columns, tl.num_programs(0)):
        i = tile // columns * M + tl.arange(0, M)
        j = tile % columns * N + tl.arange(0, N)
        total = tl.zeros((M, N), tl.float32)
        for start in range(0, k, K):
            s = start + tl.arange(0, K)
            a = tl.load(
                a_ptr + i[:, None] * am + s[None, :] * ak,
                mask=(i[:, None] < m) & (s[None, :] < k),
                other=0.0,
            )
            b = tl.load(
                b_ptr + s[:, None] * bk + j[None, :] * bn,
                mask=(s[:, None] < k) & (j[None, :] < n),
                other=0.0,
            )
            total += tl.dot(a, b, input_precision="ieee")
        at = c_ptr + i[:, None] * cm + j[None, :] * cn
        tl.store(at, total.to(c_ptr.dtype.element_ty), mask=(i[:, None] < m) & (j[None, :] < n))


def multiprocessors(device):
    if device.type != "cuda":
        return 3
    return torch.cuda.get_device_properties(device).multi_processor_count


def mm(self, mat2, *, out=None):
    m, k = self.shape
    n = mat2.shape[1]
    c = out if out is not None else torch.empty((m, n), dtype=self.dtype, device=self.device)
    if c.numel():
        tiles = triton.cdiv(m, 32) * triton.cdiv(n, 32)
        mm_kernel[(min(tiles, multiprocessors(self.device)),)](
            self, mat2, c, m, n, k, *self.stride(), *mat2.stride(), *c.stride(), M=32, N=32, K=32
        )
    return c
