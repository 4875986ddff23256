"""Whether the arrays that something needs fit this machine, asked before they are made."""

from __future__ import annotations

import os
from pathlib import Path

from fastsim.errors import InputError

_OF_THE_GROUP = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_SHARE = 0.8  # the interpreter, libraries and what else runs need the rest


def memory_bytes() -> float:
    """Memory that this process can have: the machine's, or less where its control group says so."""
    known = [float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")]
    for path in _OF_THE_GROUP:
        try:
            known.append(float(path.read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return min(known)


def require_memory(needed_bytes: float, what: str) -> None:
    """Raise InputError if so many bytes do not fit; `what` begins the sentence."""
    there = memory_bytes()
    if needed_bytes > _SHARE * there:
        raise InputError(
            f"{what} would take {needed_bytes / 1e9:,.1f} GB of memory; there are {there / 1e9:,.1f} GB"
        )
