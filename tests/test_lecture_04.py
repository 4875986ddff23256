"""Code 04 of the lecture: every figure with a verdict, seed by seed the same for any number of workers."""

from __future__ import annotations

import numpy as np
import pytest

from fastsim.lecture import code_04, toy_worlds
from fastsim.lecture.verdicts import CANNOT_TELL, COUNTED, NOT_SAID, PICKED, Row
from fastsim.report import lecture

IDS = {*(f"M{n}" for n in range(1, 10)), "E6", "E7"}


@pytest.fixture(name="rows", scope="module")
def _rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code_04, "DEMOS", 12)
        patch.setattr(code_04, "POOLS", 20)
        return code_04.code_04()


def named(rows: list[Row], id: str, words: str) -> Row:
    (found,) = (row for row in rows if row.id == id and words in row.quantity)
    return found


def test_every_figure_of_the_code_has_a_row_and_a_verdict(rows):
    assert {row.id for row in rows} == IDS
    quantities = [(row.id, row.quantity) for row in rows]
    assert len(set(quantities)) == len(quantities)
    for row in rows:
        assert row.low <= row.ours <= row.high
        assert row.verdict in (*COUNTED, CANNOT_TELL, PICKED, NOT_SAID)
        assert (row.verdict == "-") == (row.lecture is None)
        assert row.note
    assert lecture.CODES["04"] == "fastsim.lecture.code_04:code_04"
    assert "M4" in lecture.table(rows)


def test_the_picked_seed_has_the_digits_and_says_that_it_was_picked(rows):
    for id, words in (
        ("M1", "C+C, one seed"),
        ("M1", "A+C, one seed"),
        ("M1", "C+B, one seed"),
        ("M2", "greedy from C+C, one seed"),
        ("M2", "LLMSelector from C+C, one seed"),
        ("M3", "greedy (steepest) fails, one seed"),
        ("M9", "A+B over C+C, a point"),
    ):
        row = named(rows, id, words)
        assert row.verdict == "picked"
        assert row.seeds == 0
        assert "picked" in row.note


def test_formulas_and_counts_are_exact(rows):
    for id in ("M8", "E6"):
        assert named(rows, id, "exhaustive allocations").ours == 10**6
        assert named(rows, id, "evaluates at least").ours == 60
    assert named(rows, "E6", "confirmation included").ours == 20
    assert named(rows, "E6", "evaluated until A+B was found, over seeds").ours == 10
    assert (named(rows, "M9", "cost of A+B").ours, named(rows, "M9", "cost of C+C").ours) == (8.0, 2.0)


def test_properties_hold_over_seeds_that_nobody_picked(rows):
    for id, words in (
        ("M1", "C+C is a local optimum"),
        ("M2", "true diagnoser"),
        ("M2", "diagnoser right 0.8"),
        ("M3", "LLMSelector never fails"),
        ("M6", "where LLMSelector separates"),
    ):
        assert named(rows, id, words).ours == 1.0
    assert named(rows, "E7", "tiny penalty inside").verdict == "disagrees"
    assert named(rows, "E7", "penalty of 1e-6 after").ours == 0.0


def test_runs_do_not_depend_on_the_number_of_workers():
    alone = toy_worlds.across(toy_worlds.demonstration, range(2), 1)
    shared = toy_worlds.across(toy_worlds.demonstration, range(2), 2)
    assert alone.keys() == shared.keys()
    assert all((alone[name] == shared[name]).all() for name in alone)


def test_shares_have_exact_binomial_intervals():
    """Clopper and Pearson's table: 0 of 10, 10 of 10, 3 of 10."""
    for right, low, high in ((0, 0.0, 0.3085), (10, 0.6915, 1.0), (3, 0.0667, 0.6525)):
        found = code_04._share(np.arange(10) < right)
        assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)
        assert (found.value, found.n) == (right / 10, 10)


def test_means_of_ten_pools_spread_as_their_standard_error():
    values = np.random.default_rng(0).normal(5.0, 2.0, 2_000)
    tens = code_04._tens(values)
    assert tens.std() == pytest.approx(values.std() / np.sqrt(10), rel=4 / np.sqrt(2 * code_04.SUBSETS))
    assert abs(tens.mean() - values.mean()) < 4 * values.std() / np.sqrt(10 * code_04.SUBSETS)
