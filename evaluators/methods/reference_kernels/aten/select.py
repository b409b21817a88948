"""select: one slice, as a view without that dimension; nothing is computed or moved."""

import torch


def select(self: torch.Tensor, dim: int, index: int) -> torch.Tensor:
    dim %= self.dim()
    index %= self.shape[dim]
    shape, strides = list(self.shape), list(self.stride())
    offset = self.storage_offset() + index * strides[dim]
    del shape[dim], strides[dim]
    return torch.as_strided(self, shape, strides, offset)
