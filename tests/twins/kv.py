"""KV memory of one replica, one object per physical block (vLLM) or per cached segment (lecture).

Both managers speak the same words, so the scheduler in ``engine.py`` does not know which one it has:
``hits``, ``admit``, ``extend``, ``register`` and ``release``; and ``install`` for what comes from elsewhere.
``changed`` is called with every key that can be found from now on or no longer. Nothing here is fast and
nothing is clever.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, KeysView
from dataclasses import dataclass, field


def ceil_div(a: int, b: int) -> int:
    """Smallest integer not below ``a / b``."""
    return -(-a // b)


def _nobody(key: int) -> None:
    """Listen to no change."""


@dataclass(eq=False)
class Block:
    """One physical block of KV memory."""

    number: int
    key: int | None = None
    holders: int = 0


class BlockMemory:
    """vLLM V1's block pool and prefix cache.

    The free queue runs from its front (next to be taken) to its tail (most recently freed). Blank blocks
    stand before all hashed ones. ``copies[key]`` holds every block registered under a key, oldest first.

    Parameters
    ----------
    num_blocks : blocks of the replica, the reserved null block included.
    block_tok : tokens a block holds.
    watermark : share of ``num_blocks`` that an admission must leave free while something runs.
    """

    def __init__(self, num_blocks: int, block_tok: int, watermark: float):
        self.block_tok = block_tok
        self.capacity = num_blocks - 1
        self.watermark_blocks = int(watermark * num_blocks)
        self.queue: OrderedDict[int, Block] = OrderedDict((n, Block(n)) for n in range(1, num_blocks))
        self.copies: dict[int, dict[int, Block]] = {}
        self.evicted = 0
        self.changed: Callable[[int], None] = _nobody

    def free(self) -> int:
        """Free blocks, hashed ones included."""
        return len(self.queue)

    def clear(self) -> None:
        """Forget all that is cached; nobody may hold anything."""
        gone = list(self.copies)
        self.copies.clear()
        for block in self.queue.values():
            block.key = None
        for key in gone:
            self.changed(key)

    def fits_alone(self, request) -> bool:
        """Whether the request can ever be served: the last output token is never computed."""
        return ceil_div(request.total_tok - 1, self.block_tok) <= self.capacity

    def held(self) -> KeysView[int]:
        """Keys that a lookup would find: the live table, not a copy."""
        return self.copies.keys()

    def cached_tok(self) -> dict[int, int]:
        """Tokens of each cached key, every key once."""
        return {key: self.block_tok for key in self.copies}

    def cached_copies_tok(self) -> int:
        """Tokens of all registered blocks, identical copies counted each."""
        return sum(len(found) for found in self.copies.values()) * self.block_tok

    def hits(self, request) -> list[Block]:
        """Cached blocks for the start of what the request has now; its last token is always computed."""
        found = []
        for key in request.keys[: (len(request.tokens) - 1) // self.block_tok]:
            if key not in self.copies:
                break
            found.append(next(iter(self.copies[key].values())))
        return found

    def hit_tok(self, hits: list[Block]) -> int:
        """Tokens that a list of hits covers."""
        return len(hits) * self.block_tok

    def admit(self, request, hits: list[Block], chunk_tok: int, others_run: bool) -> bool:
        """Take the hits and the blocks of the first chunk, if all of the request's tokens would fit."""
        need = ceil_div(len(request.tokens), self.block_tok) - len(hits)
        need += sum(1 for block in hits if block.holders == 0)
        if need + (self.watermark_blocks if others_run else 0) > self.free():
            return False
        for block in hits:
            block.holders += 1
            self.queue.pop(block.number, None)
        request.blocks = list(hits)
        request.registered = len(hits)
        self._grow(request, self.hit_tok(hits) + chunk_tok)
        return True

    def extend(self, request, chunk_tok: int) -> bool:
        """Take the blocks that the next ``chunk_tok`` tokens of a running request need, or none of them."""
        target = request.computed + chunk_tok
        if ceil_div(target, self.block_tok) - len(request.blocks) > self.free():
            return False
        self._grow(request, target)
        return True

    def _grow(self, request, target_tok: int) -> None:
        while len(request.blocks) < ceil_div(target_tok, self.block_tok):
            request.blocks.append(self._pop())

    def _pop(self) -> Block:
        _, block = self.queue.popitem(last=False)
        key, block.key = block.key, None
        if key is not None:
            self.evicted += 1
            del self.copies[key][block.number]
            if not self.copies[key]:
                del self.copies[key]
                self.changed(key)
        block.holders = 1
        return block

    def register(self, request, target_tok: int) -> None:
        """Make every block that ``target_tok`` tokens fill hittable, at once."""
        for i in range(request.registered, target_tok // self.block_tok):
            self._enter(request.blocks[i], request.keys[i])
        request.registered = max(request.registered, target_tok // self.block_tok)

    def _enter(self, block: Block, key: int) -> None:
        block.key = key
        found = self.copies.setdefault(key, {})
        found[block.number] = block
        if len(found) == 1:
            self.changed(key)

    def install(self, keys: list[int]) -> bool:
        """Copy the blocks of these keys that are missing after the first ones, all of them or none.

        ``keys`` belong together (a stretch that the same requests share). They take free blocks, as any
        block does, and become the newest of the free ones that are cached, the deepest first. If making room
        evicts what they would go on from, the room stays blank. Returns whether all of them are there.
        """
        have = self._leading(keys)
        missing = keys[have:]
        if len(missing) > self.free():
            return False
        taken = [self._pop() for _ in missing]
        if self._leading(keys) != have:
            for block in taken:
                self._give_back(block)
            return False
        for block, key in zip(taken, missing, strict=True):
            self._enter(block, key)
        for block in reversed(taken):
            self._give_back(block)
        return True

    def _leading(self, keys: list[int]) -> int:
        return next((i for i, key in enumerate(keys) if key not in self.copies), len(keys))

    def _give_back(self, block: Block) -> None:
        block.holders -= 1
        if block.holders == 0:
            self.queue[block.number] = block
            if block.key is None:
                self.queue.move_to_end(block.number, last=False)

    def release(self, request) -> None:
        """Give all blocks back, last block first: hashed ones to the tail, blank ones to the front."""
        for block in reversed(request.blocks):
            self._give_back(block)
        request.blocks = []
        request.registered = 0


@dataclass(eq=False)
class Segment:
    """One cached segment of a prompt's shareable part."""

    key: int
    tokens: int
    holders: int = 0


@dataclass
class Holding:
    """What a running request holds in the lecture's memory."""

    segments: dict[int, Segment] = field(default_factory=dict)  # place in the prompt -> cached segment
    blank_tok: int = 0  # its own tokens: question, output, copies of what is cached already


class SegmentMemory:
    """The lecture's memory: tokens, whole segments, least recently used first.

    A request reserves its missing prompt and its whole output at admission, so it is never preempted.

    Parameters
    ----------
    num_blocks : as in vLLM, one more than the usable tokens.
    """

    def __init__(self, num_blocks: int, block_tok: int, watermark: float):
        if block_tok != 1 or watermark != 0.0:
            raise ValueError("the lecture's engine has block size 1 and no watermark")
        self.capacity = num_blocks - 1
        self.blank_tok = self.capacity
        self.lru: OrderedDict[int, Segment] = OrderedDict()  # cached and held by nobody
        self.cached: dict[int, Segment] = {}
        self.evicted = 0
        self.changed: Callable[[int], None] = _nobody

    def free(self) -> int:
        """Free tokens: blank ones and those of cached segments that nobody holds."""
        return self.blank_tok + sum(segment.tokens for segment in self.lru.values())

    def clear(self) -> None:
        """Forget all that is cached; nobody may hold anything."""
        gone = list(self.cached)
        self.cached.clear()
        self.lru.clear()
        self.blank_tok = self.capacity
        for key in gone:
            self.changed(key)

    def fits_alone(self, request) -> bool:
        """Whether the request can ever be served."""
        return request.total_tok <= self.capacity

    def held(self) -> KeysView[int]:
        """Keys of the cached segments: the live table, not a copy."""
        return self.cached.keys()

    def cached_tok(self) -> dict[int, int]:
        """Tokens of each cached segment."""
        return {key: segment.tokens for key, segment in self.cached.items()}

    def cached_copies_tok(self) -> int:
        """Tokens of all cached segments."""
        return sum(self.cached_tok().values())

    def hits(self, request) -> list[Segment]:
        """Whole cached segments from the start of the prompt, which may be all of it."""
        found = []
        for key, _ in request.units:
            if key not in self.cached:
                break
            found.append(self.cached[key])
        return found

    def hit_tok(self, hits: list[Segment]) -> int:
        """Tokens that a list of hits covers."""
        return sum(segment.tokens for segment in hits)

    def admit(self, request, hits: list[Segment], chunk_tok: int, others_run: bool) -> bool:
        """Take the hits, the missing prompt and the whole output, or nothing."""
        own = request.total_tok - self.hit_tok(hits)
        if own + sum(segment.tokens for segment in hits if segment.holders == 0) > self.free():
            return False
        for segment in hits:
            segment.holders += 1
            self.lru.pop(segment.key, None)
        while self.blank_tok < own:
            self._evict()
        self.blank_tok -= own
        request.holding = Holding(dict(enumerate(hits)), own)
        return True

    def _evict(self) -> None:
        key, segment = self.lru.popitem(last=False)
        del self.cached[key]
        self.blank_tok += segment.tokens
        self.evicted += segment.tokens
        self.changed(key)

    def install(self, key: int, tokens: int) -> bool:
        """Copy a whole segment, the newest that nobody holds; returns whether it is there."""
        if key in self.cached:
            return True
        if tokens > self.free():
            return False
        while self.blank_tok < tokens:
            self._evict()
        self.blank_tok -= tokens
        self.cached[key] = self.lru[key] = Segment(key, tokens)
        self.changed(key)
        return True

    def extend(self, request, chunk_tok: int) -> bool:
        """Nothing to do: everything was reserved at admission."""
        return True

    def register(self, request, target_tok: int) -> None:
        """Cache each segment whose last token is scheduled, unless the replica holds it already."""
        end = 0
        for place, (key, tokens) in enumerate(request.units):
            end += tokens
            if end > target_tok:
                break
            if end > request.computed and key not in self.cached:
                segment = Segment(key, tokens, holders=1)
                self.cached[key] = segment
                self.changed(key)
                request.holding.segments[place] = segment
                request.holding.blank_tok -= tokens

    def release(self, request) -> None:
        """Blanks first, then the segments, deepest first, to the tail when nobody else holds them."""
        self.blank_tok += request.holding.blank_tok
        for place in sorted(request.holding.segments, reverse=True):
            segment = request.holding.segments[place]
            segment.holders -= 1
            if segment.holders == 0:
                self.lru[segment.key] = segment
        request.holding = Holding()
