"""Policies that look at load only, or at nothing."""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster.routers.registry import router
from fastsim.cluster.routers.view import least
from fastsim.cluster.routers.view import least_loaded as _least_loaded
from fastsim.rng import below


@kernel
def two_replicas(view):
    """Two distinct random replicas, in the order drawn; the only one twice."""
    replicas = view.load.shape[0]
    if replicas == 1:
        return 0, 0
    first = below(view.rng, replicas)
    second = below(view.rng, replicas - 1)
    if second >= first:
        second += 1
    return first, second


@router("random", blind=True)
def random(view, request):
    """Any replica, all equally likely."""
    return below(view.rng, view.load.shape[0])


@router("round_robin", blind=True)
def round_robin(view, request):
    """One replica after the other."""
    turn = view.memory[0]
    view.memory[0] = turn + 1
    return turn % view.load.shape[0]


@router("least_loaded")
def least_loaded(view, request):
    """Fewest requests in flight; ties to the lowest index."""
    return _least_loaded(view)


@router("power_of_two")
def power_of_two(view, request):
    """The less loaded of two distinct random replicas; a tie keeps the first drawn.

    Mitzenmacher, "The power of two choices in randomized load balancing", 2001.
    """
    first, second = two_replicas(view)
    return second if view.load[second] < view.load[first] else first


@router("least_work", needs=["work"])
def least_work(view, request):
    """Fewest tokens still to compute, outputs included (which takes an oracle); ties to the lowest index."""
    return least(view.work)
