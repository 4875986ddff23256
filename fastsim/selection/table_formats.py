"""Tables of outcomes as files hold them: one function a shape, one entry a format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fastsim.errors import InputError
from fastsim.selection.prices import CHARS_PER_TOK
from fastsim.selection.tables import Floats
from fastsim.workloads.readers.columns import show

if TYPE_CHECKING:
    import polars as pl

PLAIN = ("question", "text", "split", "domain", "length")  # what a plain table may hold beside the models


@dataclass
class Draft:
    """A table as read, before it is priced; fields as in `Outcomes`, keys tell questions apart."""

    models: tuple[str, ...]
    scores: Floats
    keys: Sequence[str]
    costs: Floats | None = None
    texts: tuple[str, ...] | None = None
    length: Floats | None = None
    input_tok: Floats | None = None
    output_tok: Floats | None = None
    split: tuple[str, ...] | None = None
    domain: tuple[str, ...] | None = None
    score_range: tuple[float, float] = (0.0, 1.0)
    assumptions: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Format:
    """One format of files.

    Attributes
    ----------
    name, doc : str
    marks : tuple of str
        Columns that a file of this format has.
    read : callable
        (frame of strings, path) -> Draft.
    others : tuple of str
        Columns that it may have.
    wide : bool
        Every other column of numbers holds the scores of a model.
    """

    name: str
    doc: str
    marks: tuple[str, ...]
    read: Callable[[pl.DataFrame, Path], Draft]
    others: tuple[str, ...] = ()
    wide: bool = False


def numbers(frame: pl.DataFrame, column: str, path: Path) -> Floats:
    """A column as numbers, NaN where it is empty.

    Raises
    ------
    InputError
        For text that is no number; the message names the file, the row and the column.
    """
    values, bad = _parsed(frame, column)
    if bad.any():
        raise InputError(_no_number(frame, column, path, bad))
    return values.fill_null(np.nan).to_numpy().astype(np.float64)


def _parsed(frame: pl.DataFrame, column: str) -> tuple[pl.Series, pl.Series]:
    """A column's numbers, and where it holds something else; true and false are 1 and 0."""
    import polars as pl

    text = frame[column].str.strip_chars()
    word = text.str.to_lowercase()
    text = text.set(word == "true", "1").set(word == "false", "0")
    values = text.cast(pl.Float64, strict=False)
    return values, (values.is_null() | values.is_nan()) & text.is_not_null() & (text != "")


def _no_number(frame: pl.DataFrame, column: str, path: Path, bad: pl.Series) -> str:
    row = int(bad.arg_true()[0])
    return (
        f"{path.name}, row {row + 1} of the data, column {column}: {show(frame[column][row])} is not a number"
    )


def without_others(
    frame: pl.DataFrame, form: Format, path: Path, models: Sequence[str] | None
) -> tuple[pl.DataFrame, list[str]]:
    """A table without the columns that play no part, and a sentence on them.

    Parameters
    ----------
    frame : DataFrame of strings
    form : Format
    path : Path
        For messages.
    models : sequence of str, optional
        The models asked for: where all are there, no other columns of scores are looked at.

    Raises
    ------
    InputError
        If fewer than two columns are left that could hold the scores of a model, naming the columns needed.
    """
    known = [name for name in frame.columns if name in (*form.marks, *form.others)]
    rest = [name for name in frame.columns if name not in known]
    if not form.wide:
        return frame.select(known), _ignored(rest)
    if models is not None and set(models) <= set(rest):
        return frame.select([*known, *models]), []
    scores = [name for name in rest if not _is_text(frame, name)]
    texts = [name for name in rest if name not in scores]
    if len(scores) < 2 and texts:
        wrong = _no_number(frame, texts[0], path, _parsed(frame, texts[0])[1])
        said = f"those of numbers are {', '.join(scores)}" if scores else "it has none"
        raise InputError(
            f"{wrong}; a table needs a column of numbers for each of at least 2 models ({said}), "
            f"and may have the columns {', '.join((*form.marks, *form.others))}"
        )
    return frame.select([name for name in frame.columns if name not in texts]), _ignored(texts)


def _ignored(names: list[str]) -> list[str]:
    if not names:
        return []
    few = ", ".join(map(show, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return [f"columns that play no part: {few}"]


def _is_text(frame: pl.DataFrame, column: str) -> bool:
    """Whether most of a column's values are no numbers."""
    _, bad = _parsed(frame, column)
    filled = int((frame[column].fill_null("").str.strip_chars() != "").sum())
    return filled > 0 and 2 * int(bad.sum()) > filled


def texts(frame: pl.DataFrame, column: str) -> tuple[str, ...]:
    """A column as texts, empty where it is."""
    return tuple(frame[column].fill_null("").to_list())


def tokens_of(chars: Floats, models: int) -> Floats:
    """Tokens of texts of so many characters, the same for all models: chars / 4."""
    tokens = chars / CHARS_PER_TOK
    return np.repeat(tokens[:, None], models, axis=1) if tokens.ndim == 1 else tokens


BY_CHARS = "tokens are taken as characters / 4"


def _wide(frame: pl.DataFrame, path: Path, models: Sequence[str]) -> Floats:
    return np.column_stack([numbers(frame, model, path) for model in models])


def _gsm8k(frame: pl.DataFrame, path: Path) -> Draft:
    prompts = texts(frame, "prompt")
    chars = numbers(frame, "prompt_chars", path)
    answers = _wide(frame, path, ("weak_resp_chars", "strong_resp_chars"))
    return Draft(
        ("weak", "strong"),
        _wide(frame, path, ("weak", "strong")),
        prompts,
        texts=prompts,
        length=chars,
        input_tok=tokens_of(chars, 2),
        output_tok=tokens_of(answers, 2),
        assumptions=[BY_CHARS],
    )


def _zeroeval(frame: pl.DataFrame, path: Path) -> Draft:
    models = tuple(name for name in frame.columns if name != "qid")
    draft = Draft(models, _wide(frame, path, models), texts(frame, "qid"))
    lengths = path.with_name(path.name.replace("_correct", "_outchars"))
    if lengths != path and lengths.exists():
        other = read_frame(lengths)
        if other["qid"].to_list() != frame["qid"].to_list() or not set(models) <= set(other.columns):
            raise InputError(f"{lengths.name}: its questions or models are not those of {path.name}")
        draft.output_tok = tokens_of(_wide(other, lengths, models), len(models))
        draft.assumptions.append(BY_CHARS)
    return draft


def _llmrouter9(frame: pl.DataFrame, path: Path) -> Draft:
    models = tuple(n for n in frame.columns if n not in ("split", "question_chars", "cluster_id", "question"))
    questions = texts(frame, "question")
    chars = numbers(frame, "question_chars", path)
    return Draft(
        models,
        _wide(frame, path, models),
        questions,
        texts=questions,
        length=chars,
        input_tok=tokens_of(chars, len(models)),
        split=texts(frame, "split"),
        assumptions=[BY_CHARS],
    )


def _mtbench(frame: pl.DataFrame, path: Path) -> Draft:
    import polars as pl

    frame = frame.with_columns(name=pl.concat_str("question_id", pl.lit(", turn "), "turn"))
    draft = _pivot(frame, path, question="name", model="model", columns={"score": "score"})
    draft.keys = [key.partition(",")[0] for key in draft.keys]  # two turns of a talk stay together
    draft.score_range = (1.0, 10.0)
    draft.assumptions.append("both turns of a conversation count as one question when resampling")
    return draft


def _routerarena(frame: pl.DataFrame, path: Path) -> Draft:
    columns = {"score": "score", "inference_cost": "cost", "input_tokens": "input", "output_tokens": "output"}
    draft = _pivot(frame, path, question="global_index", model="model", columns=columns)
    draft.domain = tuple(key.rpartition("_")[0] for key in draft.keys)
    draft.score_range = (-1.0, 1.0)  # some of its metrics correct for chance and fall below 0
    draft.assumptions.append("costs are dollars as recorded; lengths are tokens as the first model counts")
    return draft


def _long(frame: pl.DataFrame, path: Path) -> Draft:
    known = {"score": "score", "cost": "cost", "input_tokens": "input", "output_tokens": "output"}
    columns = {name: what for name, what in known.items() if name in frame.columns}
    draft = _pivot(frame, path, question="question", model="model", columns=columns)
    first = {}
    for row, key in enumerate(frame["question"].fill_null("").to_list()):
        first.setdefault(key, row)
    _beside(draft, frame[[first[key] for key in draft.keys]], path)
    return draft


def _plain(frame: pl.DataFrame, path: Path) -> Draft:
    models = tuple(name for name in frame.columns if name not in PLAIN)
    draft = Draft(models, _wide(frame, path, models), ())
    named = next((name for name in ("question", "text") if name in frame.columns), None)
    draft.keys = texts(frame, named) if named else [str(row) for row in range(frame.height)]
    _beside(draft, frame, path)
    return draft


def _beside(draft: Draft, frame: pl.DataFrame, path: Path) -> None:
    """Add what a plain table says of its questions, one row each, beside the models."""
    if "text" in frame.columns:
        draft.texts = texts(frame, "text")
        draft.keys = draft.texts  # the same text is the same question, whatever it is called
        chars = np.array([float(len(text)) for text in draft.texts])
        if draft.input_tok is None:
            draft.input_tok = tokens_of(chars, len(draft.models))
            draft.assumptions.append(BY_CHARS)
    if "length" in frame.columns:
        draft.length = numbers(frame, "length", path)
        if not np.isfinite(draft.length).all() or (draft.length < 0).any():
            raise InputError(f"{path.name}: a length is missing or negative; it must be 0 or more")
    for name in ("split", "domain"):
        if name in frame.columns:
            setattr(draft, name, texts(frame, name))


def _pivot(frame: pl.DataFrame, path: Path, *, question: str, model: str, columns: dict[str, str]) -> Draft:
    """One row a call -> one row a question; a call that is missing stays NaN, and is refused later."""
    names, models = texts(frame, question), texts(frame, model)
    row_of = {name: row for row, name in enumerate(dict.fromkeys(names))}
    column_of = {name: column for column, name in enumerate(dict.fromkeys(models))}
    rows, at = [row_of[name] for name in names], [column_of[name] for name in models]
    count = np.zeros((len(row_of), len(column_of)), np.int64)
    np.add.at(count, (rows, at), 1)
    for wrong, said in ((count > 1, "is there twice"), (count == 0, "is missing")):
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise InputError(
                f"{path.name}: the answer of model {list(column_of)[column]!r} to question "
                f"{list(row_of)[row]!r} {said}; every model must answer every question once"
            )
    found: dict[str, Floats] = {}
    for name, what in columns.items():
        found[what] = np.full(count.shape, np.nan)
        found[what][rows, at] = numbers(frame, name, path)
    draft = Draft(tuple(column_of), found["score"], list(row_of), costs=found.get("cost"))
    draft.input_tok, draft.output_tok = found.get("input"), found.get("output")
    draft.length = None if draft.input_tok is None else draft.input_tok[:, 0]
    return draft


def read_frame(path: Path) -> pl.DataFrame:
    """A CSV file, plain or gzipped, with every value as text.

    Raises
    ------
    InputError
        If it cannot be read, or is no table.
    """
    import polars as pl

    from fastsim.workloads.readers.source import file_bytes, unpack

    source = unpack(path.name, file_bytes(path), skip_bad=False)
    try:
        frame = pl.read_csv(source.data, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path.name} is not a CSV table: {str(error).splitlines()[0]}") from None
    if not frame.height:
        raise InputError(f"{path.name}: there is no question in the table")
    return frame


FORMATS: dict[str, Format] = {
    entry.name: entry
    for entry in (
        Format(
            "routellm_gsm8k",
            "RouteLLM's GSM8K: weak, strong, prompt, prompt_chars, weak_resp_chars, strong_resp_chars",
            ("weak", "strong", "prompt", "prompt_chars", "weak_resp_chars", "strong_resp_chars"),
            _gsm8k,
        ),
        Format(
            "routellm_mtbench",
            "RouteLLM's MT-Bench: question_id, turn, model, score from 1 to 10",
            ("question_id", "turn", "model", "score"),
            _mtbench,
        ),
        Format(
            "llmrouter9",
            "LLMRouter: split, question_chars, cluster_id, question, and a column for each model",
            ("split", "question_chars", "cluster_id", "question"),
            _llmrouter9,
            wide=True,
        ),
        Format(
            "routerarena",
            "RouterArena's cached calls: global_index, model, input_tokens, output_tokens, score, cost in $",
            ("global_index", "model", "input_tokens", "output_tokens", "score", "inference_cost"),
            _routerarena,
        ),
        Format(
            "zeroeval",
            "ZeroEval: qid and a column for each model; lengths of answers in *_outchars* beside it",
            ("qid",),
            _zeroeval,
            wide=True,
        ),
        Format(
            "long",
            "One row a call: question, model, score; where known cost ($), input_tokens, output_tokens, "
            "text, split, domain, length",
            ("question", "model", "score"),
            _long,
            ("cost", "input_tokens", "output_tokens", "text", "split", "domain", "length"),
        ),
        Format(
            "wide",
            "One row a question with a column of scores for each model; any of question (a name), text, "
            "split, domain, length",
            (),
            _plain,
            PLAIN,
            wide=True,
        ),
    )
}


def recognise(columns: Sequence[str]) -> Format:
    """The first format all of whose columns are there; the last needs none."""
    return next(entry for entry in FORMATS.values() if set(entry.marks) <= set(columns))
