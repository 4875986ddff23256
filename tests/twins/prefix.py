"""What prompts have in common, block by block, with dictionaries of whole prefixes.

A token is ``(symbol, position)``, so equal lists are equal prompts. Nothing here knows of tries or runs.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from itertools import pairwise

from fastsim.workloads import Workload

Tokens = list[tuple]
Prefix = tuple[tuple, ...]


def prompt_tokens(workload: Workload) -> list[Tokens]:
    """Prompts; what the symbols do not spell out is the request's own."""
    tok = workload.symbol_tok.tolist()
    rows = []
    for i, (first, end) in enumerate(pairwise(workload.symbol_ptr.tolist())):
        tokens = [(s, j) for s in workload.symbols[first:end].tolist() for j in range(tok[s])]
        rows.append(tokens + [(("own prompt", i), j) for j in range(workload.prompt_tok[i] - len(tokens))])
    return rows


def all_tokens(workload: Workload) -> list[Tokens]:
    """Prompts with their answers."""
    rows = []
    for i, tokens in enumerate(prompt_tokens(workload)):
        symbol = int(workload.answer[i])
        answer = ("own answer", i) if symbol < 0 else symbol
        rows.append(tokens + [(answer, j) for j in range(workload.output_tok[i])])
    return rows


def blocks(tokens: Tokens, block_tok: int) -> list[Prefix]:
    """Full blocks of a list of tokens, each named by everything up to its end."""
    return [tuple(tokens[:end]) for end in range(block_tok, len(tokens) + 1, block_tok)]


def computed_blocks(workload: Workload, block_tok: int) -> list[list[Prefix]]:
    """Full blocks of each finished request; its last token is never computed."""
    return [blocks(tokens[:-1], block_tok) for tokens in all_tokens(workload)]


def shared_blocks(workload: Workload, block_tok: int) -> list[int]:
    """Leading blocks of each finished request that another has too, whole answers counted."""
    rows = [blocks(tokens, block_tok) for tokens in all_tokens(workload)]
    users = Counter(block for row in rows for block in row)
    computed = [len(row) for row in computed_blocks(workload, block_tok)]
    return [min(sum(users[b] > 1 for b in row), n) for row, n in zip(rows, computed, strict=True)]


def known_tok(workload: Workload) -> list[int]:
    """Tokens of each prompt with which an earlier prompt and its answer begin, too."""
    seen: set[Prefix] = set()
    known = []
    for prompt, whole in zip(prompt_tokens(workload), all_tokens(workload), strict=True):
        known.append(sum(prefix in seen for prefix in blocks(prompt, 1)))
        seen.update(blocks(whole, 1))
    return known


def leading_symbols(workload: Workload) -> list[list[int]]:
    """Shareable symbols of each prompt."""
    bounds = zip(workload.symbol_ptr.tolist(), workload.shared_symbols.tolist(), strict=False)
    return [workload.symbols[first : first + count].tolist() for first, count in bounds]


def lru_hits_tok(workload: Workload, block_tok: int, capacity_blk: int | None) -> Iterator[int]:
    """Tokens each prompt hits in one LRU cache of so many blocks (None: no limit), request after request.

    A request hits full blocks of its prompt up to the first that is missing, never its last token. Then it
    touches all it has, its whole answer included, the deepest block first.
    """
    cache: OrderedDict[Prefix, None] = OrderedDict()
    for prompt, whole in zip(prompt_tokens(workload), all_tokens(workload), strict=True):
        hits = 0
        for block in blocks(prompt[:-1], block_tok):
            if block not in cache:
                break
            hits += block_tok
        yield hits
        for block in reversed(blocks(whole, block_tok)):
            cache[block] = None
            cache.move_to_end(block)
            if capacity_blk is not None and len(cache) > capacity_blk:
                cache.popitem(last=False)
