"""ATen operators of vector norms: pairwise_distance, renorm.

Oracle: torch in float64 from the same inputs. Second statement: NumPy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import (
    FLOATS,
    dtype_name,
    expect,
    full,
    growth,
    small,
    spec,
    traffic,
    wide,
)
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, Tolerance

_F16, _BF16, _F32 = torch.float16, torch.bfloat16, torch.float32
_INF = float("inf")


def _norm(x: np.ndarray, p: float, axes: tuple[int, ...]) -> np.ndarray:
    """p-norm over `axes`, which stay with size 1."""
    magnitude = np.abs(x)
    if p == _INF:
        return np.asarray(magnitude.max(axis=axes, keepdims=True))
    return np.asarray((magnitude**p).sum(axis=axes, keepdims=True) ** (1 / p))


# --- pairwise_distance --------------------------------------------------------------------------


@functools.cache
def _distance_cases() -> Sequence[Case]:
    def pair(shape: tuple[int, ...], t: torch.dtype = _F32) -> tuple[Any, Any]:
        return spec(shape, t), spec(shape, t)

    return (
        *(small(f"rows-{dtype_name(t)}", *pair((7, 133), t)) for t in FLOATS),
        small("sum-of-differences", *pair((7, 133)), 1.0),
        small("cubic", *pair((6, 50)), 3.0, 1e-4),
        small("largest", *pair((6, 50), _F16), _INF),
        small("root", *pair((6, 20)), 0.5, 0.0, True),
        small("large-epsilon", *pair((6, 50)), 2.0, 0.5, True),
        small("keepdim", *pair((3, 4, 30), _BF16), 2.0, 1e-6, True),
        small("vectors", *pair((300,))),
        small("one-to-many", spec((40,)), spec((9, 40))),
        small("many-to-many", spec((5, 1, 40), _F16), spec((1, 6, 40), _F16)),
        small("transposed", spec((7, 30), strides=(1, 7)), spec((7, 30))),
        small("misaligned", spec((5, 33), _F16, offset=1), spec((5, 33), _F16, strides=(67, 2))),
        small("one-column", *pair((20, 1))),
        small("empty", *pair((0, 8))),
        small("wide-range", spec((6, 90), fill="wide"), spec((6, 90), fill="wide")),
        small("specials", *pair((30, 12)), draws=("specials", "base")),
        full("face-embeddings", "FaceNet triplets, 524288 pairs of 128", *pair((524288, 128))),
        full("sentence-pairs", "Sentence-BERT, 65536 pairs of 768", *pair((65536, 768), _F16)),
        full("clip", "CLIP ViT-L, 131072 pairs of 768", *pair((131072, 768), _BF16)),
        full(
            "manhattan", "TransE link prediction, 262144 triples of 256", *pair((262144, 256)), 1.0
        ),
        full(
            "prototypes",
            "prototypical networks: 8192 queries, 20 classes, ResNet-12",
            spec((8192, 1, 640), _F16),
            spec((1, 20, 640), _F16),
        ),
        full(
            "cubic-float32",
            "Minkowski distance of 65536 x 512 embeddings",
            *pair((65536, 512)),
            3.0,
        ),
        full(
            "read-through-transpose",
            "Siamese features stored channel first",
            spec((65536, 256), strides=(1, 65536)),
            spec((65536, 256), strides=(1, 65536)),
            2.0,
        ),
    )


def _distance_oracle(
    x1: torch.Tensor,
    x2: torch.Tensor,
    p: float = 2.0,
    eps: float = 1e-6,
    keepdim: bool = False,
) -> list[Expected]:
    difference = wide(x1) - wide(x2) + eps
    value = torch.linalg.vector_norm(difference, p, -1, keepdim)
    # The difference may be rounded to the dtype; relative errors pass through the norm unchanged.
    roundings = 1 + 1 / p if p < 1 else 1.0
    coarser = torch.finfo(x1.dtype).eps / torch.finfo(_F32).eps
    scale = value * (growth(difference.shape[-1]) * max(1.0, 1 / p) + roundings * coarser / 2)
    return [expect(value, x1.dtype, scale=scale)]


def _distance_second(
    x1: torch.Tensor,
    x2: torch.Tensor,
    p: float = 2.0,
    eps: float = 1e-6,
    keepdim: bool = False,
) -> list[Any]:
    with np.errstate(invalid="ignore"):
        value = _norm(x1.double().numpy() - x2.double().numpy() + eps, p, (-1,))
    return [value if keepdim else value[..., 0]]


def _distance_cost(case: Case) -> Cost:
    a, b = case.tensors
    shape = np.broadcast_shapes(a.shape, b.shape)
    results = math.prod(shape[:-1])
    return traffic(case, results * a.dtype.itemsize, flops=4 * math.prod(shape))


def _distance(x1: torch.Tensor, x2: torch.Tensor, *args: Any) -> torch.Tensor:
    return torch.ops.aten.pairwise_distance(x1, x2, *args)


def _root_missing(
    x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> torch.Tensor:
    right = _distance(x1, x2, p, eps, keepdim)
    return right**p if p != _INF else right


def _other_norm(
    x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> torch.Tensor:
    return _distance(x1, x2, 2.0, eps, keepdim)


def _no_epsilon(
    x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> torch.Tensor:
    return _distance(x1, x2, p, 0.0, keepdim)


def _half_row(x1: torch.Tensor, x2: torch.Tensor, *args: Any) -> torch.Tensor:
    kept = (x1.shape[-1] + 1) // 2
    return _distance(x1[..., :kept], x2[..., :kept], *args)


_DISTANCE = Operator(
    id="aten::pairwise_distance",
    family="norm/softmax",
    signatures=(
        "pairwise_distance(x1: Tensor, x2: Tensor, p: float=2., eps: float=1e-6, "
        "keepdim: bool=False) -> Tensor",
    ),
    description=(
        "p-norm of x1 - x2 + eps over the last dimension: (sum of |x1 - x2 + eps|**p)**(1/p), the "
        "largest |x1 - x2 + eps| for p = inf; p > 0. `eps` is added to every difference, with its "
        "sign. `x1` and `x2` share a dtype, which the result has, and are broadcast, the last "
        "dimension excepted, which both have in full. With `keepdim` the last dimension stays with "
        "size 1, else it goes; two vectors give a 0-d tensor. Sums are made in float32; the "
        "difference, and the sum with `eps`, may be rounded to the dtype. Strides may be any."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.pairwise_distance", "aten/src/ATen/native/Distance.cpp"),
    cases=_distance_cases,
    oracle=_distance_oracle,
    second=_distance_second,
    baseline=torch.ops.aten.pairwise_distance,
    baseline_name="aten",
    cost=_distance_cost,
    tolerance=Tolerance(
        limit=2.0,
        accumulator=torch.float32,
        why="one rounding of the result, and for S: half an eps of the dtype for each rounded "
        "difference, float32 sums with 1 + sqrt(terms)/4",
    ),
    mutants=(
        Mutant("root left out", _root_missing),
        Mutant("always the 2-norm", _other_norm),
        Mutant("eps left out", _no_epsilon),
        Mutant("half the row", _half_row),
    ),
)

# --- renorm -------------------------------------------------------------------------------------


@functools.cache
def _renorm_cases() -> Sequence[Case]:
    return (
        *(small(f"rows-{dtype_name(t)}", spec((7, 133), t), 2.0, 0, 5.0) for t in FLOATS),
        small("columns", spec((50, 9)), 2.0, 1, 6.5),
        small("sum-of-magnitudes", spec((6, 40)), 1.0, 0, 30.0),
        small("cubic", spec((6, 40), _BF16), 3.0, -2, 3.0),
        small("largest", spec((6, 40)), _INF, 0, 2.0),
        small("three-dims", spec((4, 5, 30)), 2.0, 0, 12.0),
        small("middle-dim", spec((4, 9, 12), _F16), 2.0, 1, 6.9),
        small("nothing-to-do", spec((6, 40)), 2.0, 0, 1e6),
        small("to-zero", spec((6, 40)), 2.0, 0, 0.0),
        small("transposed", spec((20, 30), strides=(1, 20)), 2.0, 0, 5.0),
        small("strided-misaligned", spec((6, 50), _F16, strides=(101, 2), offset=1), 2.0, 0, 7.0),
        small("one-column", spec((20, 1)), 2.0, 0, 0.5),
        small("empty", spec((0, 8)), 2.0, 0, 1.0),
        small("wide-range", spec((9, 60), fill="wide"), 2.0, 0, 40.0),
        small("out", spec((6, 40)), 2.0, 0, 6.0, overload=1, out=spec((6, 40), strides=(1, 6))),
        full(
            "embedding-max-norm",
            "DLRM table rows kept in the unit ball",
            spec((1 << 20, 128)),
            2.0,
            0,
            11.0,
        ),
        full(
            "transe-entities",
            "TransE entities, Freebase 1M of 256",
            spec((1 << 20, 256), _F16),
            2.0,
            0,
            16.0,
        ),
        full(
            "filters",
            "max-norm constraint on VGG-16 dense layer, rows",
            spec((4096, 25088)),
            2.0,
            0,
            158.0,
        ),
        full(
            "filters-columns",
            "max-norm constraint on VGG-16 dense layer, columns",
            spec((4096, 25088), _BF16),
            2.0,
            1,
            64.0,
        ),
        full(
            "token-norms",
            "Llama 3 8B hidden states clipped by token, 1-norm",
            spec((16384, 4096), _BF16),
            1.0,
            0,
            3268.0,
        ),
        full(
            "channels",
            "ResNet-50 activations, batch 64, clipped by channel",
            spec((64, 256, 56, 56), _F16),
            2.0,
            1,
            448.0,
        ),
    )


def _renorm_oracle(
    self: torch.Tensor, p: float, dim: int, maxnorm: float, *, out: torch.Tensor | None = None
) -> list[Expected]:
    x = wide(self)
    axes = [axis for axis in range(x.dim()) if axis != dim % x.dim()]
    norm = torch.linalg.vector_norm(x, p, axes, keepdim=True)
    value = torch.where(norm > maxnorm, x * (maxnorm / (norm + 1e-7)), x)
    terms = self.numel() // max(norm.numel(), 1)
    # The factor may be rounded to the dtype before it is multiplied.
    coarser = torch.finfo(self.dtype).eps / torch.finfo(_F32).eps
    return [expect(value, self.dtype, scale=value.abs() * (growth(terms) + coarser / 4))]


def _renorm_second(
    self: torch.Tensor, p: float, dim: int, maxnorm: float, **more: Any
) -> list[Any]:
    x = self.double().numpy()
    norm = _norm(x, p, tuple(a for a in range(x.ndim) if a != dim % x.ndim)) if x.size else 1.0
    return [x * np.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)]


def _renorm_cost(case: Case) -> Cost:
    x = case.tensors[0]
    return traffic(case, x.numel * x.dtype.itemsize, flops=3 * x.numel, read=x.nbytes)


def _always_scaled(self: torch.Tensor, p: float, dim: int, maxnorm: float, **more: Any) -> Any:
    """Slices below the limit are stretched to it."""
    right = torch.ops.aten.renorm(self, p, dim, maxnorm, **more)
    axes = [axis for axis in range(self.dim()) if axis != dim % self.dim()]
    norm = torch.linalg.vector_norm(self.double(), p, axes, keepdim=True)
    return right.copy_(self * (maxnorm / (norm + 1e-7)))


def _never_scaled(self: torch.Tensor, *args: Any, **more: Any) -> Any:
    return torch.ops.aten.renorm(self, *args, **more).copy_(self)


def _by_all(self: torch.Tensor, p: float, dim: int, maxnorm: float, **more: Any) -> Any:
    """One norm for the whole tensor."""
    right = torch.ops.aten.renorm(self, p, dim, maxnorm, **more)
    norm = torch.linalg.vector_norm(self.double(), p)
    return right.copy_(torch.where(norm > maxnorm, self * (maxnorm / (norm + 1e-7)), self))


_RENORM = Operator(
    id="aten::renorm",
    family="norm/softmax",
    signatures=(
        "renorm(self: Tensor, p: Scalar, dim: int, maxnorm: Scalar) -> Tensor",
        "renorm.out(self: Tensor, p: Scalar, dim: int, maxnorm: Scalar, *, out: Tensor!) "
        "-> Tensor!",
    ),
    description=(
        "Each slice of `self` at a place along `dim` (everything but `dim`, flattened) whose "
        "p-norm exceeds `maxnorm` is multiplied with maxnorm / (norm + 1e-7); the others are "
        "copied. The p-norm is (sum of |x|**p)**(1/p), the largest |x| for p = inf; p > 0. `dim` "
        "may be negative; `self` has at least two dimensions and any strides. The result has the "
        "shape and dtype of `self`. Norms are made in float32; the factor may be rounded to the "
        "dtype before it is multiplied. `renorm.out` writes into `out` and returns it."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.renorm", "aten/src/ATen/native/Normalization.cpp"),
    cases=_renorm_cases,
    oracle=_renorm_oracle,
    second=_renorm_second,
    baseline=torch.ops.aten.renorm,
    baseline_name="aten",
    cost=_renorm_cost,
    tolerance=Tolerance(
        limit=2.0,
        accumulator=torch.float32,
        why="one rounding of the result, half an eps for a factor in the dtype, float32 sums with "
        "1 + sqrt(terms)/4",
    ),
    mutants=(
        Mutant("slices below the limit stretched", _always_scaled),
        Mutant("never scaled", _never_scaled),
        Mutant("one norm for all", _by_all),
    ),
)

OPERATORS = (_DISTANCE, _RENORM)
