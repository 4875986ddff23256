"""Kernels of a router's table of sessions: where each was sent, until it has been idle for too long.

The table is all of ``view.memory`` from the place `TABLE` on: a row a session, which are linked from the one
used longest ago to the newest. At the memory's end there is the number of sessions each replica has, the
first replica's last, as replicas may join.
"""

from __future__ import annotations

from typing import Any

from fastsim._jit import kernel

NEXT_SWEEP = 0  # free for the policy: an instant
_OLDEST, _NEWEST = 1, 2  # session + 1
TABLE = 4
_REPLICA, _USED_PS, _OLDER, _NEWER = 0, 1, 2, 3  # replica + 1, 0 without one; neighbours + 1
_ROW = 4


def session_room(params: Any, size: Any) -> int:
    """Length of a memory with a table of sessions."""
    return TABLE + _ROW * size.requests + size.replicas


@kernel(inline="always")
def _row(session):
    return TABLE + _ROW * session


@kernel(inline="always")
def sessions_at(view, r):
    """Sessions that replica r has."""
    return view.memory[view.memory.shape[0] - 1 - r]


@kernel(inline="always")
def replica_of(view, session):
    """Replica that has a session, -1 if none."""
    return view.memory[_row(session) + _REPLICA] - 1


@kernel
def _unlink(memory, session):
    older = memory[_row(session) + _OLDER]
    newer = memory[_row(session) + _NEWER]
    if older == 0:
        memory[_OLDEST] = newer
    else:
        memory[_row(older - 1) + _NEWER] = newer
    if newer == 0:
        memory[_NEWEST] = older
    else:
        memory[_row(newer - 1) + _OLDER] = older


@kernel
def keep_session(view, session, r, now_ps):
    """Give a session to replica r, or leave it there; it is the newest now."""
    memory = view.memory
    row = _row(session)
    before = memory[row + _REPLICA]
    if before > 0:
        _unlink(memory, session)
        memory[memory.shape[0] - before] -= 1
    memory[memory.shape[0] - 1 - r] += 1
    memory[row + _REPLICA] = r + 1
    memory[row + _USED_PS] = now_ps
    newest = memory[_NEWEST]
    memory[row + _OLDER] = newest
    memory[row + _NEWER] = 0
    if newest == 0:
        memory[_OLDEST] = session + 1
    else:
        memory[_row(newest - 1) + _NEWER] = session + 1
    memory[_NEWEST] = session + 1


@kernel
def drop_sessions(view, until_ps):
    """Forget all sessions not used after an instant."""
    memory = view.memory
    while memory[_OLDEST] != 0:
        session = memory[_OLDEST] - 1
        row = _row(session)
        if memory[row + _USED_PS] > until_ps:
            return
        _unlink(memory, session)
        memory[memory.shape[0] - memory[row + _REPLICA]] -= 1
        memory[row + _REPLICA] = 0
