"""Workloads put together: superposed as they are, moved to other times, or mixed by shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from fastsim.errors import InputError
from fastsim.typed import checked
from fastsim.workloads.csr import gather
from fastsim.workloads.popularity import draw_by_weight
from fastsim.workloads.summary import WorkloadSummary
from fastsim.workloads.traffic import Stream, Traffic, arrivals
from fastsim.workloads.workload import Workload

_PARTS = ({"name": "tool_use", "share": 0.8}, {"name": "video_qa", "share": 0.2})


class Mix(Traffic, frozen=True, kw_only=True):
    """Parameters of `mix`.

    `parts` is a list of tables: the `name` of a workload, its `share` of the requests, and the parameters of
    that workload, save those of its arrivals.
    """

    parts: Annotated[tuple[dict[str, Any], ...], msgspec.Meta(min_length=1)] = _PARTS


def mix(spec: Mix, stream: Stream) -> dict[str, Any]:
    """Requests of several workloads at random by shares, at times of the mix's own: tools and videos.

    Each part gives its requests in its own order and loses its own times, so that a session's think times or
    a group's gaps become those of the mix. Parts share no tokens with each other.
    """
    arrival_s = arrivals(spec, stream)
    shares = np.array([_share(part) for part in spec.parts])
    which = draw_by_weight(stream("parts"), len(arrival_s), shares)
    counts = np.bincount(which, minlength=len(shares))
    made = [
        _part(part, f"part {i} ", int(count), stream)
        for i, (part, count) in enumerate(zip(spec.parts, counts, strict=True))
        if count > 0
    ]
    return _merged(made, np.argsort(np.argsort(which, kind="stable")), arrival_s)


@checked
def combine(workloads: Sequence[Workload], name: str = "combined") -> Workload:
    """Superpose workloads: all their requests, at their times; they share no tokens and no sessions.

    Parameters
    ----------
    workloads : sequence of Workload
        Requests of one time stand in this order.
    name : str, optional

    Returns
    -------
    Workload
    """
    if not workloads:
        raise InputError("workloads is empty; it must hold at least one workload")
    arrival_s = np.concatenate([workload.arrival_s for workload in workloads])
    order = np.argsort(arrival_s, kind="stable")
    source = " and ".join(workload.summary.source or workload.name for workload in workloads)
    summary = WorkloadSummary(source=source)
    return Workload(name=name, summary=summary, **_merged(workloads, order, arrival_s[order]))


@checked
def at_times(workload: Workload, arrival_s: npt.ArrayLike) -> Workload:
    """Put a workload's requests, in their order, at other times, such as those of a trace.

    Parameters
    ----------
    workload : Workload
    arrival_s : array_like of float, shape (k,)
        Ascending, in seconds from 0 on. The longer of the two loses its end.

    Returns
    -------
    Workload
    """
    times = np.asarray(arrival_s, dtype=np.float64)[: len(workload)]
    return workload.arranged(np.arange(len(times)), times, "at arrival times of another source")


def _share(part: dict[str, Any]) -> float:
    share = part.get("share", 1.0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < float("inf"):
        raise InputError(f"parts: share = {share!r} is not allowed; it must be a number above 0")
    return float(share)


def _part(part: dict[str, Any], prefix: str, count: int, stream: Stream) -> Workload:
    """Make a part's requests, from streams of its own."""
    from fastsim.workloads.generators import specify  # the registry holds this file's entry

    name = part.get("name", "")
    given = {key: value for key, value in part.items() if key not in ("name", "share")}
    timing = [key for key in given if key in Traffic.__struct_fields__]
    if timing:
        raise InputError(f"parts: {timing[0]} cannot be given for a part; the times are the mix's")
    entry, spec = specify(name, {**given, "requests": count})
    still = {key: Traffic.__struct_defaults__[i] for i, key in enumerate(Traffic.__struct_fields__)}
    spec = msgspec.structs.replace(spec, **{**still, "requests": count})
    return Workload(name=name, **entry.build(spec, lambda purpose: stream(prefix + purpose)))


def _merged(parts: Sequence[Workload], order: np.ndarray, arrival_s: np.ndarray) -> dict[str, Any]:
    """The parts' requests, one part after the other, rearranged; their symbols and sessions do not meet."""

    def joined(field: str) -> np.ndarray:
        return np.concatenate([getattr(part, field) for part in parts])

    symbols = _from([len(part.symbol_tok) for part in parts])
    requests = _from([len(part) for part in parts])
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    follows = _renumbered([part.follows for part in parts], requests)[order]
    sessions = _from([int(part.session.max()) + 1 for part in parts])
    ids = [part.symbols + first for part, first in zip(parts, symbols, strict=True)]
    counts = [np.diff(part.symbol_ptr) for part in parts]
    ptr = np.concatenate(([0], np.cumsum(np.concatenate(counts))))
    symbol_ptr, symbol_ids = gather(ptr, np.concatenate(ids), order)
    return {
        "arrival_s": arrival_s,
        "prompt_tok": joined("prompt_tok")[order],
        "output_tok": joined("output_tok")[order],
        "symbol_ptr": symbol_ptr,
        "symbols": symbol_ids,
        "symbol_tok": joined("symbol_tok"),
        "shared_symbols": joined("shared_symbols")[order],
        "answer": _renumbered([part.answer for part in parts], symbols)[order],
        "priority": joined("priority")[order],
        "follows": np.where(follows >= 0, place[follows], -1),
        "think_s": joined("think_s")[order],
        "session": _renumbered([part.session for part in parts], sessions)[order],
    }


def _from(counts: list[int]) -> list[int]:
    return [0, *np.cumsum(counts[:-1]).tolist()]


def _renumbered(ids: list[np.ndarray], first: list[int]) -> np.ndarray:
    """Ids after those of the parts before; -1 stays."""
    return np.concatenate(
        [np.where(part >= 0, part + least, -1) for part, least in zip(ids, first, strict=True)]
    )
