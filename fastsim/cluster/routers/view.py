"""What a router sees when a request arrives, and the choices policies are made of.

A policy is ``policy(view, request) -> replica``. It reads only the view; how fresh that is, and whether it
knows of caches at all, is not the policy's business. Each router has a view of its own; what all routers see
alike is the same array in each.
"""

from __future__ import annotations

from fastsim._bits import lowest_bit
from fastsim._jit import define, kernel, pointers, struct
from fastsim.cluster._scan import highest, lowest, place_in
from fastsim.cluster._state import BITS, LEVELS

_FIELDS = {
    "load": "int64[::1]",  # [replicas], requests in flight
    "level": "int64[:, ::1]",  # [LEVELS, words], the same as masks, see _masks.py
    "work": "int64[::1]",  # [replicas], tokens still to compute; needs "work"
    "match": "int64[::1]",  # [replicas], tokens of the prompt that each holds; needs "matches"
    "found": "int64[::1]",  # [words], mask of all replicas where that is not 0, so that others can be skipped
    "waiting": "int64[::1]",  # [replicas], requests queued in the engine; needs "metrics", as the next four
    "running": "int64[::1]",  # [replicas], requests in the engine's batch
    "kv_used": "int64[::1]",  # [replicas], KV blocks that requests hold
    "kv_blocks": "int64[::1]",  # [1], KV blocks of a replica
    "changes": "int64[::1]",  # [1], grows, from 1, when metrics, replicas or kept scores may have changed
    "limits": "int64[::1]",  # [4], tokens and requests a step, tokens a KV block; requests of the run
    "prompt": "int64[::1]",  # [N_PROMPT], of the request, columns below
    "best": "int64[::1]",  # [words], scratch of the match
    "params": "float64[::1]",  # the policy's parameters, in the order of its spec
    "memory": "int64[::1]",  # the policy's own, all 0 at the start, as long as it asked for
    "real": "float64[::1]",  # the policy's own, likewise
    "count": "int64[:, 2]",  # the policy's own hash table (`_table`), of as many entries as it asked for
    "score": "float64[::1]",  # [replicas], what the policy made of each, for `fastsim explain`
    "rng": "uint64[::1]",  # [4], the routing stream
    # Prompts in flight, by the runs of the engine (_flight.py); no rows unless caches are known "in_flight":
    "flying": "int64[:, ::1]",  # [runs, 2 words], masks of the replicas that are to compute all or a part
    "flights": "int64[:, ::1]",  # [runs, replicas], how many such requests there are, of either kind
    "flown_blk": "int64[::1]",  # [runs], how large a part that is
    # What the router remembers having sent where (tree.py). Its prompts are in blocks of its own size:
    "path_ptr": "int64[::1]",  # [requests + 1]
    "path": "int64[::1]",  # runs of all prompts, from the root down
    "run_blk": "int64[::1]",  # [runs], blocks of each
    "tail_blk": "int64[::1]",  # [requests], blocks after the runs, which no other prompt has
    "part_ptr": "int64[::1]",  # [engine runs + 1], rows of each in the next; only if the tree is reported to
    "part": "int64[:, 3]",  # run, and from and up to which block of the engine's run it lies there
    "tree": "int64[::1]",  # [N_TREE], settings and counters
    "holds": "int64[:, ::1]",  # [runs, words], replicas that were sent a run and not forgotten
    "marks": "int64[:, ::1]",  # [runs, words], the policy's own masks; only if its tree has marks
    "node": "int64[:, 2]",  # [runs + requests, 2], who was sent it first, what followed it (leaves.py)
    "entry": "int64[:, 8]",  # [entries, 8], what may be forgotten, in lists by age
    "where": "int64[:, 2]",  # [slots, 2], key + 1 -> entry
    "list": "int64[:, 4]",  # [replicas or 1, 4], oldest and newest entry, blocks, entries
    # The step time of a replica of speed 1, as `_step_time.step_fs` takes it; needs "step_time":
    "step_coef": "int64[:, ::1]",
    "step_ptr": "int64[::1]",
    "step_knots": "int64[:, ::1]",
}
FIELDS = tuple(_FIELDS)
View = struct("RouterView", _FIELDS)
SIGNATURE = "int64(RouterView, int64)"
HEARD = "int64(RouterView, int64, int64, int64, int64)"
define("Route", f"FunctionType({SIGNATURE})")
define("Heard", f"FunctionType({HEARD})")
pack_views, view_at = pointers(View)

BATCH_TOK, MAX_SEQS, BLOCK_TOK, REQUESTS = 0, 1, 2, 3  # View.limits

# View.prompt
MATCH_TOK, PROMPT_TOK, NEAREST, NOW_PS, SESSION, OUTPUT_TOK = 0, 1, 2, 3, 4, 5
ROUTER, N_ROUTERS = 6, 7
SOURCE, SEND_BLK, SEND_PS = 8, 9, 10  # a transfer the policy asks for: from, blocks, duration
PRIORITY = 11
N_PROMPT = 16

REJECT = -(1 << 50)  # a policy's answer: refuse the request
HOLD = -(1 << 51)  # a policy's answer: keep it, and ask again when it hears of a first token or an end

# What `heard` is told: kind, request (or run), replica, value. Of a first token the value is how long the
# request waited until its first step, in picoseconds; of a cache, how many blocks of the run it holds.
FIRST_TOKEN, FINISHED, CACHE = 1, 2, 3


@kernel(signature=HEARD)
def deaf(view, kind, what, replica, value):
    """Listen to no report."""
    return 0


@kernel(inline="always")
def match_tok(view):
    """Tokens of the longest cached prefix of the prompt on any replica; needs "match"."""
    return view.prompt[MATCH_TOK]


@kernel(inline="always")
def prompt_tok(view):
    """Tokens of the prompt."""
    return view.prompt[PROMPT_TOK]


@kernel(inline="always")
def match_share(view):
    """Share of the prompt that the longest match covers; needs "match"."""
    return view.prompt[MATCH_TOK] / view.prompt[PROMPT_TOK]


@kernel(inline="always")
def nearest(view):
    """Replica with the longest match, by fewest requests in flight, then lowest index; needs "match"."""
    return view.prompt[NEAREST]


@kernel(inline="always")
def now_s(view):
    """Seconds since the start."""
    return view.prompt[NOW_PS] * 1e-12


@kernel(inline="always")
def in_ps(seconds):
    """Seconds as whole picoseconds."""
    return int(seconds * 1e12 + 0.5)


@kernel(inline="always")
def ticks(view, period_s):
    """How often a timer with that period, at least 1 ps, has gone off since the start."""
    return view.prompt[NOW_PS] // in_ps(period_s)


@kernel(inline="always")
def most_replicas(view):
    """Replicas that a memory has room for with `replica_room`, however many have joined by now."""
    return view.best.shape[0] * BITS


def replica_room(replicas: int) -> int:
    """Entries of a memory for all replicas, rounded up to what `most_replicas` says."""
    return -(-replicas // BITS) * BITS


@kernel(inline="always")
def session(view):
    """Session of the request, -1 where unknown."""
    return view.prompt[SESSION]


@kernel
def least(values):
    """Index of the smallest value, the lowest index among equals."""
    return place_in(values, lowest(values), 0)


@kernel
def least_loaded(view):
    """Replica with the fewest requests in flight, the lowest index among equals; no look at the rest."""
    level = view.level
    for at in range(LEVELS - 1):
        for word in range(level.shape[1]):
            if level[at, word]:
                return word * BITS + lowest_bit(level[at, word])
    return least(view.load)


@kernel
def smallest_and_largest(values):
    """Smallest and largest value."""
    return lowest(values), highest(values)
