"""Classic load balancing: balls into bins, servers behind a dispatcher, old information, and their theory.

`simulate` and `balls` answer questions, `make_spec`, `run_once` and `answer` are the steps of the former;
`DISPATCHERS`, `LAWS` and `ARRIVALS` list what they know by name; `theory` holds the closed forms.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastsim.queueing import laws, theory
    from fastsim.queueing.arrivals import ARRIVALS
    from fastsim.queueing.balls_in_bins import BallsResult, balls
    from fastsim.queueing.dispatchers import DISPATCHERS
    from fastsim.queueing.laws import LAWS
    from fastsim.queueing.result import QueueResult
    from fastsim.queueing.run import RunResult, run_once
    from fastsim.queueing.simulation import answer, simulate
    from fastsim.queueing.spec import QueueSpec, make_spec

__all__ = [
    "ARRIVALS",
    "DISPATCHERS",
    "LAWS",
    "BallsResult",
    "QueueResult",
    "QueueSpec",
    "RunResult",
    "answer",
    "balls",
    "laws",
    "make_spec",
    "run_once",
    "simulate",
    "theory",
]

_HOME = {
    "ARRIVALS": "arrivals",
    "BallsResult": "balls_in_bins",
    "DISPATCHERS": "dispatchers",
    "LAWS": "laws",
    "QueueResult": "result",
    "QueueSpec": "spec",
    "RunResult": "run",
    "answer": "simulation",
    "balls": "balls_in_bins",
    "make_spec": "spec",
    "run_once": "run",
    "simulate": "simulation",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is: kernels bring numba, theory does not."""
    if name in ("laws", "theory"):
        return importlib.import_module(f"fastsim.queueing.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'fastsim.queueing' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fastsim.queueing.{_HOME[name]}"), name)
    globals()[name] = value
    return value
