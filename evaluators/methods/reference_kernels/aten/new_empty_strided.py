"""new_empty_strided: memory for given sizes and strides, of self's dtype; nothing is computed."""

import torch


def new_empty_strided(
    self: torch.Tensor,
    size: list[int],
    stride: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    dtype = self.dtype if dtype is None else dtype
    device = self.device if device is None else device
    return torch.empty_strided(size, stride, dtype=dtype, device=device)
