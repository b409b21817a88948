"""Ranks against cases whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmark.benchmark.ranks import compare, places, rank_entries


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


def test_two_entries_have_the_textbook_interval() -> None:
    # With two entries max-t is the normal interval of a paired difference: 1.96 standard errors.
    generator = np.random.default_rng(4)
    first, second = generator.normal(1.0, 1.0, 400), generator.normal(0.9, 1.0, 400)
    difference = first - second
    error = difference.std() / np.sqrt(len(difference))
    (standing, _) = rank_entries(np.array([first, second]), n_boot=20_000)
    assert standing.critical == pytest.approx(1.96, abs=0.05)
    found = compare(first, second, n_boot=20_000)
    assert found.value == pytest.approx(difference.mean())
    assert found.low == pytest.approx(difference.mean() - 1.96 * error, abs=0.1 * error)
    assert found.high == pytest.approx(difference.mean() + 1.96 * error, abs=0.1 * error)


def test_many_independent_pairs_need_the_larger_critical_value() -> None:
    # Ten independent entries of one spread: Tukey's studentised range, 4.474 at 95% and many
    # degrees of freedom (Pearson and Hartley, table 29), over sqrt(2).
    generator = np.random.default_rng(5)
    standings = rank_entries(generator.normal(size=(10, 2000)), n_boot=20_000)
    assert standings[0].critical == pytest.approx(4.474 / np.sqrt(2), abs=0.08)


def test_a_pair_is_decided_as_on_its_board() -> None:
    generator = np.random.default_rng(6)
    hard = generator.uniform(0, 1.5, size=60)
    values = np.array([hard + generator.normal(shift, 0.2, 60) for shift in (0, 0.03, 0.1, 0.3)])
    standings = rank_entries(values)
    better = np.zeros(4, dtype=int)
    for i in range(4):
        for j in range(4):
            if i != j:
                pair = compare(values[i], values[j], standings[0].critical, entries=4)
                better[i] += pair.apart < 0
    assert [1 + n for n in better] == [s.rank for s in standings]
    assert max(s.rank for s in standings) > 1


def test_the_pair_of_equals_is_not_apart() -> None:
    values = np.random.default_rng(7).uniform(size=30)
    assert compare(values, values).apart == 0
    assert compare(np.ones(12), np.zeros(12)).apart == 1
    assert compare(np.zeros(12), np.ones(12)).apart == -1
    assert compare(np.ones(3), np.zeros(3)).apart == 0


def test_places_of_entries_that_never_change_order() -> None:
    values = np.array([[1.0] * 20, [3.0] * 20, [2.0] * 20])
    assert places(values).tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]


def test_level_entries_share_places() -> None:
    values = np.array([[1.0] * 20, [1.0] * 20, [0.0] * 20])
    assert places(values).tolist() == [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]


def test_places_of_every_entry_and_of_every_place_add_up() -> None:
    values = np.random.default_rng(3).random((4, 30))
    found = places(values)
    assert np.allclose(found.sum(axis=0), 1)
    assert np.allclose(found.sum(axis=1), 1)
    assert ((found > 0) & (found < 1)).any()
