"""Routing policies: one file a family, one function a policy, one registry."""

import re
from pathlib import Path

from fastsim.cluster.routers.registry import ROUTERS, Router, get, router, routers

__all__ = ["FAMILIES", "ROUTERS", "Router", "get", "router", "routers"]

# Modules with policies, in the order of listings and comparisons. Which policies are in it, a module's source
# says; it is imported when one of them is asked for: to have many costs those who use one nothing.
FAMILIES = (
    "load",
    "affinity",
    "consistent",
    "sglang",
    "sglang_bucket",
    "vllm",
    "production_stack",
    "dynamo",
    "inference_extension",
    "mooncake",
    "aibrix",
    "aibrix_preble",
    "aibrix_users",
    "preble",
    "preble_code",
)
_ENTRY = re.compile(r'^@router\(\s*"(\w+)"', re.MULTILINE)
for _family in FAMILIES:
    _source = Path(__file__).with_name(f"{_family}.py").read_text(encoding="utf-8")
    ROUTERS.expect(f"{__name__}.{_family}", _ENTRY.findall(_source))
