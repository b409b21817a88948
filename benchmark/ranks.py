"""Ranks as intervals: which entries a suite can tell apart.

Paired bootstrap over operators: each resample draws operators with replacement, the same for all
entries. Two entries are told apart where the difference of their means lies outside a simultaneous
95% interval: the largest studentised deviation over all pairs gives one critical value for all of
them (max-t; Westfall and Young 1993; rank intervals as in Mogstad, Romano, Shaikh and Wilhelm
2024). An entry's rank is 1 plus the number of entries told apart as better; at worst it is the
number of entries minus those told apart as worse. Computed once, when the database is built; by the
same functions again where a reader asks for a part of a board or for one pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
N_BOOT = 2000
SEED = 20250101

#: below this a standard error is rounding
_NO_SPREAD = 1e-12

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Standing:
    """Where one entry stands. `first_share`: share of resamples in which no entry is better.

    `critical` is the board's: how many standard errors a difference of two entries must exceed.
    """

    rank: int
    rank_high: int
    value: float
    value_low: float
    value_high: float
    first_share: float
    critical: float


@dataclass(frozen=True)
class Difference:
    """First minus second, paired by operator, with the 95% interval of this pair alone.

    `apart`: 1 or -1 where the first or the second is certainly better, given the critical value of
    a whole board; else 0.
    """

    value: float
    low: float
    high: float
    apart: int


def rank_entries(values: Array, n_boot: int = N_BOOT, seed: int = SEED) -> list[Standing]:
    """Standings of entries from `values` of shape (entries, operators); more is better."""
    entries, operators = values.shape
    resampled = _resample(values, n_boot, seed)
    means = values.mean(axis=1)
    difference = means[:, None] - means[None, :]
    error, critical = _errors(means, resampled)
    better = _apart(difference, error, critical, operators, entries)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail], axis=0)
    first = (resampled >= resampled.max(axis=1, keepdims=True) - _NO_SPREAD).mean(axis=0)
    return [
        Standing(
            rank=1 + int(better[:, i].sum()),
            rank_high=entries - int(better[i].sum()),
            value=float(means[i]),
            value_low=float(low[i]),
            value_high=float(high[i]),
            first_share=float(first[i]),
            critical=critical,
        )
        for i in range(entries)
    ]


def places(values: Array, n_boot: int = N_BOOT, seed: int = SEED) -> Array:
    """How often each entry takes each place, (entries, places), over the draws of `rank_entries`.

    Entries that are level in a draw share the places that they take up.
    """
    resampled = _resample(values, n_boot, seed)
    entries = len(values)
    shares = np.zeros((entries, entries))
    for i in range(entries):
        ahead = (resampled > resampled[:, [i]] + _NO_SPREAD).sum(axis=1)
        level = (np.abs(resampled - resampled[:, [i]]) <= _NO_SPREAD).sum(axis=1)
        for place in range(entries):
            takes = (ahead <= place) & (place < ahead + level)
            shares[i, place] = (takes / level).mean()
    return shares


def compare(
    first: Array,
    second: Array,
    critical: float | None = None,
    entries: int = 2,
    n_boot: int = N_BOOT,
    seed: int = SEED,
) -> Difference:
    """Two entries over the same operators, each of shape (operators,).

    `critical` is `Standing.critical` of a board of `entries` entries that both stand on: with it
    `apart` says what the board's ranks say, by the same resamples. Without, the pair is all.
    """
    values = np.stack([first, second])
    resampled = _resample(values, n_boot, seed)
    means = values.mean(axis=1)
    error, alone = _errors(means, resampled)
    difference = means[:, None] - means[None, :]
    critical = alone if critical is None else critical
    better = _apart(difference, error, critical, len(first), entries)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled[:, 0] - resampled[:, 1], [tail, 1 - tail])
    apart = int(better[0, 1]) - int(better[1, 0])
    return Difference(float(difference[0, 1]), float(low), float(high), apart)


def _resample(values: Array, n_boot: int, seed: int) -> Array:
    """Means of each entry over each resample of the operators, (n_boot, entries)."""
    operators = values.shape[1]
    if operators == 0:
        raise ValueError("no operators to rank over")
    generator = np.random.default_rng(seed)
    weights = generator.multinomial(operators, np.full(operators, 1 / operators), size=n_boot)
    means: Array = weights.astype(np.float64) @ values.T / operators
    return means


def _errors(means: Array, resampled: Array) -> tuple[Array, float]:
    """Bootstrap standard errors of all differences, (entries, entries), and the critical value."""
    entries = len(means)
    error, worst = np.zeros((entries, entries)), np.zeros(len(resampled))
    # One row an entry, so that the numbers of an entry lie next to each other; each pair once.
    rows = np.ascontiguousarray((resampled - means).T)
    for i in range(entries - 1):
        deviation = rows[i + 1 :] - rows[i]
        spread = deviation.std(axis=1)
        error[i, i + 1 :] = error[i + 1 :, i] = spread
        usable = spread > _NO_SPREAD
        studentised = np.abs(deviation[usable]) / spread[usable, None]
        worst = np.maximum(worst, studentised.max(axis=0, initial=0.0))
    return error, float(np.quantile(worst, CONFIDENCE))


def _apart(
    difference: Array, error: Array, critical: float, operators: int, entries: int
) -> NDArray[np.bool_]:
    """Boolean (entries, entries): whether the first is certainly better than the second."""
    usable = error > _NO_SPREAD
    certain = usable & (difference > critical * error)
    return certain | (~usable & (difference > _NO_SPREAD) & _unanimous(operators, entries))


def _unanimous(operators: int, entries: int) -> bool:
    """Whether a difference that is the same on every operator is no accident.

    Its bootstrap has no spread, so a sign test stands in: all signs equal by chance has the
    probability 2 * 0.5^operators, held against 5% divided by the number of pairs.
    """
    pairs = max(entries * (entries - 1) // 2, 1)
    return bool(2.0 * 0.5**operators * pairs <= 1 - CONFIDENCE)
