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
