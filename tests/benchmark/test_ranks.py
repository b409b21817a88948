"""Ranks against cases whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmark.benchmark.ranks import rank_entries


def test_alone_is_first() -> None:
    (only,) = rank_entries(np.array([[0.0, 1.0, 0.5]]))
    assert (only.rank, only.rank_high, only.first_share) == (1, 1, 1.0)
    assert only.value == pytest.approx(0.5)
    assert only.value_low < 0.5 < only.value_high


def test_equal_entries_share_a_rank() -> None:
    values = np.random.default_rng(0).uniform(size=40)
    for standing in rank_entries(np.array([values, values, values])):
        assert (standing.rank, standing.rank_high) == (1, 3)


def test_clearly_better_is_told_apart() -> None:
    noise = np.random.default_rng(0)
    strong = noise.uniform(1.2, 1.8, size=40)
    weak = noise.uniform(0.0, 0.6, size=40)
    middle = noise.uniform(0.6, 1.2, size=40)
    standings = rank_entries(np.array([weak, strong, middle]))
    assert [(s.rank, s.rank_high) for s in standings] == [(3, 3), (1, 1), (2, 2)]


def test_pairing_tells_apart_what_means_alone_would_not() -> None:
    # Operators differ wildly, the entries by a little and always the same way, give or take.
    generator = np.random.default_rng(1)
    hard = generator.uniform(0.0, 2.0, size=100)
    better = hard + generator.uniform(0.01, 0.03, size=100)
    first, second = rank_entries(np.array([better, hard]))
    assert (first.rank, second.rank) == (1, 2)
    assert first.value_low < second.value_high  # their own intervals overlap widely


def test_constant_difference_counts_only_with_enough_operators() -> None:
    few = rank_entries(np.array([np.ones(3), np.zeros(3)]))
    assert [s.rank for s in few] == [1, 1]
    many = rank_entries(np.array([np.ones(12), np.zeros(12)]))
    assert [s.rank for s in many] == [1, 2]


def test_rarely_tells_equal_methods_apart() -> None:
    generator = np.random.default_rng(2)
    wrong = 0
    for _ in range(200):
        standings = rank_entries(generator.normal(size=(4, 50)), n_boot=400)
        wrong += any(s.rank != 1 for s in standings)
    assert wrong / 200 <= 0.09  # nominal 5%; 0.09 lies 2.6 standard errors above


def test_same_seed_same_answer() -> None:
    values = np.random.default_rng(3).normal(size=(5, 30))
    assert rank_entries(values) == rank_entries(values)
    assert rank_entries(values) != rank_entries(values, seed=1)


def test_no_operators_is_an_error() -> None:
    with pytest.raises(ValueError, match="no operators"):
        rank_entries(np.empty((2, 0)))
