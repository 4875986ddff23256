"""Which requests fit a replica's KV cache at all."""

from __future__ import annotations

import numpy as np

from fastsim.cluster.config import Cluster
from fastsim.errors import InputError
from fastsim.workloads import Finding, Workload


def fits(workload: Workload, cluster: Cluster) -> np.ndarray:
    """Whether each request can ever be served, alone on a replica.

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    held = workload.prompt_tok + workload.output_tok
    if cluster.engine == "vllm":
        held = held - 1  # the last token is never computed; the lecture reserves room for it all the same
    return -(-held // cluster.block) <= cluster.kv_blocks


def only_fitting(workload: Workload, cluster: Cluster) -> Workload:
    """Leave out the requests that can never fit, and count them in the summary.

    Raises
    ------
    InputError
        If none fits.
    """
    fit = fits(workload, cluster)
    if fit.all():
        return workload
    if not fit.any():
        raise too_large(workload, cluster, fit)
    first = int(np.argmin(fit))
    said = f"request {first}: {workload.prompt_tok[first]:,} + {workload.output_tok[first]:,} tokens"
    reason = f"prompt and output that can never fit kv_tok = {cluster.kv_tok} of a replica"
    return workload.take(fit).without(Finding(reason, int((~fit).sum()), said))


def too_large(workload: Workload, cluster: Cluster, fit: np.ndarray) -> InputError:
    """The error that names the first request that does not fit."""
    i = int(np.argmin(fit))
    return InputError(
        f"workload: request {i} ({workload.prompt_tok[i]} prompt + {workload.output_tok[i]} output tokens) "
        f"can never fit kv_tok = {cluster.kv_tok} of a replica ({np.count_nonzero(~fit)} such requests); "
        f"raise kv_tok, or load the trace with max_tok = {cluster.kv_tok}, or with skip_bad in a sweep or a "
        "replay, which leaves them out and counts them"
    )
