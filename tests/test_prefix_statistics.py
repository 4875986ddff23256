"""Prefix statistics against prompts spelt out, and the workloads' presets against Preble's Table 1."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats

from fastsim.cluster.prefix_statistics import PrefixStatistics, prefix_statistics
from fastsim.workloads import from_prompts, make
from fastsim.workloads.presets import TABLE_1
from tests.test_prefix import workloads
from tests.twins import prefix_statistics as twin


@pytest.mark.small
@given(workloads())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_statistics_are_those_of_prompts_spelt_out(workload):
    found = prefix_statistics(workload)
    expected = twin.prefix_statistics(workload)
    shared, seen, keys, key_tok, key_requests = (list(column) for column in zip(*expected, strict=True))
    assert np.rint(found.shared * found.prompt_tok).tolist() == shared
    assert np.rint(found.seen * found.prompt_tok).tolist() == seen
    assert np.rint(found.key_portion * found.prompt_tok).tolist() == key_tok
    assert found.key_requests.tolist() == key_requests
    assert (
        len(set(found.key.tolist())) == len(set(keys)) == len(set(zip(found.key.tolist(), keys, strict=True)))
    )


@pytest.mark.small
def test_a_worked_example():
    system, document = ("system", 10), ("document", 80)
    prompts = [
        [system, document, ("a", 10)],
        [system, document, ("b", 30)],
        [system, ("c", 5)],
        [("other", 7)],
    ]
    found = prefix_statistics(from_prompts(prompts, np.zeros(4), [1, 1, 1, 1]))
    assert found.shared.tolist() == [0.9, 0.75, 10 / 15, 0.0]
    assert found.seen.tolist() == [0.0, 0.75, 10 / 15, 0.0]
    assert found.key_portion.tolist() == [0.8, 80 / 120, 10 / 15, 1.0]
    assert found.key_requests.tolist() == [2, 2, 3, 1]
    assert found.moments()["key_requests"][0] == 2.0
    assert found.moments()["requests_per_key"][0] == 2.0
    assert found.key[0] == found.key[1]


REPLICATES = 8
# The table's figures are those of one data set, so each is held against the spread of single replicates: a
# right preset fails one with this probability, on the fixed seeds below never.
ALPHA = 0.01

# Where the presets differ from the table by more: by how much they may, as a share of the table's figure.
GAPS: dict[tuple[str, str, int], tuple[float, str]] = {
    ("tool_use", "key_portion", 1): (0.45, "one law for all tools' questions; the real ones vary by tool"),
    ("tool_use", "requests_per_key", 1): (0.05, "slices of a lognormal law lack its farthest tail"),
    ("programming", "seen", 1): (0.30, "the same 63 generations a problem; see the preset"),
    ("programming", "key_portion", 0): (0.03, "fixed by shared prefix and mean lengths"),
    ("programming", "key_portion", 1): (0.35, "problems are long or short, not of odd structure"),
    ("video_qa", "key_portion", 1): (0.35, "0.3 % for 0.2 %: the table's lengths spread too far for less"),
    ("long_documents", "seen", 0): (
        0.01,
        "the table's shared prefix exceeds what key portion and 1 in 18 allow",
    ),
    ("long_documents", "seen", 1): (0.07, "the same"),
    ("long_documents", "key_portion", 0): (0.01, "the same"),
    ("long_documents", "key_portion", 1): (
        0.82,
        "some real prompts have another key portion than a document",
    ),
}


@pytest.fixture(scope="module")
def measured() -> dict[str, list[dict[str, tuple[float, float]]]]:
    return {
        name: [
            prefix_statistics(make(name, preset="table_1", replicate=replicate)).moments()
            for replicate in range(REPLICATES)
        ]
        for name in TABLE_1
    }


def half_unit(figure: float) -> float:
    """What rounding to the digits printed may hide."""
    _, _, decimals = str(figure).partition(".")
    return 0.5 * 10.0 ** -len(decimals)


@pytest.mark.parametrize("moment", [0, 1], ids=["mean", "deviation"])
@pytest.mark.parametrize(
    ("name", "column"), [(name, column) for name, columns in TABLE_1.items() for column in columns]
)
def test_presets_have_table_1_s_columns(measured, name, column, moment):
    table = TABLE_1[name][column][moment]
    ours = np.array([moments[column][moment] for moments in measured[name]])
    spread = ours.std(ddof=1) * np.sqrt(1 + 1 / REPLICATES)
    allowed = stats.t.isf(ALPHA / 2, REPLICATES - 1) * spread + half_unit(table)
    gap, _ = GAPS.get((name, column, moment), (0.0, ""))
    assert abs(ours.mean() - table) <= allowed + gap * table
    if gap:  # an exception that is none must go
        assert abs(ours.mean() - table) > allowed


def test_skewed_columns_are_skewed():
    """A normal law of mean 126 and deviation 2157 would be negative half of the time."""
    requests = one_each(prefix_statistics(make("programming", preset="table_1")))
    assert np.median(requests) == 63
    assert np.sort(requests)[-2] == 63
    assert requests.max() == 73_836
    tools = one_each(prefix_statistics(make("tool_use", preset="table_1")))
    assert stats.skew(np.log(tools)) == pytest.approx(0.0, abs=0.3)
    assert stats.skew(tools) > 3


def one_each(found: PrefixStatistics) -> np.ndarray:
    _, first = np.unique(found.key, return_index=True)
    return found.key_requests[first]
