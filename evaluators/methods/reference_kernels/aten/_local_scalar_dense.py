"""_local_scalar_dense: the one element as a Python number; reading it waits for the device."""

import torch


def _local_scalar_dense(self: torch.Tensor) -> bool | int | float | complex:
    return self.item()
