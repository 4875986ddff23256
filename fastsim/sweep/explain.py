"""Why a request went where it went: what its router knew, and what each replica would have meant for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastsim.errors import InputError
from fastsim.sweep.experiments.cluster import prepare, serve, served
from fastsim.sweep.params import Params
from fastsim.sweep.spec import parse

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Explanation:
    """What is known of a request's route.

    Attributes
    ----------
    request : dict
        Number, ``arrival_s``, ``prompt_tok``, ``output_tok``, ``session`` (-1 unknown), ``replica`` (-1
        refused), ``hit_tok``, ``ttft_s``, ``latency_s``, ``regret_s`` (latency less that of the best
        replica).
    router : dict
        ``name``, ``params``, ``doc``, ``source``, and the view: ``view``, ``routers``, ``caches``,
        ``counted_from``.
    replicas : list of dict
        Per replica: ``replica``, ``chosen``, ``in_flight`` (requests) and ``match_tok`` as the router knew
        them, ``score`` (None where the policy makes none), ``latency_s`` had the request gone there.
    sample : dict or None
        Of the requests drawn: ``requests``, ``regret_mean_s``, ``regret_p99_s``, ``best_share`` (sent to a
        replica that turned out best).
    table : polars.DataFrame
        `Result.routes`, with ``latency_s`` where it was asked for.
    """

    request: dict[str, Any]
    router: dict[str, Any]
    replicas: list[dict[str, Any]]
    sample: dict[str, Any] | None
    table: pl.DataFrame


def explain(
    base: Params,
    request: int,
    *,
    sample: int = 0,
    settings: Sequence[str] = (),
    imports: Sequence[str] = (),
    note: Callable[[str], None] = lambda text: None,
) -> Explanation:
    """Serve a workload behind a router, recorded, and look at one request.

    Parameters
    ----------
    base : dict
        Parameters of the experiment ``cluster``.
    request : int
        Its number, from 0 in the order of arrival.
    sample : int
        Requests, drawn at random, for which hindsight is asked for, too.
    settings : sequence of str
        ``"key=value"``, as for a sweep.
    imports : sequence of str
        A user's own modules to import first: files, or dotted names.
    note : callable
        Told what was read.

    Raises
    ------
    InputError
        For anything wrong with a parameter or the request's number.
    """
    from fastsim.cluster.closed_loop import as_it_came
    from fastsim.cluster.config import Cluster
    from fastsim.cluster.hindsight import hindsight
    from fastsim.cluster.routers import get

    document = {"sweep": {"name": "explain", "seeds": 1}, "base": {"estimand": "transient", **base}}
    sweep = parse(document, settings, imports, where="explain")
    if len(sweep.cells()) != 1:
        raise InputError("explain looks at one run; for lists of values write a sweep")
    (params,) = sweep.cells()
    workload = served(params, prepare(params, sweep.seed, 0))
    note(str(workload.summary))
    n = len(workload)
    if not 0 <= request < n:
        raise InputError(f"request = {request} is not allowed; it must be from 0 to {n - 1}")
    if not 0 <= sample <= n:
        raise InputError(
            f"sample = {sample} is not allowed; it must be from 0 to {n}, the requests there are"
        )
    result = serve(params, workload, sweep.seed, 0, record=True)
    if workload.is_closed:
        workload, result = as_it_came(workload, result)
    others = np.random.default_rng(sweep.seed).choice(n, sample, replace=False)
    asked = [request, *np.sort(others[others != request]).tolist()]
    cluster = Cluster(**params["cluster"])
    latency_s = hindsight(workload, cluster, result.columns["replica"], asked)
    policy = get(params["router"])
    return Explanation(
        _request(workload, result, request, latency_s[0]),
        {
            "name": policy.name,
            "params": params["router_params"],
            "doc": policy.doc,
            "source": policy.source,
            **{name: params[name] for name in ("view", "routers", "caches", "counted_from")},
        },
        _replicas(result, request, latency_s[0]),
        _sample(result, asked, latency_s) if sample else None,
        _table(result, asked, latency_s),
    )


def _request(workload: Any, result: Any, i: int, latency_s: np.ndarray) -> dict[str, Any]:
    columns = {name: values[i].item() for name, values in result.columns.items()}
    chosen = columns["replica"]
    return {
        "request": i,
        **{name: columns[name] for name in ("arrival_s", "prompt_tok", "output_tok")},
        "session": int(workload.session[i]),
        **{name: columns[name] for name in ("replica", "hit_tok")},
        "ttft_s": columns["first_token_s"] - columns["arrival_s"] if chosen >= 0 else None,
        "latency_s": columns["done_s"] - columns["arrival_s"] if chosen >= 0 else None,
        "regret_s": float(latency_s[chosen] - latency_s.min()) if chosen >= 0 else None,
    }


def _replicas(result: Any, i: int, latency_s: np.ndarray) -> list[dict[str, Any]]:
    rows = result.routes.filter(result.routes["request"] == i).drop("request").to_dicts()
    return [{**row, "latency_s": float(seconds)} for row, seconds in zip(rows, latency_s, strict=True)]


def _sample(result: Any, asked: list[int], latency_s: np.ndarray) -> dict[str, Any]:
    """Regrets of the requests asked for that were served."""
    from fastsim.stats import quantile

    chosen = result.columns["replica"][asked]
    served = np.flatnonzero(chosen >= 0)
    regret = latency_s[served, chosen[served]] - latency_s[served].min(axis=1)
    return {
        "requests": len(served),
        "regret_mean_s": float(regret.mean()) if len(served) else None,
        "regret_p99_s": float(quantile(regret, 0.99)) if len(served) else None,
        "best_share": float((regret == 0.0).mean()) if len(served) else None,
    }


def _table(result: Any, asked: list[int], latency_s: np.ndarray) -> pl.DataFrame:
    import polars as pl

    replicas = latency_s.shape[1]
    known = pl.DataFrame(
        {
            "request": np.repeat(np.array(asked, np.int64), replicas),
            "replica": np.tile(np.arange(replicas), len(asked)),
            "latency_s": latency_s.ravel(),
        }
    )
    return result.routes.join(known, on=["request", "replica"], how="left", maintain_order="left")
