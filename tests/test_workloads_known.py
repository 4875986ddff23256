"""Real traces that are not part of the project: facts known about them from elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from fastsim.errors import InputError
from fastsim.workloads import Workload, load
from fastsim.workloads.sessions import derive_sessions


@pytest.fixture
def trace(shared_path):
    return lambda name, **options: load(shared_path(f"traces/{name}"), cache=False, **options)


def reused_share(workload: Workload) -> float:
    """Share of input tokens that lie in a prefix of an earlier prompt (infinite cache, block by block)."""
    seen: set[tuple[int, int]] = set()
    reused = 0
    for row in np.split(workload.symbols, workload.symbol_ptr[1:-1]):
        before, hit = -1, True
        for symbol in row.tolist():
            # Ids of these traces stand for the block and all before it, so the last one tells the prefix.
            hit = hit and (before, symbol) in seen
            reused += int(workload.symbol_tok[symbol]) if hit else 0
            seen.add((before, symbol))
            before = symbol
    return reused / int(workload.prompt_tok.sum())


def test_mooncake_conversation(trace):
    workload = trace("mooncake_conversation.jsonl.gz")
    summary = workload.summary
    assert (len(workload), summary.rows_read, summary.dropped, summary.repaired) == (12_031, 12_031, (), ())
    assert (summary.format, summary.block_tok, summary.time_unit) == ("mooncake", 512, "ms")
    assert round(summary.mean_prompt_tok) == 12_035
    assert round(summary.mean_output_tok) == 343
    assert summary.span_s == 3536.999
    assert round((np.diff(workload.arrival_s) == 0).mean(), 1) == 0.9
    assert round(reused_share(workload), 3) == 0.374
    assert workload.symbol_tok.max() == 512


def test_agentic(trace):
    with pytest.raises(InputError, match="line 442, column output_length: 0 is not allowed"):
        trace("agentic_25min_block64.jsonl.gz", zero_output="refuse")
    workload = trace("agentic_25min_block64.jsonl.gz")
    assert len(workload) == 893
    assert "1 x output_length of 0, taken for failures" in str(workload.summary.dropped[0])
    assert workload.summary.block_tok == 64
    assert set(workload.symbol_tok.tolist()) == {64}
    assert workload.summary.ignored_columns == ("think_s",)
    np.testing.assert_array_equal(np.diff(workload.symbol_ptr), workload.prompt_tok // 64)
    # Sessions derived from prompts: requests put together do belong together.
    derived, given = derive_sessions(workload), workload.session
    owner = {int(s): int(given[np.argmax(derived == s)]) for s in np.unique(derived)}
    together = np.mean([owner[int(d)] == int(g) for d, g in zip(derived, given, strict=True)])
    assert together > 0.95


def test_azure(trace):
    workload = trace("azure_conv_2023.csv.gz")
    assert len(workload) == 19_366
    assert round(workload.summary.mean_prompt_tok) == 1155
    assert round(workload.summary.mean_output_tok) == 211
    assert workload.arrival_s[0] == 0.0
    assert 3500 < workload.summary.span_s < 3600


def test_servegen(trace):
    workload = trace("servegen_m-large_20min.csv.gz")
    assert (len(workload), workload.arrival_s[-1]) == (11_982, 1200.0)
    assert workload.summary.ignored_columns == ("client",)


def test_reference(trace):
    with pytest.raises(
        InputError, match=r"in ms the trace would run at 78\.3.*, in s at 0\.0783.*state time_unit"
    ):
        trace("ref_fixed_block64.jsonl.gz")
    workload = trace("ref_fixed_block64.jsonl.gz", time_unit="ms")
    assert len(workload) == 10_000
    assert workload.summary.rate_rps == pytest.approx(78.4, abs=0.1)
    assert workload.summary.block_tok == 64
    assert set(workload.prompt_tok.tolist()) == {2000}
    assert set(workload.output_tok.tolist()) == {128}
    rows = workload.symbols.reshape(10_000, 32)
    tok = workload.symbol_tok[rows]
    assert set(tok[:, :31].ravel().tolist()) == {64}
    assert set(tok[:, 31].tolist()) == {16}
    # 100 groups share 1,024 tokens; the rest of every prompt is its own.
    assert len(np.unique(rows[:, 0])) == 100
    assert len(np.unique(rows[:, :16])) == 1600
    assert len(np.unique(rows[:, 16:])) == 160_000
