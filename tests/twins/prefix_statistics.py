"""Prefix statistics from prompts token by token: the radix tree is a dictionary of whole prefixes."""

from __future__ import annotations

from collections import defaultdict

from fastsim.workloads import Workload
from tests.twins.prefix import prompt_tokens


def prefix_statistics(workload: Workload) -> list[tuple[int, int, tuple, int, int]]:
    """Shared tokens, seen tokens, key portion (as the prefix that ends with it), its tokens and requests."""
    prompts = [tuple(tokens) for tokens in prompt_tokens(workload)]
    visits: dict[tuple, int] = defaultdict(int)
    follows: dict[tuple, set] = defaultdict(set)
    for prompt in prompts:
        for depth in range(len(prompt) + 1):
            visits[prompt[:depth]] += 1
            follows[prompt[:depth]].add(prompt[depth] if depth < len(prompt) else "end")
    rows = []
    for i, prompt in enumerate(prompts):
        depths = range(len(prompt) + 1)
        shared = max(d for d in depths if d == 0 or visits[prompt[:d]] > 1)
        seen = max(d for d in depths if d == 0 or any(e[:d] == prompt[:d] for e in prompts[:i]))
        # A node ends where prompts part or one of them ends.
        ends = [d for d in depths[1:] if len(follows[prompt[:d]]) > 1 or d == len(prompt)]
        nodes = list(zip([0, *ends], ends, strict=False))
        begin, end = max(node for node in nodes if node[1] - node[0] > node[0])
        rows.append((shared, seen, prompt[:end], end - begin, visits[prompt[:end]]))
    return rows
