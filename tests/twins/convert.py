"""Cases of the twins to the package's own types and back, so that both serve the very same requests."""

from __future__ import annotations

import numpy as np

from fastsim.cluster.step_time import Piece, StepTime
from fastsim.workloads.workload import Workload

FS_PER_S = 10**15


def to_workload(case: dict) -> Workload:
    """Requests of a case; a segment's symbol is its place among the segments. Arrivals must ascend."""
    rows = case["requests"]
    tokens = {str(name): count for name, count in case["segments"].items()}
    symbol = {name: i for i, name in enumerate(tokens)}
    paths = [[symbol[str(name)] for name in row["path"]] for row in rows]
    spelt = [sum(tokens[str(name)] for name in row["path"]) for row in rows]
    answers = [row.get("answer_segment") for row in rows]
    return Workload(
        name=f"case {case.get('seed', '')}",
        arrival_s=np.array([row["arrival_s"] for row in rows]),
        prompt_tok=np.array([row.get("prompt_tokens", tok) for row, tok in zip(rows, spelt, strict=True)]),
        output_tok=np.array([row["output_tokens"] for row in rows]),
        symbol_ptr=np.cumsum([0] + [len(path) for path in paths]),
        symbols=np.array([symbol for path in paths for symbol in path], dtype=np.int64),
        symbol_tok=np.array(list(tokens.values()), dtype=np.int64),
        shared_symbols=np.array([row.get("shared", len(row["path"])) for row in rows]),
        answer=np.array([-1 if answer is None else symbol[str(answer)] for answer in answers]),
        priority=np.array([row.get("priority", 0) for row in rows]),
        session=np.array([row.get("session", -1) for row in rows]),
        follows=np.array([row.get("follows", -1) for row in rows]),
        think_s=np.array([row.get("think_s", 0.0) for row in rows]),
    )


def from_workload(workload: Workload, engine: dict, step_time: StepTime, **routing) -> dict:
    """Make a case of a workload; ``routing`` may give replicas, router, router_params and view."""
    rows = []
    for i in range(len(workload)):
        path = workload.symbols[workload.symbol_ptr[i] : workload.symbol_ptr[i + 1]].tolist()
        row = {
            "arrival_s": float(workload.arrival_s[i]),
            "path": path,
            "prompt_tokens": int(workload.prompt_tok[i]),
            "output_tokens": int(workload.output_tok[i]),
            "shared": int(workload.shared_symbols[i]),
            "priority": int(workload.priority[i]),
        }
        if workload.answer[i] >= 0:
            row["answer_segment"] = int(workload.answer[i])
        rows.append(row)
    segments = {str(i): tokens for i, tokens in enumerate(workload.symbol_tok.tolist())}
    step_ms = {"kind": "pieces", "pieces": to_pieces(step_time)}
    return {"segments": segments, "requests": rows, "engine": engine, "step_ms": step_ms, **routing}


def to_pieces(step_time: StepTime) -> list:
    """Integer pieces of a step time, as the twin's ``StepTime`` takes them."""
    coef, knot_ptr, knots = (array.tolist() for array in step_time.compiled())
    return [[row, knots[knot_ptr[p] : knot_ptr[p + 1]]] for p, row in enumerate(coef)]


def to_step_time(case: dict) -> StepTime:
    """Step time of a case of kind "pieces"; compiled, it has the case's integers."""
    pieces = []
    for coef, knots in case["step_ms"]["pieces"]:
        seconds = [value / FS_PER_S for value in coef[:8]]
        fields = dict(zip(Piece.__struct_fields__, seconds, strict=False))
        table = tuple((tokens, value / FS_PER_S) for tokens, value, _ in knots)
        pieces.append(Piece(**fields, knots=table))
    return StepTime(tuple(pieces))
