"""Axes as columns of their own, beside the text of all parameters, for whoever reads rows or parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastsim.sweep import choice
from fastsim.sweep import params as P
from fastsim.sweep.params import Params
from fastsim.sweep.spec import Sweep

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Column:
    """A column of a part.

    Attributes
    ----------
    name : str
        The axis' last word, or all of its name where another column has that word.
    axis : str
    type : type
        float, int, bool or str, for all parts of the sweep; lists and tables are JSON.
    """

    name: str
    axis: str
    type: type


def columns(sweep: Sweep, taken: Iterable[str]) -> tuple[Column, ...]:
    """One column an axis of any grid, in their order.

    Parameters
    ----------
    sweep : Sweep
    taken : iterable of str
        Columns that parts have anyway; an axis of such a name is among them.
    """
    axes = list(dict.fromkeys(axis for grid in sweep.grids for axis in grid.axes))
    words = [axis.rsplit(".", 1)[-1] for axis in axes]
    used = set(taken)
    found: list[Column] = []
    for axis, word in zip(axes, words, strict=True):
        name = axis if words.count(word) > 1 or word in used else word
        if name not in used:
            found.append(Column(name, axis, _type(sweep, axis)))
    return tuple(found)


def values(given: Sequence[Column], cell: Params) -> dict[Column, Any]:
    """The cell's value in each column; None where it has no such parameter."""
    found = choice.label(cell, [column.axis for column in given])
    return {column: _as(column.type, value) for column, value in zip(given, found, strict=True)}


def beside(rows: pl.DataFrame, sweep: Sweep) -> pl.DataFrame:
    """A sweep's rows with these columns behind their own."""
    import polars as pl

    given = columns(sweep, rows.columns)
    kinds = {float: pl.Float64, int: pl.Int64, bool: pl.Boolean, str: pl.String}
    schema = {"params": pl.String, **{column.name: kinds[column.type] for column in given}}
    cells = [[P.text(cell), *values(given, cell).values()] for cell in sweep.cells()]
    return rows.join(
        pl.DataFrame(cells, schema=schema, orient="row"), on="params", how="left", maintain_order="left"
    )


def _type(sweep: Sweep, axis: str) -> type:
    kinds = {type(value) for grid in sweep.grids for value in choice.values(grid, axis)} - {type(None)}
    if len(kinds) == 1 and kinds <= {bool, int, float}:
        return kinds.pop()
    return float if kinds and kinds <= {int, float} else str


def _as(kind: type, value: Any) -> Any:
    if value is None:
        return None
    return P.canonical(value) if kind is str and not isinstance(value, str) else kind(value)
