"""resolve_neg: self where no lazy negative bit is set, else a copy that holds the values."""

import torch


def resolve_neg(self: torch.Tensor) -> torch.Tensor:
    return self.clone() if self.is_neg() else self
