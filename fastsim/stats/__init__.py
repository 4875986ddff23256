"""Statistics that can be trusted: intervals, warm-up, paired comparisons, stopping, selection.

NumPy only at import; SciPy is imported when a function first needs it, numba when the histogram is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastsim.stats.controls import ControlledInterval, control_variates
from fastsim.stats.intervals import (
    Interval,
    PairedInterval,
    mean_interval,
    paired_difference,
    paired_ratio,
    quantile,
    quantile_rank,
    quantiles,
    skewness_adjusted,
    skewness_adjusted_p_value,
)
from fastsim.stats.pipeline import FOR_THE_MEAN, RunStatistics, Summary, reduce_run, run_length, summarise
from fastsim.stats.selection import (
    Comparison,
    Selection,
    Standing,
    compare_to_control,
    differing_pairs,
    holm,
    select_best,
)
from fastsim.stats.single_run import batch_means, order_statistic_interval, sectioning
from fastsim.stats.stability import (
    backlog_score,
    is_below_capacity,
    is_stable,
    load_state,
    point_is_stable,
)
from fastsim.stats.stopping import Decision, StoppingRule, run_until
from fastsim.stats.trust import is_long_enough
from fastsim.stats.warmup import Truncation, common_warmup, mser5

if TYPE_CHECKING:
    from fastsim.stats.histogram import QuantileHistogram

__all__ = [
    "FOR_THE_MEAN",
    "Comparison",
    "ControlledInterval",
    "Decision",
    "Interval",
    "PairedInterval",
    "QuantileHistogram",
    "RunStatistics",
    "Selection",
    "Standing",
    "StoppingRule",
    "Summary",
    "Truncation",
    "backlog_score",
    "batch_means",
    "common_warmup",
    "compare_to_control",
    "control_variates",
    "differing_pairs",
    "holm",
    "is_below_capacity",
    "is_long_enough",
    "is_stable",
    "load_state",
    "mean_interval",
    "mser5",
    "order_statistic_interval",
    "paired_difference",
    "paired_ratio",
    "point_is_stable",
    "quantile",
    "quantile_rank",
    "quantiles",
    "reduce_run",
    "run_length",
    "run_until",
    "sectioning",
    "select_best",
    "skewness_adjusted",
    "skewness_adjusted_p_value",
    "summarise",
]


def __getattr__(name: str) -> Any:
    if name == "QuantileHistogram":
        from fastsim.stats.histogram import QuantileHistogram  # brings numba

        return QuantileHistogram
    raise AttributeError(f"module 'fastsim.stats' has no attribute {name!r}")
