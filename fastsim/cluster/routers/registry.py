"""The registry of policies, and the decorator that enters one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fastsim._jit import kernel
from fastsim.cluster.routers.view import SIGNATURE
from fastsim.errors import InputError, nearest
from fastsim.workloads.params import check

NEEDS = ("work", "match")  # what a view can hold beside the loads, if a policy asks for it

ROUTERS: dict[str, Router] = {}


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
        Which parts of the view it reads beside the loads: "work", "match".
    params : msgspec.Struct type
        Its parameters, all numbers, with defaults and ranges.
    blind : bool
        Whether it reads nothing of the replicas, so that they can be served one after the other.
    doc : str
        First paragraph of its docstring.
    """

    name: str
    policy: Any
    needs: frozenset[str]
    params: type[msgspec.Struct]
    blind: bool
    doc: str

    def values(self, given: Mapping[str, Any] | None) -> npt.NDArray[np.float64]:
        """The parameters as the policy reads them: ``view.params``, in the order of the spec.

        Raises
        ------
        InputError
            For an unknown name, a wrong type or a value out of range.
        """
        spec = check(self.params, dict(given or {}), f"router {self.name}")
        return np.array([float(value) for value in msgspec.structs.astuple(spec)] or [0.0])


def router(
    name: str,
    *,
    needs: Iterable[str] = (),
    params: type[msgspec.Struct] = NoParams,
    blind: bool = False,
) -> Callable[[Callable[..., Any]], Any]:
    """Register a policy: the decorator that makes a function of the view a router.

    Parameters
    ----------
    name : str
        How sweeps and commands call it. Registering a name again replaces it (in a notebook, say).
    needs : iterable of str, optional
        "work" for ``view.work``; "match" for `match_tok`, `match_share` and `nearest` of
        `fastsim.cluster.routers.view`.
    params : msgspec.Struct type, optional
        Typed parameters with defaults; ``view.params`` holds them as floats, in order.
    blind : bool, optional
        The policy looks at no replica, only at how many there are: runs with many replicas are faster then.

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
        ROUTERS[name] = Router(name, policy, frozenset(needs), params, blind, doc)
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
    if name not in ROUTERS:
        raise InputError(f"router = {name!r} is not known; {nearest(name, list(ROUTERS))}")
    return ROUTERS[name]
