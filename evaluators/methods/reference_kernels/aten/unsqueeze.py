"""unsqueeze: a dimension of size 1 more, as a view; nothing is computed or moved."""

import torch


def unsqueeze(self: torch.Tensor, dim: int) -> torch.Tensor:
    dim %= self.dim() + 1
    shape, strides = list(self.shape), list(self.stride())
    # The stride of a step over all that follows.
    step = shape[dim] * strides[dim] if dim < self.dim() else 1
    shape = [*shape[:dim], 1, *shape[dim:]]
    strides = [*strides[:dim], step, *strides[dim:]]
    return torch.as_strided(self, shape, strides, self.storage_offset())
