"""Ranks as intervals: which entries a suite can tell apart.

Paired bootstrap over operators: each resample draws operators with replacement, the same for all
entries. Two entries are told apart where the difference of their means lies outside a simultaneous
95% interval: the largest studentised deviation over all pairs gives one critical value for all of
them (max-t; Westfall and Young 1993; rank intervals as in Mogstad, Romano, Shaikh and Wilhelm
2024). An entry's rank is 1 plus the number of entries told apart as better; at worst it is the
number of entries minus those told apart as worse. Computed once, when the database is built.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
N_BOOT = 2000
SEED = 20250101

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Standing:
    """Where one entry stands. `first_share`: share of resamples in which no entry is better."""

    rank: int
    rank_high: int
    value: float
    value_low: float
    value_high: float
    first_share: float


def rank_entries(values: Array, n_boot: int = N_BOOT, seed: int = SEED) -> list[Standing]:
    """Standings of entries from `values` of shape (entries, operators); more is better."""
    entries, operators = values.shape
    if operators == 0:
        raise ValueError("no operators to rank over")
    generator = np.random.default_rng(seed)
    weights = generator.multinomial(operators, np.full(operators, 1 / operators), size=n_boot)
    means = values.mean(axis=1)
    resampled = weights @ values.T / operators  # (n_boot, entries)
    better = _told_apart(values, means, resampled)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail], axis=0)
    first = (resampled >= resampled.max(axis=1, keepdims=True) - 1e-12).mean(axis=0)
    return [
        Standing(
            rank=1 + int(better[:, i].sum()),
            rank_high=entries - int(better[i].sum()),
            value=float(means[i]),
            value_low=float(low[i]),
            value_high=float(high[i]),
            first_share=float(first[i]),
        )
        for i in range(entries)
    ]


def _told_apart(values: Array, means: Array, resampled: Array) -> NDArray[np.bool_]:
    """Boolean (entries, entries): whether the first is certainly better than the second."""
    entries = len(means)
    difference = means[:, None] - means[None, :]
    error = np.array([_spread(resampled, i) for i in range(entries)])
    usable = error > 1e-12
    worst = np.zeros(len(resampled))
    for i in range(entries):
        deviation = np.abs(resampled[:, i : i + 1] - resampled - difference[i])
        studentised = np.where(usable[i], deviation / np.where(usable[i], error[i], 1.0), 0.0)
        worst = np.maximum(worst, studentised.max(axis=1))
    critical = np.quantile(worst, CONFIDENCE)
    apart = usable & (difference > critical * error)
    return apart | (~usable & (difference > 0) & _unanimous(values))


def _spread(resampled: Array, i: int) -> Array:
    """Bootstrap standard error of the difference of entry `i` to each entry."""
    spread: Array = (resampled[:, i : i + 1] - resampled).std(axis=0)
    return spread


def _unanimous(values: Array) -> bool:
    """Whether a difference that is the same on every operator is no accident.

    Its bootstrap has no spread, so a sign test stands in: all signs equal by chance has the
    probability 2 * 0.5^operators, held against 5% divided by the number of pairs.
    """
    entries, operators = values.shape
    pairs = max(entries * (entries - 1) // 2, 1)
    return bool(2.0 * 0.5**operators * pairs <= 1 - CONFIDENCE)
