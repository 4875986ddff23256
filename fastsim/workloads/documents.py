"""System prompt, then something that many ask about, then a question: documents, tools and videos."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from fastsim.workloads.popularity import Popular, choose
from fastsim.workloads.traffic import Count, Cv, Stream, Tokens, arrivals, lengths

Items = Annotated[int, Meta(ge=1, le=10_000_000)]
SystemTokens = Annotated[int, Meta(ge=1, le=100_000_000)]


class LongDocuments(Popular, frozen=True, kw_only=True):
    """Parameters of `long_documents`."""

    documents: Items = 300
    system_tok: SystemTokens = 13
    document_tok: Tokens = 21_000.0
    document_cv: Cv = 0.26
    document_min_tok: Count = 500
    question_tok: Tokens = 1_987.0
    question_cv: Cv = 0.3
    output_tok: Tokens = 16.0
    output_cv: Cv = 0.6


class VideoQa(Popular, frozen=True, kw_only=True):
    """Parameters of `video_qa`. With `by_length` a video is asked about in proportion to its length."""

    videos: Items = 1000
    by_length: bool = False
    system_tok: SystemTokens = 13
    video_tok: Tokens = 8_668.0
    video_cv: Cv = 0.3
    video_min_tok: Count = 500
    question_tok: Tokens = 1_184.0
    question_cv: Cv = 0.3
    output_tok: Tokens = 4.0
    output_cv: Cv = 0.375


class ToolUse(Popular, frozen=True, kw_only=True):
    """Parameters of `tool_use`."""

    tools: Items = 500
    system_tok: SystemTokens = 300
    tool_tok: Tokens = 1_260.0
    tool_cv: Cv = 0.25
    tool_min_tok: Count = 100
    question_tok: Tokens = 275.0
    question_cv: Cv = 0.3
    output_tok: Tokens = 43.0
    output_cv: Cv = 0.37


def long_documents(spec: LongDocuments, stream: Stream) -> dict[str, Any]:
    """Questions about long documents: system prompt, document by Zipf popularity, question of its own.

    Defaults follow the LooGLE workload of Preble's Table 1. A document's length does not depend on its
    popularity. Symbol 0 is the system prompt, 1 to `documents` are the documents, the most popular first,
    then come the questions.
    """
    rng = stream("documents")
    document_tok = lengths(
        spec, rng, spec.documents, spec.document_tok, spec.document_cv, spec.document_min_tok
    )
    return _asked_about(spec, stream, document_tok)


def video_qa(spec: VideoQa, stream: Stream) -> dict[str, Any]:
    """Questions about videos: system prompt, video by popularity (or length), multiple-choice question.

    After the NExT-QA workload of Preble's Table 1, defaults assumed for the lecture. Preble's released code
    asks in proportion to the length of a video (`by_length`, `zipf` 0); in Table 1 all videos have about as
    many questions.
    """
    video_tok = lengths(
        spec, stream("videos"), spec.videos, spec.video_tok, spec.video_cv, spec.video_min_tok
    )
    return _asked_about(spec, stream, video_tok, by_length=spec.by_length)


def tool_use(spec: ToolUse, stream: Stream) -> dict[str, Any]:
    """Calls of tools: system prompt, instructions of a tool by popularity, the user's question.

    After the ToolBench workload of Preble's Table 1, defaults assumed for the lecture; `hottest_share` makes
    the hot tool of its overload experiment.
    """
    tool_tok = lengths(spec, stream("tools"), spec.tools, spec.tool_tok, spec.tool_cv, spec.tool_min_tok)
    return _asked_about(spec, stream, tool_tok)


def _asked_about(
    spec: LongDocuments | VideoQa | ToolUse, stream: Stream, item_tok: np.ndarray, *, by_length: bool = False
) -> dict[str, Any]:
    """Symbols: 0 the system prompt, then the items, then a question for every request."""
    arrival_s = arrivals(spec, stream)
    n, items = len(arrival_s), len(item_tok)
    question_tok = lengths(spec, stream("questions"), n, spec.question_tok, spec.question_cv)
    chosen = choose(spec, stream("popularity"), n, items, item_tok if by_length else None)
    parts = np.stack((np.zeros(n, dtype=np.int64), 1 + chosen, 1 + items + np.arange(n)), axis=1)
    return {
        "arrival_s": arrival_s,
        "prompt_tok": spec.system_tok + item_tok[chosen] + question_tok,
        "output_tok": lengths(spec, stream("outputs"), n, spec.output_tok, spec.output_cv),
        "symbol_ptr": 3 * np.arange(n + 1),
        "symbols": parts.ravel(),
        "symbol_tok": np.concatenate(([spec.system_tok], item_tok, question_tok)),
        "shared_symbols": np.full(n, 2, dtype=np.int64),
    }
