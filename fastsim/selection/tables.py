"""What models answered to the same questions: scores, costs and tokens, and the split into train and test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsim.errors import InputError, nearest
from fastsim.rng import generator
from fastsim.typed import Seed, Share, checked

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SPLITS = ("question", "domain", "table")
MATRICES = ("scores", "costs", "input_tok", "output_tok")  # fields with a column for every model
ROWWISE = (*MATRICES, "question", "texts", "length", "split", "domain")  # fields with a row for each question


@dataclass(frozen=True, eq=False)
class Questions:
    """What can be known of questions before a model is called.

    Attributes
    ----------
    size : int
        Number of questions, n.
    texts : tuple of str, or None
    length : float64[n], or None
        Length of each prompt, in characters, or in tokens where the table holds only those.
    """

    size: int
    texts: tuple[str, ...] | None = None
    length: Floats | None = None


@dataclass(frozen=True, eq=False)
class Outcomes:
    """A table of n questions and K models.

    Attributes
    ----------
    name : str
        For messages and titles.
    models : tuple of str
        K names.
    scores : float64[n, K]
        Quality of each answer, within `score_range`.
    costs : float64[n, K]
        Price of each call in `cost_unit`, not negative.
    question : int64[n]
        Rows with the same number hold the same question: they stay together in splits and in resampling.
    texts, length
        As in `Questions`; length is by default that of the texts.
    input_tok, output_tok : float64[n, K], or None
        Tokens of prompt and answer, as each model counts them or as `assumptions` says.
    split : tuple of str, or None
        "train" or "test", where the table says so.
    domain : tuple of str, or None
        Where each question comes from.
    score_range : (float, float)
    cost_unit : str
        "$", or what else the costs are counted in.
    assumptions : tuple of str
        Sentences on what was assumed rather than read; to be shown with every result.

    Raises
    ------
    InputError
        For shapes that do not fit, scores out of range or missing, negative costs, repeated models, or an
        unknown word for a split.
    """

    name: str
    models: tuple[str, ...]
    scores: Floats
    costs: Floats
    question: Ints
    texts: tuple[str, ...] | None = None
    length: Floats | None = None
    input_tok: Floats | None = None
    output_tok: Floats | None = None
    split: tuple[str, ...] | None = None
    domain: tuple[str, ...] | None = None
    score_range: tuple[float, float] = (0.0, 1.0)
    cost_unit: str = "$"
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_models(self.name, self.models)
        if self.length is None and self.texts is not None:
            object.__setattr__(self, "length", np.array([float(len(text)) for text in self.texts]))
        shape = (len(self.question), len(self.models))
        if not shape[0]:
            raise InputError(f"{self.name}: there is no question in the table")
        for field in MATRICES:
            values = getattr(self, field)
            if values is not None and values.shape != shape:
                raise InputError(f"{self.name}: {field} has the shape {values.shape}, not {shape}")
        for field in ROWWISE[5:]:
            values = getattr(self, field)
            if values is not None and len(values) != shape[0]:
                raise InputError(f"{self.name}: {field} has {len(values)} entries for {shape[0]} questions")
        low, high = self.score_range
        self._refuse(~((self.scores >= low) & (self.scores <= high)), "scores", f"from {low:g} to {high:g}")
        for field in ("costs", "input_tok", "output_tok"):
            values = getattr(self, field)
            if values is not None:
                self._refuse(~((values >= 0.0) & (values < np.inf)), field, "finite and 0 or more")
        for row, word in enumerate(self.split or ()):
            if word not in ("train", "test"):
                raise InputError(f"{self.name}: split {word!r} of row {row} is not known; say train or test")

    def _refuse(self, bad: NDArray[np.bool_], field: str, allowed: str) -> None:
        """Complain about the first value that is not allowed; NaN stands for a missing one."""
        if not bad.any():
            return
        row, model = (int(index) for index in np.argwhere(bad)[0])
        value = getattr(self, field)[row, model]
        said = "is missing" if np.isnan(value) else f"is {value:g}"
        raise InputError(
            f"{self.name}: {field}: the value of question {row} (counted from 0) and model "
            f"{self.models[model]!r} {said}; it must be {allowed} (if that is no model, name those that are: "
            f"--model, or models=)"
        )

    @property
    def size(self) -> int:
        """Number of rows, n."""
        return len(self.question)

    @property
    def questions(self) -> Questions:
        """What a router may see of them."""
        return Questions(self.size, self.texts, self.length)

    def take(self, rows: ArrayLike) -> Outcomes:
        """The table of some rows, given by their indices."""
        index = np.asarray(rows, dtype=np.int64)
        return replace(self, **{field: _rows(getattr(self, field), index) for field in ROWWISE})

    def only(self, models: Sequence[str]) -> Outcomes:
        """The table of some models, in the order given.

        Raises
        ------
        InputError
            For a model that the table does not hold, with the nearest it does, or one given twice.
        """
        for model in models:
            if model not in self.models:
                raise InputError(f"{self.name}: there is no model {model!r}; {nearest(model, self.models)}")
        columns = [self.models.index(model) for model in models]
        tables = {name: getattr(self, name) for name in MATRICES}
        kept = {name: values[:, columns] for name, values in tables.items() if values is not None}
        return replace(self, models=tuple(models), **kept)


def _rows(values: Any, index: Ints) -> Any:
    if values is None or isinstance(values, np.ndarray):
        return values if values is None else values[index]
    return tuple(values[row] for row in index)


def _check_models(name: str, models: Sequence[str]) -> None:
    if len(models) < 2:
        raise InputError(f"{name}: there is a choice among at least 2 models, not {len(models)}")
    for model in models:
        if models.count(model) > 1:
            raise InputError(f"{name}: model {model!r} is there twice; names must differ")


@dataclass(frozen=True)
class Split:
    """Two tables without a question in common, and what was done to keep them so."""

    train: Outcomes
    test: Outcomes
    notes: tuple[str, ...]


@checked
def split(table: Outcomes, *, test_share: Share = 0.5, by: str | None = None, seed: Seed = 0) -> Split:
    """Divide a table so that no question is in both parts, however often it is repeated.

    Parameters
    ----------
    table : Outcomes
    test_share : float
        Share of the questions (or domains) to test on, in (0, 1); not used where the table says.
    by : {"question", "domain", "table"}, optional
        What stays together: repeats of a question, whole domains (tests what was never seen), or as the
        table says; by default as the table says, if it does, else by question.
    seed : int
        Root of the random stream "split".

    Raises
    ------
    InputError
        For a share out of range, an unknown `by`, one the table has no column for, or an empty part.
    """
    by = by or ("table" if table.split else "question")
    if by not in SPLITS:
        raise InputError(f"split by {by!r} is not known; {nearest(by, SPLITS)}")
    if not 0.0 < test_share < 1.0:
        raise InputError(f"test_share is {test_share:g}; it must lie between 0 and 1, as 0.5")
    column = {"question": table.question, "domain": table.domain, "table": table.split}[by]
    if column is None:
        raise InputError(f"{table.name}: it has no {by if by == 'domain' else 'split'} to split by")
    if by == "table":
        is_test = np.array([word == "test" for word in column])
    else:
        is_test = _drawn(column, test_share, seed)
    leaked = ~is_test & np.isin(table.question, table.question[is_test])
    train, test = np.flatnonzero(~is_test & ~leaked), np.flatnonzero(is_test)
    if not len(train) or not len(test):
        raise InputError(
            f"{table.name}: split by {by} leaves {len(train)} questions to train on and "
            f"{len(test)} to test on; both parts need some"
        )
    notes = [f"split by {by}: {len(train):,} rows to learn from, {len(test):,} to test on"]
    if leaked.any():
        notes.append(f"{leaked.sum():,} rows to learn from were left out: their questions are tested on too")
    return Split(table.take(train), table.take(test), tuple(notes))


def _drawn(column: Any, share: float, seed: int) -> NDArray[np.bool_]:
    _, group = np.unique(np.asarray(column), return_inverse=True)
    groups = int(group.max()) + 1
    drawn = generator(seed, 0, "split").permutation(groups)[: round(share * groups)]
    return np.isin(group, drawn)


def same_questions(keys: Sequence[str]) -> Ints:
    """Number questions so that equal keys (texts, or names) share a number, in order of appearance."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
