"""unsafe_split_with_sizes: consecutive pieces as views, copied where `out` asks for it."""

import torch


def unsafe_split_with_sizes(
    self: torch.Tensor,
    split_sizes: list[int],
    dim: int = 0,
    *,
    out: list[torch.Tensor] | None = None,
) -> list[torch.Tensor] | None:
    dim %= self.dim()
    parts, start = [], 0
    for length in split_sizes:
        shape = list(self.shape)
        shape[dim] = length
        offset = self.storage_offset() + start * self.stride(dim)
        parts.append(torch.as_strided(self, shape, self.stride(), offset))
        start += length
    if out is None:
        return parts
    for target, part in zip(out, parts, strict=True):
        target.copy_(part)
    return None
