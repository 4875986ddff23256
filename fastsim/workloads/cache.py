"""Arrays kept on disk between runs, found again by a hash of what they were made from.

An entry is one uncompressed ``.npz`` file, whose checksums catch damage. Whatever is wrong with an entry or
with the folder, it counts as a miss: the cache can cost time but never an answer.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import uuid
from pathlib import Path

import numpy as np

from fastsim._paths import cache_root
from fastsim._sources import Snapshot

MAX_BYTES = 2 * 10**9  # of all entries; the least recently used go first
_FOLDER = "workloads"
_SUFFIX = ".npz"


@functools.cache
def _code() -> str:
    """The digest of this folder's sources: an entry made by other code is not found."""
    return Snapshot(Path(__file__).resolve().parent).digest


def key_of(*parts: bytes | str) -> str:
    """Return the name under which what is made from these parts is kept."""
    total = hashlib.blake2b(_code().encode(), digest_size=20)
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        total.update(f"{len(content)}:".encode())
        total.update(content)
    return total.hexdigest()


def fetch(key: str) -> dict[str, np.ndarray] | None:
    """Return the arrays kept under a key, or None if there are none or they are damaged."""
    folder = _folder()
    if folder is None:
        return None
    path = folder / (key + _SUFFIX)
    try:
        # Opened here, for NumPy leaves a file open that is no archive.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        os.utime(path)
    except Exception:  # zipfile, zlib and NumPy have many ways to say that a file is damaged
        return None
    return arrays


def store(key: str, arrays: dict[str, np.ndarray]) -> None:
    """Keep arrays under a key; a reader sees all of them or none."""
    folder = _folder()
    if folder is None:
        return
    temporary = folder / f"{uuid.uuid4().hex}.tmp"
    with contextlib.suppress(OSError):  # disk full, folder gone: the arrays are made again next time
        try:
            with open(temporary, "wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
            os.replace(temporary, folder / (key + _SUFFIX))
        finally:
            temporary.unlink(missing_ok=True)
        _prune(folder)


def _folder() -> Path | None:
    root = cache_root()
    if root is None:
        return None
    folder = root / _FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder


def _prune(folder: Path) -> None:
    """Delete the entries used longest ago until the rest fits; other processes may be deleting, too."""
    entries = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            info = path.stat()
            entries.append((info.st_mtime_ns, info.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= MAX_BYTES:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size
