"""Slow twins of routing policies: what a twin is given, and the register of all there are.

A family's twins stand in a file of this folder and register themselves; every file here is imported. A twin
is written from the description of its system, not from its kernel: dictionaries, lists, naive trees. The
contract test compares the two, decision by decision and in whole runs under every view.

    @twin("sticky")
    class Sticky:  # every router has an object of its own
        def __init__(self, params: dict, world: World): ...
        def choose(self, view: View, request: Prompt) -> int | str: ...  # a replica, REJECT or HOLD
        def heard(self, now_ps, kind, what, replica, value): ...  # optional

    @stateless("least_loaded")
    def least_loaded(view, request, params, world): ...

``params`` has all parameters by name, defaults filled in, choices as their words. Random choices come from
``world.draw`` only, as often and in the order that the policy documents: it is the kernel's own stream.

``heard`` is called with every report when it reaches the router; ``now_ps`` is when it happened. ``kind`` is

* FIRST_TOKEN or FINISHED, of this router's own requests: ``what`` is the request's index, ``value`` 0, with a
  first token how long the request queued until its first step, in picoseconds;
* CACHE, if the policy needs "evictions": ``what`` is a `Run`, ``value`` how many of its blocks (tokens, with
  the lecture's engine) the replica now holds from the run's start without a gap. What one step changes
  may come in one report or in several, and different replicas' at one instant in any order: go by the
  direction of the change and the last value.

A report changes the policy's own memory only: loads and caches are to be read in ``choose``. Reports of one
instant come by replica, a replica's in running order, a first token before the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Protocol

from tests.twins.engine import StepTime

FIRST_TOKEN, FINISHED, CACHE = "first token", "finished", "cache"
REJECT, HOLD = "reject", "hold"
Run = tuple[int, ...]  # keys (as in `Prompt.units`) that the very same requests contain, from the root down


class Draw(Protocol):
    """The routing stream of one router."""

    def below(self, n: int) -> int:
        """An integer in [0, n), each equally likely."""
        ...

    def uniform(self) -> float:
        """A number in [0, 1)."""
        ...


@dataclass(frozen=True)
class World:
    """What stays as it is.

    Parameters
    ----------
    replicas, routers : how many.
    router : number of the router that a policy's object belongs to.
    engine : "vllm" or "lecture".
    block_tok : tokens a block of the engine's.
    kv_blocks, batch_tok : blocks a replica has, tokens its step computes at most.
    draw : the router's random stream.
    prompts : all requests by arrival, for what stands in for a hash of a prompt: the first request with it.
    step : the step time of a replica, for policies that need "step_time".
    """

    replicas: int
    routers: int
    router: int
    engine: str
    block_tok: int
    kv_blocks: int
    batch_tok: int
    draw: Draw
    prompts: Sequence[Prompt] = ()
    step: StepTime | None = None


class Prompt(Protocol):
    """What a router knows of a request.

    ``index`` counts requests by arrival; ``session`` is -1 where unknown; ``output_tok`` is for oracles only.
    ``prompt`` has a key for each token: prompts are equal as far as their keys are. ``units`` is what the
    engine may have cached of it, (key, tokens) from the start: full blocks, or shareable segments (lecture).
    """

    index: int
    session: int
    prompt_tok: int
    output_tok: int
    prompt: Sequence[tuple]
    units: Sequence[tuple[int, int]]


class View(Protocol):
    """What a router knows when a request arrives, as fresh as its view is; lists have an entry a replica.

    ``in_flight`` are requests, ``work`` tokens to compute (needs "work"); ``waiting`` and ``running`` are
    requests in the engine and ``kv_used`` blocks that requests hold (needs "metrics"), of ``kv_blocks``.
    """

    now_ps: int
    in_flight: Sequence[int]
    work: Sequence[int]
    waiting: Sequence[int]
    running: Sequence[int]
    kv_used: Sequence[int]
    kv_blocks: int

    def matched_tok(self, replica: int) -> int:
        """Tokens of the prompt that a replica holds from its start without a gap."""
        ...

    def send(self, source: int, blocks: int, ps: int) -> None:
        """Have the prompt's first blocks copied from a replica; the request arrives with them after `ps`."""
        ...


Policy = Any  # an object with `choose` and perhaps `heard`
Factory = Callable[[dict, World], Policy]
POLICIES: dict[str, Factory] = {}


def twin(name: str) -> Callable[[Factory], Factory]:
    """Register the twin of a policy: a class, or a function that makes an object."""

    def register(factory: Factory) -> Factory:
        POLICIES[name] = factory
        return factory

    return register


def stateless(name: str) -> Callable[[Callable], Callable]:
    """Register ``choose(view, request, params, world)`` of a policy that remembers nothing."""

    def register(choose: Callable) -> Callable:
        POLICIES[name] = lambda params, world: _Stateless(choose, params, world)
        return choose

    return register


@dataclass
class _Stateless:
    function: Callable
    params: dict
    world: World

    def choose(self, view: View, request: Prompt) -> int | str:
        return self.function(view, request, self.params, self.world)


# --- what many twins need -----------------------------------------------------------------------------------


def least(values: Sequence) -> int:
    """Place of the smallest value, the first of several."""
    return min(range(len(values)), key=values.__getitem__)


def nearest(view: View) -> int:
    """Replica with the longest match, by fewest requests in flight, then lowest number."""
    return min(range(len(view.in_flight)), key=lambda r: (-view.matched_tok(r), view.in_flight[r], r))


def blocks_of(request: Prompt, block_tok: int | None = None, partial: bool = False) -> list[tuple]:
    """Keys of a prompt's blocks, each chained to all before it: equal keys are equal blocks after equal ones.

    Parameters
    ----------
    block_tok : tokens a block; None for the lecture's engine as it is: blocks of a token, of which those
        after the shareable segments are unlike any other request's.
    partial : whether the last, incomplete block has a key, too.
    """
    prompt = request.prompt
    if block_tok is None:
        shared = sum(tokens for _, tokens in request.units)
        own = [(("own", request.index), j) for j in range(shared, len(prompt))]
        prompt, block_tok = [*prompt[:shared], *own], 1
    keys: list[tuple] = []
    for end in range(block_tok, len(prompt) + block_tok, block_tok):
        if end <= len(prompt) or partial:
            # A nested chain would be as deep as the prompt is long: its hash stands for it.
            keys.append((hash(keys[-1]) if keys else 0, tuple(prompt[end - block_tok : end])))
    return keys


# Every family registers its twins when imported.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
