"""Prompts compiled once per workload: which blocks prompts have in common, as runs and paths of integers.

All prompts of a workload are known before a run starts, so the trie over them is static. Blocks that more
than one prompt has are gathered into runs, unbranched stretches that are matched, cached and counted as one;
a prompt is the list of its runs, and the blocks that only it has are a number. Matching is then a walk over
integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fastsim.cluster import _trie
from fastsim.cluster._state import table_slots
from fastsim.errors import InputError
from fastsim.workloads import Workload

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Prompts:
    """The prompts (and answers) of n requests in blocks.

    Parameters
    ----------
    block_tok : int
        Tokens a block.
    path_ptr, path : int64[n + 1], int64[m]
        Runs of each prompt from its start on: ``path[path_ptr[i]:path_ptr[i + 1]]``.
    run_blk : int64[runs]
        Blocks of each run.
    shared_blk : int64[n]
        Full blocks of each request that lie on its runs; the last run may go on beyond them.
    full_blk : int64[n]
        Full blocks of each request, its own ones included, once it is finished.
    known_tok : int64[n]
        Tokens of each prompt that are the prefix of an earlier request.
    """

    block_tok: int
    path_ptr: Ints
    path: Ints
    run_blk: Ints
    shared_blk: Ints
    full_blk: Ints
    known_tok: Ints

    @cached_property
    def block_ids(self) -> tuple[Ints, Ints]:
        """Dense block ids (ptr, ids): equal ids are equal blocks after equal blocks; own blocks come last."""
        first = [0, *np.cumsum(self.run_blk).tolist()]
        rows = []
        own = first[-1]
        for i, full in enumerate(self.full_blk.tolist()):
            runs = self.path[self.path_ptr[i] : self.path_ptr[i + 1]].tolist()
            ids = np.concatenate(
                [np.arange(first[run], first[run + 1]) for run in runs] or [np.empty(0, np.int64)]
            )
            ids = ids[: self.shared_blk[i]]
            rows.append(np.concatenate((ids, np.arange(own, own + full - len(ids)))))
            own += full - len(ids)
        ptr = np.concatenate(([0], np.cumsum([len(row) for row in rows])))
        return ptr, np.concatenate(rows) if rows else np.empty(0, np.int64)


def compile_prompts(
    workload: Workload, block_tok: int, *, segments: bool = False, answers: bool = True
) -> Prompts:
    """Compile a workload's prompts for an engine's block size.

    Parameters
    ----------
    workload : Workload
    block_tok : int
        Tokens a block, at least 1.
    segments : bool, optional
        Make every shareable symbol a run of its own, whether or not another prompt has it, and leave the
        rest out: the lecture's cache holds whole segments, and only documents, tools and system prompts.
        Needs `block_tok` 1.
    answers : bool, optional
        Whether a prompt goes on with its answer, as it does in an engine's cache; routers see prompts only.

    Raises
    ------
    InputError
        If the block size is below 1, or not 1 with `segments`.
    """
    if block_tok < 1 or (segments and block_tok != 1):
        raise InputError(
            f"block_tok must be {'1 with whole segments' if segments else 'at least 1'}, not {block_tok}"
        )
    if segments:
        ptr, symbols = _leading(workload.symbol_ptr, workload.symbols, workload.shared_symbols)
    else:
        ptr, symbols = _with_answers(workload) if answers else (workload.symbol_ptr, workload.symbols)
    n = len(ptr) - 1
    node, end, known = build_trie(ptr, symbols, workload.symbol_tok, segments=segments)
    path_len = np.zeros(n, np.int64)
    shared = np.zeros(n, np.int64)
    runs = _trie.number_runs(node, end, block_tok, int(segments), path_len, shared)
    path_ptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(path_len)))
    path = np.empty(path_ptr[-1], np.int64)
    run_blk = np.empty(runs, np.int64)
    _trie.write_paths(node, end, block_tok, path_ptr, path, run_blk)
    full = (workload.prompt_tok + workload.output_tok - 1) // block_tok  # the last token is never computed
    known = np.minimum(known, workload.prompt_tok)
    return Prompts(block_tok, path_ptr, path, run_blk, np.minimum(shared, full), full, known)


def build_trie(
    ptr: Ints, symbols: Ints, symbol_tok: Ints, *, segments: bool = False
) -> tuple[Ints, Ints, Ints]:
    """Build the trie of prompts, stretches of symbols; with `segments` every symbol is a node of its own.

    Returns
    -------
    node : int64[nodes, N_NODE]
        Columns as in `_trie`, visits counted; node 0 is the root.
    end : int64[n]
        The node at which each prompt ends.
    known : int64[n]
        Tokens of each prompt that were the prefix of an earlier one.
    """
    n = len(ptr) - 1
    rows = 2 * n + 2 if not segments else len(symbols) + 2
    node = np.empty((rows, _trie.N_NODE), np.int64)
    table = np.zeros((table_slots(rows), 2), np.int64)
    end = np.empty(n, np.int64)
    known = np.empty(n, np.int64)
    node = node[: _trie.build(ptr, symbols, symbol_tok, int(segments), node, table, end, known)]
    _trie.count_visits(node, end)
    return node, end, known


def tree_prompts(
    workload: Workload,
    block_tok: int,
    *,
    segments: bool = False,
    partial: bool = False,
) -> tuple[Ints, Ints, Ints, Ints]:
    """The prompts as a router's tree has them: every prompt ends with a run.

    Parameters
    ----------
    workload : Workload
    block_tok, segments
        As for `compile_prompts`.
    partial : bool, optional
        Count a prompt's last, incomplete block.

    Returns
    -------
    path_ptr, path, run_blk, tail_blk : int64[n + 1], int64[m], int64[runs], int64[n]
        As in `Prompts`, and the blocks of each prompt after its runs.
    """
    made = compile_prompts(workload, block_tok, segments=segments, answers=False)
    ptr, path = made.path_ptr, made.path
    blocks = -(-workload.prompt_tok // block_tok) if partial else workload.prompt_tok // block_tok
    on_path = np.concatenate((np.zeros(1, np.int64), np.cumsum(made.run_blk[path])))
    tail = np.maximum(blocks - (on_path[ptr[1:]] - on_path[ptr[:-1]]), 0)
    return ptr, path, made.run_blk, tail


def parts_of_runs(
    workload: Workload, block_tok: int, ptr: Ints, path: Ints, run_blk: Ints, *, segments: bool = False
) -> tuple[Ints, Ints]:
    """Where the runs of `tree_prompts` lie in those of the engine, by which caches are reported.

    The engine's runs take answers into account: one may go on with an answer where a prompt ends, and begin
    anew where an answer does. So either kind of run may lie in several of the other.

    Returns
    -------
    part_ptr, part : int64[engine runs + 1], int64[k, 3]
        Rows of each of the engine's runs: a run of the tree, and from and up to which block of the engine's
        run it lies there.
    """
    engine = compile_prompts(workload, block_tok, segments=segments)
    request, start = _starts(ptr, run_blk[path])
    far = 1 + max(start.max(initial=0) + run_blk.max(initial=0), int(engine.run_blk[engine.path].sum()))
    its_request, its_start = _starts(engine.path_ptr, engine.run_blk[engine.path])
    runs, first = np.unique(path, return_index=True)  # a run lies alike in all prompts that have it
    begin = request[first] * far + start[first]
    its_begin = its_request * far + its_start
    low = np.searchsorted(its_begin, begin, side="right") - 1
    count = np.searchsorted(its_begin, begin + run_blk[runs]) - low
    place = np.repeat(low - (np.cumsum(count) - count), count) + np.arange(count.sum())
    run, begin = np.repeat(runs, count), np.repeat(begin, count)
    its_run = engine.path[place]
    offset = begin - its_begin[place]
    end = np.minimum(offset + run_blk[run], engine.run_blk[its_run])
    part = np.stack((run, np.maximum(offset, 0), end), axis=1)
    order = np.lexsort((part[:, 1], its_run))
    part_ptr = np.searchsorted(its_run[order], np.arange(len(engine.run_blk) + 1)).astype(np.int64)
    return part_ptr, part[order].astype(np.int64)


def _starts(ptr: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """For each entry of the lists of several requests: its request, and the sum of those before it there."""
    request = np.repeat(np.arange(len(ptr) - 1, dtype=np.int64), np.diff(ptr))
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    return request, before[:-1] - before[ptr[:-1]][request]


def truncated(ptr: Ints, path: Ints, run_blk: Ints, tail: Ints, most: int) -> tuple[Ints, Ints, Ints, Ints]:
    """The prompts of `tree_prompts`, of which only the first `most` blocks count.

    A run begins at one depth in all prompts, so it is cut alike in all.
    """
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(run_blk[path])))
    begin = ends[:-1] - np.repeat(ends[ptr[:-1]], np.diff(ptr))
    kept = begin < most
    cut = run_blk.copy()
    cut[path] = np.minimum(run_blk[path], np.maximum(most - begin, 0))
    new_ptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(kept, dtype=np.int64)))[ptr]
    on_path = np.concatenate((np.zeros(1, np.int64), np.cumsum(cut[path[kept]])))
    left = most - (on_path[new_ptr[1:]] - on_path[new_ptr[:-1]])
    return new_ptr, path[kept], cut, np.minimum(tail, left)


def _leading(ptr: Ints, symbols: Ints, count: Ints) -> tuple[Ints, Ints]:
    """The first `count` symbols of each prompt."""
    new_ptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(count)))
    return new_ptr, symbols[np.arange(new_ptr[-1]) + np.repeat(ptr[:-1] - new_ptr[:-1], count)]


def _with_answers(workload: Workload) -> tuple[Ints, Ints]:
    """Prompts with the answers that later prompts may contain, unless something private lies between."""
    ptr, symbols = workload.symbol_ptr, workload.symbols
    if not (workload.answer >= 0).any():
        return ptr, symbols
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(workload.symbol_tok[symbols])))[ptr]
    answered = np.flatnonzero((workload.answer >= 0) & (np.diff(ends) == workload.prompt_tok))
    new_ptr = ptr.copy()
    new_ptr[1:] += np.cumsum(np.bincount(answered, minlength=len(ptr) - 1))
    return new_ptr, np.insert(symbols, ptr[answered + 1], workload.answer[answered])


def ideal_hit_rate(workload: Workload, block_tok: int | None = None) -> float:
    """Share of input tokens that one infinite cache, filled by each earlier request at once, would save.

    Answers count whole, though an engine never computes their last token.

    Parameters
    ----------
    workload : Workload
    block_tok : int, optional
        Count whole blocks of this size only, and never a prompt's last token, as an engine does; single
        tokens by default.
    """
    known = compile_prompts(workload, block_tok or 1).known_tok
    if block_tok is not None:
        known = np.minimum(known, workload.prompt_tok - 1) // block_tok * block_tok
    return float(known.sum() / workload.prompt_tok.sum())


def lru_hit_rates(
    workload: Workload, block_tok: int, capacities_blk: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """Share of input tokens that one LRU cache of given sizes would save, requests one after the other.

    One pass over the trace gives all sizes (stack distances, Mattson et al. 1970). The cache holds full
    blocks of prompts and whole answers, a request touches its blocks deepest first, and what it wrote counts
    as used by it.

    Parameters
    ----------
    workload : Workload
    block_tok : int
        Tokens a block.
    capacities_blk : array_like of int
        Sizes of the cache in blocks.

    Returns
    -------
    float64[sizes]
    """
    prompts = compile_prompts(workload, block_tok)
    n = len(prompts.full_blk)
    total_blk = (workload.prompt_tok + workload.output_tok) // block_tok
    request = np.repeat(np.arange(n), np.diff(prompts.path_ptr))
    path_blk = np.bincount(request, prompts.run_blk[prompts.path], n).astype(np.int64)
    base = np.empty(len(prompts.path), np.int64)
    blocks = np.empty(len(prompts.path), np.int64)
    _trie.reuse_distances(
        prompts.path_ptr,
        prompts.path,
        prompts.run_blk,
        total_blk - path_blk,
        np.zeros(n + 1, np.int64),
        np.full(len(prompts.run_blk), -1, np.int64),
        base,
        blocks,
    )
    # Only a prompt's own full blocks can be hit, and never its last token.
    depth = np.cumsum(blocks) - blocks
    depth -= depth[prompts.path_ptr[:-1][request]] if len(depth) else 0
    blocks = np.clip((workload.prompt_tok[request] - 1) // block_tok - depth, 0, blocks)
    base, blocks = base[base >= 0], blocks[base >= 0]
    sizes = np.asarray(capacities_blk, np.int64)
    hit_blk = [int(np.clip(size - base, 0, blocks).sum()) for size in sizes]
    return np.asarray(hit_blk) * block_tok / workload.prompt_tok.sum()
