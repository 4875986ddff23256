"""What is kept of a run: sums and a histogram, so that memory does not grow with its length."""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.stats.histogram import bucket


@kernel
def collect(wait, service, counts, bits, sums):
    """Add requests to the ``counts`` of response times and to ``sums``.

    ``sums`` is float64[3]: waits, times of service, requests that did not wait. Four sums run side by side,
    as one would wait for each addition to finish.
    """
    waited = served = at_once = 0.0
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
    waited = (w0 + w1) + (w2 + w3)
    served = (v0 + v1) + (v2 + v3)
    for i in range(wait.size):
        if wait[i] == 0.0:
            at_once += 1.0
        counts[bucket(wait[i] + service[i], bits)] += 1
    sums[0] += waited
    sums[1] += served
    sums[2] += at_once
