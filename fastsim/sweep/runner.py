"""Run what is missing of a sweep, keep whatever is finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from fastsim.errors import InputError
from fastsim.sweep import backends, flat, parts, stopping
from fastsim.sweep import params as P
from fastsim.sweep.experiments import Experiment, experiment
from fastsim.sweep.imports import parcel, registered_here
from fastsim.sweep.points import Block, Point, all_keys, batches, blocks, points
from fastsim.sweep.spec import Sweep
from fastsim.sweep.work import WORKLOADS, Outcome, Task, work

FAILURES = "failed.txt"
# Deaths of the whole pool before any point began, in a row, that show it cannot start at all.
MAX_FALSE_STARTS = 2
OTHERS_S = 0.2  # between looks at what other runs on the folder have finished

Note = Callable[[str], None]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C stopped a sweep: what is finished is kept, and nothing more will be written."""


@dataclass
class RunReport:
    """What a run did.

    Attributes
    ----------
    simulated, found : int
        Points finished now, and those that were there already.
    shared : int
        Points that were finished when their turn came: another run on the same folder was at them (or Dask
        asked twice, as it does when a worker dies).
    failed : dict of str to str
        Points that ended in an error, in words, and the error.
    seconds : float
        Wall-clock time of the simulations, compiling excluded.
    """

    simulated: int = 0
    found: int = 0
    shared: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def run(
    sweep: Sweep,
    folder: str | Path,
    *,
    jobs: int | None = None,
    backend: str = "threads",
    progress: bool = False,
    note: Note = lambda text: None,
) -> RunReport:
    """Simulate every point of a sweep that the folder does not hold yet.

    Parameters
    ----------
    sweep : Sweep
    folder : str or Path
        Results folder, made if missing. Several runs may share it.
    jobs : int, optional
        Workers; by default what the sweep says, else the number of cores.
    backend : {"threads", "processes", "dask"}
    progress : bool
        Show a bar with the time left on stderr.
    note : callable
        Told, in a sentence each, what the user should know: parts that are broken or foreign.

    Raises
    ------
    InputError
        For a bad backend or folder.
    Interrupted
        After Ctrl-C; what is finished is kept and nothing more appears.
    """
    folder = Path(folder)
    backends.check_backend(backend)
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}; it must be at least 1")
    _check_reachable(sweep, backend)
    workers = jobs or sweep.jobs or backends.default_jobs()
    try:
        with parts.open_run(folder) as writer:
            sweep = _settled(sweep, workers, note)
            parts.write_manifest(writer, sweep)
            job = _Run(sweep, folder, writer, workers, backend, note)
            job.run(progress)
            backends.shut_down()  # here, where an interrupt is heard, and not while Python ends
            return job.report
    except KeyboardInterrupt:  # the run is closed: what is counted now is final
        kept = sum((folder / "parts" / f"{key}.parquet").exists() for key in all_keys(sweep))
        raise Interrupted(f"interrupted; {kept} points are kept, run again to go on") from None


def _check_reachable(sweep: Sweep, backend: str) -> None:
    """Refuse routers that workers elsewhere cannot know."""
    here = registered_here(sweep.cells(), sweep.imports) if backend != "threads" else {}
    for name in here:
        raise InputError(
            f"router {name!r} was registered in this process, so workers of backend {backend!r} do not know "
            "it; name its file: --import FILE, imports=[...] or import = [...] under [sweep]"
        )


class _Run:
    """One run: which points are missing, who simulates them, what became of them."""

    def __init__(
        self, sweep: Sweep, folder: Path, writer: parts.Writer, jobs: int, backend: str, note: Note
    ) -> None:
        self.sweep, self.folder, self.writer = sweep, folder, writer
        self.jobs, self.backend, self.note = jobs, backend, note
        self.what: Experiment = experiment(sweep.experiment)
        self.blocks: list[Block] = blocks(sweep)
        self.points: dict[str, Point] = {}
        self.report = RunReport()
        self.outcomes: dict[str, Outcome] = {}
        self.taken: set[str] = set()  # points that other runs on the folder have been at
        self.spec_hash = sweep.spec_hash()
        self.imports = parcel(sweep.imports)
        self.axes = flat.columns(sweep, (*parts.IDENTITY, *self.what.metrics))

    def run(self, progress: bool) -> None:
        """Rounds of points until none is missing; without a stopping rule there is one."""
        (self.folder / FAILURES).unlink(missing_ok=True)
        todo = self.missing(first=True)
        if not todo:
            return
        self.note(f"{self.what.name}: compiling or loading kernels")  # seconds at first: do not look dead
        self.what.warmup(self.sweep.cells(), self.note)
        cells = {point.text: point.params for point in todo}
        self.what.measure(list(cells.values()), self.sweep.seed, self.jobs)
        WORKLOADS.size = self.jobs + 1
        start = time.perf_counter()
        with _bar(progress, self.report.found, len(todo)) as self.bar:
            while todo:
                self.bar.total = self.bar.n + len(todo)
                self.bar.refresh()
                self.execute(todo)
                todo = self.missing()
        self.report.seconds = time.perf_counter() - start
        WORKLOADS.clear()

    def missing(self, first: bool = False) -> list[Point]:
        """Points wanted by now and neither finished nor failed."""
        survey = parts.survey(self.folder, self.sweep)
        self.set_apart(survey, first)
        values = stopping.observed(self.sweep, survey.rows)
        wanted = [
            point
            for block in self.blocks
            for point in points(self.sweep, block, range(stopping.verdict(self.sweep, block, values).seeds))
        ]
        done = survey.done()
        todo = [point for point in wanted if point.key not in done and point.key not in self.outcomes]
        self.points.update({point.key: point for point in todo})
        if first:
            self.report.found = len(wanted) - len(todo)
        return todo

    def set_apart(self, survey: parts.Survey, first: bool) -> None:
        """Name the parts that are no use; move broken ones away, leave others' alone."""
        for path, why in survey.bad.items():
            self.note(f"part {path.name} cannot be used: {why}; it goes to bad/ and its point is run again")
        parts.set_apart(self.folder, survey.bad)
        if first and survey.foreign:
            names = ", ".join(path.name for path in survey.foreign[:3])
            more = f" and {len(survey.foreign) - 3} more" if len(survey.foreign) > 3 else ""
            self.note(f"left apart, from another sweep or another version of the code: {names}{more}")

    def execute(self, todo: Sequence[Point]) -> None:
        """Simulate points; when a worker is killed, retry what it was at alone and go on with the rest."""
        false_starts = 0
        while todo:
            try:
                self.parallel(todo)
            except BrokenExecutor as error:
                lost = set(self.writer.claimed())
                false_starts = 0 if lost else false_starts + 1
                if false_starts > MAX_FALSE_STARTS:
                    raise InputError(_why_no_worker_starts(error)) from error
                for point in todo:
                    if point.key in lost and not self.ended(point):
                        self.retry(point)
            before, todo = len(todo), [point for point in todo if not self.ended(point)]
            if len(todo) == before:  # all are with other runs
                time.sleep(OTHERS_S)

    def parallel(self, todo: Sequence[Point], alone: bool = False) -> None:
        """Hand points to workers and record how they end."""
        from joblib import delayed

        tasks = [self.task(batch) for batch in batches(todo, self.jobs)]
        with backends.workers(self.backend, self.jobs, alone=alone) as results:
            for outcomes in results(delayed(work)(task) for task in tasks):
                for outcome in outcomes:
                    self.record(outcome)

    def retry(self, point: Point) -> None:
        """Once more, with no other point beside it."""
        self.writer.release(point.key)
        try:
            self.parallel([point], alone=True)
        except BrokenExecutor:
            self.writer.release(point.key)
            self.record(Outcome(point.key, error="its worker was killed, twice; is there enough memory?"))

    def ended(self, point: Point) -> bool:
        """Whether the point has a part or an error; a part may be all that a killed worker left."""
        if point.key not in self.outcomes and self.writer.has(point.key):
            self.record(Outcome(point.key, found=point.key in self.taken))
        return point.key in self.outcomes

    def task(self, batch: list[Point]) -> Task:
        """A batch with what its worker must know."""
        sweep = self.sweep
        return Task(
            points=batch,
            sweep=sweep.name,
            experiment=sweep.experiment,
            seed=sweep.seed,
            spec_hash=self.spec_hash,
            code_version=sweep.code_version,
            writer=self.writer,
            imports=self.imports,
            axes=self.axes,
        )

    def record(self, outcome: Outcome) -> None:
        """Count an outcome; an error is kept in words and, with its traceback, in a file."""
        if outcome.taken:
            self.taken.add(outcome.key)
            return
        self.outcomes[outcome.key] = outcome
        self.bar.update(1)
        if not outcome.error:
            self.report.shared += outcome.found
            self.report.simulated += not outcome.found
            return
        name = self.name(self.points[outcome.key])
        self.report.failed[name] = outcome.error
        with (self.folder / FAILURES).open("a", encoding="utf-8") as file:
            file.write(f"{name}: {outcome.error}\n{outcome.trace}\n")

    def name(self, point: Point) -> str:
        """A point in words: the values that vary, and its replicate."""
        values = P.flatten(P.identity(point.params))
        axes = dict.fromkeys(axis for grid in self.sweep.grids for axis in grid.axes)
        return ", ".join([*(f"{axis}={values.get(axis)}" for axis in axes), f"replicate {point.replicate}"])


def _settled(sweep: Sweep, workers: int, note: Note) -> Sweep:
    """The sweep with what the cells of a workload have in common filled in, by pilot runs if need be."""
    what, parted = experiment(sweep.experiment), blocks(sweep)
    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(lambda block: what.settle(block.cells, sweep.seed, note), parted))
    new: dict[str, P.Params] = {}
    for block, cells in zip(parted, found, strict=True):
        new.update(zip(map(P.text, block.cells), cells, strict=True))
    grids = [replace(grid, cells=tuple(new[P.text(cell)] for cell in grid.cells)) for grid in sweep.grids]
    return replace(sweep, grids=tuple(grids))


def _bar(show: bool, found: int, todo: int) -> Any:
    """Progress on a terminal, with the time left."""
    from tqdm import tqdm

    return tqdm(
        initial=found, total=found + todo, unit=" points", disable=None if show else True, smoothing=0.1
    )


def _why_no_worker_starts(error: BaseException) -> str:
    files = backends.shadowing_files()
    hint = f"{', '.join(files)} in the working directory may hide Python's own module; " if files else ""
    return f"worker processes die at their start ({type(error).__name__}); {hint}backend threads needs none"
