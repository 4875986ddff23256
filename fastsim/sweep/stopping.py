"""How many seeds each block of cells needs: a fixed number, or until its intervals are narrow enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastsim.stats.stopping import StoppingRule
from fastsim.sweep import overload
from fastsim.sweep import params as P
from fastsim.sweep.points import Block
from fastsim.sweep.spec import Sweep

if TYPE_CHECKING:
    import polars as pl

# (value of the watched metric, what says whether it keeps up) by replicate, for each cell, named by its text.
Observed = Mapping[str, Mapping[int, tuple[float, overload.Said]]]


@dataclass(frozen=True)
class Verdict:
    """Seeds a block needs, from replicate 0 on, and why.

    Attributes
    ----------
    seeds : int
    why : {"fixed", "target", "cap", "running"}
        Given in the sweep; every stable cell reached the target; the cap came first; not enough known yet.
    """

    seeds: int
    why: str


def observed(sweep: Sweep, rows: pl.DataFrame) -> Observed:
    """What the stopping rule watches, from all rows; empty without a rule."""
    found: dict[str, dict[int, tuple[float, overload.Said]]] = {}
    if sweep.stop is None or rows.is_empty():
        return found
    columns = (rows["params"], rows["replicate"], rows[sweep.stop.metric], overload.said_by(rows))
    for cell, replicate, value, said in zip(*columns, strict=True):
        found.setdefault(cell, {})[replicate] = (value, said)
    return found


def verdict(sweep: Sweep, block: Block, values: Observed) -> Verdict:
    """The sequential rule, replayed from the start, so that it depends on the results alone.

    All cells of a block get the same seeds: the comparison is paired. An unstable cell has no value to wait
    for.
    """
    stop = sweep.stop
    if stop is None:
        return Verdict(sweep.seeds, "fixed")
    rule = StoppingRule(stop.rel_half_width, start=stop.min_seeds, batch=stop.batch, maximum=stop.max_seeds)
    cells = [values.get(P.text(cell), {}) for cell in block.cells]
    seeds = rule.start
    while all(replicate in cell for cell in cells for replicate in range(seeds)):
        decisions = [
            rule.decide([cell[replicate][0] for replicate in range(seeds)])
            for cell in cells
            if overload.keeps_up([cell[replicate][1] for replicate in range(seeds)])
        ]
        more = max((decision.more for decision in decisions), default=0)
        if more == 0:
            return Verdict(seeds, "target" if all(decision.reached for decision in decisions) else "cap")
        seeds += more
    return Verdict(seeds, "running")
