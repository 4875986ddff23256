"""One replica, step by step: vLLM V1's scheduler in plain Python, and the lecture's as two switches of it.

Times are integers: femtoseconds (``_fs``) on the replica's clock, picoseconds (``_ps``) for arrivals. Nothing
is skipped and nothing is summed in closed form: a step is a turn of a loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from decimal import Decimal

from tests.twins import orders
from tests.twins.kv import BlockMemory, Holding, SegmentMemory

FS_PER_PS = 1000
FS_PER_S = 10**15
ENGINES = {"vllm": BlockMemory, "lecture": SegmentMemory}


def to_ps(seconds: float) -> int:
    """Seconds to integer picoseconds, rounded once."""
    return round(seconds * 1e12)


def ms_to_fs(ms: float) -> int:
    """Milliseconds as written in a file to integer femtoseconds, rounded once."""
    return int((Decimal(repr(float(ms))) * 10**12).to_integral_value())


class StepTime:
    """Duration of one step: the largest of several pieces, all in integer femtoseconds.

    A piece is ``(coef, knots)``: nine integers, as in the package's compiled form, and rows
    ``(tokens, value_fs, slope_fs_per_token)`` of a function of the step's tokens (may be empty).

    Parameters
    ----------
    spec : ``{"kind": "linear", "base", "per_prefill_token", "per_decode_request"}`` (ms),
        ``{"kind": "fixed", "prefill", "decode"}`` (ms), or
        ``{"kind": "pieces", "pieces": [[coef, knots], ...]}`` (fs).
    """

    def __init__(self, spec: dict):
        coef = [0] * 9
        if spec["kind"] == "linear":
            coef[0] = ms_to_fs(spec["base"])
            coef[3] = ms_to_fs(spec["per_prefill_token"])
            coef[6] = ms_to_fs(spec["per_decode_request"])
            self.pieces = [(coef, [])]
        elif spec["kind"] == "fixed":
            coef[1] = ms_to_fs(spec["prefill"])
            coef[2] = ms_to_fs(spec["decode"])
            self.pieces = [(coef, [])]
        elif spec["kind"] == "pieces":
            self.pieces = spec["pieces"]
        else:
            raise ValueError(f"unknown step time {spec['kind']!r}")

    def slowed(self, factor: int) -> StepTime:
        """The same step time, so many times as long."""
        pieces = []
        for coef, knots in self.pieces:
            slower = [[tokens, value * factor, slope * factor] for tokens, value, slope in knots]
            pieces.append(([value * factor for value in coef], slower))
        return StepTime({"kind": "pieces", "pieces": pieces})

    def duration_fs(self, prefill_tok: int, pairs: int, decode_reqs: int, context_tok: int) -> int:
        """Duration of a step that computes these tokens."""
        n, b = prefill_tok, decode_reqs
        times = []
        for coef, knots in self.pieces:
            time = coef[0] + coef[3] * n + coef[4] * n * n
            time += coef[5] * pairs + coef[6] * b + coef[7] * context_tok
            time += coef[1] if n > 0 else 0
            time += coef[2] if b > 0 else 0
            times.append(time + _on_knots(knots, n + b))
        return max(times)


def _on_knots(knots: list, tokens: int) -> int:
    """Value at ``tokens``: from the last knot at or below it, else from the first."""
    if not knots:
        return 0
    below = [knot for knot in knots if knot[0] <= tokens]
    at, value, slope = below[-1] if below else knots[0]
    return value + slope * (tokens - at)


class Identities:
    """Gives each distinct prefix one integer: same integer, same tokens from the very start."""

    def __init__(self):
        self.known: dict[tuple, int] = {}

    def key(self, parent: int, part) -> int:
        """Integer of the prefix that is ``parent`` followed by ``part``."""
        return self.known.setdefault((parent, part), len(self.known) + 1)


class Request:
    """One request: its tokens so far, and where it stands.

    A token is ``(name, position)``: the segment it belongs to and its place there. ``tokens`` holds the
    prompt and what was generated so far; ``keys`` the identities of the full blocks of it. ``units`` is what
    a router may match, ``(key, tokens)`` pairs from the start of the prompt: full blocks (vLLM) or shareable
    segments (lecture).
    """

    def __init__(self, index: int, row: dict, segments: dict, engine: dict, identities: Identities):
        self.index = index
        self.arrival_ps = to_ps(row["arrival_s"])
        self.output_tok = row["output_tokens"]
        self.session = row.get("session", -1)
        self.follows: int | None = row.get("follows")
        self.think_ps = to_ps(row.get("think_s", 0.0))
        self.answer = _answer_name(index, row)
        self.block_tok = engine["block_size"]
        self.identities = identities
        names = [str(name) for name in row["path"]]
        self.tokens: list[tuple] = [(name, j) for name in names for j in range(segments[name])]
        own = row.get("prompt_tokens", len(self.tokens)) - len(self.tokens)
        self.tokens += [(("own prompt", index), j) for j in range(own)]
        self.prompt: Sequence[tuple] = tuple(self.tokens)
        self.prompt_tok = len(self.tokens)
        self.total_tok = self.prompt_tok + self.output_tok
        self.keys: list[int] = []
        self.whole = engine.get("kind", "vllm") == "lecture"
        if self.whole:
            self.units: Sequence[tuple[int, int]] = self._segment_units(
                names[: row.get("shared", len(names))], segments
            )
        else:
            self._hash_full_blocks()
            self.units = [(key, self.block_tok) for key in self.keys]
        self.priority = row.get("priority", 0)
        self.group: int | None = None
        self.generated = 0
        self.computed = 0
        self.blocks: list = []
        self.registered = 0
        self.holding = Holding()
        self.replica: int | None = None
        self.admissions = 0
        self.queued_ps = 0
        self.hit_tok = 0
        self.preemptions = 0
        self.first_token_fs = -1
        self.done_fs = -1

    def _segment_units(self, names: list[str], segments: dict) -> list[tuple[int, int]]:
        units, parent = [], 0
        for name in names:
            parent = self.identities.key(parent, name)
            units.append((parent, segments[name]))
        return units

    def _hash_full_blocks(self) -> None:
        self._extend_keys(self.keys, self.tokens)

    def _extend_keys(self, keys: list[int], tokens: list[tuple]) -> None:
        size = self.block_tok
        while (len(keys) + 1) * size <= len(tokens):
            start = len(keys) * size
            keys.append(self.identities.key(keys[-1] if keys else 0, tuple(tokens[start : start + size])))

    def all_keys(self) -> list[int]:
        """Identities of the full blocks that it will have when it is finished."""
        keys: list[int] = []
        self._extend_keys(keys, [*self.prompt, *((self.answer, j) for j in range(self.output_tok))])
        return keys

    def units_now(self) -> Sequence[tuple[int, int]]:
        """As `units`, with the full blocks of what was generated so far, which the lecture never shares."""
        return self.units if self.whole else [(key, self.block_tok) for key in self.keys]

    def generate(self) -> None:
        """Append one output token."""
        self.tokens.append((self.answer, self.generated))
        self.generated += 1
        self._hash_full_blocks()

    def finished(self) -> bool:
        """Whether all output tokens exist."""
        return self.generated == self.output_tok

    def unfinished_tok(self) -> int:
        """Tokens still to be computed; the last output token never is."""
        return self.total_tok - 1 - self.computed


def _answer_name(index: int, row: dict):
    answer = row.get("answer_segment")
    return ("own answer", index) if answer is None else str(answer)


class Replica:
    """One replica: waiting queue, running list, KV memory and clock.

    ``start_step`` schedules (blocks are taken and registered there); ``finish_step`` adds the computed
    tokens. Between the two calls the step is under way and ``end_fs`` says when it ends.
    """

    def __init__(self, engine: dict, step_time: StepTime):
        self.memory = ENGINES[engine.get("kind", "vllm")](
            engine["num_blocks"], engine["block_size"], engine.get("watermark", 0.0)
        )
        self.max_seqs = engine["max_num_seqs"]
        self.max_batch_tok = engine["max_num_batched_tokens"]
        if self.max_batch_tok < self.max_seqs:
            raise ValueError("max_num_batched_tokens must not be below max_num_seqs")
        self.step_time = step_time
        self.order = engine.get("order", "fcfs")
        self.order_params = engine.get("order_params", {})
        self.preempt_ties = engine.get("preempt_ties", "running_list")
        self.turn: int | None = None  # of the order by cycling groups
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.chunks: list[tuple[Request, int]] = []
        self.in_step = False
        self.left_waiting = 0  # by the last step; arrivals during it do not count
        self.clock_fs = 0
        self.end_fs = 0
        self.up_ps = 0  # it serves from then on
        self.steps = self.busy_fs = self.scheduled_tok = self.preemptions = 0
        self.hit_tok = self.hit_again_tok = self.dropped_tok = 0
        self.peak_used = 0
        self.log: list[tuple] = []
        self.news: list[tuple[str, Request]] = []  # "first token" and "finished", until somebody takes them

    def arrive(self, request: Request) -> None:
        """Put a request at the end of the waiting queue."""
        if not self.memory.fits_alone(request):
            raise ValueError(f"request {request.index} can never fit")
        self.waiting.append(request)

    def in_flight(self) -> int:
        """Requests sent here and not finished."""
        return len(self.waiting) + len(self.running)

    def unfinished_tok(self) -> int:
        """Tokens that the requests in flight still need; a step's tokens count at its end."""
        return sum(request.unfinished_tok() for request in [*self.waiting, *self.running])

    def can_start(self) -> bool:
        """Whether there is work and no step is under way."""
        return not self.in_step and bool(self.waiting or self.running)

    def restart(self, instant_ps: int, down_ps: int) -> None:
        """Lose the cache and the step under way; what ran waits again, in front, with what it has generated.

        The step that is lost does not count, but what it evicted does. A replica that is down already does
        not come back any sooner.
        """
        if self.in_step:
            self.in_step = False
            self.steps -= 1
            self.busy_fs -= self.end_fs - self.clock_fs
            self.scheduled_tok -= sum(chunk for _, chunk in self.chunks)
        while self.running:
            request = self.running.pop()
            self.memory.release(request)
            self.dropped_tok += request.computed
            request.computed = 0
            request.group = None
            request.preemptions += 1
            self.waiting.appendleft(request)
        self.memory.clear()
        self.up_ps = max(self.up_ps, instant_ps + down_ps)
        self.clock_fs = self.up_ps * FS_PER_PS

    def start_step(self, instant_ps: int) -> None:
        """Schedule a step at this instant, if there is work and none is under way."""
        if not self.can_start() or instant_ps < self.up_ps:
            return
        self.clock_fs = max(self.clock_fs, instant_ps * FS_PER_PS)
        self.chunks = []
        budget, preempted = self._schedule_running(self.max_batch_tok)
        while preempted and not self.chunks:  # a step that computes nothing takes no time
            budget, preempted = self._schedule_running(self.max_batch_tok)
        if not preempted:
            self._schedule_waiting(budget)
        self.in_step = True
        self.left_waiting = len(self.waiting)
        duration = self._duration_fs()
        if not self.chunks or duration < FS_PER_PS:
            raise AssertionError("a step must compute something and last a picosecond or more")
        self.end_fs = self.clock_fs + duration
        self.steps += 1
        self.busy_fs += duration
        self.scheduled_tok += sum(chunk for _, chunk in self.chunks)
        self.peak_used = max(self.peak_used, self.memory.capacity - self.memory.free())

    def _schedule_running(self, budget: int) -> tuple[int, bool]:
        """Serve the running requests in order; preempt when memory is short.

        A victim that had its turn gives its tokens back; what it registered stays. A request that must
        preempt itself ends the turn of all behind it, too.
        """
        preempted = False
        place = 0
        while place < len(self.running) and budget > 0:
            request = self.running[place]
            chunk = min(len(request.tokens) - request.computed, budget)
            while not self.memory.extend(request, chunk):
                preempted = True
                victim = orders.victim(self, self.order, self.preempt_ties)
                at = self.running.index(victim)
                del self.running[at]
                if at < place:
                    budget += self.chunks.pop(at)[1]
                    place -= 1
                self._preempt(victim)
                if victim is request:
                    return budget, True
            self._take(request, chunk)
            budget -= chunk
            place += 1
        return budget, preempted

    def _preempt(self, victim: Request) -> None:
        self.memory.release(victim)
        self.dropped_tok += victim.computed
        victim.computed = 0
        victim.group = None
        victim.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(victim)

    def _schedule_waiting(self, budget: int) -> None:
        """Admit in order until one does not fit."""
        if not self.waiting or budget == 0 or len(self.running) == self.max_seqs:
            return
        for request in orders.ORDERS[self.order](self, self.order_params):
            if budget == 0 or len(self.running) == self.max_seqs:
                return
            hits = self.memory.hits(request)
            hit_tok = self.hit_tok_of(request, hits)
            chunk = min(len(request.tokens) - hit_tok, budget)
            if not self.memory.admit(request, hits, chunk, bool(self.running)):
                return
            self.waiting.remove(request)
            self.running.append(request)
            request.computed = hit_tok
            if request.admissions == 0:
                request.queued_ps = self.clock_fs // FS_PER_PS - request.arrival_ps
                request.hit_tok = hit_tok
                self.hit_tok += hit_tok
            else:
                self.hit_again_tok += hit_tok
            request.admissions += 1
            self._take(request, chunk)
            budget -= chunk

    def hit_tok_of(self, request: Request, hits: list) -> int:
        """Tokens that need not be computed: the last one always is, for its output, be it cached or not."""
        return min(self.memory.hit_tok(hits), len(request.tokens) - 1)

    def _take(self, request: Request, chunk: int) -> None:
        self.memory.register(request, request.computed + chunk)
        self.chunks.append((request, chunk))

    def _duration_fs(self) -> int:
        prefill_tok = pairs = decode_reqs = context_tok = 0
        for request, chunk in self.chunks:
            cached = request.computed
            pairs += sum(range(cached + 1, cached + chunk + 1))
            if chunk > 1 or request.generated == 0:
                prefill_tok += chunk
                context_tok += cached
            else:
                decode_reqs += 1
                context_tok += cached + 1
        return self.step_time.duration_fs(prefill_tok, pairs, decode_reqs, context_tok)

    def finish_step(self) -> list[Request]:
        """End the step under way; returns the requests that finished with it, in running order."""
        start_fs, self.clock_fs, self.in_step = self.clock_fs, self.end_fs, False
        done = []
        for request, chunk in self.chunks:
            request.computed += chunk
            if request.computed < len(request.tokens):
                continue
            request.generate()
            if request.first_token_fs < 0:
                request.first_token_fs = self.end_fs
                self.news.append(("first token", request))
            if request.finished():
                request.done_fs = self.end_fs
                self.news.append(("finished", request))
                done.append(request)
                self.running.remove(request)
                self.memory.release(request)
        scheduled = sum(chunk for _, chunk in self.chunks)
        counts = scheduled, len(self.chunks), len(self.running), self.left_waiting, self.memory.free()
        self.log.append((start_fs, self.end_fs - start_fs, *counts))
        return done


def build(case: dict) -> tuple[list[Request], Identities]:
    """Requests of a case, in arrival order (equal arrivals keep the file's order)."""
    identities = Identities()
    segments = {str(name): tokens for name, tokens in case["segments"].items()}
    rows = sorted(enumerate(case["requests"]), key=lambda item: to_ps(item[1]["arrival_s"]))
    return [Request(i, row, segments, case["engine"], identities) for i, row in rows], identities


def run_one(case: dict) -> tuple[list[Request], Replica]:
    """Serve a case on one replica.

    Parameters
    ----------
    case : the shape of a golden file: ``segments``, ``requests``, ``engine``, ``step_ms``.

    Returns
    -------
    requests in the file's order, and the replica with its totals and its ``log`` of steps.
    """
    requests, _ = build(case)
    replica = Replica(case["engine"], StepTime(case["step_ms"]))
    pending = deque(requests)
    while pending or replica.in_flight():
        if not replica.in_flight():
            instant_ps = max(replica.clock_fs // FS_PER_PS, pending[0].arrival_ps)
        else:
            instant_ps = replica.clock_fs // FS_PER_PS
        while pending and pending[0].arrival_ps <= instant_ps:
            replica.arrive(pending.popleft())
        replica.start_step(instant_ps)
        replica.finish_step()
    return sorted(requests, key=lambda request: request.index), replica
