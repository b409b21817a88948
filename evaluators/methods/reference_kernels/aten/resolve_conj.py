"""resolve_conj: self where no lazy conjugate bit is set, else a copy that holds the values."""

import torch


def resolve_conj(self: torch.Tensor) -> torch.Tensor:
    return self.clone() if self.is_conj() else self
