"""Policies that follow the prefix cache."""

from __future__ import annotations

import msgspec

from fastsim.cluster.routers.ranges import NotNegative, Share
from fastsim.cluster.routers.registry import router
from fastsim.cluster.routers.view import least_loaded, match_share, nearest, smallest_and_largest


class Threshold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `affinity_threshold`."""

    theta: Share = 0.5  # share of the prompt that must be cached for affinity to win


class Guard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `cache_aware_guard`; the defaults are the lecture's (section 2.5)."""

    theta: Share = 0.5
    abs_threshold: NotNegative = 8.0  # requests in flight between the most and the least loaded replica
    rel_threshold: NotNegative = 1.5  # their ratio


@router("prefix_affinity", needs=["match"], caches="in_flight")
def prefix_affinity(view, request):
    """Always the longest match; ties to the fewest requests in flight, then to the lowest index.

    A match is what a replica holds or was sent and is about to compute (lecture 11, section 3.1): by events
    alone, requests that come before the first has been computed would be spread.
    """
    return nearest(view)


@router("affinity_threshold", needs=["match"], params=Threshold, caches="in_flight")
def affinity_threshold(view, request):
    """The longest match if its share of the prompt is above theta, else the least loaded replica.

    A match is what a replica holds or was sent and is about to compute (lecture 11, section 3.1).
    """
    if match_share(view) > view.params[0]:
        return nearest(view)
    return least_loaded(view)


@router("cache_aware_guard", needs=["match"], params=Guard, caches="in_flight")
def cache_aware_guard(view, request):
    """As affinity_threshold, but the least loaded replica while loads are out of balance.

    Out of balance: the most loaded has more than `abs_threshold` requests in flight more than the least
    loaded, and more than `rel_threshold` times as many. The idea of SGLang's router, as the lecture
    simplifies it: that one knows caches by what it sent, the lecture's by what replicas hold and by what they
    were sent and are about to compute (section 3.1).
    """
    low, high = smallest_and_largest(view.load)
    if high - low > view.params[1] and high > view.params[2] * low:
        return least_loaded(view)
    if match_share(view) > view.params[0]:
        return nearest(view)
    return least_loaded(view)
