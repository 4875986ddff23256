"""Fitted step times against the grids they were fitted to: errors as their source has them, and in our form.

A grid row has prefill tokens and their pairs, decode requests and their contexts, and milliseconds.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

from fastsim.cluster.step_time import StepTime
from fastsim.hardware.step_tables import step_tables
from tests.conftest import shared_path

KINDS = ("prefill", "decode", "mixed")


class Row(NamedTuple):
    kind: str
    n: int
    prefill_pairs: int
    b: int
    decode_ctx: int
    cached: int
    ms: float

    @property
    def kv_tok(self) -> int:
        return self.n + self.cached + self.decode_ctx


def grid(name: str) -> list[Row]:
    """The rows whose KV cache fits 90 % of the memory, as the source chose them."""
    with shared_path(f"calibration/grids/{name}.csv").open() as file:
        rows = [
            Row(
                row["kind"],
                int(row["prefill_tokens"]),
                int(row["prefill_pairs"]),
                int(row["decode_reqs"]),
                int(row["decode_ctx_tokens"]),
                int(row["prefill_seqs"]) * int(row["prefix_per_seq"]),
                float(row["ms"]),
            )
            for row in csv.DictReader(file)
        ]
    capacity_tok = source(name)["kv_cap_tokens"]
    return [row for row in rows if row.kv_tok <= capacity_tok]


def source(name: str) -> dict:
    return json.loads(shared_path("calibration/constants.json").read_text())[name]


def errors(rows: list[Row], predicted_ms: Sequence[float]) -> dict[str, list[float]]:
    """Median and 95th percentile of the relative error in per cent, by kind, to one decimal."""
    result = {}
    for kind in KINDS:
        off = [abs(ms / row.ms - 1) for row, ms in zip(rows, predicted_ms, strict=True) if row.kind == kind]
        result[kind] = [round(100 * float(np.quantile(off, q)), 1) for q in (0.5, 0.95)]
    return result


def ours_ms(step_time: StepTime, rows: list[Row]) -> list[float]:
    """With the engine's features: a decoded token counts in pairs and context, a cached prefix is read."""
    return [
        1e3 * step_time.seconds(row.n, row.prefill_pairs + row.decode_ctx, row.b, row.decode_ctx + row.cached)
        for row in rows
    ]


# name: prefill, decode and mixed (median, P95) of our form; measured 29 November 2026, files fixed.
OURS = {
    "l8_a100_vllm": {"prefill": [0.9, 11.6], "decode": [1.2, 5.5], "mixed": [1.9, 10.4]},
    "l8_h100_vllm": {"prefill": [1.6, 10.7], "decode": [1.7, 5.4], "mixed": [2.1, 9.7]},
    "l70_h100_tp8_vllm": {"prefill": [0.8, 8.2], "decode": [1.2, 6.8], "mixed": [1.2, 7.4]},
    "q235fp8_h200_tp4_vllm": {"prefill": [0.9, 8.1], "decode": [1.0, 5.4], "mixed": [1.7, 10.6]},
    "gptoss_h200_tp1_vllm": {"prefill": [0.9, 3.2], "decode": [0.6, 4.1], "mixed": [0.6, 5.9]},
}


@pytest.mark.parametrize("name", OURS)
def test_tables_as_their_source_uses_them(name: str) -> None:
    """Its own features: the printed errors to the digit, so no constant was mistyped and none misread."""
    table, rows = step_tables()[name], grid(name)
    slope = (table.ms[-1] - table.ms[-2]) / (table.tokens[-1] - table.tokens[-2])
    predicted = [
        float(np.interp(row.n + row.b, table.tokens, table.ms))
        + slope * max(0, row.n + row.b - table.tokens[-1])
        + table.ms_per_pair * row.prefill_pairs
        + table.ms_per_context_tok * row.decode_ctx
        + table.ms_per_decode_request * row.b
        for row in rows
    ]
    assert errors(rows, predicted) == source(name)["table"]["err"]


@pytest.mark.parametrize("name", OURS)
def test_tables_in_our_form(name: str) -> None:
    rows, step_time = grid(name), StepTime.calibrated(name)
    assert errors(rows, ours_ms(step_time, rows)) == OURS[name]
    claimed = source(name)["table"]["err"]
    assert all(OURS[name][kind][0] <= claimed[kind][0] + 0.5 for kind in KINDS)
    assert OURS[name]["decode"] == claimed["decode"]


@pytest.mark.parametrize(
    ("name", "gpu", "model", "tp"),
    [
        ("l8_a100_vllm", "a100", "llama-3.1-8b", 1),
        ("l8_h100_vllm", "h100", "llama-3.1-8b", 1),
        ("l70_h100_tp8_vllm", "h100", "llama-3.1-70b", 8),
        ("q235fp8_h200_tp4_vllm", "h200", "qwen3-235b-a22b-fp8", 4),
        ("gptoss_h200_tp1_vllm", "h200", "gpt-oss-120b", 1),
    ],
)
def test_rooflines_with_fitted_constants(name: str, gpu: str, model: str, tp: int) -> None:
    constants, rows = source(name)["roof3"], grid(name)
    step_time = StepTime.roofline(
        gpu,
        model,
        tp,
        compute_efficiency=constants["compute_eff"],
        bandwidth_efficiency=constants["bw_eff"],
        overhead_s=constants["overhead_ms"] / 1e3,
        output_head=True,
    )
    # The source counts the output head once a sequence, we once a step with prefill, and our expert weights
    # are exact where it rounds: 0.2 points at most, of errors between 3 and 53.
    ours = errors(rows, ours_ms(step_time, rows))
    off = [abs(a - b) for kind in KINDS for a, b in zip(ours[kind], constants["err"][kind], strict=True)]
    assert max(off) < 0.25
