"""Workloads from prompts as a program has them: texts, token ids, hash ids of blocks, or named segments."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsim.errors import InputError, shown
from fastsim.typed import checked, reals, wholes
from fastsim.workloads.summary import WorkloadSummary
from fastsim.workloads.workload import MAX_TOK, BlockTok, Workload

Ints = NDArray[np.int64]

_UNIT = np.dtype(">u4")  # a token or character; big-endian, so that bytes sort as the units do
_MOST_TOKEN = 2**32 - 1

# What a prompt may be, in words.
TEXT, TOKENS, HASH_IDS, SEGMENTS = "a string", "token ids", "hash ids", "(segment, tokens) pairs"


@checked
def from_prompts(
    prompts: Sequence[Any],
    arrival_s: ArrayLike,
    output_tok: ArrayLike | None = None,
    *,
    hash_block_tok: BlockTok | None = None,
    prompt_tok: ArrayLike | None = None,
    answers: Sequence[Any] | None = None,
    shared_segments: ArrayLike | None = None,
    session: ArrayLike | None = None,
    name: str = "prompts",
) -> Workload:
    """Make a workload of n prompts, all of one form, in the order in which they arrive.

    What prompts have in common is found by comparing them, from their starts.

    Parameters
    ----------
    prompts : sequence, length n
        Each one is a string, of which every character counts as a token; or a sequence or array of token ids;
        or, with `hash_block_tok`, a sequence or array of hash ids, one a block of tokens (equal ids are equal
        blocks); or a sequence of pairs (segment, tokens): equal segments of equal length are equal tokens,
        different ones share nothing, and a segment is anything hashable.
    arrival_s : array_like of float, shape (n,)
        Arrival times in seconds, ascending, from 0 on.
    output_tok : array_like of int, shape (n,), optional
        Tokens each request generates, at least 1; by default those of its answer.
    hash_block_tok : int, optional
        Tokens of a block that has a hash id.
    prompt_tok : array_like of int, shape (n,), optional
        Tokens of each prompt, where they are not those spelt out. More: the rest is the request's own. Fewer
        (hash ids only): its last block is that much shorter.
    answers : sequence, length n, optional
        What each request generates, in the prompts' form (one pair for segments), or None. A prompt that
        begins with an earlier one and the whole of its answer shares both; one that goes on with a part of
        an answer shares none of it. Not with hash ids.
    shared_segments : array_like of int, shape (n,), optional
        Leading segments that are shareable by nature (system prompt, document), which is what the lecture's
        engine caches; all by default. Segments only.
    session : array_like of int, shape (n,), optional
        Session each request belongs to, -1 where unknown.
    name : str, optional

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For prompts of different or unknown forms, empty ones, and numbers that do not fit; the message
        names the argument, the place and the value.

    Examples
    --------
    >>> from_prompts(["You are kind. Hi!", "You are kind. Bye!"], [0.0, 1.5], [20, 30])
    <Workload prompts: 2 requests at 0.6667/s>
    >>> question = [("system prompt", 400), ("question", 30)]
    >>> thanks = [*question, ("answer", 90), ("thanks", 4)]
    >>> from_prompts([question, thanks], [0, 60], [90, 12], answers=[("answer", 90), None])
    <Workload prompts: 2 requests at 0.01667/s>
    """
    _require_sequence("prompts", prompts)
    n = len(prompts)
    if n == 0:
        raise InputError("prompts is empty; it must hold at least one prompt")
    times_s = reals("arrival_s", arrival_s)
    _require_length("arrival_s", times_s, n)
    form = _form_of_all(prompts, hash_block_tok)
    _require_fitting_options(form, hash_block_tok, answers, shared_segments)
    if answers is None:
        answers = [None] * n
    _require_sequence("answers", answers)
    _require_length("answers", answers, n)
    optional = {"output_tok": output_tok, "prompt_tok": prompt_tok, "session": session}
    given = {key: _whole(key, values, n) for key, values in optional.items() if values is not None}
    if form == SEGMENTS:
        ptr, symbols, symbol_tok, answer = _from_segments(prompts, answers)
    elif form == HASH_IDS:
        assert hash_block_tok is not None
        ptr, symbols, symbol_tok = _from_hash_ids(prompts, hash_block_tok, given.get("prompt_tok"))
        answer = np.full(n, -1, np.int64)
    else:
        ptr, symbols, symbol_tok, answer = _from_units(prompts, answers, form)
    spelt_tok = np.diff(np.concatenate(([0], np.cumsum(symbol_tok[symbols])))[ptr])
    fields = {key: given[key] for key in ("prompt_tok", "session") if key in given}
    if shared_segments is not None:
        fields["shared_symbols"] = _whole("shared_segments", shared_segments, n)
    return Workload(
        name=name,
        arrival_s=times_s,
        output_tok=_output_tok(given.get("output_tok"), answer, symbol_tok),
        symbol_ptr=ptr,
        symbols=symbols,
        symbol_tok=symbol_tok,
        answer=answer,
        summary=WorkloadSummary(source=f"{n} prompts, each {form}", rows_read=n, block_tok=hash_block_tok),
        **{"prompt_tok": spelt_tok, **fields},
    )


# --- which form ---------------------------------------------------------------------------------------------


def _form_of_all(prompts: Sequence[Any], hash_block_tok: int | None) -> str:
    forms = [_form(prompt, f"prompts[{i}]") for i, prompt in enumerate(prompts)]
    for i, form in enumerate(forms):
        if form != forms[0]:
            raise InputError(f"prompts[{i}] is {form} and prompts[0] is {forms[0]}; all must be of one form")
    return HASH_IDS if hash_block_tok is not None and forms[0] == TOKENS else forms[0]


def _form(prompt: Any, where: str) -> str:
    """TEXT, TOKENS (or hash ids) or SEGMENTS."""
    if isinstance(prompt, str):
        form = TEXT
    elif isinstance(prompt, np.ndarray) and prompt.ndim == 1:
        form = TOKENS
    elif isinstance(prompt, Sequence) and not isinstance(prompt, bytes):
        form = SEGMENTS if len(prompt) and _is_pair(prompt[0]) else TOKENS
    else:
        raise InputError(f"{where} is {shown(prompt)}; it must be {TEXT}, {TOKENS}, {HASH_IDS} or {SEGMENTS}")
    if len(prompt) == 0:
        raise InputError(f"{where} is empty; it must hold at least one token")
    return form


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, Sequence) and not isinstance(entry, str | bytes) and len(entry) == 2


def _require_fitting_options(form: str, hash_block_tok: Any, answers: Any, shared_segments: Any) -> None:
    if hash_block_tok is not None:
        if form != HASH_IDS:
            raise InputError(f"hash_block_tok is for prompts of {HASH_IDS}; each of these is {form}")
        if answers is not None:
            raise InputError(f"answers cannot be given with {HASH_IDS}; only whole blocks have one")
    if shared_segments is not None and form != SEGMENTS:
        raise InputError(f"shared_segments is for prompts of {SEGMENTS}; each of these is {form}")


# --- numbers ------------------------------------------------------------------------------------------------


def _require_sequence(name: str, values: Any) -> None:
    if isinstance(values, str):
        raise InputError(f"{name} is a single string; it must be a sequence of prompts")
    if not isinstance(values, Sequence | np.ndarray) or (isinstance(values, np.ndarray) and not values.ndim):
        raise InputError(f"{name} = {shown(values)} is not allowed; it must be a sequence")


def _require_length(name: str, values: Any, n: int) -> None:
    if isinstance(values, np.ndarray) and values.ndim == 0:
        raise InputError(f"{name} = {values.item()!r} is not allowed; it must be a sequence")
    if len(values) != n:
        raise InputError(f"{name} has {len(values)} entries for {n} prompts")


def _whole(name: str, values: ArrayLike, n: int | None = None) -> Ints:
    """Whole numbers as int64, n of them."""
    array = wholes(name, values, wrap=n is None)
    if n is not None:
        _require_length(name, array, n)
    return array


def _output_tok(given: Ints | None, answer: Ints, symbol_tok: Ints) -> Ints:
    """Tokens out: given, or the answers'."""
    if given is None:
        if (answer < 0).any():
            place = int(np.argmax(answer < 0))
            raise InputError(f"output_tok is missing; request {place} has no answer to take it from")
        return symbol_tok[answer]
    known = np.flatnonzero(answer >= 0)
    wrong = known[symbol_tok[answer[known]] != given[known]]
    if len(wrong):
        i = int(wrong[0])
        raise InputError(f"output_tok[{i}] = {given[i]}, but answers[{i}] has {symbol_tok[answer[i]]} tokens")
    return given


# --- segments and hash ids ----------------------------------------------------------------------------------


class _Symbols:
    """Numbers segments as they appear; a segment of two lengths is two symbols."""

    def __init__(self) -> None:
        self.number: dict[tuple[Hashable, int], int] = {}

    def of(self, pair: Any, where: str) -> int:
        if not _is_pair(pair):
            raise InputError(f"{where} is {shown(pair)}; it must be a pair (segment, tokens)")
        segment, tokens = pair
        if isinstance(tokens, bool) or not isinstance(tokens, int | np.integer) or not 1 <= tokens <= MAX_TOK:
            raise InputError(
                f"{where} is {shown(pair)}; its tokens must be a whole number from 1 to {MAX_TOK:,}"
            )
        try:
            return self.number.setdefault((segment, int(tokens)), len(self.number))
        except TypeError:
            raise InputError(
                f"{where} is {shown(pair)}; its segment must be hashable, such as a name or a number"
            ) from None


def _from_segments(prompts: Sequence[Any], answers: Sequence[Any]) -> tuple[Ints, Ints, Ints, Ints]:
    symbols = _Symbols()
    paths = [
        [symbols.of(pair, f"prompts[{i}][{k}]") for k, pair in enumerate(p)] for i, p in enumerate(prompts)
    ]
    answer = [-1 if a is None else symbols.of(a, f"answers[{i}]") for i, a in enumerate(answers)]
    symbol_tok = np.array([tokens for _, tokens in symbols.number], np.int64)
    return _pointers(paths), np.concatenate(paths), symbol_tok, np.array(answer, np.int64)


def _from_hash_ids(prompts: Sequence[Any], size: int, prompt_tok: Ints | None) -> tuple[Ints, Ints, Ints]:
    rows = [_whole(f"prompts[{i}]", prompt) for i, prompt in enumerate(prompts)]
    ptr, ids = _pointers(rows), np.concatenate(rows)
    tok = np.full(len(ids), size, np.int64)
    if prompt_tok is not None:
        missing = prompt_tok - np.diff(ptr) * size
        wrong = np.flatnonzero((missing <= -size) | (missing >= size))
        if len(wrong):
            i = int(wrong[0])
            raise InputError(
                f"prompt_tok[{i}] = {prompt_tok[i]} does not fit the {len(rows[i])} ids of prompts[{i}] "
                f"at {size} tokens a block"
            )
        tok[ptr[1:] - 1] += np.minimum(missing, 0)
    # A hash id of two lengths is two symbols.
    pairs, symbols = np.unique(np.stack((ids, tok)), axis=1, return_inverse=True)
    return ptr, symbols.ravel(), pairs[1]


def _pointers(rows: Sequence[Any]) -> Ints:
    return np.cumsum([0] + [len(row) for row in rows])


# --- texts and token ids ------------------------------------------------------------------------------------


def _from_units(prompts: Sequence[Any], answers: Sequence[Any], form: str) -> tuple[Ints, Ints, Ints, Ints]:
    """One symbol a token or character, and one for each distinct answer."""
    texts = [_spell(prompt, form, f"prompts[{i}]") for i, prompt in enumerate(prompts)]
    replies = [None if a is None else _spell(a, form, f"answers[{i}]") for i, a in enumerate(answers)]
    kinds, symbols = np.unique(np.frombuffer(b"".join(texts), _UNIT), return_inverse=True)
    numbers = {
        reply: len(kinds) + k for k, reply in enumerate(dict.fromkeys(r for r in replies if r is not None))
    }
    lengths = [len(reply) // _UNIT.itemsize for reply in numbers]
    symbol_tok = np.concatenate((np.ones(len(kinds), np.int64), np.array(lengths, np.int64)))
    answer = np.array([-1 if reply is None else numbers[reply] for reply in replies], np.int64)
    ptr = _pointers(texts) // _UNIT.itemsize
    if numbers:
        ptr, symbols = _with_answers(ptr, symbols, texts, _contained(texts, replies), numbers)
    return ptr, symbols, symbol_tok, answer


def _spell(prompt: Any, form: str, where: str) -> bytes:
    """A prompt or an answer as bytes that compare as its units do."""
    if _form(prompt, where) != form:
        raise InputError(f"{where} is {shown(prompt)}; as the prompts, it must be {form}")
    if form == TEXT:
        return prompt.encode("utf-32-be", "surrogatepass")
    tokens = _whole(where, prompt)
    if tokens.min() < 0 or tokens.max() > _MOST_TOKEN:
        wrong = tokens[(tokens < 0) | (tokens > _MOST_TOKEN)][0]
        raise InputError(f"{where} holds {wrong}; a token id must be 0 to {_MOST_TOKEN}")
    return tokens.astype(_UNIT).tobytes()


def _contained(texts: list[bytes], replies: list[bytes | None]) -> list[list[tuple[int, int]]]:
    """Where each prompt contains whole answers, after the very prompts they answered: (start, stop) in bytes.

    Sorted, a text comes right after those it begins with, so a stack of these is all there is to keep.
    """
    answered = [
        (text + reply, 0, len(text)) for text, reply in zip(texts, replies, strict=True) if reply is not None
    ]
    asked = [(text, 1, i) for i, text in enumerate(texts)]
    found: list[list[tuple[int, int]]] = [[] for _ in texts]
    begun: list[tuple[bytes, int]] = []
    for text, is_prompt, value in sorted(answered + asked):
        while begun and not text.startswith(begun[-1][0]):
            begun.pop()
        if is_prompt:
            found[value] = _apart([(start, len(whole)) for whole, start in begun])
        else:
            begun.append((text, value))
    return found


def _apart(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that do not overlap: from the left, the longest of those that start first."""
    chosen: list[tuple[int, int]] = []
    for start, stop in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not chosen or start >= chosen[-1][1]:
            chosen.append((start, stop))
    return chosen


def _with_answers(
    ptr: Ints,
    symbols: Ints,
    texts: list[bytes],
    found: list[list[tuple[int, int]]],
    numbers: dict[bytes, int],
) -> tuple[Ints, Ints]:
    """Put an answer's one symbol in the place of its tokens, wherever a prompt contains it."""
    symbols = symbols.copy()
    kept = np.ones(len(symbols), bool)
    for i, spans in enumerate(found):
        for start, stop in spans:
            first = ptr[i] + start // _UNIT.itemsize
            symbols[first] = numbers[texts[i][start:stop]]
            kept[first + 1 : ptr[i] + stop // _UNIT.itemsize] = False
    return np.concatenate(([0], np.cumsum(kept)))[ptr], symbols[kept]
