"""Statistics that can be trusted: intervals, warm-up, paired comparisons, stopping, selection.

NumPy only at import; SciPy is imported when a function first needs it.
"""

from fastsim.stats.intervals import (
    Interval,
    PairedInterval,
    mean_interval,
    paired_difference,
    paired_ratio,
    quantile,
    quantile_rank,
    quantiles,
)
from fastsim.stats.stability import backlog_score, is_stable, point_is_stable

__all__ = [
    "Interval",
    "PairedInterval",
    "backlog_score",
    "is_stable",
    "mean_interval",
    "paired_difference",
    "paired_ratio",
    "point_is_stable",
    "quantile",
    "quantile_rank",
    "quantiles",
]
