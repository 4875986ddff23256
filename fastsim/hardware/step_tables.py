"""Step times fitted to measured kernels, one table for each (model, GPU, engine): `step_times.toml`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from fastsim.hardware.tables import read_tables


class StepTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One fitted table: ``f(n + b) + ms_per_pair P + ms_per_context_tok C + ms_per_decode_request b``.

    With n prefill tokens, b decode requests, P pairs of *prefilled* tokens, C context tokens of *decoded*
    ones.

    Attributes
    ----------
    name : str
        model_gpu_[tp_]engine.
    model, gpu : str
        Names in the catalogues.
    tp : int
        GPUs a replica is spread over.
    engine : str
        Engine and version whose kernels were measured.
    tokens, ms : tuple of int, tuple of float
        Knots of f, joined by straight lines.
    ms_per_pair, ms_per_context_tok, ms_per_decode_request : float
        Linear terms.
    prefill_error_pct, decode_error_pct, mixed_error_pct : tuple of float
        Median and 95th percentile of the error on random steps never used in the fit.
    """

    name: str
    model: str
    gpu: str
    tp: int
    engine: str
    tokens: tuple[int, ...]
    ms: tuple[float, ...]
    ms_per_pair: float
    ms_per_context_tok: float
    ms_per_decode_request: float
    prefill_error_pct: tuple[float, float]
    decode_error_pct: tuple[float, float]
    mixed_error_pct: tuple[float, float]


@functools.cache
def step_tables() -> Mapping[str, StepTable]:
    """Return the fitted tables by name."""
    return MappingProxyType(read_tables(Path(__file__).parent / "step_times.toml", StepTable))
