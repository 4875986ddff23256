"""Cells whose intervals cannot be trusted: by their load, length and warm-up, not by their figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fastsim.stats import is_long_enough
from fastsim.sweep import overload
from fastsim.sweep import params as P
from fastsim.sweep.params import Params

if TYPE_CHECKING:
    import polars as pl

SHORT, UNSETTLED = "short", "unsettled"


def doubts(cells: Sequence[Params], rows: pl.DataFrame) -> Mapping[str, str]:
    """Why a cell, named by its text, is not to be trusted; cells that are have no entry.

    ``"unsettled"``: pilot runs found no warm-up within the longest they may take, so that this is no steady
    state. ``"short"``: all runs together do not hold enough busy periods (`fastsim.stats.is_long_enough`).
    """
    found: dict[str, str] = {}
    parted = rows.partition_by("params", as_dict=True)
    for cell in cells:
        text = P.text(cell)
        if cell.get("settled") is False:
            found[text] = UNSETTLED
        elif (text,) in parted and not _long_enough(parted[(text,)]):
            found[text] = SHORT
    return found


def _long_enough(rows: pl.DataFrame) -> bool:
    load = overload.mean_load(overload.said_by(rows))
    return is_long_enough(float(rows["samples"].sum()), load, _load_cv(rows))


def _load_cv(rows: pl.DataFrame) -> float:
    """Coefficient of variation between runs of the busy time a request; 0 where an experiment has none."""
    if rows.height < 2 or not {"utilisation", "throughput_rps"} <= set(rows.columns):
        return 0.0
    known = rows.select("utilisation", "throughput_rps").drop_nulls()
    work = (known["utilisation"] / known["throughput_rps"]).to_numpy()
    return float(work.std(ddof=1) / work.mean()) if work.size > 1 and np.mean(work) > 0.0 else 0.0
