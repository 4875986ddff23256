"""Routing policies: one file a family, one function a policy, one registry."""

from fastsim.cluster.routers.registry import ROUTERS, Router, get, router, routers

__all__ = ["FAMILIES", "ROUTERS", "Router", "get", "router", "routers"]

# The policies of each family's module, in the order of listings and comparisons. A module is imported when
# one of its policies is asked for: to have many costs those who use one nothing.
FAMILIES = {
    "load": ("random", "round_robin", "least_loaded", "power_of_two", "least_work"),
    "affinity": ("prefix_affinity", "affinity_threshold", "cache_aware_guard"),
    "consistent": ("consistent_hash_bounded", "session_sticky", "size_interval"),
    "sglang": (
        "sglang_cache_aware_smallest_tree",
        "sglang_cache_aware_lowest_load",
        "sglang_cache_aware_processed",
        "sglang_prefix_hash",
        "sglang_power_of_two",
        "sglang_manual",
        "sglang_least_load",
    ),
    "sglang_bucket": ("sglang_bucket",),
    "vllm": (
        "vllm_cache_aware",
        "vllm_consistent_hash",
        "vllm_sticky_least_loaded",
        "vllm_kv_aware",
        "vllm_dp_balancer",
        "vllm_dp_balancer_before",
    ),
    "production_stack": (
        "production_stack_session",
        "production_stack_prefixaware",
        "production_stack_kvaware",
        "production_stack_loadaware",
    ),
    "dynamo": ("dynamo_kv", "dynamo_kv_ttl", "dynamo_2025", "dynamo_v01"),
    "inference_extension": ("epp", "epp_2025", "epp_precise"),
    "mooncake": ("mooncake",),
    "aibrix": (
        "aibrix_least_request",
        "aibrix_least_kv_cache",
        "aibrix_power_of_two",
        "aibrix_session_affinity",
        "aibrix_least_latency",
        "aibrix_prefix_cache",
    ),
    "aibrix_preble": ("aibrix_preble",),
    "aibrix_users": ("aibrix_vtc_basic",),
    "preble": ("e2", "preble"),
    "preble_code": ("preble_code",),
}
for _family, _names in FAMILIES.items():
    ROUTERS.expect(f"{__name__}.{_family}", _names)
