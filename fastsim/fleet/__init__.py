"""All three levels of routing at once: question to model, module to model, request to replica."""

from __future__ import annotations

from fastsim.fleet.plan import Plan, of_calls, of_cascade, of_system
from fastsim.fleet.questions import Made, make_table
from fastsim.fleet.simulate import Result, Served, simulate

__all__ = [
    "Made",
    "Plan",
    "Result",
    "Served",
    "make_table",
    "of_calls",
    "of_cascade",
    "of_system",
    "simulate",
]
