"""Results on disk: one Parquet part a point, complete or absent.

Layout of a results folder::

    sweep.json      the sweep as understood
    parts/KEY.parquet   finished points, named by content hash
    tmp/run-*/      a running sweep's unfinished files
    bad/            parts found broken, set apart

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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from fastsim.errors import InputError
from fastsim.sweep.experiments import Experiment
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

    def mark(self, key: str) -> None:
        """Note that a point is being simulated, for when the worker is killed."""
        try:
            (self.run / f"{key}.started").touch()
        except FileNotFoundError:
            raise RunClosed from None

    def unmark(self, key: str) -> None:
        """The point came to an end, good or bad."""
        (self.run / f"{key}.started").unlink(missing_ok=True)

    def marked(self) -> list[str]:
        """Keys of points that were begun and did not come to an end."""
        return sorted(path.stem for path in self.run.glob("*.started"))


@contextmanager
def open_run(folder: Path) -> Iterator[Writer]:
    """Open a results folder for writing; when the block ends, nothing more can be published.

    Raises
    ------
    InputError
        If the folder cannot be written.
    """
    parts, temporaries = folder / "parts", folder / "tmp"
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
    for run in temporaries.iterdir():
        if not run.is_dir():
            continue
        try:
            with (run / "lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except FileNotFoundError:
            pass
        shutil.rmtree(run, ignore_errors=True)


def write_manifest(folder: Path, sweep: Sweep) -> None:
    """Store the sweep beside its results, replacing an earlier one in one step."""
    temporary = folder / "tmp" / f"manifest-{uuid.uuid4().hex}"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(sweep), indent=1))
    os.replace(temporary, folder / MANIFEST)


def read_manifest(folder: Path) -> Sweep:
    """The sweep whose results the folder holds.

    Raises
    ------
    InputError
        If the folder holds none.
    """
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Sweep)
    except OSError:
        raise InputError(f"{folder} holds no sweep results: there is no {MANIFEST} in it") from None
    except msgspec.DecodeError as error:
        raise InputError(f"{folder / MANIFEST} is damaged ({error}); run the sweep again") from None


@functools.cache
def schema(what: Experiment) -> pa.Schema:
    """Columns and types of a part, the only ones for writing and reading."""
    import pyarrow as pa

    kinds = {float: pa.float64(), int: pa.int64(), bool: pa.bool_(), str: pa.string()}
    columns = {name: int if name in ("seed", "replicate") else str for name in IDENTITY}
    columns.update({name: metric.type for name, metric in what.metrics.items()})
    return pa.schema([(name, kinds[kind]) for name, kind in columns.items()])


def encode(what: Experiment, identity: dict[str, Any], row: dict[str, Any]) -> bytes:
    """One point's row, headed by the values of the `IDENTITY` columns, as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    table = pa.Table.from_pylist([{**identity, **row}], schema=schema(what))
    pq.write_table(table, file, write_statistics=False, use_dictionary=False)
    return file.getvalue()


@dataclass(frozen=True)
class Survey:
    """What a results folder holds for a sweep.

    Attributes
    ----------
    rows : polars DataFrame
        Rows of all good parts that belong to it, in the order of `keys`.
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


def survey(folder: Path, what: Experiment, keys: Iterable[str]) -> Survey:
    """Look at every part of a folder.

    Parameters
    ----------
    folder : Path
        Files are listed, never matched by a pattern: a path may hold brackets.
    what : Experiment
    keys : iterable of str
        The points that belong to the sweep, in the order wanted.
    """
    import polars as pl

    order = {key: place for place, key in enumerate(keys)}
    parts = folder / "parts"
    files = sorted(path for path in (parts.iterdir() if parts.is_dir() else ()) if path.suffix == ".parquet")
    ours = [path for path in files if path.stem in order]
    columns = dict(cast(pl.DataFrame, pl.from_arrow(schema(what).empty_table())).schema)
    rows, bad = _read(ours, columns)
    rows = rows.sort(pl.col("point").replace_strict(order, return_dtype=pl.Int64), maintain_order=True)
    return Survey(rows=rows, bad=bad, foreign=[path for path in files if path.stem not in order])


def _read(files: list[Path], columns: dict[str, Any]) -> tuple[pl.DataFrame, dict[Path, str]]:
    """All files at once, or, when one of them is bad, one at a time."""
    import polars as pl

    if not files:
        return pl.DataFrame(schema=columns), {}
    try:
        return _read_checked(files, columns), {}
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        if len(files) == 1:
            return pl.DataFrame(schema=columns), {files[0]: str(error).splitlines()[0]}
    half = len(files) // 2
    (first, bad), (second, more_bad) = _read(files[:half], columns), _read(files[half:], columns)
    return pl.concat([first, second]), {**bad, **more_bad}


def _read_checked(files: list[Path], columns: dict[str, Any]) -> pl.DataFrame:
    import polars as pl

    for path in files:
        if path.stat().st_size == 0:  # polars would skip it without a word
            raise ValueError("it is empty (0 bytes)")
    rows = pl.scan_parquet(files, schema=columns, glob=False, include_file_paths="_file").collect()
    named = pl.col("_file").str.extract(r"([0-9a-f]+)\.parquet$")
    if rows.filter(named != pl.col("point")).height:
        raise ValueError("it holds another point than its name says")
    if rows["_file"].n_unique() != len(files):
        raise ValueError("it has no rows")
    return rows.drop("_file")


def set_apart(folder: Path, bad: Iterable[Path]) -> None:
    """Move bad parts out of the way, so that their points are simulated again."""
    for path in bad:
        (folder / "bad").mkdir(exist_ok=True)
        os.replace(path, folder / "bad" / path.name)
