"""empty_strided: memory for given sizes and strides; nothing is computed."""

import torch


def empty_strided(
    size: list[int],
    stride: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=device)
