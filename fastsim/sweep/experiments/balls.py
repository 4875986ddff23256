"""Balls into bins as an experiment: a seed is a batch of independent throws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fastsim.rng import stream
from fastsim.sweep.experiments.experiment import Experiment, Metric
from fastsim.sweep.params import Params
from fastsim.typed import check

Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of `fastsim.queueing.balls`; as many balls as bins unless given."""

    choices: Positive = 2
    bins: Annotated[int, Meta(ge=1, le=100_000_000)] = 1000
    balls: Positive | None = None
    replacement: bool = True
    beta: Annotated[float, Meta(ge=0, le=1)] = 1.0
    rule: Literal["random", "left"] = "random"
    trials: Positive = 100


def validate(raw: Mapping[str, Any]) -> Params:
    """All parameters of a cell, defaults filled in."""
    from fastsim.queueing import balls

    params = msgspec.to_builtins(check(Question, raw, "balls"))
    params["balls"] = params["balls"] or params["bins"]
    balls(**{**params, "balls": 1, "trials": 1})  # refuses what does not fit together
    return params


def run(params: Params, workload: None, seed: int, replicate: int) -> dict[str, Any]:
    """Throw one batch."""
    from fastsim.queueing import balls

    found = balls(**params, seed=int(stream(seed, replicate, "routing")[0]) >> 1)  # seeds have 63 bits
    return {
        "samples": found.trials,
        "fullest_mean": float(found.maxima.mean()),
        "fullest_p50": found.quantile(0.5),
        "fullest_p99": found.quantile(0.99),
    }


BALLS = Experiment(
    name="balls",
    doc="Balls into bins: the fullest bin.",
    parameters=lambda: list(Question.__struct_fields__),
    validate=validate,
    workload=lambda params: {"bins": params["bins"], "balls": params["balls"]},
    prepare=lambda params, seed, replicate: None,
    run=run,
    metrics={
        "samples": Metric("trials", type=int),
        "fullest_mean": Metric("mean fullest bin", "balls"),
        "fullest_p50": Metric("median fullest bin", "balls"),
        "fullest_p99": Metric("P99 fullest bin", "balls"),
    },
    table=("fullest_mean", "fullest_p99"),
    contrast=("fullest_mean",),
    compare="choices",
    estimates=lambda cells: ["estimated: the mean over batches of trials of each batch's own figure"],
)
