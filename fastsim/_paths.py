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
    directory. A folder that was asked for but cannot be used, or the lack of any, is said in one line. The
    cache is executed, so a folder that others could have written, whichever variable names it, means no
    cache; that is said, too.
    """
    given = os.environ.get("FASTSIM_CACHE_DIR")
    if given:
        if _usable(Path(given)):
            return _trusted(Path(given))
        log.warning("FASTSIM_CACHE_DIR=%r cannot be written; looking for another cache folder", given)
    for path in _default_places():
        if _usable(path):
            return _trusted(path)
    log.warning("no writable cache folder, so nothing is kept between runs; set FASTSIM_CACHE_DIR to one")
    return None


def _trusted(path: Path) -> Path | None:
    why = written_by_others(path)
    if why:
        log.warning("cache folder %s is not used, so nothing is kept between runs: %s", path, why)
        return None
    return path.resolve()


def written_by_others(path: Path) -> str:
    """How others than the user could have written a file or folder; empty if they could not.

    It must be the user's own, and no one else may write it; of the folders above, root's will do, and shared
    ones whose sticky bit keeps what is in them (/tmp). Who owns ``/`` counts as root: in a container that may
    be another number. A group may write if it is the user's private one, of the same name and without other
    members, as where the umask is 002. To root, a folder of any other user is another's.
    """
    if sys.platform == "win32":
        return ""
    ours, root = os.geteuid(), os.stat("/").st_uid
    real = path.resolve()
    for here in (real, *real.parents):
        info = here.stat()
        if info.st_uid != ours and (here == real or info.st_uid not in (0, root)):
            return f"{here} belongs to user {info.st_uid}"
        by_group = info.st_mode & stat.S_IWGRP and not _own_group(info.st_gid)
        kept = here != real and info.st_mode & stat.S_ISVTX
        if (by_group or info.st_mode & stat.S_IWOTH) and not kept:
            return f"others can write {here}"
    return ""


@functools.cache
def _own_group(group_id: int) -> bool:
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def make_private(path: Path) -> None:
    """Make a folder and those above it that are missing, for the user only, whatever the umask."""
    for here in (*reversed(path.parents), path):
        if not here.exists():
            here.mkdir(mode=0o700, exist_ok=True)


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
        make_private(path)
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
