"""Read a table of outcomes from a file: format, prices, and what was assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastsim.errors import InputError, nearest
from fastsim.selection.prices import make_prices, price_calls, read_prices
from fastsim.selection.table_formats import (
    BY_CHARS,
    FORMATS,
    Draft,
    read_frame,
    recognise,
    tokens_of,
    without_others,
)
from fastsim.selection.tables import Floats, Outcomes, same_questions
from fastsim.typed import checked
from fastsim.workloads.readers.columns import show

SHARE = "strong calls"


@checked
def read(
    path: str | Path,
    *,
    prices: str | Path | Mapping[str, Any] | None = None,
    models: Sequence[str] | None = None,
    texts: str | Path | None = None,
    answer_tok: float | None = None,
    format: str | None = None,
) -> Outcomes:
    """Read questions, scores and costs of models.

    Parameters
    ----------
    path : str or Path
        CSV file in any format of `FORMATS`, plain or gzipped.
    prices : path or mapping, optional
        Of each model, see `fastsim.selection.prices`. They replace costs that the table holds. For tables
        with neither, a pair of models costs 0 (the worse) and 1 (the better).
    models : sequence of str, optional
        Keep only these. By default every column of numbers without a meaning of its own is a model; columns
        of text that the format does not know play no part, which `assumptions` says.
    texts : path, optional
        Another table whose texts belong to the same questions in the same order.
    answer_tok : float, optional
        Tokens of an answer, where the table does not hold them.
    format : str, optional
        A key of `FORMATS`; recognised by the columns otherwise.

    Returns
    -------
    Outcomes
        With every assumption in its `assumptions`.

    Raises
    ------
    InputError
        For a file that cannot be read, scores missing or out of range, a model without a price.
    """
    path = Path(path)
    draft = _draft(path, format, models)
    if texts is not None:
        _borrow(draft, path.name, texts)
    if answer_tok is not None:
        _assume_answers(draft, path.name, answer_tok)
    costs = np.zeros_like(draft.scores) if draft.costs is None else draft.costs
    free = _outcomes(path.name, draft, costs)
    table = free if models is None else free.only(models)
    if prices is None and draft.costs is not None:
        return table
    return _priced(table, prices)


def _draft(path: Path, stated: str | None, models: Sequence[str] | None = None) -> Draft:
    frame = read_frame(path)
    if stated is not None and stated not in FORMATS:
        raise InputError(f"format {stated!r} is not known; {nearest(stated, FORMATS)}")
    form = FORMATS[stated] if stated else recognise(frame.columns)
    missing = [column for column in form.marks if column not in frame.columns]
    if missing:
        raise InputError(
            f"{path.name}: format {form.name} needs a column {missing[0]!r}, which is not there; "
            f"the columns are {', '.join(map(show, frame.columns[:20]))}"
        )
    frame, ignored = without_others(frame, form, path, models)
    draft = form.read(frame, path)
    draft.assumptions += ignored
    return draft


def _borrow(draft: Draft, name: str, path: str | Path) -> None:
    other = _draft(Path(path), None)
    if other.texts is None:
        raise InputError(f"texts: {Path(path).name} holds no texts")
    if len(other.texts) != len(draft.scores):
        raise InputError(
            f"texts: {Path(path).name} has {len(other.texts)} questions, but {name} has {len(draft.scores)}"
        )
    draft.texts, draft.keys = other.texts, other.texts
    draft.length = np.array([float(len(text)) for text in other.texts])
    if draft.input_tok is None:
        draft.input_tok = tokens_of(draft.length, len(draft.models))
        draft.assumptions += [] if BY_CHARS in draft.assumptions else [BY_CHARS]
    draft.assumptions.append(f"texts are those of {Path(path).name}, taken to be in the same order")


def _assume_answers(draft: Draft, name: str, answer_tok: float) -> None:
    if not 0.0 <= answer_tok < np.inf:
        raise InputError(f"answer_tok is {answer_tok:g}; it must be finite and 0 or more")
    if draft.output_tok is not None:
        raise InputError(f"answer_tok: {name} holds the lengths of its answers; leave it out")
    draft.output_tok = np.full_like(draft.scores, answer_tok)
    draft.assumptions.append(f"every answer is taken to have {answer_tok:g} tokens")


def _outcomes(name: str, draft: Draft, costs: Floats) -> Outcomes:
    return Outcomes(
        name=name,
        models=draft.models,
        scores=draft.scores,
        costs=costs,
        question=same_questions(draft.keys),
        texts=draft.texts,
        length=draft.length,
        input_tok=draft.input_tok,
        output_tok=draft.output_tok,
        split=draft.split,
        domain=draft.domain,
        score_range=draft.score_range,
        assumptions=tuple(draft.assumptions),
    )


def _priced(table: Outcomes, prices: str | Path | Mapping[str, Any] | None) -> Outcomes:
    if prices is not None:
        listed = make_prices(prices) if isinstance(prices, Mapping) else read_prices(prices)
        costs, assumed = price_calls(
            table.name, table.models, listed, table.size, table.input_tok, table.output_tok
        )
        return replace(table, costs=costs, assumptions=(*table.assumptions, *assumed))
    if len(table.models) > 2:
        raise InputError(
            f"{table.name}: it holds no costs, and {len(table.models)} models have no prices; give prices "
            f"(input_price and output_price of each in $/M tokens), or choose 2 of the models"
        )
    strong = int(np.argmax(table.scores.mean(axis=0)))
    costs = np.zeros_like(table.scores)
    costs[:, strong] = 1.0
    said = f"no prices: a call of {table.models[strong]!r} costs 1 and one of {table.models[1 - strong]!r} 0"
    unneeded = (BY_CHARS,)  # nothing is priced by tokens
    kept = tuple(text for text in table.assumptions if text not in unneeded)
    return replace(table, costs=costs, cost_unit=SHARE, assumptions=(*kept, said))
