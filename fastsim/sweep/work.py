"""What a worker does: simulate points and publish their parts."""

from __future__ import annotations

import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fastsim.errors import InputError
from fastsim.sweep.experiments import experiment
from fastsim.sweep.flat import Column, values
from fastsim.sweep.imports import Parcel, unpack
from fastsim.sweep.parts import RunClosed, Writer, encode
from fastsim.sweep.points import Point


@dataclass(frozen=True)
class Task:
    """Points for one worker, with what it needs to know about their sweep."""

    points: list[Point]
    sweep: str
    experiment: str
    seed: int
    spec_hash: str
    code_version: str
    writer: Writer
    imports: Parcel = field(default_factory=Parcel)
    axes: tuple[Column, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a point ended: with a part, found or made, or with an error in one sentence and its traceback.

    It may also not have ended: another run on the same folder is at it (`taken`).
    """

    key: str
    found: bool = False
    taken: bool = False
    error: str = ""
    trace: str = ""


class Workloads:
    """The workloads last used in this process; each is built once, whichever thread asks first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str, build: Callable[[], Any]) -> Any:
        """The workload of that key, from `build` if it is not here."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            while len(self._entries) > self.size:
                self._entries.popitem(last=False)
        with entry.lock:
            if entry.value is None:
                entry.value = build()
            return entry.value

    def clear(self) -> None:
        """Forget them all."""
        with self._lock:
            self._entries.clear()


@dataclass
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    value: Any = None


# Neighbouring points share a workload, so one worker needs one, and the next; threads share these.
WORKLOADS = Workloads(size=2)


def work(task: Task) -> list[Outcome]:
    """Simulate a task's points, publishing each as soon as it is finished."""
    try:
        unpack(task.imports)
        return [_simulate(task, point) for point in task.points]
    except RunClosed:
        return []


def _simulate(task: Task, point: Point) -> Outcome:
    if not task.writer.claim(point.key):
        return Outcome(point.key, taken=True)
    faster = task.writer.has(point.key)  # another run on the same folder
    outcome = Outcome(point.key, found=True) if faster else _publish(task, point)
    task.writer.release(point.key)
    return outcome


def _publish(task: Task, point: Point) -> Outcome:
    try:
        part = _part(task, point)
    except Exception as error:
        return Outcome(point.key, error=_sentence(error), trace=traceback.format_exc())
    task.writer.publish(point.key, part)
    return Outcome(point.key)


def _part(task: Task, point: Point) -> bytes:
    what = experiment(task.experiment)
    args = (task.seed, point.replicate)
    workload = WORKLOADS.get(point.workload, lambda: what.prepare(point.params, *args))
    row = what.row(point.params, workload, *args)
    identity = {
        "sweep": task.sweep,
        "spec_hash": task.spec_hash,
        "code_version": task.code_version,
        "point": point.key,
        "seed": task.seed,
        "replicate": point.replicate,
        "params": point.text,
    }
    return encode(what, identity, row, values(task.axes, point.params))


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
