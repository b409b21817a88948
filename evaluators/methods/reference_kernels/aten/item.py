"""item: the one element as a Python number; reading it waits for the device."""

import torch


def item(self: torch.Tensor) -> bool | int | float | complex:
    return self.item()
