"""Random clusters for routing policies: any view, any parameters, sizes at which something changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from fastsim.cluster import _workspace, knowledge, simulate
from fastsim.cluster._state import BITS, FAULT, NEWS_READ, NEWS_TOLD
from fastsim.cluster.routers import ROUTERS
from fastsim.errors import InputError
from tests.cluster_runs import differences, serve, serve_slowly
from tests.twins.cases import make_case
from tests.twins.cluster import HeldForEver

VIEWS = ("native", "live", "own", "periodic", "delayed")
REPLICAS = (1, 2, 2, 3, 4, 4, 8, 8, BITS - 1, BITS, BITS + 1, BITS + 8)
MOST_REQUESTS = 30


def routed_case(router: str, seed: int, **settings: Any) -> dict:
    """A random cluster behind routers of a policy; ``settings`` are not drawn."""
    rng = random.Random(f"{router}-{seed}")
    case = make_case(rng.randrange(10**6), settings.pop("engine", rng.choice(["vllm", "vllm", "lecture"])))
    rows = case["requests"][:MOST_REQUESTS]
    sessions = rng.choice([1, 3, len(rows)])
    if rng.random() < 0.8:
        rows = [{**row, "session": rng.randrange(min(sessions, len(rows)))} for row in rows]
    drawn = {
        "requests": rows,
        "router": router,
        "router_params": some_params(rng, router, rows[-1]["arrival_s"]) if rng.random() < 0.7 else {},
        "replicas": rng.choice(REPLICAS),
        "view": some_view(rng, case),
        "routers": rng.choice([1, 1, 2, 3, 5]),
        "caches": "native",
        "counted_from": rng.choice(["sent", "sent", "first_token"]),
    }
    if ROUTERS[router].tree is None:
        drawn["caches"] = rng.choice(["native", "events", "in_flight", "in_flight", "approximate"])
    return {**case, **drawn, **settings}


def some_view(rng: random.Random, case: dict, kinds: tuple[str, ...] = VIEWS) -> str:
    """A view whose time is anything from a part of a step to many steps."""
    kind = rng.choice(kinds)
    if kind in ("periodic", "delayed"):
        step_fs = sum(case["step_ms"]["pieces"][0][0][:3]) + 1000
        time_fs = max(1000, step_fs * rng.choice([1, 2, 5, 20, 100]) // rng.choice([1, 2, 3]))
        return f"{kind}({time_fs // 1000 / 1e12!r})"
    return kind


def some_params(rng: random.Random, router: str, span_s: float) -> dict[str, Any]:
    """Parameters that a small case can feel; the defaults where a policy refuses what was drawn."""
    spec = ROUTERS[router].params
    fields = msgspec.inspect.type_info(spec).fields  # pyright: ignore[reportAttributeAccessIssue]
    drawn = {each.name: _some_value(rng, each, span_s) for each in fields if rng.random() < 0.6}
    try:
        ROUTERS[router].spec(drawn)
    except InputError:
        return {}
    return drawn


def _some_value(rng: random.Random, field: Any, span_s: float) -> Any:
    kind = field.type
    if isinstance(kind, msgspec.inspect.LiteralType):
        return rng.choice(list(kind.values))
    if isinstance(kind, msgspec.inspect.BoolType):
        return rng.random() < 0.5
    default = field.default
    if field.name.endswith("_s"):
        values = [default, span_s / 10, span_s, 0.0]
    else:
        values = [default, default / 2, 2 * default, 0, 1, 2, 3, 8, 0.1, 0.5]
    value = rng.choice(values)
    for bound, beyond in ((kind.ge, max), (kind.le, min)):
        value = value if bound is None else beyond(value, bound)
    if (kind.gt is not None and value <= kind.gt) or (kind.lt is not None and value >= kind.lt):
        return default
    return int(value) if isinstance(kind, msgspec.inspect.IntType) else float(value)


# --- comparing ----------------------------------------------------------------------------------------------


@contextmanager
def tiny_pools() -> Iterator[list[str]]:
    """Let all that grows start with next to nothing; yields what has grown."""
    grown: list[str] = []
    pools, trees, sizes = simulate.grown, simulate.views_with_larger_trees, simulate.sizes

    def tiny_sizes(prompts: Any, cluster: Any) -> dict[str, int]:
        longest_path = sizes(prompts, cluster)["hits"] - 64
        return {"ext": 1, "hold": 1, "table": 16, "event": 1, "hits": longest_path + 1}

    def noting_pools(state: Any) -> Any:
        unread = state.pool[NEWS_TOLD] - state.pool[NEWS_READ]
        assert unread <= len(state.news), "a report was written over another that nobody had read"
        grown.append(_workspace._POOLS[int(state.pool[FAULT])])
        return pools(state)

    def noting_trees(views: Any) -> Any:
        grown.append("trees")
        return trees(views)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "sizes", tiny_sizes)
        patch.setattr(_workspace, "_FIRST_NEWS", 1)
        patch.setattr(knowledge, "_FIRST_ENTRIES", 1)
        patch.setattr(simulate, "grown", noting_pools)
        patch.setattr(simulate, "views_with_larger_trees", noting_trees)
        yield grown


def unlike_its_twin(case: dict) -> list[str]:
    """What the real engine does otherwise than the twin: jumping, step by step, or from tiny pools."""
    what = f"{case['router']} {case.get('router_params')} seed {case['seed']} view {case['view']}"
    try:
        outcome = serve_slowly(case)
    except HeldForEver:
        with pytest.raises(InputError, match="for ever"):
            serve(case)
        return []
    wrong = [f"{what}: {each}" for each in differences(serve(case), outcome)]
    wrong += [f"{what}, stepping: {each}" for each in differences(serve(case, fast_forward=False), outcome)]
    with tiny_pools():
        wrong += [f"{what}, tiny pools: {each}" for each in differences(serve(case), outcome)]
    return wrong
