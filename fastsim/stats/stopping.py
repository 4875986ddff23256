"""How many replications: grow in batches until the interval is narrow enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from numpy.typing import ArrayLike

from fastsim.errors import InputError
from fastsim.stats.intervals import Interval, check_level, mean_interval


@dataclass(frozen=True, slots=True)
class Decision:
    """What a stopping rule says after some replications.

    Attributes
    ----------
    interval : Interval
        From the replications so far.
    more : int
        Replications to add before asking again; 0 to stop.
    reached : bool
        Whether the target is met. False with `more` = 0 means that the cap stopped the run.
    expected : int
        Replications that the target is likely to need in all, (t S / (eps' |mean|))^2 rounded up, at least
        the start and at most the cap.
    """

    interval: Interval
    more: int
    reached: bool
    expected: int


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """Stop at a relative half-width.

    Attributes
    ----------
    rel_half_width : float
        eps in (0, 1): the relative error |estimate - truth| / |truth| allowed at confidence `level`.
    level : float
        Nominal coverage of the interval, in (0, 1).
    start : int
        Replications before the first look, at least 2; 10 or more for the coverage to hold.
    batch : int
        Replications between looks, at least 1.
    maximum : int
        Cap on the replications, at least `start`.

    Notes
    -----
    Stops when t_{R-1} S / (sqrt(R) |mean|) <= eps' = eps / (1 + eps): the half-width is measured against
    the estimate, while eps is meant against the truth. Source: Law, Simulation Modeling and Analysis, 5th
    ed., section 9.4.1. The coverage is nominal only as eps goes to 0; looking at the data costs a little,
    hence few looks.
    """

    rel_half_width: float = 0.02
    level: float = 0.95
    start: int = 10
    batch: int = 5
    maximum: int = 1000

    def __post_init__(self) -> None:
        """Check every field.

        Raises
        ------
        InputError
            If a field is out of its range.
        """
        check_level(self.level)
        if not 0.0 < self.rel_half_width < 1.0:
            raise InputError(f"rel_half_width is {self.rel_half_width}; it must lie in (0, 1), as 0.02")
        if self.start < 2:
            raise InputError(f"start is {self.start}; a spread needs at least 2 replications")
        if self.batch < 1:
            raise InputError(f"batch is {self.batch}; it must be at least 1")
        if self.maximum < self.start:
            raise InputError(f"maximum is {self.maximum}; it must be at least start, {self.start}")

    def decide(self, values: ArrayLike) -> Decision:
        """Decide after the replications so far.

        Parameters
        ----------
        values : array_like, shape (R,)
            One value a replication, R >= 1, finite.

        Raises
        ------
        InputError
            No values, or values that are not finite.
        """
        interval = mean_interval(values, self.level)
        allowed = self.rel_half_width / (1 + self.rel_half_width)
        reached = interval.n >= self.start and interval.relative_half_width <= allowed
        planned = self.start if interval.n < self.start else interval.n + self.batch
        more = 0 if reached else max(min(planned, self.maximum) - interval.n, 0)
        factor = min(interval.relative_half_width / allowed, 1e9)  # more is beyond any cap
        expected = min(max(interval.n * factor**2, self.start), self.maximum)
        return Decision(interval, more, reached, math.ceil(expected))


def run_until(rule: StoppingRule, sample: Callable[[int], float]) -> Decision:
    """Draw replications 0, 1, 2, ... until the rule says stop.

    Parameters
    ----------
    rule : StoppingRule
        When to stop.
    sample : callable
        Replicate number to its value; independent from one number to the next.
    """
    values = [sample(0)]
    decision = rule.decide(values)
    while decision.more:
        values.extend(sample(r) for r in range(len(values), len(values) + decision.more))
        decision = rule.decide(values)
    return decision
