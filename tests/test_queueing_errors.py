"""What a question that cannot be answered is told, before anything runs."""

from __future__ import annotations

import math

import pytest

from fastsim.errors import InputError
from fastsim.queueing import simulate

BAD = [
    ({}, "neither utilisation nor rate"),
    ({"utilisation": 1.0}, "the utilisation is 1"),
    ({"utilisation": -0.1}, r"utilisation = -0\.1 is not allowed; it must be a number, above 0 and at"),
    ({"rate": -1.0}, r"rate = -1\.0 is not allowed; it must be a number, above 0 and at most 1e\+300"),
    ({"rate": math.inf}, "rate = inf is not allowed; it must be a finite number"),
    ({"rate": 1.0, "utilisation": 0.5}, "both utilisation and rate"),
    (
        {"utilisation": 0.5, "servers": 0},
        "servers = 0 is not allowed; it must be a whole number from 1 to 1,000,000",
    ),
    ({"utilisation": 0.5, "servers": 3, "dispatcher": "jsq_d", "d": 4}, "d is 4; 3 servers allow 1 to 3"),
    ({"utilisation": 0.5, "dispatcher": "jsq", "d": 2}, "jsq takes no d; jsq_d"),
    ({"utilisation": 0.5, "dispatcher": "jqs"}, "did you mean 'jsq'"),
    ({"utilisation": 0.5, "dispatcher": "random", "memory": True}, "random takes no memory"),
    ({"utilisation": 0.5, "dispatcher": "random", "cutoffs": (1.0,)}, "random takes no cutoffs"),
    ({"utilisation": 0.5, "servers": 3, "dispatcher": "sita", "cutoffs": (2.0, 1.0)}, "2 ascending sizes"),
    ({"utilisation": 0.5, "servers": 2, "dispatcher": "sita", "size": "deterministic"}, "give the cutoffs"),
    ({"utilisation": 0.5, "discipline": "lifo"}, "discipline 'lifo' is not known; choose one of: fcfs, ps"),
    (
        {"utilisation": 0.5, "update": "sometimes"},
        "update 'sometimes' is not known; choose one of: live, periodic,",
    ),
    (
        {"utilisation": 0.5, "update": "periodic", "period": -1.0},
        r"period = -1\.0 is not allowed; it must be a number from 0 to 1e\+300",
    ),
    ({"utilisation": 0.5, "period": 1.0}, "never old"),
    ({"utilisation": 0.5, "add_own": True}, "add_own"),
    (
        {"utilisation": 0.5, "dispatchers": 0},
        "dispatchers = 0 is not allowed; it must be a whole number from 1 to",
    ),
    ({"utilisation": 0.5, "dispatcher": "central_queue", "discipline": "ps"}, "central_queue"),
    (
        {"utilisation": 0.5, "servers": 2, "speeds": (1.0,)},
        "speeds(.1. = 0.0 is not allowed| must hold one finite number above 0 for each of the 2 servers)",
    ),
    (
        {"utilisation": 0.5, "servers": 2, "speeds": (1.0, 0.0)},
        "speeds(.1. = 0.0 is not allowed| must hold one finite number above 0 for each of the 2 servers)",
    ),
    ({"utilisation": 0.8, "servers": 2, "speeds": (3.0, 1.0)}, "gives server 1 a utilisation of 1.6"),
    ({"utilisation": 0.5, "size": "lognorml"}, "did you mean 'lognormal'"),
    ({"utilisation": 0.5, "size": "lognormal(cvv=2)"}, "did you mean 'cv'"),
    ({"utilisation": 0.5, "size": "lognormal(cv=-2)"}, "cv is -2"),
    ({"utilisation": 0.5, "size": "lognormal(2)"}, "not a name"),
    ({"utilisation": 0.5, "size": "pareto(alpha=1)"}, "alpha is 1"),
    ({"utilisation": 0.5, "size": "hyperexponential(cv=0.5)"}, "at least 1"),
    ({"utilisation": 0.5, "size": "erlang(phases=0)"}, "phases is 0"),
    ({"utilisation": 0.5, "size": "erlang(cv=2)"}, "cv is 2"),
    ({"utilisation": 0.5, "size": []}, "values is empty"),
    ({"utilisation": 0.5, "size": [-1.0, 2.0]}, "not negative"),
    ({"arrivals": []}, "0 timestamps"),
    ({"arrivals": [3.0, 2.0]}, "back in time"),
    ({"arrivals": [2.0, 2.0]}, "all equal"),
    ({"utilisation": 0.5, "arrivals": "poison"}, "did you mean 'poisson'"),
    ({"utilisation": 0.5, "arrivals": "renewal(cvs=2)"}, "did you mean 'cv'"),
    ({"utilisation": 0.5, "arrivals": "modulated(levels=(1, 2), stays=(1,))"}, "both need as many"),
    ({"utilisation": 0.5, "arrivals": "modulated(levels=(-1, 2), stays=(1, 1))"}, "levels"),
    ({"utilisation": 0.5, "arrivals": "modulated(levels=(1, 2), stays=(1, 0))"}, "stays"),
    (
        {"utilisation": 0.5, "quantiles": (1.0,)},
        r"quantiles\[0\] = 1\.0 is not allowed; it must be a number, above 0 and below 1",
    ),
    ({"utilisation": 0.5, "requests": 0}, "requests = 0 is not allowed; it must be a whole number from 1 to"),
    (
        {"utilisation": 0.5, "replications": 0},
        "replications = 0 is not allowed; it must be a whole number from 1 to",
    ),
    (
        {"utilisation": 0.5, "workers": 0},
        "workers = 0 is not allowed; it must be a whole number from 1 to 1,024",
    ),
    ({"utilisation": 0.5, "warmup": -1}, "warmup = -1 is not allowed; it must be a whole number from 0 to"),
    ({"utilisation": 0.5, "seed": -1}, "seed = -1 is not allowed; it must be a whole number, at least 0"),
    (
        {"utilisation": 0.5, "level": 1.0},
        r"level = 1\.0 is not allowed; it must be a number, above 0 and below 1",
    ),
    (
        {"utilisation": 0.5, "rel_half_width": 2.0},
        r"rel_half_width = 2\.0 is not allowed; it must be a number, above 0 and",
    ),
    ({"utilisation": "0.5"}, r"utilisation = '0\.5' is not allowed; it must be a number, above 0 and at"),
    ({"utilisation": math.nan}, "utilisation = nan is not allowed; it must be a finite number"),
    ({"utilisation": True}, "utilisation = True is not allowed; it must be a number, above 0 and at"),
    ({"rate": "fast"}, "rate = 'fast' is not allowed; it must be a number, above 0 and at most"),
    ({"utilisation": 0.5, "size": ["a"]}, r"size (must be a sequence|is not a row) of numbers"),
    ({"utilisation": 0.5, "size": [[1, 2], [3]]}, r"size (must be a sequence|is not a row) of numbers"),
    ({"utilisation": 0.5, "size": 3}, r"size (must be a sequence|is not a row) of numbers"),
    ({"utilisation": 0.5, "size": "lognormal(cv='a')"}, "cv is 'a'; it must be a number"),
    ({"utilisation": 0.5, "size": "exponential(mean=1e308)"}, "take another unit of time"),
    ({"utilisation": 0.5, "size": "exponential(mean=1e-12)"}, "take another unit of time"),
    ({"utilisation": 0.5, "size": [1e-12, 2e-12]}, "take another unit of time"),
    ({"utilisation": 0.5, "size": "erlang(phases=2.5)"}, "phases is 2.5; it must be a whole number"),
    ({"utilisation": 0.5, "size": "erlang(phases=1000000000)"}, "phases is 1000000000; it must be at most"),
    ({"utilisation": 0.5, "size": "bounded_pareto(ratio=1e300)"}, "ratio is 1e"),
    ({"utilisation": 0.5, "arrivals": "renewal(cv=nan)"}, "is not a name or a name with parameters"),
    ({"utilisation": 0.5, "arrivals": "renewal(gap=3)"}, "gap is 3; it must be a law"),
    ({"utilisation": 0.5, "arrivals": "modulated(levels=(0, 1), stays=(1e9, 1e-9))"}, "a million times"),
    (
        {"utilisation": 0.5, "arrivals": "modulated(levels=('a', 1), stays=(1, 1))"},
        r"levels must be a sequence of numbers, not \('a', 1\)",
    ),
    ({"arrivals": ["a", "b"]}, r"arrivals must be a sequence of numbers, not \['a', 'b'\]"),
    (
        {"utilisation": 0.5, "servers": 2, "speeds": "ab"},
        "speeds = 'ab' is not allowed; it must be a list, each a number, above 0",
    ),
    ({"utilisation": 0.5, "servers": 2, "speeds": [1e-300, 1e300]}, "speeds make times of service"),
    (
        {"utilisation": 0.5, "servers": 2, "dispatcher": "sita", "cutoffs": 3.0},
        r"cutoffs = 3\.0 is not allowed; it must be a list, each a number",
    ),
    ({"utilisation": 0.5, "update": None}, "update = None is not allowed; it must be a text"),
    ({"utilisation": 0.5, "dispatcher": 3}, "dispatcher = 3 is not allowed; it must be a text"),
    (
        {"utilisation": 0.5, "update": "periodic", "period": "4"},
        r"period = '4' is not allowed; it must be a number from 0 to 1e\+300",
    ),
    ({"utilisation": 0.5, "update": "periodic", "period": 1e-9}, "updates an arrival, 0 is live"),
    ({"utilisation": 0.5, "update": "periodic", "period": 1e300}, "arrivals in one are too many"),
    ({"utilisation": 0.5, "memory": "no"}, "memory = 'no' is not allowed; it must be true or false"),
    (
        {"utilisation": 0.5, "servers": 1000, "dispatcher": "jsq", "dispatchers": 10**6, "update": "own"},
        "counts",
    ),
    (
        {"utilisation": 0.5, "dispatchers": 10**12},
        "dispatchers = 1000000000000 is not allowed; it must be a whole number from",
    ),
    (
        {"utilisation": 0.5, "quantiles": 0.5},
        r"quantiles = 0\.5 is not allowed; it must be a list, each a number, above 0",
    ),
    (
        {"utilisation": 0.5, "quantiles": (math.nan,)},
        "quantiles = nan is not allowed; it must be a finite number",
    ),
    (
        {"utilisation": 0.5, "level": "x"},
        "level = 'x' is not allowed; it must be a number, above 0 and below 1",
    ),
    (
        {"utilisation": 0.5, "rel_half_width": "a"},
        "rel_half_width = 'a' is not allowed; it must be a number, above 0 and",
    ),
    (
        {"utilisation": 0.5, "rel_half_width": math.nan},
        "rel_half_width = nan is not allowed; it must be a finite number",
    ),
    (
        {"utilisation": 0.5, "requests": 10**18},
        "requests = 1000000000000000000 is not allowed; it must be a whole number",
    ),
    *(
        ({"utilisation": 0.5, name: value}, f"{name} = .* is not allowed; it must be a whole number")
        for name in ("servers", "dispatchers", "requests", "replications", "warmup", "seed", "workers")
        for value in (2.5, "4", True)
    ),
]


@pytest.mark.small
@pytest.mark.parametrize(("question", "words"), BAD)
def test_bad_input_is_named_before_anything_runs(question, words, monkeypatch) -> None:
    monkeypatch.setattr("fastsim.queueing.simulation.run_once", None)
    monkeypatch.setattr("fastsim.queueing.simulation.settle", None)
    with pytest.raises(InputError, match=words):
        simulate(**question)
