"""Routing policies: one file a family, one function a policy, one registry."""

from fastsim.cluster.routers import affinity, load  # noqa: F401 (each registers its policies)
from fastsim.cluster.routers.registry import ROUTERS, Router, get, router, routers

__all__ = ["ROUTERS", "Router", "get", "router", "routers"]
