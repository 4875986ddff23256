"""Classic load balancing beside C and beside SimPy and Ciw: CPU time a ball, or a request."""

from __future__ import annotations

import numpy as np
import pytest

from fastsim.queueing import make_spec, run_once, throws
from fastsim.rng import stream
from tests.bench import queue_peers, yardstick
from tests.bench.measure import Best, Job, interleaved
from tests.bench.tables import Target, judged, show

AS_C, INDEXED, PEERS = Target(1.15), Target(3.0), Target(100.0, at_least=True)
SEED, UTILISATION = 1, 0.9
BALLS, REQUESTS = 10_000_000, 2_000_000
CUSTOMERS = {"simpy": 50_000, "ciw": 10_000}

BINS = {"one choice": 1, "two choices": 2}
# dispatcher: ours, the yardstick's
DISPATCHERS = {
    "random": ("random", "random_dispatch"),
    "best of two": ("jsq_d", "shortest_of_two"),
    "shortest queue": ("jsq", "shortest_queue"),
    "least work left": ("lwl", "least_work"),
}


def fullest(choices: int, bins: int) -> int:
    """Throw balls once, by the kernel."""
    most, kernel = np.zeros(1, np.int64), throws.one_choice if choices == 1 else throws.two_choices
    kernel(stream(SEED, 0, "routing"), np.zeros(bins, np.int32), BALLS, most)
    return int(most[0])


def response_mean(dispatcher: str, servers: int, requests: int = REQUESTS) -> float:
    """One replication with all its histograms, from an empty start."""
    spec = make_spec(servers, dispatcher, utilisation=UTILISATION)
    return run_once(spec, SEED, 0, warmup=0, requests=requests).values["response_mean"]


def test_beside_c(once, tmp_path):
    """CPU time over that of the same algorithm on the same stream in C."""
    if not yardstick.installed():
        pytest.skip(yardstick.MISSING)
    once(lambda: beside_c(yardstick.Yardstick(tmp_path)))


def beside_c(c: yardstick.Yardstick) -> None:
    jobs: dict[str, Job] = {}
    for name, choices in BINS.items():
        for bins in (1000, 100_000):
            label = f"{name}, {bins:,} bins"
            jobs[label] = Job(lambda d=choices, m=bins: fullest(d, m))
            jobs[f"C {label}"] = Job(lambda d=choices, m=bins: c.fullest(d, m, BALLS, SEED))
    for name, (ours, theirs) in DISPATCHERS.items():
        for servers in (16, 10_000):
            label = f"{name}, {servers:,} servers"
            jobs[label] = Job(lambda d=ours, n=servers: response_mean(d, n))
            jobs[f"C {label}"] = Job(
                lambda d=theirs, n=servers: c.response_mean(d, n, REQUESTS, UTILISATION, SEED)
            )
    best = interleaved(jobs)
    rows = []
    for label in (label for label in jobs if not label.startswith("C ")):
        one, other = best[label], best[f"C {label}"]
        # sums of the same numbers, added up in another order and with another logarithm
        assert one.result == pytest.approx(other.result, rel=1e-9), label
        count = BALLS if "bins" in label else REQUESTS
        ratio = one.cpu_s / other.cpu_s
        asked = AS_C if "10,000 servers" not in label else None
        figures = {"": label, "ns": one.cpu_s / count * 1e9, "C, ns": other.cpu_s / count * 1e9}
        rows.append(judged(figures | {"ratio": ratio}, ratio, asked))
    growth = best["shortest queue, 10,000 servers"].cpu_s / best["shortest queue, 16 servers"].cpu_s
    rows.append(judged({"": "shortest queue, 10,000 servers over 16", "ratio": growth}, growth, INDEXED))
    show("queueing", f"A ball or a request, beside C ({' '.join(yardstick.COMMAND[:3])})", rows)


def test_beside_peers(once):
    """Customers a CPU second, with the same loads and the means they find."""
    found = {name: queue_peers.module(name) for name in CUSTOMERS}
    if not any(found.values()):
        pytest.skip("neither SimPy nor Ciw is installed: pip install '.[peers]'")
    once(lambda: beside_peers(found))


def beside_peers(found) -> None:
    make = {"simpy": queue_peers.simpy_queue, "ciw": queue_peers.ciw_queue}
    rows = []
    for servers, dispatcher in ((1, "random"), (16, "jsq")):
        jobs = {"fastsim": Job(lambda d=dispatcher, n=servers: response_mean(d, n), rounds=3)}
        for name, module in found.items():
            if module is not None:
                jobs[name] = Job(make[name](module, servers, CUSTOMERS[name], UTILISATION), 2, warm_up=False)
        best = interleaved(jobs)
        ours = cost(best["fastsim"], REQUESTS)
        for name in jobs:
            theirs = cost(best[name], CUSTOMERS.get(name, REQUESTS))
            figures = {
                "": name,
                "queue": "M/M/1" if servers == 1 else f"shortest queue, {servers} servers",
                "customers/s": 1.0 / theirs,
                "mean response": best[name].result,
                "times faster": theirs / ours,
            }
            rows.append(judged(figures, theirs / ours, PEERS if name != "fastsim" else None))
    show("queueing_peers", "Customers a CPU second, utilisation 0.9", rows)


def cost(best: Best, count: int) -> float:
    return best.cpu_s / count
