"""What a workload's prompts have in common, beside Preble's Table 1 where it has the workload."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from fastsim.errors import InputError
from fastsim.report.text import grid, number

if TYPE_CHECKING:
    from fastsim.workloads import Workload

_TITLES = {
    "prompt_tok": "prompt (tokens)",
    "output_tok": "output (tokens)",
    "shared": "prefix another request has",
    "seen": "prefix an earlier request has",
    "key_portion": "key portion in prompt",
    "key_requests": "requests sharing it, by request",
    "requests_per_key": "requests sharing it, by key portion",
}


def find(name: str, settings: dict[str, Any], seed: int) -> Workload:
    """Make a synthetic workload, or load the trace that is called so."""
    from fastsim import workloads
    from fastsim.sweep.params import check_keys, is_file

    if "seed" in settings:
        raise InputError("--set 'seed' is unknown; did you mean --seed?")
    if name not in workloads.GENERATORS and is_file(name):
        check_keys(settings, inspect.signature(workloads.load).parameters, f"trace {name}")
        return workloads.load(name, seed=seed, **settings)
    return workloads.make(name, seed=seed, **settings)


def statistics(workload: Workload) -> list[dict[str, Any]]:
    """A row a column: mean and standard deviation, measured and as in Table 1 (None where it has none)."""
    from fastsim.cluster.prefix_statistics import prefix_statistics
    from fastsim.workloads.presets import TABLE_1

    table = TABLE_1.get(workload.name, {})
    return [
        {
            "column": column,
            "mean": mean,
            "deviation": deviation,
            "table_1_mean": table.get(column, (None, None))[0],
            "table_1_deviation": table.get(column, (None, None))[1],
        }
        for column, (mean, deviation) in prefix_statistics(workload).moments().items()
    ]


def text(workload: Workload) -> str:
    """The workload's summary and the statistics of its prompts."""
    rows = statistics(workload)
    kept = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    titles = {"table_1_mean": "Table 1: mean", "table_1_deviation": "deviation"}
    body = [[_TITLES[row["column"]], *(number(row[name]) for name in kept[1:])] for row in rows]
    return f"{workload.summary}\n\n{grid(['', *(titles.get(name, name) for name in kept[1:])], body, left=1)}"
