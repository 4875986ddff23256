"""Compiled kernels on disk, never stale and never fatal.

Numba's own cache looks only at the file a function stands in: edit a callee or a constant elsewhere and it
answers with the old code (numba#1833); a file cut short breaks every later run (numba#10434); without a
writable place it fails at import (numba#4908). Here a module's folder is named by a digest of all sources the
module can see, every file carries a checksum, anything unreadable is a miss, and no place means no cache.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import pickle
import shutil
import sys
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import caching, serialize
from numba.core.compiler import CompileResult
from numba.core.errors import NumbaWarning

from fastsim import _callee
from fastsim._paths import cache_root, make_private, written_by_others
from fastsim._sources import Snapshot

log = logging.getLogger("fastsim")

SOURCES = Snapshot(Path(__file__).resolve().parent)
KEPT_DIGESTS = 3
CHECKSUM_BYTES = 16
_DAMAGED = "damaged"  # the folder a broken cache is moved to
_NOT_IN_FILE_NAMES = str.maketrans("", "", "<>")
# What changes the machine code without being in the source or in numba's own key.
_CODEGEN_SETTINGS = (
    "NUMBA_OPT",
    "NUMBA_BOUNDSCHECK",
    "NUMBA_DEBUGINFO",
    "NUMBA_LOOP_VECTORIZE",
    "NUMBA_SLP_VECTORIZE",
)
_warned: set[str] = set()


def open_directory() -> Path | None:
    """Return the folder for kernels of this Python, numba and settings, or None if nothing can be kept."""
    root = cache_root()
    if root is None:
        return None
    python = f"py{sys.version_info[0]}{sys.version_info[1]}"
    settings = [f"{name}={os.environ[name]}" for name in _CODEGEN_SETTINGS if name in os.environ]
    return root / "kernels" / "-".join([python, numba.__version__, llvmlite.__version__, *settings])


@functools.cache
def _module_directory(directory: Path, module: str, source: Path) -> Path:
    """The folder for one module as it and its imports are now; drops those of all but the newest digests."""
    mine = directory / module / SOURCES.digest_from(source)
    with contextlib.suppress(OSError):  # another process may be cleaning up too
        make_private(mine)
        os.utime(mine)
        digests = [path for path in mine.parent.iterdir() if path.name != _DAMAGED]
        for old in sorted(digests, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT_DIGESTS:]:
            shutil.rmtree(old, ignore_errors=True)
    return mine


def covers(function: Callable[..., Any]) -> bool:
    """Whether `function` stands in the package, so that its module's digest sees every change to it."""
    return _source(function) in SOURCES


def _source(function: Callable[..., Any]) -> Path:
    return Path(function.__code__.co_filename).resolve()


class NoCache(caching.NullCache):
    """Of kernels that are not kept."""

    def load_callee(self, sig: Any, target_context: Any) -> Any:
        """There is none."""

    def save_callee(self, sig: Any, data: Any) -> None:
        """Keep nothing."""


class KernelCache(caching.FunctionCache):
    """The compiled versions of one kernel; takes the place of numba's own cache.

    One file per kernel and signature, named by its key, a checksum in front: without numba's shared index
    there is nothing that two processes could both rewrite.
    """

    def __init__(self, function: Callable[..., Any], directory: Path) -> None:
        self._py_func = function  # numba's _index_key reads it
        self._source = _source(function)
        self._directory = _module_directory(directory, function.__module__, self._source)
        self._prefix = function.__qualname__.translate(_NOT_IN_FILE_NAMES)[-120:]
        self.enable()

    @property
    def cache_path(self) -> str:
        """The folder the files are in."""
        return str(self._directory)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled version for `sig`, or None if there is none that can be trusted."""
        return self._load(sig, target_context, CompileResult._rebuild)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the compiled version `data`; failing to is worth one line, not an error."""
        self._save(sig, data, CompileResult._reduce)

    def load_callee(self, sig: Any, target_context: Any) -> Any:
        """The version for `sig` that other kernels link, or None."""
        return self._load(("callee", sig), target_context, _callee.rebuild)

    def save_callee(self, sig: Any, data: Any) -> None:
        """Keep the version that other kernels link."""
        self._save(("callee", sig), data, _callee.reduce)

    def _load(self, key: Any, target_context: Any, rebuild: Callable[..., Any]) -> Any:
        target_context.refresh()
        path = self._path(key, target_context.codegen())
        if not self._enabled or not path.exists() or not SOURCES.unchanged_from(self._source):
            return None
        try:
            return rebuild(target_context, *_read(path))
        except Exception as error:  # whatever a damaged file does must cost no more than a compilation
            _set_aside(self._directory, error)
            return None

    def _save(self, key: Any, data: Any, reduce: Callable[[Any], Any]) -> None:
        if not self._enabled or not SOURCES.unchanged_from(self._source):
            return
        if data.lifted or data.library.has_dynamic_globals:
            message = f"{self._prefix} cannot be cached: it uses dynamic globals"
            warnings.warn(message, NumbaWarning, stacklevel=2)
            return
        try:
            _write(self._path(key, data.codegen), reduce(data))
        except OSError as error:
            _warn_once("unwritable", f"compiled kernels cannot be kept: {error}")

    def flush(self) -> None:
        """Drop the kernel's compiled versions."""
        for path in self._directory.glob(f"{self._prefix}-*.kernel"):
            path.unlink(missing_ok=True)

    def _path(self, sig: Any, codegen: Any) -> Path:
        key = hashlib.blake2b(repr(self._index_key(sig, codegen)).encode(), digest_size=8).hexdigest()
        return self._directory / f"{self._prefix}-{key}.kernel"


def _read(path: Path) -> Any:
    why = written_by_others(path)
    if why:
        raise PermissionError(why)
    content = path.read_bytes()
    checksum, data = content[:CHECKSUM_BYTES], content[CHECKSUM_BYTES:]
    if _checksum(data) != checksum:
        raise pickle.UnpicklingError(f"{path.name} does not match its checksum")
    return pickle.loads(data)


def _write(path: Path, value: Any) -> None:
    data = serialize.dumps(value)
    make_private(path.parent)
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        temporary.touch(mode=0o600)  # whatever the umask: see `written_by_others`
        temporary.write_bytes(_checksum(data) + data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=CHECKSUM_BYTES).digest()


def _set_aside(directory: Path, error: Exception) -> None:
    aside = directory.with_name(_DAMAGED)
    shutil.rmtree(aside, ignore_errors=True)
    # Another process may have been first, or the place may be read-only: a miss all the same.
    with contextlib.suppress(OSError):
        os.replace(directory, aside)
    _warn_once("damaged", f"damaged kernel cache ({error}) moved to {aside}; compiling afresh")


def _warn_once(kind: str, message: str) -> None:
    if kind not in _warned:
        _warned.add(kind)
        log.warning(message)
