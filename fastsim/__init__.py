"""A simulator of LLM request routing, fast enough to answer by sweeps with confidence intervals."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastsim import workloads as workloads
    from fastsim.cluster.capacity import capacity as capacity
    from fastsim.cluster.config import Cluster as Cluster
    from fastsim.cluster.routers.registry import router as router
    from fastsim.cluster.routers.registry import routers as routers
    from fastsim.cluster.simulate import simulate as simulate

__all__ = ["Cluster", "capacity", "router", "routers", "simulate", "workloads"]

# name -> (module, attribute or None for the module itself), imported on first access only:
# `import fastsim` and `fastsim --help` must not pay for numba and polars.
_LAZY: dict[str, tuple[str, str | None]] = {
    "simulate": ("fastsim.cluster.simulate", "simulate"),
    "Cluster": ("fastsim.cluster.config", "Cluster"),
    "capacity": ("fastsim.cluster.capacity", "capacity"),
    "workloads": ("fastsim.workloads", None),
    "router": ("fastsim.cluster.routers.registry", "router"),
    "routers": ("fastsim.cluster.routers.registry", "routers"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _LAZY:
        raise AttributeError(f"module 'fastsim' has no attribute {name!r}")
    module_name, attribute = _LAZY[name]
    module = importlib.import_module(module_name)
    value = module if attribute is None else getattr(module, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


def _version() -> str:
    from importlib import metadata  # 30 ms, ten times the rest of this file

    try:
        return metadata.version("fastsim-llm")
    except metadata.PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"
