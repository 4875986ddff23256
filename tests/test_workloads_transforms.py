"""Windows, rates, repetitions and shuffles of traces."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from fastsim.errors import InputError
from fastsim.rng import generator
from fastsim.workloads import Workload, load, make, transforms
from fastsim.workloads.sessions import derive_sessions, sessions_of
from tests.trace_files import SAMPLES

SAMPLE = SAMPLES / "fmt_mooncake_fast25.jsonl"


def sample(**options) -> Workload:
    return load(SAMPLE, cache=False, **options)


def shares(workload: Workload) -> list[list[int]]:
    """Tokens of the common prefix of every two prompts: all that matters about symbols."""
    rows = np.split(workload.symbols, workload.symbol_ptr[1:-1])

    def common(a: np.ndarray, b: np.ndarray) -> int:
        k = min(len(a), len(b))
        same = np.append(a[:k] == b[:k], False)
        return int(workload.symbol_tok[a[: int(np.argmin(same))]].sum())

    return [[common(a, b) for b in rows] for a in rows]


def made(**columns) -> Workload:
    """A workload from lists."""
    return Workload(name="made", **columns)


def grown(turns: Sequence[tuple[float, int]], question_tok: int = 10, known: bool = False) -> Workload:
    """Sessions of growing prompts: (time, session) each; turn k's prompt is a session's k first stretches."""
    numbers: dict[tuple[int, int], int] = {}
    ptr, symbols, depth, prompt = [0], [], {}, []
    for _, session in turns:
        depth[session] = depth.get(session, 0) + 1
        symbols += [numbers.setdefault((session, k), len(numbers)) for k in range(depth[session])]
        ptr.append(len(symbols))
        prompt.append(depth[session] * 100 + question_tok)
    return made(
        arrival_s=[t for t, _ in turns],
        prompt_tok=prompt,
        output_tok=[1] * len(turns),
        symbol_ptr=ptr,
        symbols=symbols,
        symbol_tok=[100] * len(numbers),
        session=[session for _, session in turns] if known else [-1] * len(turns),
    )


# ---------------------------------------------------------------- nothing asked, nothing done


def test_replicate_zero_without_shuffle_is_the_trace():
    plain = sample()
    assert plain.arrival_s.tolist() == [0.0, 0.0, 3.0, 3.0, 6.0]
    assert plain.summary.notes == ()
    for replicate in (0, 1):
        assert sample(seed=5, replicate=replicate).digest() == plain.digest()


# ---------------------------------------------------------------- window, limit, rate


def test_window_and_limit():
    assert sample(start_s=3).arrival_s.tolist() == [0.0, 0.0, 3.0]
    assert sample(end_s=6).prompt_tok.tolist() == [1300, 1800, 640, 2048]
    assert sample(limit=3).prompt_tok.tolist() == [1300, 1800, 640]
    assert sample(limit=50).digest() == sample().digest()
    assert "the first 3 requests of 5" in sample(limit=3).summary.notes[-1]
    with pytest.raises(InputError, match=r"no request is left \(window of 7 to inf s, out of"):
        sample(start_s=7)


def test_compressing_time():
    fast = sample(rate_scale=4)
    assert fast.arrival_s.tolist() == [0.0, 0.0, 0.75, 0.75, 1.5]
    assert shares(fast) == shares(sample())
    assert fast.summary.rate_rps == pytest.approx(4 * 4 / 6.0)
    assert "rate times 4" in fast.summary.notes[0]


def test_thinning_keeps_requests_as_they_are_and_smaller_shares_are_subsets():
    whole = make("unique", requests=20_000, prompt_cv=0.5)
    kept = {}
    for share in (0.2, 0.5, 0.9):
        part = transforms.thin(whole, share, generator(1, 0, "thinning"))
        kept[share] = set(part.arrival_s.tolist())
        by_time = dict(zip(whole.arrival_s.tolist(), whole.prompt_tok.tolist(), strict=True))
        assert [by_time[t] for t in part.arrival_s.tolist()] == part.prompt_tok.tolist()
        sd = math.sqrt(20_000 * share * (1 - share))
        assert abs(len(part) - share * 20_000) < stats.norm.isf(5e-7) * sd  # a right program fails in 1e-6
    assert kept[0.2] < kept[0.5] < kept[0.9]
    other = transforms.thin(whole, 0.5, generator(1, 1, "thinning"))
    assert set(other.arrival_s.tolist()) != kept[0.5]


def test_thinning_from_load_depends_on_seed_and_replicate(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("t,input,output\n" + "".join(f"{i},{i + 1},1\n" for i in range(200)))

    def digest(**options) -> str:
        return load(path, cache=False, rate_scale=0.5, rate_mode="thin", **options).digest()

    assert digest() == digest(seed=0, replicate=0)
    assert len({digest(), digest(seed=1), digest(replicate=1)}) == 3


# ---------------------------------------------------------------- repeat


def test_repetitions_follow_each_other_at_the_same_rate_and_share_nothing():
    once, thrice = sample(), sample(repeat=3)
    assert len(thrice) == 15
    period = 6.0 * 5 / 4
    np.testing.assert_array_equal(
        thrice.arrival_s, np.concatenate([once.arrival_s + k * period for k in range(3)])
    )
    assert thrice.summary.rate_rps == pytest.approx(once.summary.rate_rps, rel=1e-12)
    np.testing.assert_array_equal(np.kron(np.eye(3, dtype=int), shares(once)), shares(thrice))
    assert thrice.summary.distinct_symbol_tok == 3 * once.summary.distinct_symbol_tok
    assert "repetitions share no tokens with each other" in thrice.summary.notes[0]
    assert sample(repeat=1).digest() == once.digest()


def test_repetitions_have_sessions_and_answers_of_their_own():
    base = made(
        arrival_s=[0.0, 1.0],
        prompt_tok=[8, 8],
        output_tok=[3, 3],
        symbol_ptr=[0, 1, 2],
        symbols=[0, 2],
        symbol_tok=[8, 3, 3],
        answer=[1, -1],
        session=[4, -1],
    )
    twice = transforms.repeat(base, 2)
    assert twice.answer.tolist() == [1, -1, 4, -1]
    assert twice.session.tolist() == [4, -1, 9, -1]
    assert twice.symbols.tolist() == [0, 2, 3, 5]


def test_what_comes_at_once_cannot_be_repeated():
    with pytest.raises(InputError, match="cannot be repeated, all its requests come at once"):
        sample(limit=2, end_s=1, repeat=2)


# ---------------------------------------------------------------- sessions


def test_sessions_are_told_from_growing_prompts():
    turns = [(0, 0), (1, 1), (2, 0), (3, 2), (4, 1), (5, 0)]
    workload = grown(turns)
    # A second turn shares 100 of 210 tokens, too little; a third shares 200 of 310.
    assert derive_sessions(workload).tolist() == [0, 1, 2, 3, 4, 2]
    # With nothing asked in between, a second turn shares exactly half, which is not more than half.
    assert derive_sessions(grown(turns, question_tok=0)).tolist() == [0, 1, 2, 3, 4, 2]


def test_a_request_continues_the_one_that_first_had_its_longest_prefix():
    # 0: [a b c], 1: [a b c d], 2: [a b c d e], 3: [a b c f]: the last continues 0 and not 1 or 2.
    lists = [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 5], [6, 1, 2, 3]]
    workload = made(
        arrival_s=range(5),
        prompt_tok=[30, 100, 50, 40, 40],
        output_tok=[1] * 5,
        symbol_ptr=np.cumsum([0, *map(len, lists)]),
        symbols=np.concatenate(lists),
        symbol_tok=[10] * 7,
    )
    # 1 shares 30 of 100 tokens and is on its own; 2 shares 40 of 50 with 1; 3 shares 30 of 40 with 0.
    assert derive_sessions(workload).tolist() == [0, 1, 1, 0, 2]
    assert sessions_of(workload).tolist() == [0, 1, 1, 0, 2]


def test_given_sessions_are_kept_and_the_others_are_single():
    columns = {"arrival_s": range(4), "prompt_tok": [1] * 4, "output_tok": [1] * 4, "symbol_ptr": [0] * 5}
    workload = made(**columns, symbols=[], symbol_tok=[], session=[7, -1, 7, -1])
    assert sessions_of(workload).tolist() == [0, 1, 0, 2]


def test_shuffling_swaps_the_start_times_of_whole_sessions():
    rng = generator(0, 0, "test")
    times = np.sort(rng.uniform(0, 100, 300)).tolist()
    base = grown(list(zip(times, rng.integers(0, 40, 300).tolist(), strict=True)), known=True)
    shuffled = transforms.shuffle_sessions(base, generator(1, 0, "sessions"))

    def starts_and_gaps(workload: Workload) -> tuple[list[float], list[str]]:
        starts, gaps = [], []
        for session in np.unique(workload.session):
            rows = np.flatnonzero(workload.session == session)
            times = workload.arrival_s[rows]
            starts.append(float(times[0]))
            gaps.append(f"{workload.prompt_tok[rows]} {np.round(times - times[0], 9)}")
        return sorted(starts), sorted(gaps)

    assert starts_and_gaps(base) == starts_and_gaps(shuffled)
    assert (
        shuffled.arrival_s[-1] <= base.arrival_s[-1] + 1e-6
    )  # as many requests in the same time: the same rate
    assert shuffled.arrival_s.tolist() != base.arrival_s.tolist()
    assert "40 sessions, given in the source, have swapped their start times" in shuffled.summary.notes[-1]


def test_shuffles_of_independent_requests_keep_times_and_requests():
    base = make("unique", requests=500, prompt_cv=0.5)
    shuffled = transforms.shuffle_sessions(base, generator(1, 0, "sessions"))
    np.testing.assert_array_equal(shuffled.arrival_s, base.arrival_s)
    assert sorted(shuffled.prompt_tok.tolist()) == sorted(base.prompt_tok.tolist())
    assert shuffled.prompt_tok.tolist() != base.prompt_tok.tolist()
    assert "500 sessions, derived from shared prefixes" in shuffled.summary.notes[-1]


def test_shuffles_from_load_depend_on_seed_and_replicate(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("t,input,output\n" + "".join(f"{i},{i + 1},1\n" for i in range(50)))

    def digest(**options) -> str:
        return load(path, cache=False, **options).digest()

    keys = [{"seed": 0, "replicate": 0}, {"seed": 0, "replicate": 1}, {"seed": 1, "replicate": 0}]
    shuffled = [digest(shuffle_sessions=True, **key) for key in keys]
    assert len({*shuffled, digest()}) == 4
    assert digest(shuffle_sessions=True) == shuffled[0]


def test_every_request_is_equally_likely_to_come_first():
    base = make("unique", requests=4, prompt_tok=5000, prompt_cv=0.3)
    assert len(set(base.prompt_tok.tolist())) == 4
    first = [int(transforms.shuffle_sessions(base, generator(0, r, "s")).prompt_tok[0]) for r in range(2000)]
    counts = [first.count(tok) for tok in base.prompt_tok.tolist()]
    assert stats.chisquare(counts).pvalue > 1e-6  # fails for a right program with this probability


# ---------------------------------------------------------------- all together


def test_order_of_operations():
    both = sample(start_s=0, end_s=4, repeat=2, rate_scale=2, limit=6)
    # window: 0 0 3 3; repeated every 3 * 4 / 3 = 4 s: 0 0 3 3 4 4 7 7; twice as fast; the first six.
    assert both.arrival_s.tolist() == [0.0, 0.0, 1.5, 1.5, 2.0, 2.0]
    assert len(both.summary.notes) == 4


def test_transforms_leave_the_original_alone():
    base = sample()
    before = base.digest()
    copies = [getattr(base, name).copy() for name in ("arrival_s", "symbols", "symbol_tok", "session")]
    for other in (
        transforms.compress_time(base, 2.0),
        transforms.repeat(base, 2),
        transforms.shuffle_sessions(base, generator(0, 0, "s")),
        base.take(2),
        base.window(1.0),
    ):
        assert other.digest() != before
    for copy, name in zip(copies, ("arrival_s", "symbols", "symbol_tok", "session"), strict=True):
        np.testing.assert_array_equal(copy, getattr(base, name))


def test_requests_longer_than_max_tok_are_left_out_aloud(tmp_path):
    path = tmp_path / "trace.jsonl"
    rows = [(0, 100, 5), (1000, 900, 5), (2000, 95, 10)]
    path.write_text(
        "".join(f'{{"timestamp": {t}, "input_length": {n}, "output_length": {m}}}\n' for t, n, m in rows)
    )
    kept = load(path, max_tok=105)
    assert kept.prompt_tok.tolist() == [100, 95]
    assert "left out 1 requests of more than 105 tokens" in kept.summary.notes
    with pytest.raises(InputError, match="max_tok: 3 is not allowed"):
        load(path, max_tok=3)
