"""Routing policies: one file a family, one function a policy, one registry."""

# Each family registers its policies when imported; listings and comparisons keep this order.
from fastsim.cluster.routers import load  # noqa: F401, I001
from fastsim.cluster.routers import affinity  # noqa: F401
from fastsim.cluster.routers import consistent  # noqa: F401
from fastsim.cluster.routers import sglang, sglang_bucket  # noqa: F401
from fastsim.cluster.routers import vllm  # noqa: F401
from fastsim.cluster.routers import production_stack  # noqa: F401
from fastsim.cluster.routers import dynamo, inference_extension  # noqa: F401
from fastsim.cluster.routers import mooncake  # noqa: F401
from fastsim.cluster.routers import aibrix, aibrix_preble, aibrix_users  # noqa: F401
from fastsim.cluster.routers import preble, preble_code  # noqa: F401
from fastsim.cluster.routers.registry import ROUTERS, Router, get, router, routers

__all__ = ["ROUTERS", "Router", "get", "router", "routers"]
