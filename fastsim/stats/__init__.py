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

__all__ = [
    "Interval",
    "PairedInterval",
    "mean_interval",
    "paired_difference",
    "paired_ratio",
    "quantile",
    "quantile_rank",
    "quantiles",
]
