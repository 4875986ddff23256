"""Local orders: in which order a replica admits its waiting requests. One registry, one entry an order.

An order decides who is tried next; the engine decides whether that request fits, and if not, everyone waits,
as in vLLM. So an order changes who waits and what is found in the cache, never how a step is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import msgspec
import numpy as np

from fastsim.cluster._order import due
from fastsim.cluster._state import (
    BY_RANK,
    CYCLING_GROUPS,
    FCFS,
    LONGEST_PREFIX,
    PRIORITY_GROUPS,
)
from fastsim.typed import check, named
from fastsim.workloads import Workload

MOST_GROUPS = 60  # a mask of groups fits an integer

Count = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
Groups = Annotated[int, msgspec.Meta(ge=1, le=MOST_GROUPS)]


class NoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An order without parameters."""


class LongestPrefix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `longest_prefix`; the defaults are SGLang's."""

    most_waiting: Count = 128  # above so many waiting requests it is fcfs
    check_tok: Annotated[int, msgspec.Meta(ge=-1, le=10**9)] = (
        32  # up to such a match, look for others with its prefix
    )
    share_tok: Count = 32  # a waiting request before it that shares so much makes it wait


class PriorityGroups(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `priority_groups`; the default is the lecture's and the paper's example."""

    groups: Groups = 10


class CyclingGroups(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `priority_groups_cycling`; the defaults are the code's."""

    groups: Groups = 10
    per_group: Count = 10  # the lowest group's requests a step; group k has k + 1 times as many


@dataclass(frozen=True)
class Order:
    """A registered order.

    Parameters
    ----------
    name : str
    queue : int
        How the engine keeps its queue: FCFS, BY_RANK or one of the orders that rank by the cache.
    doc : str
        What it does in a sentence.
    source : str
        Where it comes from.
    params : msgspec.Struct type
        Its parameters, whole numbers with defaults and ranges.
    ranks : callable, optional
        ``ranks(workload)``, int64[n], for BY_RANK: the lowest is admitted first, ties by arrival.
    preempts_by_rank : bool
        Preempt the running request of the highest rank, of those the latest to arrive, not the one admitted
        last; for ties see ``Cluster.preempt_ties``.
    """

    name: str
    queue: int
    doc: str
    source: str
    params: type[msgspec.Struct] = NoParams
    ranks: Callable[[Workload], np.ndarray] | None = None
    preempts_by_rank: bool = False

    def values(self, given: Mapping[str, Any] | None) -> list[int]:
        """The parameters in the order of the spec.

        Raises
        ------
        InputError
            For an unknown name, a wrong type or a value out of range.
        """
        return list(
            msgspec.structs.astuple(check(self.params, {} if given is None else given, f"order {self.name}"))
        )


ORDERS: dict[str, Order] = {
    order.name: order
    for order in (
        Order(
            "fcfs",
            FCFS,
            "First come, first served; who was preempted comes first.",
            "vLLM 0.33, SGLang 0.5.23",
        ),
        Order(
            "longest_prefix",
            LONGEST_PREFIX,
            "Longest cached prefix first; of several that need the same uncached prefix, one goes ahead.",
            "SGLang 0.5.23, lpm; ties in order of arrival, where SGLang leaves them as they were sorted last",
            LongestPrefix,
        ),
        Order(
            "priority_groups",
            PRIORITY_GROUPS,
            "Groups by cached share of the prompt; a step's room is shared in proportion to their numbers.",
            "Preble's paper (arXiv:2407.00023), section 3.3; the lecture's code 03",
            PriorityGroups,
        ),
        Order(
            "priority_groups_cycling",
            CYCLING_GROUPS,
            "One group by cached share a step, from the highest down; the group is told once.",
            "Preble's code (8e7906a), fcfs-mpq",
            CyclingGroups,
        ),
        Order(
            "shortest_prompt",
            BY_RANK,
            "Fewest prompt tokens first.",
            "shortest job first, by what is known of a job",
            ranks=lambda workload: workload.prompt_tok.copy(),
        ),
        Order(
            "priority",
            BY_RANK,
            "Lowest priority value first, then arrival; the highest and latest is preempted.",
            "vLLM 0.33, policy priority; of equally late ones it preempts the first of its running list",
            ranks=lambda workload: workload.priority.copy(),
            preempts_by_rank=True,
        ),
    )
}


def orders() -> dict[str, str]:
    """Names of all local orders, and what each does in a sentence."""
    return {name: order.doc for name, order in ORDERS.items()}


def get(name: str) -> Order:
    """Return the order of that name.

    Raises
    ------
    InputError
        If there is none; the message names the nearest.
    """
    return named("cluster: order =", name, ORDERS)


def quotas(take: int, groups: int) -> list[int]:
    """Requests of each priority group among the next `take`, from the highest group to group 1.

    In proportion to the group's number (Preble, section 3.3): 55 requests of 10 groups are 10, 9, ... 1. What
    does not divide goes to the highest groups. In a step, `priority_groups` hands on what a group cannot use
    to the groups below, and what is left after the lowest to all, from the highest down.
    """
    so_far = [0] + [int(due(take, groups, group)) for group in range(groups, 0, -1)]
    return [later - earlier for earlier, later in pairwise(so_far)]
