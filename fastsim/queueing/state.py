"""The arrays that the queueing kernels work on, as records that are passed by one pointer."""

from __future__ import annotations

from fastsim._jit import struct

# A stretch of requests in order of arrival, one entry each.
Requests = struct(
    "QueueRequests",
    {
        "at": "float64[::1]",  # arrival times
        "work": "float64[::1]",  # sizes, overwritten by times of service
        "dispatcher": "int64[::1]",  # which dispatcher each comes to
        "target": "int64[::1]",  # out: the server it is sent to
        "wait": "float64[::1]",  # out: time before service (FCFS)
    },
)

Servers = struct(
    "QueueServers",
    {
        "pace": "float64[::1]",  # time that a unit of work takes
        "free": "float64[::1]",  # when all work given so far is done
        "count": "int64[::1]",  # requests there, in service or not
    },
)

# See `calendar`.
Departures = struct(
    "QueueDepartures",
    {
        "slots": "int64[::1]",  # first node of each slot, -1 for none; a power of two of them
        "due": "float64[::1]",  # a node's time
        "host": "int64[::1]",  # a node's server
        "link": "int64[::1]",  # the next node of its slot, or the next spare one
        "marks": "int64[::1]",  # first spare node, absolute slot the clock is in, departures to come
        "slots_per_time": "float64[::1]",  # one entry
    },
)

# The servers sorted by their count; see `live.one_more`.
CountIndex = struct(
    "QueueCountIndex",
    {
        "order": "int64[::1]",  # servers by count
        "place": "int64[::1]",  # of each server in `order`
        "first": "int64[::1]",  # place of the first server with c or more
    },
)

# See `station`.
Station = struct(
    "QueueStation",
    {
        "next_low": "float64[::1]",  # tree (see `ties`) of the servers' next departures
        "next_ties": "int64[::1]",
        "head": "int64[::1]",  # a server's first node: of its list, or the root of its heap
        "tail": "int64[::1]",  # a server's last node (FCFS)
        "virtual": "float64[::1]",  # a server's virtual time, and the time it was reckoned at (PS)
        "since": "float64[::1]",
        "key": "float64[::1]",  # a node's departure, in time (FCFS) or virtual time (PS)
        "began": "float64[::1]",  # a node's arrival
        "need": "float64[::1]",  # a node's time of service
        "serial": "int64[::1]",  # a node's number in order of arrival
        "owner": "int64[::1]",  # a node's dispatcher
        # the node's left child (PS), the next in its list (FCFS) or in that of spare nodes
        "left": "int64[::1]",
        "right": "int64[::1]",
        "marks": "int64[::1]",  # see the constants in `station`
        "done_serial": "int64[::1]",  # out: requests that departed, in order (PS): serial number,
        "done_need": "float64[::1]",  # time of service,
        "done_delay": "float64[::1]",  # and time in system beyond it
        "lengths": "int64[::1]",  # out: how often a server was seen with 0, 1, ... requests
        "looks": "float64[::1]",  # next time to look at all servers, and how long until the time after
    },
)

# See `views`.
View = struct(
    "QueueView",
    {
        "low": "float64[::1]",  # trees (see `ties`) of the servers' scores, one a board
        "ties": "int64[::1]",
        "own": "int64[::1]",  # requests of a board's dispatcher at a server, board after board
        "post_low": "float64[::1]",  # tree of the servers' next posts (individual update)
        "post_ties": "int64[::1]",
        "clock": "float64[::1]",  # next refresh of all servers, period or mean age, refreshes so far
        "listed": "int64[::1]",  # whether a server is in some dispatcher's list of idle ones
        "past_time": "float64[::1]",  # ring of changes: when,
        "past_count": "int64[::1]",  # the server's requests before,
        "past_free": "float64[::1]",  # when its work would have been done,
        "past_link": "int64[::1]",  # and the number of its change before
        "last": "int64[::1]",  # number of a server's last change
        "ring": "int64[::1]",  # number of the next change, and of the oldest that may still be asked for
        "remembered": "int64[::1]",  # server that a dispatcher remembers
        "scratch": "int64[::1]",
        "deck": "int64[::1]",  # permutation of the servers for draws without replacement, else empty
    },
)
