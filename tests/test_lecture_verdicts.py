"""Verdicts on the lecture's figures: each can disagree, and what is no evidence has another word."""

from __future__ import annotations

import numpy as np
import pytest

from fastsim.lecture import cluster_runs, load_terms, verdicts
from fastsim.lecture.cluster_runs import Policy, Sample, Traffic
from fastsim.lecture.verdicts import Row, apart, claim, exact, figure, formula
from fastsim.stats import Interval

pytestmark = pytest.mark.small

NARROW, WIDE = np.linspace(4.0, 6.0, 101), np.linspace(4.0, 31.0, 101)
FOUND = Interval(5.0, 4.9, 5.1, 40)
WANTED = (0.9, 1.1)


def judge(lecture: float, values=NARROW) -> Row:
    return figure("X1", "a mean", "s", lecture, 2, FOUND, (values, "single runs"), "40 runs")


@pytest.mark.parametrize(
    ("lecture", "verdict"), [(5.0, "agrees"), (4.2, "agrees"), (3.0, "disagrees"), (6.3, "disagrees")]
)
def test_a_figure_is_held_against_the_interval_and_single_runs(lecture, verdict):
    assert judge(lecture).verdict == verdict


@pytest.mark.parametrize(
    ("lecture", "verdict"), [(5.0, "cannot tell"), (20.0, "cannot tell"), (90.0, "disagrees")]
)
def test_one_run_tells_nothing_inside_a_band_wider_than_a_factor_of_two(lecture, verdict):
    row = judge(lecture, WIDE)
    assert row.verdict == verdict
    assert ("cannot tell from one run" in row.note) == (verdict == "cannot tell")


def test_a_band_down_to_nothing_is_wider_than_any_factor():
    assert judge(0.5, np.linspace(-1.0, 6.0, 101)).verdict == "cannot tell"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.95, 1.05, "agrees"), (1.2, 1.3, "disagrees"), (0.5, 0.8, "disagrees"), (1.05, 1.2, "undecided")],
)
def test_words_are_held_against_a_range(low, high, verdict):
    assert claim("X1", "a ratio", "same", Interval(low, low, high, 9), WANTED, "").verdict == verdict


def test_words_that_could_not_but_agree_are_refused():
    with pytest.raises(ValueError, match="cannot be missed"):
        claim("X1", "a ratio", "anything", FOUND, (0.0, np.inf), "")


def test_little_does_not_include_getting_worse():
    worse = Interval(0.95, 0.93, 0.97, 40)
    assert claim("P1", "largest gain on agents", "little", worse, (1.0, 2.0), "").verdict == "disagrees"


def test_numbers_without_a_sample_can_disagree():
    assert exact("X1", "tokens", "", 10, 11, 0).verdict == "disagrees"
    assert formula("X1", "a share", "", "small", 0.9, holds=False).verdict == "disagrees"
    assert formula("X1", "a share", "", None, 0.9).verdict == "-"


def test_a_row_apart_tells_what_was_found_under_another_word():
    for wrong, told in ((10, "it holds"), (11, "it does not hold")):
        row = apart(exact("X1", "tokens", "", 10, wrong, 0), verdicts.VARIANT)
        assert row.verdict == "variant"
        assert row.note.endswith(told)


def test_repeats_count_once():
    rows = [exact("A1", "hits", "", 10, 10, 0), exact("A1", "copies", "", 10, 10, 0)]
    again = verdicts.without_repeats([*rows, exact("E4", "hits", "", 10, 10, 0)])
    assert [row.verdict for row in again] == ["agrees", "agrees", "repeats"]
    assert again[2].note.endswith("as in A1")
    other = verdicts.without_repeats([*rows, exact("E4", "hits", "", 12, 10, 0)])
    assert other[2].verdict == "disagrees"  # another figure is another claim


def sample(name: str, mean: float, load: float = 0.5) -> Sample:
    rng = np.random.default_rng(0)
    around = {metric: mean * rng.uniform(0.95, 1.05, 40) for metric in ("mean", "p99", "low_p99", "hit")}
    rates = {"rate_rps": np.full(40, load), "capacity_rps": np.array([1.0, *[np.nan] * 39])}
    busiest = np.full(40, 0.4)
    traffic = Traffic("documents", "long_documents", {})
    return Sample(Policy(name, name), traffic, {**around, **rates, "busiest": busiest})


def test_figures_and_words_on_policies_can_disagree():
    fast, slow = sample("fast", 1.0), sample("slow", 3.0)
    assert cluster_runs.shown("X1", slow, "mean", 1.0).verdict == "disagrees"
    assert cluster_runs.shown("X1", slow, "mean", 3.0).verdict == "agrees"
    assert cluster_runs.judged("X1", slow, "busiest", "spread", (0.0, 0.3)).verdict == "disagrees"
    assert cluster_runs.ratio("X1", fast, slow, "slower", (1.0, np.inf)).verdict == "disagrees"
    assert cluster_runs.ratio("P5", fast, slow, 0.75, 2, metric="p99").verdict == "disagrees"
    assert cluster_runs.ratio("P5", fast, slow, 0.33, 2, metric="p99").verdict == "agrees"
    assert cluster_runs.difference("X1", slow, fast, 1.0, 2).verdict == "disagrees"
    assert cluster_runs.overloaded("X1", fast, "collapses", True).verdict == "disagrees"
    assert cluster_runs.overloaded("X1", sample("over", 9.0, 1.2), "cured", False).verdict == "disagrees"


def test_overload_is_no_evidence_on_what_grows_with_the_run():
    fast, over = sample("fast", 1.0), sample("over", 3.0, 1.2)
    assert not over.stable
    assert sample("near its capacity", 3.0, 1.02).stable
    for row in (
        cluster_runs.shown("X1", over, "mean", 3.0),
        cluster_runs.ratio("X1", over, fast, "slower", (1.0, np.inf)),
        cluster_runs.ratio("X1", over, fast, 3.0, 1, metric="p99"),
    ):
        assert row.verdict == "cannot tell"
        assert "overload" in row.note
    assert cluster_runs.judged("X1", over, "busiest", "herds", (0.3, 1.0)).verdict == "agrees"
    assert cluster_runs.shown("X1", over, "mean").verdict == "-"
    row = cluster_runs.ratio("X1", over, fast, "slower", (1.0, np.inf))
    assert cluster_runs.variant(row).verdict == "cannot tell"


def test_terms_of_the_load_cost_are_means_over_costs_not_over_requests():
    """One request compares four replicas, another one; the fraction counts those with any M."""
    scores = np.array([[40.0, 8.0, 4.0, 4.25], [1.0, 0.0, 1.0, 1.0]])
    assert load_terms.means(scores).tolist() == [41 / 5, 8 / 5, 5 / 5, 2 / 5]
