"""The route of one request as text."""

from __future__ import annotations

from typing import Any

from fastsim.report.text import grid, number
from fastsim.sweep.explain import Explanation

_COLUMNS = {
    "in_flight": "in flight (requests)",
    "match_tok": "match (tokens)",
    "score": "score",
    "latency_s": "latency (s)",
}


def render(found: Explanation) -> str:
    """What the router knew of each replica, what it made of it, and what would have come of it."""
    rows = [
        [str(row["replica"]), _mark(row, found), *(number(row[name]) for name in _COLUMNS)]
        for row in found.replicas
    ]
    table = grid(["replica", "", *_COLUMNS.values()], rows, left=2)
    about = "latency: had the request gone there, all others where they went; score: as the policy makes it"
    return "\n".join([*_about(found), "", table, "", about, *_regrets(found)])


def _about(found: Explanation) -> list[str]:
    request, router = found.request, found.router
    params = ", ".join(f"{name} = {value}" for name, value in router["params"].items())
    session = f", session {request['session']}" if request["session"] >= 0 else ""
    source = f" [{router['source']}]" if router["source"] else ""
    several = f", {router['routers']} routers" if router["routers"] > 1 else ""
    view = f"view {router['view']}, caches {router['caches']}, counted from {router['counted_from']}{several}"
    return [
        f"request {request['request']} at {request['arrival_s']:.3f} s: "
        f"{request['prompt_tok']} prompt tokens, {request['output_tok']} output tokens{session}",
        f"router {router['name']}{source}: {router['doc']}",
        *([f"parameters: {params}"] if params else []),
        view,
    ]


def _mark(row: dict[str, Any], found: Explanation) -> str:
    best = min(each["latency_s"] for each in found.replicas)
    marks = ["chosen"] * row["chosen"] + ["best in hindsight"] * (row["latency_s"] == best)
    return ", ".join(marks)


def _regrets(found: Explanation) -> list[str]:
    request = found.request
    if request["replica"] < 0:
        lines = ["the router refused the request"]
    else:
        lines = [
            f"hit {request['hit_tok']} tokens, first token after {request['ttft_s']:.4g} s, "
            f"done after {request['latency_s']:.4g} s; regret {request['regret_s']:.4g} s"
        ]
    if found.sample:
        sample = found.sample
        lines.append(
            f"of {sample['requests']} requests: mean regret {number(sample['regret_mean_s'])} s, "
            f"P99 {number(sample['regret_p99_s'])} s, best replica chosen for {number(sample['best_share'])}"
        )
    return lines
