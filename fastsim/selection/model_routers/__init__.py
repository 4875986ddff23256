"""Routers from a request to a model: one function a router, one registry."""

# Each family registers its routers when imported; listings and comparisons keep this order.
from fastsim.selection.model_routers import fixed  # noqa: F401, I001
from fastsim.selection.model_routers import learned  # noqa: F401
from fastsim.selection.model_routers.registry import (
    MODEL_ROUTERS,
    FittedRouter,
    ModelRouter,
    choose,
    fit,
    get,
    model_router,
    nested_params,
    weights,
)

__all__ = [
    "MODEL_ROUTERS",
    "FittedRouter",
    "ModelRouter",
    "choose",
    "fit",
    "get",
    "model_router",
    "nested_params",
    "weights",
]
