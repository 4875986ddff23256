"""Which cells are overloaded: by the load offered where it is known, else by the drift of the backlog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastsim.stats import is_below_capacity, point_is_stable

# What a row says of it: whether its run kept up, the load offered, and the drift of the backlog.
COLUMNS = ("stable", "offered_load", "backlog_score")
Said = tuple[Any, Any, Any]


def said_by(rows: Any) -> list[Said]:
    """What each row says of overload, None where an experiment has no such column."""
    nothing = [None] * rows.height
    columns = (rows[name].to_list() if name in rows.columns else nothing for name in COLUMNS)
    return list(zip(*columns, strict=True))


def keeps_up(rows: Sequence[Said]) -> bool:
    """Whether a cell, by the rows of its replications taken together, keeps up with what is offered.

    Where loads are known, the mean decides: so a cell whose seeds have loads of their own (a trace that is
    thinned) is on one side or the other. A router that refuses keeps up at any load, as all its rows say.
    """
    load = mean_load(rows)
    said = [stable for stable, _, _ in rows if stable is not None]
    if load is not None:
        return is_below_capacity(load, refuses=bool(said) and all(said))
    scores = [score for _, _, score in rows if score is not None]
    return all(said) if said and not scores else not scores or point_is_stable(scores)


def mean_load(rows: Sequence[Said]) -> float | None:
    """The mean of the loads offered, if all are known."""
    loads = [load for _, load, _ in rows]
    return None if None in loads or not loads else float(np.mean(loads))
