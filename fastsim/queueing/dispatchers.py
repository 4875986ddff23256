"""The dispatchers, by name: what each looks at, and what can be told it."""

from __future__ import annotations

from dataclasses import dataclass

from fastsim.queueing import views

__all__ = ["DISPATCHERS", "UPDATES", "Dispatcher"]


@dataclass(frozen=True)
class Dispatcher:
    """How requests are sent to servers.

    Attributes
    ----------
    name, doc : str
        Name in `DISPATCHERS`, and one sentence.
    score : int or None
        What it reads of a server (`views.COUNT`, `WORK` or `DELAY`); None if it reads nothing.
    rule : int
        `views.FULL`, `SAMPLE`, `IDLE` or `GIVEN`.
    takes : tuple of str
        Parameters that mean something to it, beside the ways of knowing a queue.
    """

    name: str
    doc: str
    score: int | None
    rule: int
    takes: tuple[str, ...] = ()


_SAMPLING = ("d", "replacement", "memory")

DISPATCHERS: dict[str, Dispatcher] = {
    made.name: made
    for made in (
        Dispatcher("random", "Any server, all equally likely.", None, views.GIVEN),
        Dispatcher("weighted_random", "Any server, in proportion to its speed.", None, views.GIVEN),
        Dispatcher("round_robin", "One server after the other.", None, views.GIVEN),
        Dispatcher(
            "sita",
            "By size: each server gets an interval of sizes, of equal loads unless given.",
            None,
            views.GIVEN,
            ("cutoffs",),
        ),
        Dispatcher("jsq", "The server with the fewest requests, ties at random.", views.COUNT, views.FULL),
        Dispatcher("jsq_d", "The fewest requests of d random servers.", views.COUNT, views.SAMPLE, _SAMPLING),
        Dispatcher(
            "lwl",
            "The server that finishes its work first; known as it is, of idle ones that idle longest.",
            views.WORK,
            views.FULL,
        ),
        Dispatcher("lwl_d", "The least work of d random servers.", views.WORK, views.SAMPLE, _SAMPLING),
        Dispatcher(
            "sed",
            "Shortest expected delay: fewest requests, this one included, relative to the speed.",
            views.DELAY,
            views.FULL,
        ),
        Dispatcher(
            "sed_d", "Shortest expected delay of d random servers.", views.DELAY, views.SAMPLE, _SAMPLING
        ),
        Dispatcher("jiq", "An idle server if one is known, else any.", views.COUNT, views.IDLE),
        Dispatcher("central_queue", "No dispatch: one queue before all servers.", views.WORK, views.FULL),
    )
}

UPDATES = {
    "live": views.LIVE,
    "periodic": views.PERIODIC,
    "continuous": views.CONTINUOUS,
    "individual": views.INDIVIDUAL,
    "own": views.OWN,
}
AGES = {"constant": views.CONSTANT, "uniform": views.UNIFORM, "exponential": views.EXPONENTIAL}
DISCIPLINES = ("fcfs", "ps")
