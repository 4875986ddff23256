"""The run at saturation: equal to its slow twin, for every policy."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fastsim.cluster import _state as st
from fastsim.cluster.capacity import Saturated
from fastsim.cluster.routers import ROUTERS
from fastsim.cluster.simulate import result_of
from tests.cluster_runs import cluster_of, differences
from tests.router_cases import routed_case
from tests.twins.convert import to_workload
from tests.twins.policies import POLICIES
from tests.twins.saturated import Saturated as Twin

small = pytest.mark.small
OPTIONS = ("view", "routers", "caches", "counted_from")


def saturated_case(router: str, seed: int) -> tuple[dict, int]:
    """A case without outages, in which some requests follow others, and how many of them may wait."""
    case = routed_case(router, seed)
    case = {name: value for name, value in case.items() if name not in ("restarts", "joins_s")}
    case["requests"] = [dict(row) for row in case["requests"]]
    rng = random.Random(f"saturated {router} {seed}")
    if rng.random() < 0.3:
        for i, row in enumerate(case["requests"]):
            if i and rng.random() < 0.4:
                row["follows"] = rng.randrange(i)
    return case, rng.choice([1, 1, 2, 3, 5, 20])


def unlike_the_twin(router: str, seed: int, stops: int = 3) -> list[str]:
    """Serve a case in several stretches, and all at once slowly."""
    case, waiting = saturated_case(router, seed)
    workload = to_workload(case)
    options = {name: case[name] for name in OPTIONS} | {"seed": 0, "replicate": 0}
    # Refused requests come again at the next event: with jumps over decode steps there are fewer of these.
    run = Saturated(workload, cluster_of(case, fast_forward=False), router, case["router_params"], options)
    for stop in np.linspace(1, len(workload), stops).astype(int):
        run.let_come(waiting, int(stop))
    run.finish()
    twin = Twin(case, waiting)
    outcome = twin.run()
    wrong = differences(result_of(workload, run.state, 0.0), outcome)
    came = [request.arrival_ps for request in outcome.requests]
    if run.state.req[:, st.ARRIVAL].tolist() != came:
        wrong.append("instants at which requests come")
    if run.refusals != twin.refusals:
        wrong.append(f"{run.refusals} refusals, twin {twin.refusals}")
    return [f"{router}, seed {seed}: {each}" for each in wrong]


@small
@pytest.mark.parametrize("router", [name for name in ROUTERS if name in POLICIES])
def test_the_same_as_the_twin(router):
    assert [each for seed in range(4) for each in unlike_the_twin(router, seed)] == []
