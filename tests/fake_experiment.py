"""An experiment that takes a moment and leaves a log, for tests of the machinery around experiments."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from fastsim.errors import InputError, nearest
from fastsim.sweep.experiments import Experiment, Metric
from fastsim.sweep.params import check_keys

ROUTERS = ("alpha", "beta", "gamma")
DEFAULTS: dict[str, Any] = {
    "router": "alpha",
    "traffic": {"rate_rps": 1.0, "size": 50},
    "pause_s": 0.0,
    "log": "",  # a file that gets one line for each simulation begun
    "fate": "",  # what happens to the replicate `doomed`: raise, kill its worker, kill it the first time
    "doomed": 0,
}


def validate(raw: Any) -> dict[str, Any]:
    check_keys(raw, DEFAULTS, "fake")
    check_keys(raw.get("traffic", {}), DEFAULTS["traffic"], "fake traffic")
    params = {**DEFAULTS, **raw, "traffic": {**DEFAULTS["traffic"], **raw.get("traffic", {})}}
    if params["router"] not in ROUTERS:
        raise InputError(f"router {params['router']!r} is unknown; {nearest(params['router'], ROUTERS)}")
    return params


def prepare(params: dict[str, Any], seed: int, replicate: int) -> np.ndarray:
    _log(params, f"workload {params['traffic']['rate_rps']} {replicate}")
    rng = np.random.default_rng([seed, replicate])
    return rng.exponential(size=params["traffic"]["size"])


def run(params: dict[str, Any], workload: np.ndarray, seed: int, replicate: int) -> dict[str, Any]:
    _log(params, f"{params['router']} {params['traffic']['rate_rps']} {replicate}")
    if replicate == params["doomed"] and params["router"] == "beta":
        _meet(params)
    time.sleep(params["pause_s"])
    rate = params["traffic"]["rate_rps"]
    times = workload * rate * (1 + ROUTERS.index(params["router"]))
    stable = rate < 2
    return {
        "warmup_s": 0.0,
        "samples": len(workload),
        "stable": stable,
        "latency_mean_s": float(times.mean()),
        "latency_p99_s": float(np.sort(times)[-1]),
        "tpot_p99_s": float(times[0]) if stable else None,  # not every run has one
        "backlog_score": 0.0 if stable else 4.0,
    }


def _meet(params: dict[str, Any]) -> None:
    first_time = not Path(params["log"] + ".killed").exists()
    if params["fate"] == "raise":
        raise ValueError("doomed")
    if params["fate"] == "kill" or (params["fate"] == "kill_once" and first_time):
        Path(params["log"] + ".killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def _log(params: dict[str, Any], line: str) -> None:
    if params["log"]:
        with open(params["log"], "a") as file:
            file.write(line + "\n")


FAKE = Experiment(
    name="fake",
    doc="Exponential times, stretched by the policy.",
    parameters=lambda: ["router", "traffic.rate_rps", "traffic.size", "pause_s", "log", "fate", "doomed"],
    validate=validate,
    workload=lambda params: {"traffic": params["traffic"]},
    prepare=prepare,
    run=run,
    metrics={
        "warmup_s": Metric("warm-up deleted", "s"),
        "samples": Metric("samples", type=int),
        "stable": Metric("stable", type=bool),
        "latency_mean_s": Metric("mean latency", "s"),
        "latency_p99_s": Metric("P99 latency", "s", tail=True),
        "tpot_p99_s": Metric("P99 time per output token", "s", tail=True, optional=True),
        "backlog_score": Metric("backlog score"),
    },
    table=("latency_mean_s", "latency_p99_s"),
    contrast=("latency_mean_s", "latency_p99_s"),
    compare="router",
)
