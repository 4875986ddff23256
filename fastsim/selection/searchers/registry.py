"""The registry of searchers, and the decorator that enters one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from fastsim.typed import named

__all__ = ["SEARCHERS", "NoParams", "Searcher", "get", "searcher"]


class NoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A searcher without parameters."""


@dataclass(frozen=True)
class Searcher:
    """A registered searcher.

    Attributes
    ----------
    name, doc : str
    run : callable
        ``run(search, params) -> None``; it evaluates through the `Search`, and tells it of every move.
    params : msgspec.Struct type
        Its parameters, with defaults and ranges.
    """

    name: str
    doc: str
    run: Callable[[Any, Any], None]
    params: type[msgspec.Struct]


SEARCHERS: dict[str, Searcher] = {}


def searcher(
    name: str, params: type[msgspec.Struct] = NoParams
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a searcher: the decorator that makes a function of a `Search` one.

    Examples
    --------
    >>> @searcher("first_model")
    ... def first_model(search, params):
    ...     '''Model 0 everywhere.'''
    ...     search.move((0,) * search.slots)
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        doc = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        SEARCHERS[name] = Searcher(name, doc, function, params)
        return function

    return register


def get(name: str) -> Searcher:
    """Return the searcher of that name.

    Raises
    ------
    InputError
        If there is none.
    """
    return named("searcher", name, SEARCHERS)
