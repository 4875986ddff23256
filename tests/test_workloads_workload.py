"""The workload: what is accepted, what is refused, what parts of it are."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from fastsim.errors import InputError
from fastsim.workloads import Workload

pytestmark = pytest.mark.small


def small(**changes) -> Workload:
    """Three requests: [0 1], [0], [2] with an answer (symbol 3) that the third prompt could have held."""
    fields = {
        "name": "small",
        "arrival_s": [0.5, 1.0, 4.0],
        "prompt_tok": [30, 12, 7],
        "output_tok": [5, 6, 7],
        "symbol_ptr": [0, 2, 3, 4],
        "symbols": [0, 1, 0, 2],
        "symbol_tok": [10, 20, 7, 5],
        "answer": [3, -1, -1],
    }
    return Workload(**{**fields, **changes})


def prompts(workload: Workload) -> list[list[int]]:
    """The prompts as lists of token numbers, which show what is shared whatever the symbols are called."""
    names = workload.symbols.tolist()
    bounds = workload.symbol_ptr.tolist()
    tok = workload.symbol_tok.tolist()
    return [[tok[s] for s in names[a:b]] for a, b in pairwise(bounds)]


def test_usual_values_are_filled_in():
    workload = small()
    assert workload.shared_symbols.tolist() == [2, 1, 1]
    assert workload.session.tolist() == [-1, -1, -1]
    assert workload.priority.tolist() == [0, 0, 0]
    assert len(workload) == 3
    assert all(getattr(workload, f.name).dtype == np.int64 for f in dataclasses.fields(workload)[2:11])


def test_summary_holds_the_figures():
    summary = small().summary
    assert (summary.requests, summary.span_s, summary.rate_rps) == (3, 3.5, 2 / 3.5)
    assert summary.mean_prompt_tok == pytest.approx(49 / 3, rel=1e-15)
    assert summary.mean_output_tok == 6.0
    assert summary.distinct_symbol_tok == 42
    assert "3 over 3.5 s" in str(summary)
    assert summary.to_dict()["requests"] == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrival_s": [0.5, 0.4, 4.0]}, r"arrival_s at 0 is 0\.4; it must be ascending"),
        ({"arrival_s": [-0.5, 0.4, 4.0]}, r"arrival_s at 0 is -0\.5"),
        ({"arrival_s": [0.5, float("nan"), 4.0]}, r"arrival_s at 1 is nan"),
        ({"arrival_s": [0.5, 1.0, float("inf")]}, r"arrival_s at 2 is inf"),
        ({"prompt_tok": [30, 0, 7]}, "prompt_tok at 1 is 0; it must be 1 to 1,000,000,000"),
        ({"prompt_tok": [29, 12, 7]}, r"prompt_tok at 0 is 29; it must be at least its symbols' tokens"),
        ({"prompt_tok": [30, 12]}, r"prompt_tok has 2 entries for 3 requests"),
        (
            {"prompt_tok": [30.5, 12, 7]},
            "workload: prompt_tok must hold whole numbers of 64 bits in a row, not",
        ),
        ({"output_tok": [5, 6, 0]}, r"output_tok at 2 is 0"),
        ({"symbol_ptr": [0, 2, 4]}, r"symbol_ptr has 3 entries instead of 4"),
        ({"symbol_ptr": [0, 2, 3, 3]}, r"symbol_ptr must run from 0 to the number of symbols, 4"),
        ({"symbol_ptr": [0, 3, 2, 4]}, r"symbol_ptr at 1 is -1"),
        ({"symbols": [0, 1, 0, 4]}, r"symbols at 3 is 4; it must be 0 to 3"),
        ({"symbols": [0, -1, 0, 2]}, r"symbols at 1 is -1"),
        ({"symbol_tok": [10, 0, 7, 5]}, r"symbol_tok at 1 is 0"),
        ({"shared_symbols": [3, 1, 1]}, r"shared_symbols at 0 is 3"),
        ({"answer": [4, -1, -1]}, r"answer at 0 is 4"),
        ({"answer": [2, -1, -1]}, r"answer at 0 is 2; it must be a symbol of output_tok tokens"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name_place_and_value(changes, message):
    with pytest.raises(InputError, match=message):
        small(**changes)


def test_no_request_is_no_workload():
    empty = {
        name: [] for name in ("arrival_s", "prompt_tok", "output_tok", "symbols", "symbol_tok", "answer")
    }
    with pytest.raises(InputError, match="it holds no request"):
        small(**empty, symbol_ptr=[0])


def test_digest_tells_contents_and_not_names():
    assert small().digest() == small(name="other").digest()
    different = [
        small(arrival_s=[0.5, 1.0, 4.5]),
        small(prompt_tok=[30, 13, 7]),
        small(shared_symbols=[1, 1, 1]),
        small(session=[0, 0, -1]),
        small(answer=[-1, -1, -1]),
        small(priority=[0, 0, 1]),
    ]
    assert len({small().digest(), *(w.digest() for w in different)}) == 7
    assert small(priority=[0, 0, 0]).digest() == small().digest()


def test_take_keeps_times_and_drops_symbols_nobody_mentions():
    part = small(priority=[3, 2, 1]).take(np.array([False, True, True]))
    assert part.arrival_s.tolist() == [1.0, 4.0]
    assert part.priority.tolist() == [2, 1]
    assert part.prompt_tok.tolist() == [12, 7]
    assert part.symbol_tok.tolist() == [10, 7]
    assert part.symbols.tolist() == [0, 1]
    assert small().take(1).symbol_tok.tolist() == [10, 20, 5]
    assert small().take(1).answer.tolist() == [2]
    assert small().take(slice(None)).digest() == small().digest()
    assert prompts(small().take(np.array([0, 2]))) == [[10, 20], [7]]


def test_take_of_nothing_is_refused():
    with pytest.raises(InputError, match="no request is left"):
        small().take(np.zeros(3, dtype=bool))


def test_window_is_half_open_and_starts_at_zero():
    assert small().window(0.5, 4.0).arrival_s.tolist() == [0.0, 0.5]
    assert small().window(1.0).arrival_s.tolist() == [0.0, 3.0]
    assert small().window(None, 1.0).arrival_s.tolist() == [0.5]
    assert "window of 1 to inf s" in small().window(1.0).summary.notes[0]


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (5.0, None, "no request is left"),
        (-1.0, None, r"start_s: -1\.0 is not allowed"),
        (float("nan"), None, "start_s: nan"),
        (2.0, 2.0, r"end_s: 2\.0 is not allowed; it must lie after start_s = 2"),
        (0.0, float("nan"), "end_s: nan"),
    ],
)
def test_windows_that_make_no_sense_are_refused(start, end, message):
    with pytest.raises(InputError, match=message):
        small().window(start, end)
