"""ShareGPT's conversations: what was said in turn, with token counts, or texts whose tokens are reckoned."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from fastsim.errors import InputError
from fastsim.workloads.readers.columns import MAX_TOK, Columns, Complaints
from fastsim.workloads.readers.options import ReadOptions
from fastsim.workloads.readers.source import Source

KEY = "conversations"
_MODELS = ("gpt", "chatgpt", "bing", "bard", "assistant", "model")
_ROLES, _TEXTS = ("from", "role"), ("value", "content", "text")
_COUNTS = ("tokens", "num_tokens", "token_count", "n_tokens", "length")


def read(source: Source, complaints: Complaints, options: ReadOptions) -> Columns:
    """Read an answer of the model as a request whose prompt is all that was said before it.

    What follows the last answer is left out, and so is an answer that nothing comes before. Later turns wait
    for the answer before them and `think_s`.
    """
    rows: list[tuple[int, int, int, str, bool]] = []
    reckoned = 0
    for line, text in enumerate(source.data.split(b"\n"), start=1):
        if not text.strip():
            continue
        said = _turns(line, text, complaints)
        asked = 0  # tokens so far
        first = True
        for role, message in said or ():
            tokens = _tokens(message)
            if tokens is None:
                tokens = _by_chars(line, message, complaints, options)
                reckoned += tokens is not None
            if tokens is None:
                break
            if role in _MODELS and asked > 0:
                rows.append((line, asked, tokens, f"{line}", not first))
                first = False
            asked += tokens
    if reckoned == 0 and options.chars_per_tok is not None:
        raise InputError(f"chars_per_tok: it does not apply to {source.name}, which has token counts")
    lines, prompt, output, session, waits = zip(*rows, strict=True) if rows else ((),) * 5
    columns = Columns(
        np.array(lines, dtype=np.int64),
        np.where(waits, options.think_s, 0.0),
        np.array(prompt, dtype=np.int64),
        np.array(output, dtype=np.int64),
        session=list(session),
        untimed=True,
        waits=np.array(waits, dtype=bool),
        grows=True,
        time_column="timestamp",
        prompt_column="prompt",
        output_column="answer",
        there="conversations have no times; ",
    )
    columns.notes = (f"every answer is a request; it comes {options.think_s:g} s after the answer before",)
    if reckoned:
        said = f"tokens of {reckoned:,} texts are taken as characters / {options.chars_per_tok:g}, as stated"
        columns.notes = (*columns.notes, said)
    return columns


def _turns(line: int, text: bytes, complaints: Complaints) -> list[tuple[str, dict[str, Any]]] | None:
    """Return the messages of a conversation with who said them, or None after a complaint."""
    try:
        entry = msgspec.json.decode(text)
        messages = entry[KEY]
        return [(_first(message, _ROLES).lower(), message) for message in messages]
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError, AttributeError):
        shown = text.decode("utf-8", "replace")
        complaints.row(line, "", shown, f"must be a conversation: an object with a list {KEY!r} of messages")
        return None


def _first(message: Any, names: tuple[str, ...]) -> Any:
    return next(message[name] for name in names if name in message) if message else ""


def _tokens(message: dict[str, Any]) -> int | None:
    """The tokens of a message, if it says so."""
    for name in _COUNTS:
        value = message.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOK:
            return value
    return None


def _by_chars(line: int, message: dict[str, Any], complaints: Complaints, options: ReadOptions) -> int | None:
    """The tokens of a text, by its characters."""
    texts = [message[name] for name in _TEXTS if isinstance(message.get(name), str)]
    if not texts:
        complaints.row(line, KEY, str(message), f"must have a text ({', '.join(_TEXTS)}) or tokens")
        return None
    if options.chars_per_tok is None:
        raise InputError(
            f"{complaints.file}, line {line}, column {KEY}: the messages are texts without token counts "
            f"({', '.join(_COUNTS)}); state chars_per_tok, such as 4, or tokenise them"
        )
    return math.ceil(len(texts[0]) / options.chars_per_tok)
