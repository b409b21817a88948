"""narrow: some consecutive slices, as a view; nothing is computed or moved."""

import torch


def narrow(self: torch.Tensor, dim: int, start: int, length: int) -> torch.Tensor:
    dim %= self.dim()
    if start < 0:
        start += self.shape[dim]
    shape = list(self.shape)
    shape[dim] = length
    offset = self.storage_offset() + start * self.stride(dim)
    return torch.as_strided(self, shape, self.stride(), offset)
