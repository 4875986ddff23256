"""Points: one cell of a grid at one replicate, named by the content that decides its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from fastsim.sweep import params as P
from fastsim.sweep.experiments import experiment
from fastsim.sweep.params import Params
from fastsim.sweep.spec import Sweep


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation.

    Attributes
    ----------
    params : dict
        Full parameters.
    text : str
        Those that decide the result, as canonical text.
    replicate : int
        Number of the replication, from 0.
    key : str
        Hash of experiment, parameters, seed, replicate and code version; names the point's part.
    workload : str
        Hash of what decides the workload; never of the policy, so that all policies get the same.
    """

    params: Params
    text: str
    replicate: int
    key: str
    workload: str


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """The cells that share their workloads: every policy at one setting of the traffic."""

    workload: Params
    cells: tuple[Params, ...]


def blocks(sweep: Sweep) -> list[Block]:
    """The sweep's cells, grouped by the parameters of their workload, in order of first occurrence."""
    what = experiment(sweep.experiment)
    groups: dict[str, tuple[Params, list[Params]]] = {}
    for cell in sweep.cells():
        workload = P.identity(what.workload(cell))
        groups.setdefault(P.canonical(workload), (workload, []))[1].append(cell)
    return [Block(workload=workload, cells=tuple(cells)) for workload, cells in groups.values()]


def points(sweep: Sweep, block: Block, replicates: Iterable[int]) -> list[Point]:
    """A block's points, replicate by replicate, so that neighbours share a workload."""
    texts = [P.text(cell) for cell in block.cells]
    return [
        Point(
            params=cell,
            text=text,
            replicate=replicate,
            key=point_key(sweep, text, replicate),
            workload=P.digest([sweep.experiment, block.workload, sweep.seed, replicate]),
        )
        for replicate in replicates
        for cell, text in zip(block.cells, texts, strict=True)
    ]


def point_key(sweep: Sweep, text: str, replicate: int) -> str:
    """Name of the part that holds a replicate of the cell with that text."""
    return P.digest([sweep.experiment, text, sweep.seed, replicate, sweep.code_version])


def all_keys(sweep: Sweep) -> list[str]:
    """Keys of every point a sweep may come to hold, cell by cell."""
    texts = [P.text(cell) for cell in sweep.cells()]
    return [point_key(sweep, text, replicate) for text in texts for replicate in range(sweep.seeds)]


def batches(todo: Sequence[Point], jobs: int) -> Iterator[list[Point]]:
    """Cut points into tasks for the workers.

    A task holds neighbours that share a workload, so that few workers build it; there are at least eight
    tasks a worker, so that none idles at the end.
    """
    limit = max(1, len(todo) // (8 * jobs))
    batch: list[Point] = []
    for point in todo:
        if batch and (point.workload != batch[-1].workload or len(batch) == limit):
            yield batch
            batch = []
        batch.append(point)
    if batch:
        yield batch
