"""as_strided: a view of the same storage by given sizes and strides; nothing is computed."""

import torch


def as_strided(
    self: torch.Tensor,
    size: list[int],
    stride: list[int],
    storage_offset: int | None = None,
) -> torch.Tensor:
    offset = self.storage_offset() if storage_offset is None else storage_offset
    return torch.as_strided(self, size, stride, offset)
