"""The same queues in SimPy and Ciw (extra `peers`): processes and nodes in plain Python."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from types import ModuleType


def module(name: str) -> ModuleType | None:
    """A peer, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def simpy_queue(simpy: ModuleType, servers: int, customers: int, utilisation: float) -> Callable[[], float]:
    """A job: join the shortest of FCFS queues, exponential; the mean time in system."""

    def run() -> float:
        rng = random.Random(1)
        env = simpy.Environment()
        desks = [simpy.Resource(env, capacity=1) for _ in range(servers)]
        total = 0.0

        def customer():
            nonlocal total
            arrived = env.now
            desk = desks[0]
            if servers > 1:
                lengths = [d.count + len(d.queue) for d in desks]
                shortest = min(lengths)
                desk = desks[rng.choice([j for j, n in enumerate(lengths) if n == shortest])]
            with desk.request() as turn:
                yield turn
                yield env.timeout(rng.expovariate(1.0))
            total += env.now - arrived

        def source():
            for _ in range(customers):
                yield env.timeout(rng.expovariate(utilisation * servers))
                env.process(customer())

        env.process(source())
        env.run()
        return total / customers

    return run


def ciw_queue(ciw: ModuleType, servers: int, customers: int, utilisation: float) -> Callable[[], float]:
    """A job: as `simpy_queue`; many servers are nodes behind one that only dispatches."""

    def run() -> float:
        exponential, instant = ciw.dists.Exponential, ciw.dists.Deterministic(value=0.0)
        if servers == 1:
            network = ciw.create_network(
                arrival_distributions=[exponential(utilisation)],
                service_distributions=[exponential(1.0)],
                number_of_servers=[1],
            )
        else:
            nodes = list(range(2, servers + 2))
            routes = [ciw.routing.JoinShortestQueue(destinations=nodes)]
            routes += [ciw.routing.Leave() for _ in nodes]
            network = ciw.create_network(
                arrival_distributions=[exponential(utilisation * servers), *[None] * servers],
                service_distributions=[instant, *[exponential(1.0)] * servers],
                number_of_servers=[float("inf"), *[1] * servers],
                routing=ciw.routing.NetworkRouting(routers=routes),
            )
        ciw.seed(1)
        simulation = ciw.Simulation(network)
        simulation.simulate_until_max_customers(customers, method="Finish")
        records = [r for r in simulation.get_all_records() if servers == 1 or r.node > 1]
        return sum(r.exit_date - r.arrival_date for r in records) / len(records)

    return run
