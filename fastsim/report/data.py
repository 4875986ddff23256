"""Summaries as plain values, ready for JSON."""

from __future__ import annotations

import math
from typing import Any

from fastsim.stats import Interval, PairedInterval
from fastsim.sweep.summary import Table


def rows(tables: list[Table]) -> list[dict[str, Any]]:
    """One object a line of the tables: grid, axes, seeds, stable, load, then an estimate for each metric.

    ``<metric>`` is ``{value, low, high, n}`` and ``<metric>_difference`` adds ``against`` and ``vrf``; both
    are null where they are withheld. ``<metric>_differs_from`` names the compared values from which a line
    differs when the ``<metric>_family`` pairs of its setting are judged together (Holm, 5 %). ``doubt`` says
    why the intervals cannot be trusted, if so, and ``estimated`` what the figures are estimates of.
    """
    return [
        {
            "grid": table.title,
            **cell.axes,
            "seeds": cell.seeds,
            "seeds_missing": cell.missing,
            "seeds_from": cell.why,
            "stable": cell.stable,
            "offered_load": cell.offered_load,
            "doubt": cell.doubt or None,
            "difference_doubt": cell.difference_doubt or None,
            "estimated": list(table.estimated),
            **{name: estimate(interval) for name, interval in cell.metrics.items()},
            **{
                f"{name}_difference": estimate(interval, against=table.reference)
                for name, interval in cell.differences.items()
            },
            **{f"{name}_differs_from": list(one.differs_from) for name, one in cell.families.items()},
            **{f"{name}_family": one.pairs for name, one in cell.families.items()},
        }
        for table in tables
        for cell in table.cells
    ]


def estimate(interval: Interval | None, **more: Any) -> dict[str, Any] | None:
    """An interval as an object; what is not finite becomes null."""
    if interval is None:
        return None
    fields = {"value": interval.value, "low": interval.low, "high": interval.high, "n": interval.n}
    if isinstance(interval, PairedInterval):
        fields["vrf"] = interval.vrf
    return {**more, **{name: value if math.isfinite(value) else None for name, value in fields.items()}}
