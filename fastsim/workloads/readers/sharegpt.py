"""ShareGPT's conversations: what was said in turn, with token counts, or texts whose tokens are reckoned."""

from __future__ import annotations

import math
from collections.abc import Iterator
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
    counter = _Counter(complaints, options)
    rows: list[tuple[int, int, int, bool]] = []
    for line, text in enumerate(source.data.split(b"\n"), start=1):
        messages = _messages(line, text, complaints) if text.strip() else None
        if messages is not None:
            asked = _requests([(role, counter.tokens(line, message)) for role, message in messages])
            rows += [(line, prompt, output, turn > 0) for turn, (prompt, output) in enumerate(asked)]
    if counter.told and not counter.reckoned and options.chars_per_tok is not None:
        raise InputError(f"chars_per_tok: it does not apply to {source.name}, which has token counts")
    lines, prompt, output, waits = zip(*rows, strict=True) if rows else ((),) * 4
    session = list(map(str, lines))
    columns = Columns(
        np.array(lines, dtype=np.int64),
        np.where(waits, options.think_s, 0.0),
        np.array(prompt, dtype=np.int64),
        np.array(output, dtype=np.int64),
        session=session,
        untimed=True,
        waits=np.array(waits, dtype=bool),
        grows=True,
        time_column="timestamp",
        prompt_column="prompt",
        output_column="answer",
        there="conversations have no times; ",
    )
    columns.notes = (f"every answer is a request; it comes {options.think_s:g} s after the answer before",)
    if counter.reckoned:
        rule = f"characters / {options.chars_per_tok:g}, as stated"
        said = f"tokens of {counter.reckoned:,} texts are taken as {rule}"
        columns.notes = (*columns.notes, said)
    return columns


def _messages(line: int, text: bytes, complaints: Complaints) -> list[tuple[str, dict[str, Any]]] | None:
    """Return the messages of a conversation with who said them, or None after a complaint."""
    try:
        messages = msgspec.json.decode(text)[KEY]
        return [(_first(message, _ROLES).lower(), message) for message in messages]
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError, AttributeError, StopIteration):
        shown = text.decode("utf-8", "replace")
        complaints.row(line, "", shown, f"must be a conversation: an object with a list {KEY!r} of messages")
        return None


def _requests(said: list[tuple[str, int | None]]) -> Iterator[tuple[int, int]]:
    """Yield (prompt, answer) in tokens of each answer, up to a message whose tokens are not known."""
    before = 0
    for role, tokens in said:
        if tokens is None or before + tokens > MAX_TOK:
            return
        if role in _MODELS and before > 0:
            yield before, tokens
        before += tokens


def _first(message: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next(message[name] for name in names if name in message)


class _Counter:
    """Counts the tokens of messages, and how many say theirs and how many are reckoned."""

    def __init__(self, complaints: Complaints, options: ReadOptions) -> None:
        self.complaints = complaints
        self.chars_per_tok = options.chars_per_tok
        self.told = self.reckoned = 0

    def tokens(self, line: int, message: dict[str, Any]) -> int | None:
        """Return the tokens of a message, told or by its characters; None after a complaint."""
        for name in _COUNTS:
            value = message.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOK:
                self.told += 1
                return value
        text = next((message[name] for name in _TEXTS if isinstance(message.get(name), str)), None)
        if text is None:
            self.complaints.row(line, KEY, str(message), f"must have a text ({', '.join(_TEXTS)}) or tokens")
            return None
        if self.chars_per_tok is None:
            raise InputError(
                f"{self.complaints.file}, line {line}, column {KEY}: the messages are texts without token "
                f"counts ({', '.join(_COUNTS)}); state chars_per_tok, such as 4, or tokenise them"
            )
        self.reckoned += 1
        return math.ceil(len(text) / self.chars_per_tok)
