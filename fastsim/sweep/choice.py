"""Which cells of a grid a table or figure shows: filters, and axes that nothing of it shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from fastsim.errors import InputError
from fastsim.sweep import params as P
from fastsim.sweep.params import Params
from fastsim.sweep.spec import Grid, Sweep


def where_of(sweep: Sweep, given: Mapping[str, Any], source: str = "--where") -> dict[str, list[Any]]:
    """A filter with the whole names of its parameters and lists of the values wanted.

    Parameters
    ----------
    sweep : Sweep
    given : mapping
        Parameter, by its whole or last name -> the value wanted, or a list of them.
    source : str
        Where the filter is written, for errors.

    Raises
    ------
    InputError
        If no cell of the sweep has such a parameter, or none has the value.
    """
    flat = [P.flatten(P.identity(cell)) for cell in sweep.cells()]
    known = list(dict.fromkeys(name for cell in flat for name in cell))
    axes = list(dict.fromkeys(axis for grid in sweep.grids for axis in grid.axes))
    where: dict[str, list[Any]] = {}
    for key, value in given.items():
        short = key in axes or any(axis.endswith(f".{key}") for axis in axes)
        name = P.resolve(key, axes if short else known, source)
        wanted = value if isinstance(value, list) else [value]
        there = {P.canonical(cell[name]): cell[name] for cell in flat if name in cell}
        for one in wanted:
            if not any(_same(one, other) for other in there.values()):
                raise InputError(
                    f"{source} {key} = {one!r}: no cell of {sweep.name!r} has that; "
                    f"there are {listed(there.values())}"
                )
        where[name] = wanted
    return where


def only(grid: Grid, where: Mapping[str, Sequence[Any]]) -> Grid:
    """The grid with the cells that pass a filter, perhaps none."""
    return msgspec.structs.replace(grid, cells=tuple(cell for cell in grid.cells if _passes(cell, where)))


def label(cell: Params, axes: Sequence[str]) -> tuple[Any, ...]:
    """The cell's values on some axes, lists as tuples and tables as text; None on those it does not have."""
    flat = P.flatten(P.identity(cell))
    return tuple(_hashable(flat.get(axis)) for axis in axes)


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    return P.canonical(value) if isinstance(value, Mapping) else value


def values(grid: Grid, axis: str) -> list[Any]:
    """The different values of an axis, in the order of the cells."""
    return list({P.canonical(value): value for cell in grid.cells for value in label(cell, [axis])}.values())


def hidden(grid: Grid, shown: Sequence[str]) -> list[str]:
    """Axes on which cells differ though they are alike on all axes shown: a mean would be over these."""
    others = [axis for axis in grid.axes if axis not in shown]
    first: dict[str, tuple[Any, ...]] = {}
    mixed: set[str] = set()
    for cell in grid.cells:
        seen = label(cell, others)
        before = first.setdefault(P.canonical(label(cell, shown)), seen)
        mixed.update(axis for axis, a, b in zip(others, before, seen, strict=True) if a != b)
    return [axis for axis in others if axis in mixed]


def check_shown(grid: Grid, shown: Sequence[str], average: Sequence[str]) -> None:
    """Refuse to average over an axis that is neither shown nor named for it.

    Raises
    ------
    InputError
        It names the axis and says what to do.
    """
    for axis in hidden(grid, shown):
        if axis in average:
            continue
        there, name = values(grid, axis), axis.rsplit(".", 1)[-1]
        raise InputError(
            f"{name} takes several values ({listed(there)}) and would be averaged over unseen; keep it with "
            f"--by {name}, choose with --where {name}={_written(there[0])}, or ask for the mean with "
            f"--average {name}"
        )


def written(where: Mapping[str, Sequence[Any]]) -> str:
    """A filter in a sentence."""
    return ", ".join(f"{name.rsplit('.', 1)[-1]} = {listed(wanted)}" for name, wanted in where.items())


def listed(given: Iterable[Any], most: int = 6) -> str:
    """Values in a sentence, the first few of many."""
    written = [_written(value) for value in given]
    return ", ".join(written[:most] + (["..."] if len(written) > most else []))


def _passes(cell: Params, where: Mapping[str, Sequence[Any]]) -> bool:
    flat = P.flatten(P.identity(cell))
    return all(any(_same(flat.get(name), one) for one in wanted) for name, wanted in where.items())


def _same(one: Any, other: Any) -> bool:
    """Equal, where 1 is 1.0 but not true."""
    return P.canonical(one) == P.canonical(other)


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
