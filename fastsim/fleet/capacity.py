"""How many questions a second a fleet can take: the capacity of each cluster for the calls it gets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastsim.cluster.capacity import Capacity, capacity
from fastsim.fleet.plan import Plan
from fastsim.fleet.trace import Symbols
from fastsim.stats import is_below_capacity
from fastsim.workloads import Workload

if TYPE_CHECKING:
    from fastsim.fleet.simulate import Served


@dataclass(frozen=True)
class Demand:
    """What a question asks of a cluster.

    Attributes
    ----------
    each_s : float
        Time that the whole cluster needs for the calls of a question: the questions per second that it can
        take are one over it.
    firm_s : float
        Of that, what no limit on its load refuses.
    """

    each_s: float
    firm_s: float

    @classmethod
    def mean(cls, found: list[Demand]) -> Demand:
        """That of several replicates together."""
        each_s, firm_s = np.mean([(one.each_s, one.firm_s) for one in found], axis=0).tolist()
        return cls(each_s, firm_s)

    def offered_load(self, rate_rps: float | None) -> float | None:
        """Offered load over capacity at so many questions a second; None where the capacity is 0."""
        return None if rate_rps is None or math.isinf(self.each_s) else rate_rps * self.each_s

    def keeps_up(self, rate_rps: float | None) -> bool:
        """Whether the backlog stays bounded, be it by refusals."""
        firm = None if rate_rps is None else rate_rps * self.firm_s
        return self.firm_s == 0.0 or is_below_capacity(firm)


def demands(
    plan: Plan, served: Mapping[str, Served], *, seed: int, replicate: int, precision: float = 0.007
) -> dict[str, Demand]:
    """Measure what a question asks of each cluster that is called.

    Parameters
    ----------
    plan : Plan
        Its questions stand for all that may be asked. Calls count whether or not load would refuse them.
    served : mapping of str to Served
    seed, replicate, precision
        As in `fastsim.cluster.capacity.capacity`.
    """
    from fastsim.fleet.simulate import seed_of  # which imports this module

    symbols = Symbols.of(plan)
    found: dict[str, Demand] = {}
    for model, name in enumerate(plan.models):
        question, stage = np.nonzero(plan.calls == model)
        if len(question) == 0:
            continue
        what = served[name]
        first = np.array([not before for before in plan.inputs])[stage]
        workload = symbols.workload(plan, model, question, stage, np.arange(len(question), dtype=np.float64))
        measured = _capacity(workload, what, seed_of(seed, model), replicate, precision)
        calls = len(question) / plan.size
        each_s = calls / measured.rps if measured.rps > 0.0 else math.inf  # its router refuses all
        refused = 1.0 if measured.refuses else float(1.0 - first.mean()) if what.reacts else 0.0
        found[name] = Demand(each_s, each_s * (1.0 - refused) if refused < 1.0 else 0.0)
    return found


def _capacity(workload: Workload, what: Served, seed: int, replicate: int, precision: float) -> Capacity:
    return capacity(
        workload,
        what.cluster,
        what.router,
        what.router_params,
        view=what.view,
        routers=what.routers,
        caches=what.caches,
        counted_from=what.counted_from,
        seed=seed,
        replicate=replicate,
        precision=precision,
    )


def most_loaded(found: Mapping[str, Demand]) -> Demand:
    """What a question asks of the most loaded cluster: one over its time is the capacity of the fleet."""
    return max(found.values(), key=lambda one: one.each_s)
