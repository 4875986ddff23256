"""The state of a simulated cluster: a few flat arrays, and the names of their columns.

One row a request, one a replica, one an extent of cached blocks; everything is int64. Kernels take the whole
`State` as one pointer and change the arrays' contents in place.

Time is exact: a clock is a number of picoseconds plus a remainder of 0-999 femtoseconds, step times are whole
femtoseconds, so stepping one by one and jumping many steps in closed form add up to the same integers.
"""

from __future__ import annotations

import numpy as np

from fastsim._jit import struct

NEVER = 1 << 62  # event key of a replica that waits for nothing
NONE = -1  # no request, no extent, no hold
LEVELS = 64  # loads told apart by masks
BITS = 62  # replicas a mask word holds: signed words stay positive, compiled and in plain Python

# State.cfg
BLOCK, BUDGET, MAX_SEQS, WATERMARK = (
    0,
    1,
    2,
    3,
)  # tokens a block, tokens a step, requests running, blocks kept back
RESERVE, WHOLE, FAST = (
    4,
    5,
    6,
)  # take the output's blocks at admission; cache whole segments only; jump over decode runs
RUNS, REPLICAS, TRACK = 7, 8, 9  # shared runs, replicas, how the router's index follows the caches
PERIOD_PS = 10  # age limit of a periodic view
NEEDS = 11  # what the policy reads, bits below
LOAD_VIEW, METRICS_VIEW = 12, 13  # how fresh loads and the engine's metrics are, values below
DELAY_PS = 14  # age of a delayed view
NEWS = 15  # what replicas report, bits below
BY_NEWS = 16  # loads change as reports come in, not by themselves
AT_FIRST = 17  # a router counts a request from its first token on
ROUTERS = 18  # routers that share the traffic
ACTIVE = 19  # replicas that have joined
KV_BLOCKS = 20  # of a replica
QUEUE = 24  # how waiting requests are ordered, values below
QUEUE_A, QUEUE_B, QUEUE_C = 25, 26, 27  # the order's parameters, as its spec lists them
VICTIM = 28  # who is preempted, values below
N_CFG = 32

NEEDS_WORK, NEEDS_MATCH, NEEDS_MATCHES, NEEDS_METRICS = 1, 2, 4, 8  # bits of NEEDS
TRACK_OFF, TRACK_LIVE, TRACK_PERIODIC, TRACK_DELAYED, TRACK_TREE = 0, 1, 2, 3, 4  # values of TRACK
LIVE, OWN, PERIODIC, DELAYED = 0, 1, 2, 3  # values of LOAD_VIEW and METRICS_VIEW
NEWS_SENT, NEWS_REQUESTS, NEWS_CACHES, NEWS_GAUGES = 1, 2, 4, 8  # bits of NEWS
# Values of QUEUE: as they come, by ranks given (a heap), by ranks that the cache gives (RANKING and above)
FCFS, BY_RANK, LONGEST_PREFIX, PRIORITY_GROUPS, CYCLING_GROUPS = 0, 1, 2, 3, 4
RANKING = LONGEST_PREFIX
# Values of VICTIM: the last to be admitted; by rank, then arrival, and then the first of the running list or
# the last in the file
LAST_ADMITTED, BY_RUNNING_LIST, BY_FILE = 0, 1, 2

# State.req: a row is three cache lines, and the first has all that finishing a request needs
PROMPT, OUTPUT = 0, 1  # given, tokens
SHARED = 2  # given, blocks on runs that other requests share
OWN_FROM = 3  # blocks from here on are its own and in no extent
HOLDS = 4  # head of its list of holds, deepest first
QUEUE_NEXT, QUEUE_PREV = 5, 6  # the running list or the waiting queue; in a heap, the two children
DONE = 7  # result, ps
ARRIVAL, PATH = 8, 9  # given, ps and first entry in State.path
REPLICA, FIRST, HIT, PREEMPTED = 10, 11, 12, 13  # results: index, ps, tokens at first admission, times
COMPUTED, GENERATED = 14, 15  # tokens in the KV cache, tokens produced (both behind, while decoding)
OPEN = 16  # extent that its next registered block may extend
CURSOR, CURSOR_BLK = 17, 18  # run of its path that grows next, and the depth at which that run starts
ALLOCATED = 19  # blocks taken at admission, where the output is reserved
ORDER = 20  # admission number: the running list is in this order
FINISH_AT = 21  # decode step of its replica after which it is done
SHARER_NEXT = 22  # next request of the replica that generates shared blocks
SCHEDULED = 23  # tokens it got in the step under way
N_REQ = 24

# State.rep: a row is five cache lines, and the first has all that a look at the run under way needs
PS, FS = 0, 1  # clock at the last boundary
KIND = 2  # what is under way, values below
STEPS, ALPHA, BETA = 3, 4, 5  # of the run under way: length, first step's time, growth (fs)
TAKEN = 6  # steps of the run whose blocks are taken already
DECODING, CONTEXT = 7, 18  # requests that decode; sum of their contexts at the next step
BLANK, FREE = 8, 9  # blocks without content; blocks nobody holds, blank ones included
LRU_FIRST, LRU_LAST = 10, 11  # extents nobody holds, next to be evicted first
RUN_FIRST, RUN_LAST, N_RUNNING = 12, 13, 14
WAIT_FIRST, WAIT_LAST, N_WAITING = 15, 16, 17
TICK, TICK_PHASE = 19, 20  # decode steps made so far, and the remainder by the block size
PREFILLING = 21  # first request of the running list that does not decode yet
ADMITTED = 22  # admission numbers given
SHARERS = 23  # head of the list of decoding requests that generate shared blocks
DURATION = 24  # fs, of a single step under way
N_TOKENS = 25  # prefill tokens of the step under way
BUSY_PS, BUSY_FS, EVICTED, N_STEPS, COMPUTED_TOK, PREEMPTIONS, FINISHED = 26, 27, 28, 29, 30, 31, 32
LEFT = 33  # of the token budget, while requests are admitted
PAUSED = 34  # first of the running requests that get no token in the step under way
RANKED, QUOTA = 35, 36  # whether those waiting have ranks for this step; how many may yet be admitted
GROUP, TURN = 37, 38  # cycling groups: whose turn it is, and whose next
N_REP = 40

IDLE, STEP, RUN, ADMITTING = 0, 1, 2, 3  # values of KIND
BY_HEAD = 2  # value of RANKED: for once the head of the queue is next

# State.ext: blocks [START, END) of one copy of a run on one replica
START, END = 0, 1
REF = 2  # running requests that hold it
LRU_NEXT, LRU_PREV = 3, 4
KEY = 5  # run * replicas + replica, or NONE if nobody can ever look it up
COPY_NEXT = 6  # next extent of the same key, in the order of registration
LOWER = 7  # the part split off its lower end last
N_EXT = 8  # eight integers: one cache line

# State.hold: a request holds extents from `HOLD_EXT` down its LOWER chain to the one that starts at
# HOLD_START
HOLD_EXT, HOLD_START, HOLD_NEXT = 0, 1, 2

# State.pool
EXT_TOP, EXT_FREE, EXT_LIVE = 0, 1, 2  # rows ever used, head of the free list, rows in use
HOLD_TOP, HOLD_FREE, HOLD_LIVE = 3, 4, 5
TABLE_USED = 6
FAULT = 7  # why the run stopped, values below
# where to go on: next arrival, instant of the last refresh, replica being served; events so far
NEXT_REQUEST, REFRESHED, SERVING, EVENTS = 8, 9, 10, 11
NEWS_READ, NEWS_TOLD = 12, 13  # reports that routers have got, and all there are so far
HELD_FIRST, HELD_LAST, N_HELD = 14, 15, 16  # requests that routers hold back, first come first tried
ON_WAY = 17  # requests that wait for blocks on their way to their replica, the next to arrive first
NEXT_OUTAGE = 19  # next row of State.outage
RETRY_PS = 18  # instant at which routers are to be asked again for the requests held back, or NONE
HELD_AGAIN = 20  # the last of them that was asked for again and is held all the same, while that goes on
WAKE_PS = 21  # instant of the refresh at which they are asked for again even without a report
NEWS_DUE = 22  # reports written before the last refresh
SEEN_LIVE = 23  # runs held in part, as the routers' index has it
UNTIL_PS = 24  # instant up to which a run goes: step ends at it count, starts do not
COMING = 25  # requests from here on do not come
EVENT_TOP, EVENT_FREE, EVENTS_LIVE = 26, 27, 28
N_POOL = 29
NO_FAULT, FULL_EXT, FULL_HOLD, FULL_TABLE, FULL_HITS = 0, 1, 2, 3, 4
BAD_ROUTE, FULL_NEWS, FULL_TREE, HELD_FOREVER, JOINED, FULL_EVENTS, STOPPED = 5, 6, 7, 8, 9, 10, 11

# State.outage: what happens to replicas from outside, in the order of time
OUTAGE_PS, OUTAGE_KIND, OUTAGE_REPLICA, OUTAGE_DOWN_PS = 0, 1, 2, 3
JOIN, RESTART, RESTART_SILENTLY, TOLD = 0, 1, 2, 3  # values of OUTAGE_KIND

# State.event: changes of caches that are not published yet, in lists; key and blocks of it that are held from
# then on as in State.seen, step of the run under way
EVENT_KEY, EVENT_HELD, EVENT_STEP, EVENT_NEXT = 0, 1, 2, 3
# State.events: a row a replica, and one for what a periodic view will see at its next refresh
EVENT_FIRST, EVENT_LAST, N_EVENTS = 0, 1, 2
REGISTERED = 3  # whether the step that starts fills blocks that others may ask for

# State.news: a ring of reports in the order of time
NEWS_PS, NEWS_KIND, NEWS_WHAT, NEWS_WHERE, NEWS_VALUE = (
    0,
    1,
    2,
    3,
    4,
)  # instant, kind, request or run, replica
NEWS_GAUGE = 5  # first of the gauges
SENT, FIRST_TOKEN, FINISHED_NOW, CACHE, GAUGES = 0, 1, 2, 3, 4  # values of NEWS_KIND

# A replica's gauges, as it reports them: requests waiting and running, blocks that no request holds, tokens
# still to compute, and the run under way, by which the tokens computed since are known
G_WAITING, G_RUNNING, G_FREE, G_WORK = 0, 1, 2, 3
G_RUNS, G_PS, G_FS, G_ALPHA, G_BETA, G_STEPS, G_DECODING = 4, 5, 6, 7, 8, 9, 10
N_GAUGE = 11
N_NEWS = NEWS_GAUGE + N_GAUGE


_FIELDS = {
    "cfg": "int64[::1]",  # [N_CFG]
    "coef": "int64[:, 9]",  # [pieces, 9], step time, as are the next two
    "knot_ptr": "int64[::1]",  # [pieces + 1]
    "knots": "int64[:, 3]",  # [knots, 3]
    "req": f"int64[:, {N_REQ}]",  # [requests, N_REQ]
    "path": "int64[::1]",  # shared runs of all prompts, each prompt's from its PATH on
    "run_len": "int64[::1]",  # [shared runs], blocks
    "rep": f"int64[:, {N_REP}]",  # [replicas, N_REP]
    "key": "int64[::1]",  # [leaves], next event: 2 ps for a step's end, 2 ps + 1 for a step's start
    "tree": "int64[::1]",  # [2 * leaves], tournament over `key`: the winner is tree[1]
    "load": "int64[::1]",  # [replicas], requests in flight
    # [LEVELS, words], masks of the replicas by load; the last one has all higher loads, too
    "level": "int64[:, ::1]",
    "work": "int64[::1]",  # [replicas], tokens still to compute, as of each replica's last boundary
    "heap": "int64[:, :, 2]",  # [replicas, max_seqs, 2], decoding requests: (FINISH_AT, ORDER), request
    "heap_len": "int64[::1]",  # [replicas]
    "phase": "int64[:, ::1]",  # [replicas, block], decoding requests by the tick at which they need a block
    "ext": f"int64[:, {N_EXT}]",  # [extents, N_EXT]
    "hold": "int64[:, 3]",  # [holds, 3]
    "table": "int64[:, 2]",  # [slots, 2], key + 1 -> first extent
    "hits": "int64[:, 3]",  # [pieces, 3], scratch: extents found for an admission, from block, to block
    "pool": "int64[::1]",  # [N_POOL], what of `ext`, `hold` and the tables is used
    "mask": "int64[:, ::1]",  # [shared runs, 2 * words], replicas that hold all, or a part from its start
    # [words], mask of the replicas whose run under way may yet evict blocks a router sees
    "lazy": "int64[::1]",
    # [replicas], instants from which the run under way has taken more blocks, or has published more, than is
    # booked, and from which a live view of the work still to do is out of date
    "blocks_stale_ps": "int64[::1]",
    "work_stale_ps": "int64[::1]",
    "seen": "int64[:, 2]",  # [slots, 2], key + 1 -> blocks held, for the runs held in part, as routers know
    "session": "int64[::1]",  # [requests], given, -1 where unknown
    "owner": "int64[::1]",  # [requests], router that each request comes to
    # [requests or 0], requests in flight a replica, as its router sees them, above which each is refused
    "most_load": "float64[::1]",
    "event": "int64[:, 4]",  # [events, 4], see above
    "events": "int64[:, 4]",  # [replicas + 1, 4]
    "news": f"int64[:, {N_NEWS}]",  # [a power of two, N_NEWS], ring of reports to the routers
    "outage": "int64[:, 4]",  # [outages, 4], see above
    # [shared runs or 0, replicas], whether a replica lost blocks in a restart and routers were not told yet
    "lost": "int64[:, ::1]",
    "piece": "int64[:, 2]",  # [replicas, 2], pieces of the step time of each, from and to
    # [requests or 0, replicas], what each router knew at its decision, if that is to be recorded: requests in
    # flight, tokens of the prompt held; and what its policy made of it
    "log_load": "int64[:, ::1]",
    "log_match": "int64[:, ::1]",
    "log_score": "float64[:, ::1]",
    "gauge": f"int64[:, {N_GAUGE}]",  # [replicas, N_GAUGE], the gauges reported last; delayed views only
    # [requests], what a replica orders its queue by, the lowest first: given, or as of the last ranking
    "rank": "int64[::1]",
    "mark": "int64[::1]",  # [shared runs], scratch: event whose ranking saw a waiting prompt with this run
    "share": "int64[::1]",  # [groups + 1], scratch: requests of each group, then how many of them come first
}
FIELDS = tuple(_FIELDS)
State = struct("State", _FIELDS)


def from_a_cache_line(room: np.ndarray) -> np.ndarray:
    """The part of a row of eight-byte numbers, 7 shorter than it, that starts a cache line."""
    start = -(room.ctypes.data // 8) % 8
    return room[start : start + len(room) - 7]


def table_slots(entries: int) -> int:
    """Slots of a hash table for `entries` keys: a power of two, at most half full."""
    return 1 << max(4, (2 * entries - 1).bit_length())
