"""What is kept of a run: sums and histograms, so that memory does not grow with its length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastsim._jit import kernel
from fastsim.queueing.calendar import enter
from fastsim.stats import QuantileHistogram, quantile_rank
from fastsim.stats.histogram import bucket


@kernel
def collect(wait, service, responses, waits, bits, sums):
    """Add requests to the counts of response times and of waits, and to ``sums``.

    ``sums`` is float64[3]: waits, times of service, requests that did not wait. Four sums run side by side,
    as one would wait for each addition to finish.
    """
    w0 = w1 = w2 = w3 = 0.0
    v0 = v1 = v2 = v3 = 0.0
    whole = wait.size & ~3
    for i in range(0, whole, 4):
        w0 += wait[i]
        w1 += wait[i + 1]
        w2 += wait[i + 2]
        w3 += wait[i + 3]
        v0 += service[i]
        v1 += service[i + 1]
        v2 += service[i + 2]
        v3 += service[i + 3]
    for i in range(whole, wait.size):
        w0 += wait[i]
        v0 += service[i]
    at_once = 0
    for i in range(wait.size):
        at_once += wait[i] == 0.0
        responses[bucket(wait[i] + service[i], bits)] += 1
        waits[bucket(wait[i], bits)] += 1
    sums[0] += (w0 + w1) + (w2 + w3)
    sums[1] += (v0 + v1) + (v2 + v3)
    sums[2] += at_once


@kernel
def watch(requests, departures, count, lengths, looks):
    """Count queue lengths of FCFS servers at equally spaced times, from what became of a stretch of requests.

    ``lengths[n]`` counts servers seen with n requests, ``looks`` is the next time to look and the time
    between.
    """
    slots, due, host, link = departures.slots, departures.due, departures.host, departures.link
    spare, cursor, live = departures.marks[0], departures.marks[1], departures.marks[2]
    scale = departures.slots_per_time[0]
    mask = slots.size - 1
    for i in range(requests.at.size):
        t = requests.at[i]
        while True:
            until = min(t, looks[0])
            now = np.int64(until * scale)
            while cursor <= now:
                node = slots[cursor & mask]
                while node >= 0 and due[node] <= until and np.int64(due[node] * scale) <= cursor:
                    count[host[node]] -= 1
                    following = link[node]
                    link[node] = spare
                    spare = node
                    live -= 1
                    node = following
                slots[cursor & mask] = node
                cursor += 1
            cursor = now
            if looks[0] > t:
                break
            for j in range(count.size):
                lengths[count[j]] += 1
            looks[0] += looks[1]
        j = requests.target[i]
        count[j] += 1
        node = spare
        spare = link[node]
        live += 1
        due[node] = t + requests.wait[i] + requests.work[i]
        host[node] = j
        enter(slots, due, link, node, scale)
    departures.marks[0] = spare
    departures.marks[1] = cursor
    departures.marks[2] = live


def spread_quantiles(histogram: QuantileHistogram, ps: Sequence[float]) -> list[float]:
    """Quantiles of a histogram, its values taken as evenly spread over each bucket.

    Parameters
    ----------
    histogram : QuantileHistogram
        With at least one value.
    ps : sequence of float
        Probabilities in (0, 1].

    Returns
    -------
    list of float
        Off by less than a bucket, twice `histogram.error`, for certain; by the square of that where the
        density is smooth, so that many replications do not agree on the middle of a bucket.
    """
    up_to = np.cumsum(histogram.counts)
    found = []
    for p, (low, high) in zip(ps, histogram.bounds(ps), strict=True):
        rank = quantile_rank(int(up_to[-1]), p)
        index = int(np.searchsorted(up_to, rank))
        inside = int(histogram.counts[index])
        share = (rank - (int(up_to[index]) - inside) - 0.5) / inside
        found.append(low + share * (high - low) if low > 0.0 else 0.0)
    return found
