"""expand_as: dimensions of size 1 repeated by strides of 0; a view, nothing is computed."""

import torch


def expand_as(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    shape = list(other.shape)
    added = len(shape) - self.dim()
    # A new dimension that stays of size 1 gets the stride that ATen gives it, 1.
    strides = [0 if n != 1 else 1 for n in shape[:added]]
    strides += [
        0 if n == 1 and wanted != 1 else step
        for n, wanted, step in zip(self.shape, shape[added:], self.stride(), strict=True)
    ]
    return torch.as_strided(self, shape, strides, self.storage_offset())
