"""The registry of policies, and the decorator that enters one."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt

from fastsim._jit import kernel
from fastsim._kernel_cache import covers
from fastsim.cluster.routers.tree import KEEP_ALL
from fastsim.cluster.routers.view import HEARD, SIGNATURE
from fastsim.errors import InputError, nearest
from fastsim.typed import check, named

# What a view can hold beside the loads, if a policy asks for it.
NEEDS = ("work", "match", "matches", "metrics", "evictions", "step_time")
Room = int | Callable[[Any, Any], int]  # length of a policy's memory, or (parameters, Size) -> length


@dataclass(frozen=True)
class Size:
    """What a policy's memory may grow with.

    Parameters
    ----------
    replicas, requests : int
    runs : int
        Shared runs of prompts, as its tree has them.
    path : int
        Runs of all prompts, counted as often as a prompt has them.
    reports : int
        The engine's runs that reports of caches name, if its tree is reported to.
    kv_blocks : int
        Of a replica.
    """

    replicas: int
    requests: int
    runs: int
    path: int
    reports: int
    kv_blocks: int


@dataclass(frozen=True)
class Tree:
    """What a router remembers having sent where; `fastsim.cluster.routers.tree` has the ways of forgetting.

    Parameters
    ----------
    keep : int
        KEEP_...
    block_tok : int, optional
        Tokens a block, by default the engine's.
    capacity_blk : int
        Blocks a list may hold.
    ttl_s : float
        Time to live, in seconds.
    partial : bool
        Whether the last, incomplete block of a prompt counts.
    reported : bool
        Whether ``view.part`` says of which of its runs a report of a cache is. For whole prompts in blocks of
        the engine's size.
    marks : bool
        Whether there are masks of runs by replica beside its own, ``view.marks``.
    most_blk : int
        Blocks of a prompt that count, from its start; 0 is all.
    """

    keep: int = KEEP_ALL
    block_tok: int | None = None
    capacity_blk: int = 0
    ttl_s: float = 0.0
    partial: bool = False
    reported: bool = False
    marks: bool = False
    most_blk: int = 0


@functools.cache
def _hints(params: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(params)


def _number(hint: Any, value: Any) -> float:
    return float(get_args(hint).index(value) if isinstance(value, str) else value)


class NoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A policy without parameters."""


@dataclass(frozen=True)
class Router:
    """A registered policy.

    Parameters
    ----------
    name : str
    policy : callable
        ``policy(view, request) -> replica``, compiled at its first use.
    needs : frozenset of str
        Which parts of the view it reads beside the loads, of `NEEDS`.
    params : msgspec.Struct type
        Its parameters, with defaults and ranges.
    blind : bool
        Whether it reads nothing of the replicas, so that they can be served one after the other.
    doc : str
        First paragraph of its docstring.
    source : str
        The system it is the policy of, and the version that was read.
    view : str
        How its system sees loads: the native view.
    caches : str
        How its system knows of caches, if it follows them: "events", "in_flight" or "approximate".
    heard : callable, optional
        ``heard(view, kind, what, replica, value)``, called with every report that reaches the router.
    memory, real, count : int or callable
        Lengths of ``view.memory`` and ``view.real``, entries of ``view.count``.
    tree : callable, optional
        ``tree(params, cluster) -> Tree``: what it remembers having sent where.
    trial : bool
        Whether it is tried on the first requests of a run before it runs compiled (see `try_out`).
    """

    name: str
    policy: Any
    needs: frozenset[str]
    params: type[msgspec.Struct]
    blind: bool
    doc: str
    source: str = ""
    view: str = "live"
    caches: str = "events"
    heard: Any = None
    memory: Room = 8
    real: Room = 0
    tree: Callable[[Any, Any], Any] | None = None
    count: Room = 0
    trial: bool = False

    def spec(self, given: Mapping[str, Any] | None) -> Any:
        """The parameters, checked, with defaults filled in.

        Raises
        ------
        InputError
            For an unknown name, a wrong type or a value out of range.
        """
        return check(self.params, {} if given is None else given, f"router {self.name}")

    def vector(self, spec: Any) -> npt.NDArray[np.float64]:
        """The parameters as the policy reads them, ``view.params``: in order; a choice is its place."""
        named = zip(self.params.__struct_fields__, msgspec.structs.astuple(spec), strict=True)
        hints = _hints(self.params)
        return np.array([_number(hints[name], value) for name, value in named] or [0.0])

    def room(self, length: Room, spec: Any, size: Any) -> int:
        """Length of a memory in a run of a certain `Size`."""
        return length if isinstance(length, int) else int(length(spec, size))


class Registry(MutableMapping[str, Router]):
    """Policies by name, some of which only their modules are known of until somebody asks for them."""

    def __init__(self) -> None:
        self._entries: dict[str, Router | str] = {}  # the policy, or the module that registers it

    def expect(self, module: str, names: Iterable[str]) -> None:
        """Let a module be imported when one of the policies that it registers is asked for."""
        self._entries |= dict.fromkeys(names, module)

    def own(self) -> list[str]:
        """Names of the policies that were registered from outside the package."""
        entries = [entry for entry in self._entries.values() if not isinstance(entry, str)]
        return [entry.name for entry in entries if not covers(getattr(entry.policy, "py_func", entry.policy))]

    def __getitem__(self, name: str) -> Router:
        entry = self._entries[name]
        if isinstance(entry, str):
            importlib.import_module(entry)
            entry = self._entries[name]
        if isinstance(entry, str):
            raise KeyError(f"module {entry} does not register router {name!r}")
        return entry

    def __setitem__(self, name: str, policy: Router) -> None:
        before = self._entries.get(name)
        if isinstance(before, str):  # first its module, which must not take the name back later on
            importlib.import_module(before)
        self._entries[name] = policy

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


ROUTERS = Registry()


def router(
    name: str,
    *,
    needs: Iterable[str] = (),
    params: type[msgspec.Struct] = NoParams,
    blind: bool = False,
    source: str = "",
    view: str = "live",
    caches: str = "events",
    heard: Callable[..., Any] | None = None,
    memory: Room = 8,
    real: Room = 0,
    tree: Callable[[Any, Any], Any] | None = None,
    count: Room = 0,
    trial: bool = True,
) -> Callable[[Callable[..., Any]], Any]:
    """Register a policy: the decorator that makes a function of the view a router.

    Parameters
    ----------
    name : str
        How sweeps and commands call it. Registering a name again replaces it (in a notebook, say).
    needs : iterable of str, optional
        "work" for ``view.work``; "match" for `match_tok`, `match_share` and `nearest` of
        `fastsim.cluster.routers.view`; "matches" for ``view.match`` and ``view.found``; "metrics" for
        ``view.waiting``, ``view.running`` and ``view.kv_used``; "evictions" to hear of changes of caches;
        "step_time" for the time a step takes.
    params : msgspec.Struct type, optional
        Typed parameters with defaults; ``view.params`` holds them as floats, in order. A ``scrape_s`` is the
        period at which the native view reads the engines' metrics.
    blind : bool, optional
        The policy looks at no replica, only at how many there are: runs with many replicas are faster then.
    source : str, optional
        Where the policy comes from, with a version.
    view : str, optional
        The view its system has: "live", "own", "periodic(T)" or "delayed(d)".
    caches : str, optional
        How its system knows of the caches that "match" and "matches" tell of: "events", as replicas report;
        "in_flight", by events and by the prompts sent that have not ended; "approximate", by what it sent.
    heard : callable, optional
        ``heard(view, kind, what, replica, value)`` is called with every report that reaches the router: a
        request's first token or end, and with "evictions" each change of a cache (`routers.view`).
    memory, real : int or callable, optional
        Room for the policy's own integers and floats, ``view.memory`` and ``view.real``; a callable gets the
        parameters and a `Size`.
    tree : callable, optional
        ``tree(params, cluster)`` gives the `Tree` that the policy keeps.
    count : int or callable, optional
        Entries of the policy's own hash table, ``view.count``.
    trial : bool, optional
        Before a run, try the policy on its first requests in plain Python, where what it reads, writes and
        answers is checked: that takes up to half a second, once for all runs on the same cluster and
        workload. Compiled, nothing is checked. The package's own policies are tried by its tests.

    Raises
    ------
    InputError
        If `needs` asks for something no view has, or for anything where the policy is blind.

    Examples
    --------
    >>> @router("first_replica")
    ... def first_replica(view, request):
    ...     '''Always replica 0.'''
    ...     return 0
    """
    for need in needs:
        if need not in NEEDS:
            raise InputError(
                f"router {name!r}: needs = {need!r} is not something a view has; {nearest(need, NEEDS)}"
            )
        if blind:
            raise InputError(f"router {name!r}: it is blind, so it cannot need {need!r}")

    def register(function: Callable[..., Any]) -> Any:
        policy = kernel(signature=SIGNATURE)(function)
        doc = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        listener = kernel(signature=HEARD)(heard) if heard is not None else None
        ROUTERS[name] = Router(
            name,
            policy,
            frozenset(needs),
            params,
            blind,
            doc,
            source,
            view,
            caches,
            listener,
            memory,
            real,
            tree,
            count,
            trial and not covers(function),
        )
        return policy

    return register


def routers() -> dict[str, str]:
    """Names of all registered policies, and what each does in a sentence."""
    return {name: entry.doc for name, entry in ROUTERS.items()}


def get(name: str) -> Router:
    """Return the policy of that name.

    Raises
    ------
    InputError
        If there is none; the message names the nearest.
    """
    return named("router =", name, ROUTERS)
