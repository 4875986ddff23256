"""Threads and processes through joblib, Dask through its client, and what each needs to be trusted."""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from fastsim.errors import InputError, nearest

BACKENDS = ("threads", "processes", "dask")

# Workers are the parallelism; a pool of threads inside each would only fight for the same cores.
_ONE_THREAD = tuple(f"{library}_NUM_THREADS" for library in ("NUMBA", "OMP", "OPENBLAS", "MKL"))
_INNER = dict.fromkeys((*_ONE_THREAD, "POLARS_MAX_THREADS"), "1")

Results = Callable[[Iterable[Any]], Iterator[Any]]


def default_jobs() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_backend(name: str) -> str:
    """The backend's name, if there is one of that name; else InputError."""
    if name not in BACKENDS:
        raise InputError(f"backend {name!r} is unknown; {nearest(name, BACKENDS)}")
    return name


@contextmanager
def workers(backend: str, jobs: int, *, alone: bool = False) -> Iterator[Results]:
    """A function that runs joblib's delayed tasks and yields their results as they come.

    Parameters
    ----------
    backend : {"threads", "processes", "dask"}
    jobs : int
        Tasks at a time.
    alone : bool
        One task at a time, yet in a worker rather than here.
    """
    if backend == "dask":
        with _dask(jobs) as results:
            yield results
        return
    from joblib import Parallel

    at_once = 1 if alone else jobs
    # joblib runs n_jobs=1 in the caller, where a long kernel would not hear Ctrl-C and a crash would end the
    # sweep; two workers fed one task at a time do the same work elsewhere.
    common: dict[str, Any] = {
        "n_jobs": max(2, at_once),
        "pre_dispatch": at_once,
        "batch_size": 1,
        "return_as": "generator_unordered",
        "max_nbytes": None,
    }
    with warnings.catch_warnings():
        # An interrupted sweep leaves joblib's generator early, on purpose.
        warnings.filterwarnings("ignore", category=UserWarning, module=r"joblib\..*")
        if backend == "threads":
            yield cast(Results, Parallel(backend="threading", **common))
            return
        common["pre_dispatch"] = 1 if at_once == 1 else 2 * at_once
        with _worker_environment():
            yield cast(Results, Parallel(backend="loky", initializer=_start_worker, **common))


def shut_down() -> None:
    """End the worker processes that joblib keeps for later."""
    from joblib.externals.loky import reusable_executor

    kept = reusable_executor._executor
    if kept is not None:
        kept.shutdown(wait=True, kill_workers=True)


def _start_worker() -> None:
    """Live and die as the parent wants.

    Ctrl-C reaches the whole process group, but the parent decides what it means; and when the parent is
    killed, loky's workers would stay for five minutes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with, args=(os.getppid(),), daemon=True).start()


def _die_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


@contextmanager
def _worker_environment() -> Iterator[None]:
    """What worker processes inherit while they start.

    A user's ``signal.py`` or ``random.py`` in the working directory must not hide Python's own (joblib#1378):
    the interpreter leaves that directory out (PYTHONSAFEPATH), and on the path handed over it comes after the
    standard library. Installed packages come last: a user's module of the same name is what the parent has.
    Temporary files need a folder whose name is plain ASCII (joblib#806).
    """
    wanted = {"PYTHONSAFEPATH": "1", "JOBLIB_TEMP_FOLDER": _ascii_folder(), **_INNER}
    environment, path = dict(os.environ), list(sys.path)
    os.environ.update(wanted)
    here = [entry for entry in path if entry == "" or Path(entry) == Path.cwd()]
    sys.path[:] = behind_the_library(path, here)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in wanted:
            os.environ.pop(name, None)
            if name in environment:
                os.environ[name] = environment[name]


def behind_the_library(path: list[str], own: list[str]) -> list[str]:
    """The same path with a user's own folders between the standard library and installed packages."""
    others = [entry for entry in path if entry not in own]
    library = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib")}
    library |= {str(Path(folder, "lib-dynload")) for folder in library}
    after = max((place + 1 for place, entry in enumerate(others) if entry in library), default=len(others))
    return [*others[:after], *own, *others[after:]]


def _ascii_folder() -> str:
    given = os.environ.get("JOBLIB_TEMP_FOLDER")
    for folder in (given, tempfile.gettempdir(), "/dev/shm", "/tmp", "/var/tmp"):
        if folder and folder.isascii() and os.access(folder, os.W_OK):
            return folder
    raise InputError("processes need a temporary folder with a plain ASCII name; set TMPDIR, or use threads")


def shadowing_files() -> list[str]:
    """Files in the working directory that carry the name of a module of Python's own."""
    return sorted(path.name for path in Path.cwd().glob("*.py") if path.stem in sys.stdlib_module_names)


@contextmanager
def _dask(jobs: int) -> Iterator[Results]:
    """The cluster named by DASK_SCHEDULER_ADDRESS, else one on this machine.

    Not through joblib's adapter (1.6.0), which never learns that a worker was killed and waits for ever.
    """
    try:
        from distributed import KilledWorker, as_completed
    except ImportError:
        raise InputError("backend 'dask' needs the extra: pip install 'fastsim-llm[dask]'") from None
    with _worker_environment(), _dask_client(jobs) as client:

        def results(tasks: Iterable[Any]) -> Iterator[Any]:
            futures = [client.submit(function, *args, pure=False) for function, args, _ in tasks]
            for future in as_completed(futures):
                yield future.result()

        try:
            yield results
        except KilledWorker as error:
            raise BrokenExecutor(str(error)) from error


@contextmanager
def _dask_client(jobs: int) -> Iterator[Any]:
    from dask import config
    from distributed import Client

    address = os.environ.get("DASK_SCHEDULER_ADDRESS")
    if address:
        with Client(address) as client:
            yield client
        return
    local: dict[str, Any] = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
    local["preload"] = [_DEAF_TO_INTERRUPTS]
    # A lost task comes back to us at once: we retry it alone.
    with config.set({"distributed.scheduler.allowed-failures": 0}), Client(**local) as client:
        yield client


# Run by each local Dask worker at its start; see `_start_worker`.
_DEAF_TO_INTERRUPTS = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
