"""The workload: every request of a run, known in full before the run starts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from fastsim.errors import InputError, shown
from fastsim.typed import MOST, reals
from fastsim.workloads.csr import gather
from fastsim.workloads.origin import Origin
from fastsim.workloads.summary import Finding, WorkloadSummary

MAX_TOK = 10**9  # tokens of one prompt or answer: more is a slip, and sums of fewer stay within int64
MAX_SPAN_S = 1e9  # of arrivals: some 30 years
BlockTok = Annotated[int, Meta(ge=1, le=2**20)]  # that a hash id stands for

# Stands for "the usual value" in the columns that most workloads leave to it.
_USUAL = np.empty(0, dtype=np.int64)

_INT_FIELDS = (
    "prompt_tok",
    "output_tok",
    "symbol_ptr",
    "symbols",
    "symbol_tok",
    "shared_symbols",
    "answer",
    "session",
    "priority",
    "follows",
)
# Columns that hardly any workload has: without them its digest is the one from before they existed.
_RARE = {"priority": 0, "follows": -1}


@dataclass(frozen=True, eq=False)
class Workload:
    """Requests in arrival order (n of them; ties keep the order of their source) as flat arrays.

    A prompt is a list of *symbols*, each standing for a stretch of tokens. Two prompts share their
    tokens as far as their lists of symbols agree from the first on; different symbols share nothing.
    Where the symbols' tokens sum to less than ``prompt_tok``, the rest is private to the request.
    The arrays are to be treated as read-only: ``digest`` is computed once.

    Parameters
    ----------
    name : str
    arrival_s : ndarray of float64, shape (n,)
        Arrival times in seconds, ascending, from 0 on. Where a request follows another one, the time at which
        it would come if answers took no time; when it does come is settled by the run.
    prompt_tok, output_tok : ndarray of int64, shape (n,)
        Tokens in and out, at least 1 each.
    symbol_ptr : ndarray of int64, shape (n + 1,)
        The symbols of prompt i are ``symbols[symbol_ptr[i]:symbol_ptr[i + 1]]``.
    symbols : ndarray of int64
        Dense ids, each an index into `symbol_tok`.
    symbol_tok : ndarray of int64
        Tokens each symbol stands for, at least 1.
    shared_symbols : ndarray of int64, shape (n,), optional
        Leading symbols that are shareable by nature (system prompt, document); all by default.
    answer : ndarray of int64, shape (n,), optional
        The symbol of the answer's ``output_tok`` tokens where later prompts may contain it, else -1.
    session : ndarray of int64, shape (n,), optional
        Session each request belongs to, -1 where unknown.
    priority : ndarray of int64, shape (n,), optional
        Lower is served earlier where a replica's order goes by it (vLLM's sense); 0 by default.
    follows : ndarray of int64, shape (n,), optional
        The earlier request whose answer this one waits for (the next turn of a session: a closed loop), -1 by
        default.
    think_s : ndarray of float64, shape (n,), optional
        Seconds from the end of that answer to this request's arrival; 0 by default.
    summary : WorkloadSummary, optional
        Its figures are computed here, its words are kept.
    origin : Origin, optional
        How more of the same is made, of a synthetic workload that is whole.

    Raises
    ------
    InputError
        If the arrays do not fit together; the message names the array, the place and the value.
    """

    name: str
    arrival_s: np.ndarray
    prompt_tok: np.ndarray
    output_tok: np.ndarray
    symbol_ptr: np.ndarray
    symbols: np.ndarray
    symbol_tok: np.ndarray
    shared_symbols: np.ndarray = field(default_factory=lambda: _USUAL)
    answer: np.ndarray = field(default_factory=lambda: _USUAL)
    session: np.ndarray = field(default_factory=lambda: _USUAL)
    priority: np.ndarray = field(default_factory=lambda: _USUAL)
    follows: np.ndarray = field(default_factory=lambda: _USUAL)
    think_s: np.ndarray = field(default_factory=lambda: _USUAL)
    summary: WorkloadSummary = field(default_factory=WorkloadSummary)
    origin: Origin | None = None

    def __post_init__(self) -> None:
        self._set("arrival_s", np.ascontiguousarray(reals("arrival_s", self.arrival_s, finite=False)))
        if self.arrival_s.ndim != 1:
            raise InputError(f"workload: arrival_s has {self.arrival_s.ndim} dimensions; it must have 1")
        if not isinstance(self.name, str):
            raise InputError(f"workload: name = {shown(self.name)} is not allowed; it must be a text")
        if not isinstance(self.summary, WorkloadSummary):
            raise InputError(f"workload: summary = {shown(self.summary)} is not a WorkloadSummary")
        for name in _INT_FIELDS:
            if getattr(self, name) is not _USUAL:
                self._set(name, _as_int64(name, getattr(self, name)))
        n = len(self.arrival_s)
        if self.shared_symbols is _USUAL:
            self._set("shared_symbols", np.diff(self.symbol_ptr))
        if self.answer is _USUAL:
            self._set("answer", np.full(n, -1, dtype=np.int64))
        if self.session is _USUAL:
            self._set("session", np.full(n, -1, dtype=np.int64))
        if self.priority is _USUAL:
            self._set("priority", np.zeros(n, dtype=np.int64))
        if self.follows is _USUAL:
            self._set("follows", np.full(n, -1, dtype=np.int64))
        think_s = np.zeros(n) if self.think_s is _USUAL else self.think_s
        self._set("think_s", np.ascontiguousarray(think_s, dtype=np.float64))
        _validate(self)
        figures = (self.arrival_s, self.prompt_tok, self.output_tok, self.symbol_tok)
        self._set("summary", self.summary.measured(*figures))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.arrival_s)

    def __repr__(self) -> str:
        rate = "" if self.summary.rate_rps is None else f" at {self.summary.rate_rps:.4g}/s"
        return f"<Workload {self.name}: {len(self):,} requests{rate}>"

    @property
    def offered_rps(self) -> float | None:
        """Requests per second: of a synthetic workload in the long run, of any other those it has.

        None where all come at one time. Where requests follow others, as if answers took no time.
        """
        return self.summary.rate_rps if self.origin is None else self.origin.rate_rps

    @cached_property
    def is_closed(self) -> bool:
        """Whether some requests wait for the answers to others."""
        return bool((self.follows >= 0).any())

    def digest(self) -> str:
        """Return the hash of what is simulated: equal digests, equal requests. Names do not count."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        hashed = hashlib.blake2b(digest_size=16)
        for name in ("arrival_s", *_INT_FIELDS, *(("think_s",) if self.is_closed else ())):
            array = getattr(self, name)
            if name in _RARE and (array == _RARE[name]).all():
                continue
            hashed.update(f"{name}:{len(array)};".encode())
            hashed.update(array.data)
        return hashed.hexdigest()

    def take(self, index: int | slice | np.ndarray, note: str = "") -> Workload:
        """Return some of the requests, their times unchanged.

        Parameters
        ----------
        index : int, slice or ndarray
            The first so many requests, or a slice, mask or ascending indices into the requests.
        note : str
            What to say about it in the summary.
        """
        chosen = np.arange(len(self))[slice(index) if isinstance(index, int) else index]
        return self.arranged(chosen, self.arrival_s[chosen], note)

    def without(self, finding: Finding) -> Workload:
        """Return the workload with a word in its summary on rows that were left out."""
        dropped = (*self.summary.dropped, finding)
        return replace(self, summary=msgspec.structs.replace(self.summary, dropped=dropped))

    def arranged(self, index: np.ndarray, arrival_s: np.ndarray, note: str = "") -> Workload:
        """Return requests in another order at other times; symbols that none of them mentions are dropped.

        A request that follows one that is not among them follows what that one followed, so much later, or
        comes at its own time.

        Parameters
        ----------
        index : ndarray of int64, shape (k,)
            Which requests, in their new order.
        arrival_s : ndarray of float64, shape (k,)
            Their new arrival times, ascending.
        note : str
            What to say about it in the summary.
        """
        if len(index) == 0:
            raise InputError(f"workload {self.name}: no request is left" + (f" ({note})" if note else ""))
        ptr, symbols = gather(self.symbol_ptr, self.symbols, index)
        answer = self.answer[index]
        new_id, used = _compact(symbols, answer, len(self.symbol_tok))
        follows, think_s = self._followed(index)
        return replace(
            self,
            arrival_s=arrival_s,
            prompt_tok=self.prompt_tok[index],
            output_tok=self.output_tok[index],
            symbol_ptr=ptr,
            symbols=new_id[symbols],
            symbol_tok=self.symbol_tok[used],
            shared_symbols=self.shared_symbols[index],
            answer=np.where(answer >= 0, new_id[answer], -1) if len(used) else answer,
            session=self.session[index],
            priority=self.priority[index],
            follows=follows,
            think_s=think_s,
            summary=self.summary.noted(note) if note else self.summary,
            origin=None,
        )

    def _followed(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return `follows` and `think_s` of the chosen requests."""
        place = np.full(len(self), -1, dtype=np.int64)
        place[index] = np.arange(len(index))
        follows, think_s = self.follows[index], self.think_s[index]
        while (lost := (follows >= 0) & (place[follows] < 0)).any():
            think_s[lost] += self.think_s[follows[lost]]
            follows[lost] = self.follows[follows[lost]]
        return np.where(follows >= 0, place[follows], -1), np.where(follows >= 0, think_s, 0.0)

    def window(self, start_s: float | None = None, end_s: float | None = None) -> Workload:
        """Return the requests that arrive in [start_s, end_s), with `start_s` as the new time 0."""
        start = 0.0 if start_s is None else float(start_s)
        end = np.inf if end_s is None else float(end_s)
        if not start >= 0.0:
            raise InputError(f"start_s: {start_s!r} is not allowed; it is a time in seconds, 0 or more")
        if not end > start:
            raise InputError(f"end_s: {end_s!r} is not allowed; it must lie after start_s = {start:g}")
        first, last = np.searchsorted(self.arrival_s, [start, end], side="left")
        span = f"{self.arrival_s[0]:g} to {self.arrival_s[-1]:g} s"
        chosen = np.arange(first, last)
        note = f"window of {start:g} to {end:g} s, out of arrivals from {span}"
        return self.arranged(chosen, self.arrival_s[chosen] - start, note)


_LOOP = ("follows", "think_s")


def _as_int64(name: str, values: np.ndarray) -> np.ndarray:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError):  # rows of different lengths
        array = np.empty((0, 0))
    whole = array.dtype.kind in "iu" or (array.dtype.kind == "f" and bool(np.all(array == np.rint(array))))
    if array.ndim != 1 or (array.size and not (whole and np.all(np.abs(array) <= MOST))):
        raise InputError(f"workload: {name} must hold whole numbers of 64 bits in a row, not {shown(values)}")
    return np.ascontiguousarray(array, dtype=np.int64)


def _compact(symbols: np.ndarray, answer: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (new id of each old one, mask of those used): what nobody mentions takes no room."""
    used = np.zeros(size, dtype=bool)
    used[symbols] = True
    used[answer[answer >= 0]] = True
    return np.cumsum(used) - 1, used


def _validate(w: Workload) -> None:
    n = len(w.arrival_s)
    if n == 0:
        raise InputError(f"workload {w.name}: it holds no request")
    ptr, size = w.symbol_ptr, len(w.symbol_tok)
    _require(w, "symbol_ptr", len(ptr) == n + 1, f"has {len(ptr)} entries instead of {n + 1}")
    for name in ("prompt_tok", "output_tok", "shared_symbols", "answer", "session", "priority", *_LOOP):
        _require(w, name, len(getattr(w, name)) == n, f"has {len(getattr(w, name))} entries for {n} requests")
    fits = ptr[0] == 0 and ptr[-1] == len(w.symbols)
    _require(w, "symbol_ptr", fits, f"must run from 0 to the number of symbols, {len(w.symbols)}")
    count = np.diff(ptr)
    _each(w, "symbol_ptr", count, count >= 0, "ascending")
    in_time = (w.arrival_s >= 0) & (w.arrival_s <= MAX_SPAN_S)
    _each(w, "arrival_s", w.arrival_s, in_time, f"finite, 0 to {MAX_SPAN_S:g}")
    _each(w, "arrival_s", w.arrival_s[1:], np.diff(w.arrival_s) >= 0, "ascending")
    for name in ("prompt_tok", "output_tok", "symbol_tok"):
        tokens = getattr(w, name)
        _each(w, name, tokens, (tokens >= 1) & (tokens <= MAX_TOK), f"1 to {MAX_TOK:,}")
    _each(w, "symbols", w.symbols, (w.symbols >= 0) & (w.symbols < size), f"0 to {size - 1}")
    shared = w.shared_symbols
    _each(w, "shared_symbols", shared, (shared >= 0) & (shared <= count), "0 to the prompt's symbols")
    below = np.concatenate(([0], np.cumsum(w.symbol_tok[w.symbols])))
    spelt = below[ptr[1:]] - below[ptr[:-1]]
    _each(w, "prompt_tok", w.prompt_tok, spelt <= w.prompt_tok, "at least its symbols' tokens")
    _each(w, "answer", w.answer, (w.answer >= -1) & (w.answer < size), f"-1 to {size - 1}")
    earlier = (w.follows >= -1) & (w.follows < np.arange(n))
    _each(w, "follows", w.follows, earlier, "-1 or an earlier request")
    _each(w, "think_s", w.think_s, np.isfinite(w.think_s) & (w.think_s >= 0), "finite, 0 or more")
    if size:
        same = (w.answer < 0) | (w.symbol_tok[w.answer] == w.output_tok)
        _each(w, "answer", w.answer, same, "a symbol of output_tok tokens")


def _require(w: Workload, name: str, ok: bool | np.bool_, problem: str) -> None:
    if not ok:
        raise InputError(f"workload {w.name}: {name} {problem}")


def _each(w: Workload, name: str, values: np.ndarray, ok: np.ndarray, allowed: str) -> None:
    if not ok.all():
        place = int(np.argmin(ok))
        _require(w, name, False, f"at {place} is {values[place].item()!r}; it must be {allowed}")
