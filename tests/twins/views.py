"""What routers know of the replicas, and since when: the rules of the views, taken literally.

Every view shows states: of a replica as it is, as it was, or as one router reckons it to be. Nothing is
counted up and down, and no report changes anything here; whoever wants to know something asks what it was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf

from tests.twins.engine import Replica, Request, to_ps
from tests.twins.kv import ceil_div
from tests.twins.policies import Run, blocks_of


@dataclass(frozen=True)
class Rules:
    """How fresh what is known is: each of the three "live", "own", "periodic", "delayed" ("sent": caches)."""

    loads: str
    metrics: str
    caches: str
    period_ps: int
    delay_ps: int
    at_first_token: bool
    in_flight: bool = False  # whether prompts sent and not ended count as held


def parse_view(view: str) -> tuple[str, int]:
    """Kind of a view and its time in picoseconds; T and d are in seconds."""
    if view in ("live", "own"):
        return view, 0
    for kind in ("periodic", "delayed"):
        if view.startswith(f"{kind}(") and view.endswith(")"):
            time_ps = to_ps(float(view[len(kind) + 1 : -1]))
            if time_ps > 0:
                return kind, time_ps
    raise ValueError(f"unknown view {view!r}")


def settle(view: str, native: str, scrape_s: float, known_by: str, counted_from: str) -> Rules:
    """Rules of a view, where ``native`` and ``scrape_s`` are what the policy's system has."""
    kind, time_ps = parse_view(native if view == "native" else view)
    scrape_ps = to_ps(scrape_s) if view == "native" else 0
    caches = "sent" if known_by == "approximate" else "live" if kind == "own" else kind
    return Rules(
        loads=kind,
        metrics="periodic" if scrape_ps else kind,
        caches=caches,
        period_ps=scrape_ps or (time_ps if kind == "periodic" else 0),
        delay_ps=time_ps if kind == "delayed" else 0,
        at_first_token=counted_from == "first_token",
        in_flight=known_by == "in_flight",
    )


@dataclass(frozen=True)
class State:
    """One replica at an instant; ``begun`` are the requests of ``in_flight`` that have a first token."""

    in_flight: int
    begun: int
    work: int
    waiting: int
    running: int
    kv_used: int
    held: Container[int]
    prompts: frozenset[int] = frozenset()  # keys of the prompts in flight


def keys_of(requests: Collection[Request]) -> frozenset[int]:
    """Keys of all that prompts are made of."""
    return frozenset(key for request in requests for key, _ in request.units)


def true_state(replica: Replica, sent: Collection[Request], published: set[int], keep: bool = True) -> State:
    """A replica as it is now; unless kept, to be used now.

    Parameters
    ----------
    sent : requests sent to it and not finished.
    published : keys that it holds as of the end of its last step.
    """
    return State(
        in_flight=len(sent),
        begun=sum(request.first_token_fs >= 0 for request in sent),
        work=replica.unfinished_tok(),
        waiting=len(replica.waiting),
        running=len(replica.running),
        kv_used=replica.memory.capacity - replica.memory.free(),
        held=frozenset(published) if keep else published,
        prompts=keys_of(sent),
    )


def reckoned_state(sent: Sequence[Request]) -> State:
    """A replica as a router reckons that knows which of its own requests there have begun and finished.

    Before its first token a request waits, its prompt and output are to be computed; from then on it runs,
    and all its output is. Its prompt takes room until it is finished.
    """
    begun = [request for request in sent if request.first_token_fs >= 0]
    prompts = sum(request.prompt_tok for request in sent if request.first_token_fs < 0)
    return State(
        in_flight=len(sent),
        begun=len(begun),
        work=prompts + sum(request.output_tok for request in sent),
        waiting=len(sent) - len(begun),
        running=len(begun),
        kv_used=sum(ceil_div(request.prompt_tok, request.block_tok) for request in sent),
        held=frozenset(),
    )


class Past:
    """The states of one replica, each from an instant on."""

    def __init__(self, state: State):
        self.since_ps: list[float] = [-inf]
        self.states = [state]

    def add(self, now_ps: int, state: State) -> None:
        """Let a replica be in a state at the end of an instant."""
        self.since_ps.append(now_ps)
        self.states.append(state)

    def at(self, ps: int) -> State:
        """State at the end of an instant."""
        return self.states[bisect_right(self.since_ps, ps) - 1]


class SentBlocks:
    """What one router remembers having sent to each replica: the blocks used last, as many as it can hold.

    A prompt uses its blocks from the first to the last, so the first is the first to go.
    """

    def __init__(self, replicas: int, kv_blocks: int, block_tok: int | None):
        self.kept: list[OrderedDict[tuple, None]] = [OrderedDict() for _ in range(replicas)]
        self.kv_blocks = kv_blocks
        self.block_tok = block_tok

    def remember(self, request: Request, replica: int) -> None:
        """A prompt was sent to a replica."""
        kept = self.kept[replica]
        for key in blocks_of(request, self.block_tok):
            kept[key] = None
            kept.move_to_end(key)
        while len(kept) > self.kv_blocks:
            kept.popitem(last=False)

    def matched_tok(self, request: Request, replica: int) -> int:
        """Tokens of the prompt's leading blocks that a replica was sent."""
        blocks = 0
        for key in blocks_of(request, self.block_tok):
            if key not in self.kept[replica]:
                break
            blocks += 1
        return blocks * (self.block_tok or 1)


def held_tok(request: Request, *held: Container[int]) -> int:
    """Tokens of the prompt's leading units that are in any of these, without a gap."""
    tokens = 0
    for key, unit_tok in request.units:
        if not any(key in keys for keys in held):
            break
        tokens += unit_tok
    return tokens


@dataclass
class Seen:
    """A view, as `tests.twins.policies.View` has it."""

    now_ps: int
    in_flight: list[int]
    work: list[int]
    waiting: list[int]
    running: list[int]
    kv_used: list[int]
    kv_blocks: int
    match: Callable[[int], int]
    sending: tuple[int, int] | None = None  # blocks, duration

    def matched_tok(self, replica: int) -> int:
        """Tokens of the prompt that a replica holds from its start without a gap."""
        return self.match(replica)

    def send(self, source: int, blocks: int, ps: int) -> None:
        """Have the prompt's first blocks copied from a replica; the request arrives with them after `ps`."""
        self.sending = (blocks, ps) if blocks > 0 else None


def seen(now_ps: int, rules: Rules, loads: list[State], metrics: list[State], kv_blocks: int, match) -> Seen:
    """The view of these states."""
    return Seen(
        now_ps,
        [state.begun if rules.at_first_token else state.in_flight for state in loads],
        [state.work for state in loads],
        [state.waiting for state in metrics],
        [state.running for state in metrics],
        [state.kv_used for state in metrics],
        kv_blocks,
        match,
    )


# --- runs ---------------------------------------------------------------------------------------------------


def runs_of(requests: Sequence[Request], engine: str) -> dict[int, Run]:
    """The run that each key belongs to: blocks one after the other that the same two or more requests have.

    With the lecture's engine every shareable segment is a run of its own.
    """
    if engine == "lecture":
        return {key: (key,) for request in requests for key, _ in request.units}
    users: dict[int, list[int]] = {}
    for request in requests:
        for key in request.all_keys():
            users.setdefault(key, []).append(request.index)
    runs: dict[int, Run] = {}
    for request in requests:
        shared = [key for key in request.all_keys() if len(users[key]) > 1]
        for _, keys in groupby(shared, key=users.__getitem__):
            run = tuple(keys)
            runs.update(dict.fromkeys(run, run))
    return runs


def covered(run: Run, held: Container[int], key_tok: dict[int, int]) -> int:
    """Blocks of a run that are held from its start without a gap; tokens, where keys have lengths."""
    total = 0
    for key in run:
        if key not in held:
            break
        total += key_tok.get(key, 1)
    return total
