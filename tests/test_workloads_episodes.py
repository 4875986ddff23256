"""Prompts that grow: what extends what, when, and that an engine finds the answers of turns before."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

import fastsim
from fastsim.errors import InputError
from fastsim.workloads import Workload, make

small = pytest.mark.small

# Each statistical check runs once, on a fixed seed, and a right program fails it with this probability.
ALPHA = 1e-6
Z = float(stats.norm.isf(ALPHA / 2))

AGENTS = {
    "lecture": {},
    "own tasks": {"task_tok": 200.0, "task_cv": 0.2},
    "tasks alone": {"system_tok": 0, "task_tok": 200.0},
    "no answers": {"answers_in_prompt": False},
    "no answers, own tasks": {"answers_in_prompt": False, "task_tok": 50.0},
    "long answers": {"output_tok": 100.0, "increment_tok": 20.0},
}


def chains(workload: Workload) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for i, session in enumerate(workload.session.tolist()):
        found.setdefault(session, []).append(i)
    return found


def symbols_of(workload: Workload, i: int) -> list[int]:
    return workload.symbols[workload.symbol_ptr[i] : workload.symbol_ptr[i + 1]].tolist()


def assert_prompts_grow(workload: Workload, answers: bool) -> None:
    """Every prompt is the one before it, its answer and one new symbol; its tokens are its symbols'."""
    new = []
    for chain in chains(workload).values():
        new += symbols_of(workload, chain[0])[1:]
        for before, after in pairwise(chain):
            grown = symbols_of(workload, before) + ([int(workload.answer[before])] if answers else [])
            *old, own = symbols_of(workload, after)
            assert old == grown
            new.append(own)
    assert len(set(new)) == len(new)
    spelt = [int(workload.symbol_tok[symbols_of(workload, i)].sum()) for i in range(len(workload))]
    assert spelt == workload.prompt_tok.tolist()


@small
@pytest.mark.parametrize("params", AGENTS.values(), ids=AGENTS)
def test_steps_extend_the_steps_before(params):
    workload = make("embodied_agent", requests=600, active_episodes=7, steps=5.0, **params)
    assert_prompts_grow(workload, params.get("answers_in_prompt", True))
    steps = np.bincount(np.unique(workload.session, return_inverse=True)[1])
    assert len(steps) > 80
    heads = [symbols_of(workload, chain[0]) for chain in chains(workload).values()]
    assert {len(head) for head in heads} == {("system_tok" not in params) + ("task_tok" in params)}


@small
def test_episodes_take_turns_at_random_and_make_room_for_new_ones():
    workload = make("embodied_agent", requests=40_000, active_episodes=20, steps=12.0, steps_cv=0.3)
    slot = workload.session % 20
    assert stats.chisquare(np.bincount(slot)).pvalue > ALPHA
    for own in (workload.session[slot == s] for s in range(20)):
        assert (np.diff(own) >= 0).all()  # an episode starts when the one before is over
        assert set(np.diff(own).tolist()) == {0, 20}
    last = {int(workload.session[slot == s][-1]) for s in range(20)}
    steps = np.array([len(chain) for name, chain in chains(workload).items() if name not in last])
    assert abs(steps.mean() - 12.0) < Z * 3.6 / math.sqrt(len(steps))
    grown = np.array([workload.prompt_tok[b] - workload.prompt_tok[a] for a, b in next_pairs(workload)])
    assert abs(grown.mean() - 90.0) < Z * 27.0 / math.sqrt(len(grown))
    assert set(workload.prompt_tok[[chain[0] for chain in chains(workload).values()]].tolist()) == {1735}


def next_pairs(workload: Workload) -> list[tuple[int, int]]:
    return [pair for chain in chains(workload).values() for pair in pairwise(chain)]


@small
def test_turns_extend_the_turns_before_after_a_time_to_think():
    workload = make("agentic", requests=5000, rate_rps=5.0, think_s=20.0, think_cv=0.5)
    assert_prompts_grow(workload, answers=True)
    gap_s = np.array([workload.arrival_s[b] - workload.arrival_s[a] for a, b in next_pairs(workload)])
    answer_s = np.array([0.5 + 0.03 * workload.output_tok[a] for a, _ in next_pairs(workload)])
    thought_s = gap_s - answer_s
    assert thought_s.min() > 0
    heads = [symbols_of(workload, chain[0])[0] for chain in chains(workload).values()]
    assert set(heads) == {0, 1, 2, 3}
    starts_s = np.array([workload.arrival_s[chain[0]] for chain in chains(workload).values()])
    assert stats.kstest(np.diff(starts_s), stats.expon(scale=10 / 5.0).cdf).pvalue > ALPHA


@small
def test_think_times_have_the_law_asked_for():
    """Sessions that the end cuts short are the last ones; without answers a gap is nothing but thought."""
    workload = make(
        "agentic",
        duration_s=1e5,
        arrivals="deterministic",
        rate_rps=0.5,
        turns=5.0,
        turns_cv=0.0,
        think_s=3.0,
        think_cv=0.5,
        answer_s=0.0,
        answer_s_per_tok=0.0,
    )
    assert set(np.bincount(workload.session)[:-10].tolist()) == {5}
    gap_s = np.array([workload.arrival_s[b] - workload.arrival_s[a] for a, b in next_pairs(workload)])
    sigma = math.sqrt(math.log1p(0.25))
    law = stats.lognorm(sigma, scale=3.0 * math.exp(-sigma * sigma / 2))
    assert stats.kstest(gap_s, law.cdf).pvalue > ALPHA
    assert abs(gap_s.mean() - 3.0) < Z * 1.5 / math.sqrt(len(gap_s))


def test_an_engine_finds_prompts_and_answers_of_the_turns_before():
    workload = make("agentic", requests=60, rate_rps=0.02, think_s=200.0, think_cv=0.0, system_tok=512.0)
    cluster = fastsim.Cluster(1, kv_tok=2_000_000, block_tok=16)
    hit_tok = fastsim.simulate(workload, cluster).columns["hit_tok"]
    pairs = next_pairs(workload)
    assert len(pairs) > 30
    for before, after in pairs:
        computed = int(workload.prompt_tok[before] + workload.output_tok[before]) - 1
        assert hit_tok[after] == min(computed, workload.prompt_tok[after] - 1) // 16 * 16


@small
def test_prompts_without_a_token_are_refused():
    with pytest.raises(InputError, match="system_tok and task_tok: one of them must be above 0"):
        make("embodied_agent", system_tok=0)
