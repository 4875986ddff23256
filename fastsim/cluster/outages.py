"""What happens to replicas from outside, as people say it: restarts, late joins, other speeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np

from fastsim.cluster import _state as st
from fastsim.cluster.step_time import StepTime
from fastsim.errors import InputError

_PS_PER_S = 1e12
Instant = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]  # in seconds: 11 days
Speed = Annotated[float, msgspec.Meta(ge=1e-3, le=1e3)]


class Restart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A replica restarts: its cache is gone, its requests start anew with what they have generated.

    The step under way is lost and counts nothing. Blocks sent to a replica that is down are lost, too.

    Attributes
    ----------
    replica : int
    at_s : float
        When, in seconds from the start.
    down_s : float
        Seconds until it serves again; another restart meanwhile does not bring it back sooner.
    told_after_s : float
        Seconds until routers that follow its cache learn that it is gone; 0 is at once. Until then they take
        each stretch of prompts to be there as before, unless the replica reports something new of it. A
        periodic view sees it at its next refresh, and a router's own memory of what it sent is never told.
    """

    replica: Annotated[int, msgspec.Meta(ge=0)]
    at_s: Instant
    down_s: Instant = 0.0
    told_after_s: Instant = 0.0


def restarts_of(given: Sequence[Restart] | None, replicas: int) -> tuple[Restart, ...]:
    """Check that restarts are of replicas that there are.

    Raises
    ------
    InputError
        If one names no replica.
    """
    for entry in given or ():
        if entry.replica >= replicas:
            raise InputError(
                f"cluster: restarts: replica = {entry.replica} is not allowed; it must be below {replicas}"
            )
    return tuple(given or ())


def joins_of(given: Sequence[float] | None, replicas: int) -> tuple[float, ...]:
    """Check the instants at which the last replicas join; the others are there from the start.

    Raises
    ------
    InputError
        If there are not fewer than replicas.
    """
    joins = given or ()
    if len(joins) >= replicas:
        raise InputError(
            f"cluster: joins_s has {len(joins)} instants; it must have fewer than replicas ({replicas}), "
            "as one at least is there from the start"
        )
    return tuple(sorted(joins))


def speeds_of(given: Sequence[float] | None, replicas: int) -> tuple[float, ...]:
    """Check the replicas' speeds, 1 being that of the step time.

    Raises
    ------
    InputError
        If there is not one a replica.
    """
    if given and len(given) != replicas:
        raise InputError(f"cluster: speeds has {len(given)} numbers; it must have one a replica ({replicas})")
    return tuple(given or ())


def outage_rows(restarts: Sequence[Restart], joins: Sequence[float], replicas: int) -> np.ndarray:
    """What happens, in the order of time, as ``State.outage`` has it; at one instant by kind."""
    rows = [(round(at_s * _PS_PER_S), st.JOIN, replicas - len(joins) + k, 0) for k, at_s in enumerate(joins)]
    for restart in restarts:
        at_ps = round(restart.at_s * _PS_PER_S)
        silently = restart.told_after_s > 0.0
        kind = st.RESTART_SILENTLY if silently else st.RESTART
        rows.append((at_ps, kind, restart.replica, round(restart.down_s * _PS_PER_S)))
        if silently:
            rows.append((at_ps + round(restart.told_after_s * _PS_PER_S), st.TOLD, restart.replica, 0))
    return np.array(sorted(rows), np.int64).reshape(-1, 4)


def compiled_steps(
    steps: StepTime, speeds: Sequence[float], replicas: int, **largest: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The step times of all replicas as the kernels take them, and which pieces are whose.

    Returns
    -------
    coef, knot_ptr, knots : int64[P, 9], int64[P + 1], int64[K, 3]
    piece : int64[replicas, 2]
        Pieces of each replica, from and to.
    """
    distinct = sorted(set(speeds), reverse=True) or [1.0]
    tables = [steps.slowed(1.0 / speed).compiled(**largest) for speed in distinct]
    pieces = len(tables[0][0])
    knots = [table[2] for table in tables]
    ptr = [table[1][:-1] + k * len(knots[0]) for k, table in enumerate(tables)]
    of = np.array([distinct.index(speed) for speed in speeds] or [0] * replicas)
    end = np.array([len(tables) * len(knots[0])])
    return (
        np.concatenate([table[0] for table in tables]),
        np.concatenate([*ptr, end]).astype(np.int64),
        np.concatenate(knots),
        np.column_stack((of * pieces, (of + 1) * pieces)).astype(np.int64),
    )
