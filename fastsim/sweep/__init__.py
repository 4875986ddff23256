"""Sweeps: a TOML file becomes points, points become Parquet parts, parts become tables with intervals."""

from __future__ import annotations

from fastsim.sweep.runner import Interrupted, RunReport, run
from fastsim.sweep.spec import Grid, Stop, Sweep, load, parse
from fastsim.sweep.summary import Cell, Table, read, summarise

__all__ = [
    "Cell",
    "Grid",
    "Interrupted",
    "RunReport",
    "Stop",
    "Sweep",
    "Table",
    "load",
    "parse",
    "read",
    "run",
    "summarise",
]
