"""Results on disk: one Parquet part a point, complete or absent.

Layout of a results folder::

    sweep.json      the sweep as understood, with a checksum
    parts/KEY.parquet   finished points, named by content hash, each with a checksum
    tmp/run-*/      a running sweep's unfinished files, and KEY.claimed for each point it is at
    bad/            parts found broken, set apart, and why

A part is written in ``tmp`` (the same file system), synced and renamed, so it is never seen half-written.
Each run owns a folder in ``tmp``: renaming that folder away stops all of its workers, threads or processes,
from publishing anything more, at one instant.
"""

from __future__ import annotations

import fcntl
import functools
import io
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from fastsim.errors import InputError
from fastsim.sweep import checksum
from fastsim.sweep import params as P
from fastsim.sweep.experiments import Experiment, experiment
from fastsim.sweep.flat import Column
from fastsim.sweep.inside import check_folder
from fastsim.sweep.points import all_keys, point_key
from fastsim.sweep.spec import Sweep

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

MANIFEST = "sweep.json"
IDENTITY = ("sweep", "spec_hash", "code_version", "point", "seed", "replicate", "params")


class RunClosed(Exception):
    """The run was stopped; nothing it still computes is kept."""


@dataclass(frozen=True)
class Writer:
    """Publishes parts for one run; small enough to send to any worker."""

    parts: Path
    run: Path

    def has(self, key: str) -> bool:
        """Whether the point's part is there already (another run may have written it)."""
        return (self.parts / f"{key}.parquet").exists()

    def publish(self, key: str, part: bytes) -> None:
        """Write one part so that it appears whole or not at all."""
        temporary = self.run / f"{key}-{uuid.uuid4().hex}.parquet"
        try:
            with temporary.open("xb") as file:
                file.write(part)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.parts / f"{key}.parquet")
        except FileNotFoundError:
            raise RunClosed from None

    def claim(self, key: str) -> bool:
        """Take a point for this run, or say that another live run on the folder is at it.

        A claim ends with `release`, and with the run that holds it, however that ends.
        """
        with _locked(self.run.parent / "lock"):
            others = [run for run in self.run.parent.glob("run-*") if run != self.run]
            if any((run / f"{key}.claimed").exists() and _is_alive(run) for run in others):
                return False
            try:
                (self.run / f"{key}.claimed").touch()
            except FileNotFoundError:
                raise RunClosed from None
        return True

    def release(self, key: str) -> None:
        """The point came to an end, good or bad."""
        (self.run / f"{key}.claimed").unlink(missing_ok=True)

    def claimed(self) -> list[str]:
        """Keys of points that were begun and did not come to an end."""
        return sorted(path.stem for path in self.run.glob("*.claimed"))


@contextmanager
def open_run(folder: Path) -> Iterator[Writer]:
    """Open a results folder for writing; when the block ends, nothing more can be published.

    Raises
    ------
    InputError
        If the folder cannot be written.
    """
    parts, temporaries = folder / "parts", folder / "tmp"
    check_folder(folder)
    try:
        parts.mkdir(parents=True, exist_ok=True)
        temporaries.mkdir(exist_ok=True)
        with _locked(temporaries / "lock"):  # else a run starting now might take our folder for a dead one's
            _remove_dead_runs(temporaries)
            run = Path(tempfile.mkdtemp(prefix="run-", dir=temporaries))
            lock = os.open(run / "lock", os.O_CREAT | os.O_RDWR)
            fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise InputError(f"results folder {folder} cannot be written: {error.strerror}") from None
    try:
        yield Writer(parts, run)
    finally:
        closed = run.with_name(f"closed-{run.name}")
        os.rename(run, closed)
        shutil.rmtree(closed, ignore_errors=True)
        os.close(lock)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_dead_runs(temporaries: Path) -> None:
    """Delete what killed runs left: the system released their locks."""
    for path in temporaries.iterdir():
        if path.name == "lock":
            continue
        if not path.is_dir():
            path.unlink(missing_ok=True)
        elif not _is_alive(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_alive(run: Path) -> bool:
    """Whether a run's process lives: it holds the run's lock for as long as it does."""
    try:
        with (run / "lock").open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    sweep: Sweep
    checksum: str = checksum.UNSEALED


def write_manifest(writer: Writer, sweep: Sweep) -> None:
    """Store the sweep beside its results, replacing an earlier one in one step."""
    temporary = writer.run / MANIFEST  # which goes with the run, if the disk is full or we are killed
    content = msgspec.json.encode(P.plain(_Manifest(sweep=sweep)))
    temporary.write_bytes(checksum.seal(msgspec.json.format(content, indent=1)))
    os.replace(temporary, writer.parts.parent / MANIFEST)


def read_manifest(folder: Path) -> Sweep:
    """The sweep whose results the folder holds.

    Raises
    ------
    InputError
        If the folder holds none.
    """
    try:
        content = (folder / MANIFEST).read_bytes()
        checksum.verify(content)
        return msgspec.json.decode(content, type=_Manifest).sweep
    except OSError:
        raise InputError(f"{folder} holds no sweep results: there is no {MANIFEST} in it") from None
    except ValueError as error:  # DecodeError is one
        raise InputError(f"{folder / MANIFEST} is damaged: {error}; run the sweep again") from None


@functools.cache
def schema(what: Experiment, axes: tuple[Column, ...] = ()) -> pa.Schema:
    """Columns and types of a part; those of axes are written for others, and not read."""
    import pyarrow as pa

    kinds = {float: pa.float64(), int: pa.int64(), bool: pa.bool_(), str: pa.string()}
    columns = {name: int if name in ("seed", "replicate") else str for name in IDENTITY}
    columns.update({name: metric.type for name, metric in what.metrics.items()})
    columns.update({axis.name: axis.type for axis in axes})
    fields = [(name, kinds[kind]) for name, kind in columns.items()]
    return pa.schema(fields, metadata={"checksum": checksum.UNSEALED})


def encode(
    what: Experiment, identity: dict[str, Any], row: dict[str, Any], axes: Mapping[Column, Any] | None = None
) -> bytes:
    """One point's row as a Parquet file with a checksum: `IDENTITY`, the metrics, and its places on axes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    axes = axes or {}
    flat = {column.name: value for column, value in axes.items()}
    table = pa.Table.from_pylist([{**identity, **row, **flat}], schema=schema(what, tuple(axes)))
    pq.write_table(table, file, write_statistics=False, use_dictionary=False)
    return checksum.seal(file.getvalue())


@dataclass(frozen=True)
class Survey:
    """What a results folder holds for a sweep.

    Attributes
    ----------
    rows : polars DataFrame
        Rows of all good parts that belong to it, cell by cell, replicate by replicate.
    bad : dict of Path to str
        Parts that carry a name of the sweep but cannot be used, and why.
    foreign : list of Path
        Parts of other sweeps or of another code version.
    """

    rows: pl.DataFrame
    bad: dict[Path, str]
    foreign: list[Path]

    def done(self) -> set[str]:
        """Keys of the points that need no simulation."""
        return set(self.rows["point"].unique())


def survey(folder: Path, sweep: Sweep) -> Survey:
    """Look at every part of a folder; files are listed, never matched: a path may hold brackets."""
    import polars as pl

    what = experiment(sweep.experiment)
    order = {key: place for place, key in enumerate(all_keys(sweep))}
    parts = folder / "parts"
    files = sorted(path for path in (parts.iterdir() if parts.is_dir() else ()) if path.suffix == ".parquet")
    bad: dict[Path, str] = {}
    good: dict[Path, bytes] = {}
    for path in files:
        if path.stem in order:
            try:
                good[path] = path.read_bytes()
                checksum.verify(good[path])
            except (OSError, ValueError) as error:
                good.pop(path, None)
                bad[path] = str(error)
    columns = dict(cast(pl.DataFrame, pl.from_arrow(schema(what).empty_table())).schema)
    rows, more_bad = _parse(list(good), list(good.values()), sweep, columns)
    rows = rows.sort(pl.col("point").replace_strict(order, return_dtype=pl.Int64), maintain_order=True)
    foreign = [path for path in files if path.stem not in order]
    return Survey(rows=rows, bad={**bad, **more_bad}, foreign=foreign)


def _parse(
    files: list[Path], contents: list[bytes], sweep: Sweep, columns: dict[str, Any]
) -> tuple[pl.DataFrame, dict[Path, str]]:
    """All parts at once, or, when one of them is bad, by halves. Their checksums are known to be right."""
    import polars as pl

    if not files:
        return pl.DataFrame(schema=columns), {}
    try:
        rows = pl.scan_parquet(contents, schema=columns, glob=False, extra_columns="ignore").collect()
        _check_rows(rows, files, sweep)
        return rows, {}
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        if len(files) == 1:
            return pl.DataFrame(schema=columns), {files[0]: str(error).splitlines()[0]}
    half = len(files) // 2
    first, bad = _parse(files[:half], contents[:half], sweep, columns)
    second, more_bad = _parse(files[half:], contents[half:], sweep, columns)
    return pl.concat([first, second]), {**bad, **more_bad}


def _check_rows(rows: pl.DataFrame, files: list[Path], sweep: Sweep) -> None:
    """Raise ValueError unless there is one row a file, about the point that gave the file its name."""
    import polars as pl

    if rows.height != len(files):
        raise ValueError(f"it has {rows.height} rows; it must have one" if rows.height else "it has no rows")
    if rows["point"].to_list() != [path.stem for path in files]:
        raise ValueError("it holds another point than its name says")
    for name, wanted in (("code_version", sweep.code_version), ("seed", sweep.seed)):
        if not (rows[name].eq_missing(pl.Series([wanted]))).all():
            raise ValueError(f"its {name} is {rows[name][0]}, not {wanted}")
    for key, text, replicate in rows.select("point", "params", "replicate").iter_rows():
        if point_key(sweep, text, replicate) != key:
            raise ValueError(f"its name is not that of its params and replicate {replicate}")
    for name, metric in experiment(sweep.experiment).metrics.items():
        if rows[name].dtype.is_float() and rows[name].is_nan().any():
            raise ValueError(f"its {name} is NaN")
        if not metric.optional and rows[name].null_count():
            raise ValueError(f"it has no {name}")


def set_apart(folder: Path, bad: Mapping[Path, str]) -> None:
    """Move bad parts out of the way, so that their points are simulated again; ``reasons.txt`` says why."""
    for path, why in bad.items():
        (folder / "bad").mkdir(exist_ok=True)
        with suppress(FileNotFoundError):  # another run may have been first
            os.replace(path, folder / "bad" / path.name)
            with (folder / "bad" / "reasons.txt").open("a", encoding="utf-8") as file:
                file.write(f"{path.name}: {why}\n")
