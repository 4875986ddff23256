"""What the twins of Preble's policies share: nodes of the prompts' tree, and times of one request alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tests.twins.policies import Prompt, Run, World

Node = tuple  # the keys of its blocks, or of its one segment


def nodes_of(world: World) -> dict[int, list[tuple[Node, int]]]:
    """(node, tokens) of every request's prompt, from the root down.

    A node is a stretch of blocks that the same requests have, two at least; with the lecture's engine it is a
    segment that may be cached.
    """
    having = defaultdict(set)
    for prompt in world.prompts:
        for key, _ in prompt.units:
            having[key].add(prompt.index)
    return {prompt.index: _nodes(prompt, having, world.engine == "lecture") for prompt in world.prompts}


def _nodes(prompt: Prompt, having: dict, whole: bool) -> list[tuple[Node, int]]:
    made: list[tuple[Node, int]] = []
    for key, tokens in prompt.units:
        if len(having[key]) < 2 and not whole:
            break
        if made and having[made[-1][0][-1]] == having[key] and not whole:
            node, size = made.pop()
            made.append(((*node, key), size + tokens))
        else:
            made.append(((key,), tokens))
    return made


def lost_nodes(nodes: Iterable[Node], run: Run, before: int, held: int) -> list[Node]:
    """Nodes of which something is gone, when of a run's blocks so many were held from its start, and now are.

    A segment is a run and a node, and its figures are tokens.
    """
    lost = set(run if len(run) == 1 and held < before else run[held:before])
    return [node for node in nodes if not lost.isdisjoint(node)]


def prefill_ps(world: World, times: str, tokens: int, context: int) -> int:
    """Time to compute the last `tokens` of a context."""
    if tokens <= 0:
        return 0
    if times == "cluster":
        cached = context - tokens
        pairs = sum(range(cached + 1, context + 1))  # what each token attends to, itself included
        assert world.step is not None
        return world.step.duration_fs(tokens, pairs, 0, cached) // 1000
    ms = (
        _linear_ms(times, tokens) + _attention_ms(times, tokens, context) + _across_ms(times, tokens, context)
    )
    return int(ms / _DIVISOR[times] / 1000 * 1e12)


def decode_ps(world: World, times: str, context: int) -> int:
    """Time of one decode step."""
    if times == "cluster":
        assert world.step is not None
        return world.step.duration_fs(0, context, 1, context) // 1000
    ms = _linear_ms(times, 1) + _attention_ms(times, 1, context)
    if times.startswith("llama"):
        ms += _across_ms(times, 1, context)
    return int(ms / _DIVISOR[times] / 1000 * 1e12)


_DIVISOR = {"a6000": 0.9, "a6000_interpolated": 0.9, "a100": 0.85, "llama_70b_a100": 1, "llama_70b_h100": 1}


def _linear_ms(times: str, n: int) -> float:
    if times == "llama_70b_a100":
        return 28.9313893 + 0.182233431 * n
    if times == "llama_70b_h100":
        return 18.6673072 + 0.0798791064 * n
    if times == "a100":
        return 0.05031337 * n + 5.505997 if n >= 256 else 10.5 if n >= 64 else 8.96
    if n >= 384:
        return 0.10842571 * n + 4.209777
    if n < 192:
        return 22.0
    if times == "a6000":
        return max(22.0, -118.0 + 1.25 * n - 0.00256 * n * n)
    return 22.0 + (0.10842571 * 384 + 4.209777 - 22.0) * (n - 192) / 192


def _attention_ms(times: str, n: int, c: int) -> float:
    if times == "llama_70b_a100":
        return 0.00400365142 * c
    if times == "llama_70b_h100":
        return 0.00268531603 * c
    return 0.32 if c <= 1024 else (0.000186 * c + 0.159) / (2 if n <= 1024 else 1)


def _across_ms(times: str, n: int, c: int) -> float:
    if times == "llama_70b_a100":
        return 2.55050069e-6 * (n * c)
    if times == "llama_70b_h100":
        return 7.44344923e-7 * (n * c)
    if times == "a100":
        if n * c < 2**20:
            return 0.0
        return 0.12386358 - 7.45358651e-4 * n + 1.72022673e-3 * c + 1.36265841e-6 * n * c
    return 0.00113 * n + 0.00175 * c + 2.19e-6 * n * c if n * c > 2**20 else 0.0
