"""expand: dimensions of size 1 repeated by strides of 0; a view, nothing is computed or moved."""

import torch


def expand(self: torch.Tensor, size: list[int], *, implicit: bool = False) -> torch.Tensor:
    added = len(size) - self.dim()
    own = [1] * added + list(self.shape)
    shape = [n if wanted == -1 else wanted for n, wanted in zip(own, size, strict=True)]
    # A new dimension that stays of size 1 gets the stride that ATen gives it, 1.
    strides = [0 if n != 1 else 1 for n in shape[:added]]
    strides += [
        0 if n == 1 and wanted != 1 else step
        for n, wanted, step in zip(self.shape, shape[added:], self.stride(), strict=True)
    ]
    return torch.as_strided(self, shape, strides, self.storage_offset())
