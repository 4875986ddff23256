"""Where the package may keep things between runs: one cache folder, chosen once."""

from __future__ import annotations

import functools
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger("fastsim")


@functools.cache
def cache_root() -> Path | None:
    """Return a writable cache folder, or None where there is none.

    The first usable of: ``FASTSIM_CACHE_DIR``, the user's cache folder, a private folder in the temporary
    directory. A folder that was asked for but cannot be used, or the lack of any, is said in one line.
    """
    given = os.environ.get("FASTSIM_CACHE_DIR")
    if given:
        if _usable(Path(given)):
            return Path(given).absolute()
        log.warning("FASTSIM_CACHE_DIR=%r cannot be written; looking for another cache folder", given)
    for path in _default_places():
        if _usable(path):
            return path
    log.warning("no writable cache folder, so nothing is kept between runs; set FASTSIM_CACHE_DIR to one")
    return None


def _default_places() -> Iterator[Path]:
    user = _user_cache()
    if user is not None:
        yield user / "fastsim"
    try:
        temporary = Path(tempfile.gettempdir())
    except FileNotFoundError:  # no usable temporary directory at all
        return
    private = temporary / f"fastsim-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"
    if _private(private):
        yield private


def _user_cache() -> Path | None:
    """The platform's per-user cache folder; None where no home is known (containers, odd user ids)."""
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform != "darwin" and os.environ.get("XDG_CACHE_HOME"):
        base = os.environ["XDG_CACHE_HOME"]
    elif home == "/":  # what an empty HOME expands to
        return None
    else:
        base = os.path.join(home, "Library/Caches" if sys.platform == "darwin" else ".cache")
    return Path(base) if os.path.isabs(base) else None


def _usable(path: Path) -> bool:
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError:
        return False
    return True


def _private(path: Path) -> bool:
    """Make a folder only we can write: cached code is executed, and a temporary directory is shared."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.lstat()
    except OSError:
        return False
    ours = not hasattr(os, "getuid") or info.st_uid == os.getuid()
    return stat.S_ISDIR(info.st_mode) and ours and (sys.platform == "win32" or not info.st_mode & 0o022)
