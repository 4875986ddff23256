"""Make the example inputs of this folder: ``python data/make_examples.py``. All of it is made up.

* ``conversations.jsonl.gz``: a trace as Mooncake's. Assistants share what prompts start with, and each turn
  of a conversation brings along those before it.
* ``azure.csv.gz``: a trace as Azure's, arrivals and lengths alone, more of them in the middle.
* ``outcomes.csv.gz``: which of four models answers which question right, by domain and difficulty.
* ``prices.json``: what the four cost.

The same Python's `random` gives the same bytes everywhere; the seeds are below.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from random import Random

HERE = Path(__file__).parent
CONVERSATIONS_SEED, AZURE_SEED, OUTCOMES_SEED = 1, 2, 3

BLOCK_TOK = 512  # that one of Mooncake's hash ids stands for
ASSISTANTS = 120
SESSIONS = 900
SPAN_S, BEFORE_S = 900.0, 300.0  # of the trace, and before it: some conversations have begun by then


def conversations() -> bytes:
    """Conversations with assistants: popularity by Zipf's law, 1 to 12 turns, half a minute between two."""
    rng = Random(CONVERSATIONS_SEED)
    ids: dict[tuple[object, ...], int] = {}
    instructions = [1_000 + int(rng.expovariate(1 / 4_000)) for _ in range(ASSISTANTS)]
    popularity = list(accumulate(1 / rank for rank in range(1, ASSISTANTS + 1)))
    rows: list[tuple[int, int, int, int, list[tuple[object, ...]]]] = []
    for session in range(SESSIONS):
        assistant = bisect(popularity, rng.random() * popularity[-1])
        at_s = rng.random() * (BEFORE_S + SPAN_S) - BEFORE_S
        prompt_tok = instructions[assistant]
        for turn in range(min(12, 1 + int(rng.expovariate(1 / 4)))):
            prompt_tok += 30 + int(rng.lognormvariate(5.0, 1.0))
            output_tok = 20 + int(rng.lognormvariate(5.3, 0.6))
            blocks = _blocks(session, turn, assistant, prompt_tok, instructions[assistant])
            if 0.0 <= at_s < SPAN_S:
                rows.append((int(1_000 * at_s), session, prompt_tok, output_tok, blocks))
            prompt_tok += output_tok
            at_s += output_tok * 0.02 + rng.expovariate(1 / 30)
    lines = []
    for at_ms, session, prompt_tok, output_tok, blocks in sorted(rows):
        row = {"timestamp": at_ms, "input_length": prompt_tok, "output_length": output_tok}
        row["session_id"] = f"c{session}"  # pyright: ignore[reportArgumentType]
        row["hash_ids"] = [ids.setdefault(block, len(ids)) for block in blocks]  # pyright: ignore
        lines.append(json.dumps(row, separators=(",", ":")))
    return ("\n".join(lines) + "\n").encode()


def _blocks(
    session: int, turn: int, assistant: int, prompt_tok: int, shared_tok: int
) -> list[tuple[object, ...]]:
    """What each block of a prompt is: the assistant's, the conversation's, or the end that is not full."""
    full = prompt_tok // BLOCK_TOK
    blocks: list[tuple[object, ...]] = [
        ("assistant", assistant, k) if (k + 1) * BLOCK_TOK <= shared_tok else ("session", session, k)
        for k in range(full)
    ]
    return [*blocks, ("end", session, turn)] if prompt_tok % BLOCK_TOK else blocks


def azure() -> bytes:
    """Five minutes at 5 to 15 requests/s."""
    rng = Random(AZURE_SEED)
    rows = [["TIMESTAMP", "ContextTokens", "GeneratedTokens"]]
    at_s = 0.0
    while at_s < 300.0:
        at_s += rng.expovariate(10.0 - 5.0 * math.cos(2.0 * math.pi * at_s / 300.0))
        prompt_tok, output_tok = 10 + int(rng.lognormvariate(6.6, 1.0)), 1 + int(rng.lognormvariate(4.8, 0.8))
        minute, second = divmod(at_s, 60.0)
        rows.append(
            [
                f"2024-05-10 09:{int(minute):02d}:{second:010.7f}",
                str(min(prompt_tok, 14_000)),
                str(output_tok),
            ]
        )
    return _csv(rows)


MODELS = {  # $ per million input and output tokens; skill at each domain
    "small": (0.1, 0.1, {"arithmetic": -0.6, "code": -0.9, "facts": 0.3, "tables": -0.2}),
    "coder": (0.2, 0.2, {"arithmetic": 0.2, "code": 1.6, "facts": -0.6, "tables": 0.6}),
    "medium": (0.5, 0.8, {"arithmetic": 0.8, "code": 0.5, "facts": 1.0, "tables": 0.9}),
    "large": (2.5, 10.0, {"arithmetic": 2.0, "code": 1.7, "facts": 2.1, "tables": 1.9}),
}
WORDS = {
    "arithmetic": ["sum", "price", "share", "percent", "apples", "hours", "profit", "each"],
    "code": ["function", "list", "loop", "string", "index", "return", "class", "sorted"],
    "facts": ["river", "capital", "year", "author", "war", "planet", "king", "metal"],
    "tables": ["row", "column", "total", "header", "cell", "region", "quarter", "units"],
}
QUESTIONS = 1_200


def outcomes() -> bytes:
    """Questions of four domains; the harder, the longer."""
    rng = Random(OUTCOMES_SEED)
    rows = [["question", "domain", "split", "text", *MODELS]]
    for number in range(QUESTIONS):
        domain = list(WORDS)[int(rng.random() * len(WORDS))]
        difficulty = rng.gauss(0.0, 1.0)
        length = max(6, int(40 + 18 * difficulty + rng.gauss(0.0, 6.0)))
        words = [WORDS[domain][int(rng.random() * 8)] if rng.random() < 0.4 else "the" for _ in range(length)]
        luck = rng.gauss(0.0, 0.7)  # that models share
        rights = [
            rng.random() < 1.0 / (1.0 + math.exp(-1.7 * (skill[domain] - difficulty + luck)))
            for *_, skill in MODELS.values()
        ]
        split = "test" if number % 2 else "train"
        rows.append([f"q{number}", domain, split, " ".join(words), *(str(int(right)) for right in rights)])
    return _csv(rows)


def prices() -> bytes:
    """$ per million tokens."""
    table = {name: {"input_price": paid, "output_price": out} for name, (paid, out, _) in MODELS.items()}
    return (json.dumps(table, indent=1) + "\n").encode()


def _csv(rows: list[list[str]]) -> bytes:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue().encode()


def examples() -> Iterator[tuple[str, bytes]]:
    """Name and content of each file, before it is packed."""
    yield "conversations.jsonl.gz", conversations()
    yield "azure.csv.gz", azure()
    yield "outcomes.csv.gz", outcomes()
    yield "prices.json", prices()


if __name__ == "__main__":
    for name, content in examples():
        packed = gzip.compress(content, mtime=0) if name.endswith(".gz") else content
        (HERE / name).write_bytes(packed)
        print(f"{name}: {len(packed):,} bytes, {len(content):,} unpacked")
