"""Local orders in plain Python: which waiting requests a replica tries in a step, one after the other.

``order(replica, params)`` is called once a step, when somebody could be admitted, and lists the requests to
try. The queue has the latest arrival last and whoever was preempted last first.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor


def fcfs(replica, params: dict) -> list:
    """As they stand in the queue."""
    return list(replica.waiting)


def shortest_prompt(replica, params: dict) -> list:
    """Fewest prompt tokens first, then the order of arrival."""
    return sorted(replica.waiting, key=lambda request: (request.prompt_tok, request.index))


def priority(replica, params: dict) -> list:
    """Lowest priority value first, then the order of arrival."""
    return sorted(replica.waiting, key=lambda request: (request.priority, request.index))


def longest_prefix(replica, params: dict) -> list:
    """SGLang's lpm: longest match first; whoever repeats an uncached prefix waits for the first with it."""
    if len(replica.waiting) > params.get("most_waiting", 128):
        return list(replica.waiting)
    matched = {request: cached_tok(replica, request) for request in replica.waiting}
    ahead: list = []
    later: list = []
    for request in replica.waiting:
        if matched[request] > params.get("check_tok", 32):
            continue
        if any(common_tok(request, other) >= params.get("share_tok", 32) for other in ahead):
            later.append(request)
        else:
            ahead.append(request)
    first = [request for request in replica.waiting if request not in later]
    return sorted(first, key=lambda request: -matched[request]) + later


def priority_groups(replica, params: dict) -> list:
    """Preble's paper: quotas in proportion to the group's number; what nobody uses goes down, then to all."""
    groups = params.get("groups", 10)
    members: dict[int, list] = {group: [] for group in range(groups, 0, -1)}
    for request in replica.waiting:
        group = floor(groups * Fraction(cached_tok(replica, request), len(request.tokens)))
        members[max(group, 1)].append(request)
    room = min(len(replica.waiting), replica.max_seqs - len(replica.running))
    listed, due = [], Fraction(0)
    for group, requests in members.items():
        due += Fraction(room * group, sum(range(1, groups + 1)))
        quota = ceil(due) - len(listed)
        listed += requests[:quota]
        members[group] = requests[quota:]
    rest = [request for requests in members.values() for request in requests]
    return (listed + rest)[:room]


def priority_groups_cycling(replica, params: dict) -> list:
    """Preble's code: the next group that is not empty, from the highest down; groups are told once."""
    groups = params.get("groups", 10)
    for request in replica.waiting:
        if request.group is None:
            share = Fraction(cached_tok(replica, request), len(request.tokens))
            request.group = ceil(groups * share) - 1 if share else 0
    turn = groups - 1 if replica.turn is None else replica.turn
    while all(request.group != turn for request in replica.waiting):
        turn = (turn - 1) % groups
    replica.turn = (turn - 1) % groups
    members = [request for request in replica.waiting if request.group == turn]
    return members[: (turn + 1) * params.get("per_group", 10)]


ORDERS = {
    order.__name__: order
    for order in (
        fcfs,
        longest_prefix,
        priority_groups,
        priority_groups_cycling,
        shortest_prompt,
        priority,
    )
}


def victim(replica, name: str, ties: str):
    """The running request to preempt: the last admitted, or by priority and arrival, the first such.

    With ``ties`` "file" it is the last such in the file.
    """
    if name != "priority":
        return replica.running[-1]
    return max(
        replica.running,
        key=lambda request: (
            request.priority,
            request.arrival_ps,
            request.index if ties == "file" else 0,
        ),
    )


def cached_tok(replica, request) -> int:
    """Tokens the request would hit now."""
    return replica.hit_tok_of(request, replica.memory.hits(request))


def common_tok(a, b) -> int:
    """Tokens of the leading units that two requests have in common, generated ones included."""
    tokens = 0
    for (key, unit_tok), (other, _) in zip(a.units_now(), b.units_now(), strict=False):
        if key != other:
            break
        tokens += unit_tok
    return tokens
