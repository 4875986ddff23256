"""Measures of model routers against values by hand, the published tables, and slow twins."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.errors import InputError
from fastsim.selection import route_metrics as m
from fastsim.selection.model_routers import fit
from fastsim.selection.read_tables import read
from fastsim.selection.tables import split

seeds = st.integers(0, 10**6)
many = settings(max_examples=100, deadline=None, derandomize=True)
GSM8K, NINE = "questions/routellm_gsm8k.csv.gz", "questions/llmrouter9_scores.csv.gz"


def test_strong_curve_by_hand():
    # Ranked b, then a and c together, then d; strong helps b and c, hurts d.
    curve = m.strong_curve([2, 3, 2, 1], [1, 0, 0, 1], [1, 1, 1, 0])
    assert curve.share.tolist() == [0, 0.25, 0.75, 1]
    assert curve.quality.tolist() == [0.5, 0.75, 1.0, 0.75]
    assert curve.pgr.tolist() == [0, 1, 2, 1]
    assert float(m.apgr(curve)) == pytest.approx(0.125 + 0.75 + 0.375, rel=1e-15)
    assert float(m.cpt(curve, 0.5)) == 0.125
    assert float(m.cpt(curve, 1.0)) == 0.25
    assert float(m.apgr_grid(curve, 5)) == pytest.approx((0 + 1 + 1.5 + 2 + 1) / 5, rel=1e-15)


def test_weights_count_questions_as_often():
    rng = np.random.default_rng(0)
    gain, weak, strong = rng.integers(0, 5, 30), rng.random(30), rng.random(30) + 0.3
    weight = rng.integers(0, 4, (6, 30)).astype(float)
    together = m.strong_curve(gain, weak, strong, weight)
    for row, counts in enumerate(weight):
        index = np.repeat(np.arange(30), counts.astype(int))
        alone = m.strong_curve(gain[index], weak[index], strong[index])
        for measure in (m.apgr, m.apgr_grid, lambda c: m.cpt(c, 0.5), lambda c: m.cpt(c, 0.8)):
            assert float(measure(together)[row]) == pytest.approx(float(measure(alone)), rel=1e-12)


def test_where_strong_is_not_better_there_is_no_gap_to_recover():
    curve = m.strong_curve([1, 2], [1, 1], [0, 0])
    assert np.isnan(curve.pgr).all()
    assert math.isnan(m.cpt(curve, 0.5))


def test_a_random_order_recovers_as_much_as_it_calls():
    curve = m.strong_curve(np.zeros(50), np.zeros(50), np.arange(50) % 2)
    assert [float(f(curve)) for f in (m.apgr, m.apgr_grid)] == pytest.approx([0.5, 0.5], rel=1e-12)
    assert [float(m.cpt(curve, x)) for x in (0.5, 0.8, 1.0)] == pytest.approx([0.5, 0.8, 1.0], rel=1e-12)


@given(seeds)
@many
def test_the_oracle_is_the_best_subset_of_its_size(seed):
    rng = np.random.default_rng(seed)
    weak, strong = rng.integers(0, 3, 6) / 2, rng.integers(0, 3, 6) / 2
    for calls in range(7):
        best = max(
            (weak.sum() + (strong - weak)[list(some)].sum()) / 6
            for size in range(calls + 1)
            for some in combinations(range(6), size)
        )
        assert m.oracle_at_share(weak, strong, calls / 6) == pytest.approx(best, rel=1e-12, abs=1e-12)


def slow_hull(cost, quality):
    """Members of the hull: what no mixture of two others beats at its cost, or equals while being cheaper."""
    members = []
    for i, (c, q) in enumerate(zip(cost, quality, strict=True)):
        others = [(cost[k], quality[k]) for k in range(len(cost)) if k != i]
        beaten = any(oc <= c and oq >= q and (oc, oq) != (c, q) for oc, oq in others)
        beaten |= any(k < i and (cost[k], quality[k]) == (c, q) for k in range(len(cost)))
        for (ac, aq), (bc, bq) in combinations(sorted(set(others)), 2):
            if ac < c < bc and (q - aq) * (bc - ac) <= (bq - aq) * (c - ac):
                beaten = True
        if not beaten:
            members.append(i)
    return sorted(members, key=lambda k: cost[k])


@given(seeds, st.integers(1, 9))
@many
def test_hull_is_that_of_the_twin(seed, points):
    rng = np.random.default_rng(seed)
    cost, quality = rng.integers(0, 6, points).astype(float), rng.integers(0, 6, points).astype(float)
    assert m.hull_members(cost, quality).tolist() == slow_hull(cost.tolist(), quality.tolist())


def test_aiq_by_hand():
    cost, quality = [1.0, 2.0, 2.0, 3.0], [0.2, 0.6, 0.1, 0.5]
    # Hull (1, .2), (2, .6), flat to 4: .4 + 1.2, over 4 or over the range from 1.
    assert m.aiq(cost, quality, 4.0) == pytest.approx(1.6 / 4, rel=1e-15)
    assert m.aiq(cost, quality, 4.0, 1.0) == pytest.approx(1.6 / 3, rel=1e-15)
    assert m.aiq(cost, quality, 4.0, 1.5) == pytest.approx((0.25 + 1.2) / 2.5, rel=1e-15)
    assert m.aiq(cost, quality, 4.0, 0.0) == pytest.approx(1.6 / 4, rel=1e-15)
    assert m.aiq([2.0], [0.6], 2.0, 1.0) == 0.0
    with pytest.raises(InputError, match="most is 1; it must be above 1"):
        m.aiq(cost, quality, 1.0, 1.0)


def test_cost_saved_is_found_on_the_hull():
    cost, quality = [1.0, 3.0], [0.2, 0.6]
    assert m.cost_to_reach(cost, quality, 0.4) == pytest.approx(2.0, rel=1e-15)
    assert m.cost_save(cost, quality, 4.0, 0.6) == pytest.approx(0.25, rel=1e-15)
    assert m.cost_save(cost, quality, 4.0, 0.61) == -math.inf
    assert m.cost_save(cost, quality, 4.0, 0.1) == pytest.approx(0.75, rel=1e-15)
    assert float(m.gain_at_baseline(0.66, 0.6)) == pytest.approx(0.1, rel=1e-12)
    assert float(m.gap_at_oracle(0.6, 0.8)) == pytest.approx(0.25, rel=1e-12)


def test_router_arena_score_by_hand():
    middle = math.sqrt(0.0044 * 200)  # half way on the logarithmic scale
    assert float(m.router_arena(0.7, middle)) == pytest.approx(1.1 * 0.7 * 0.5 / (0.07 + 0.5), rel=1e-12)
    assert float(m.router_arena(0.7, 200)) == 0.0
    assert float(m.router_arena(0.7, 1e-9)) == pytest.approx(1.1 * 0.7 / 1.07, rel=1e-12)
    assert float(m.router_arena(0.0, 200)) == 0.0


def test_bad_thresholds_are_refused():
    curve = m.strong_curve([1, 2], [0, 0], [1, 1])
    with pytest.raises(InputError, match=r"recovered is 50; it must lie in \(0, 1\], as 0\.5"):
        m.cpt(curve, 50)
    with pytest.raises(InputError, match=r"share is 1\.5; it must lie from 0 to 1"):
        m.oracle_at_share([0], [1], 1.5)


def test_length_router_on_gsm8k_is_the_published_table(shared_path):
    # Learnt and tested on the same questions: the direction is chosen in the sample, as the reference did.
    table = read(shared_path(GSM8K))
    weak, strong = table.scores.T
    predicted = fit("length", table).quality(table)
    curve = m.strong_curve(predicted[:, 1] - predicted[:, 0], weak, strong)
    assert float(m.apgr(curve)) == pytest.approx(0.601, abs=0.0005)
    assert float(m.cpt(curve, 0.5)) == pytest.approx(0.36, abs=0.005)
    assert float(m.cpt(curve, 0.8)) == pytest.approx(0.66, abs=0.005)
    assert m.oracle_at_share(weak, strong, 1.0) == pytest.approx(0.929, abs=0.0005)
    assert m.oracle_at_share(weak, strong, 0.1) == pytest.approx(weak.mean() + 0.1, abs=1e-12)


def test_all_of_nine_models_together(shared_path):
    table = read(shared_path(NINE), prices=shared_path("questions/llmrouter9_prices.json"))
    parts = split(table)
    routed = fit("oracle", parts.train).route(table)
    assert routed.score.mean() == pytest.approx(0.797, abs=0.0005)
