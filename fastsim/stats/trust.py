"""Whether an interval can be trusted: by load and length of the runs, not by the values it is made of."""

from __future__ import annotations

import math

from fastsim.errors import InputError

MEMORIES = 200.0  # least length of all runs together; calibrated by tests/study/cluster_coverage.py
SPREADS = 2.0  # standard deviations by which a run's load may be above the mean


def is_long_enough(requests: float, offered_load: float | None, load_cv: float = 0.0) -> bool:
    """Whether runs hold enough busy periods for a 95 % interval over them to cover in 95 % of cases.

    Parameters
    ----------
    requests : float
        Requests measured in all runs together.
    offered_load : float or None
        Offered rate over capacity, at least 0. None where it is not known: then nothing is held against it.
    load_cv : float
        Coefficient of variation, between runs, of the work that a request brings, at least 0: seeds draw
        their own documents and sessions.

    Returns
    -------
    bool
        Whether requests slack^2 is at least 200, where the slack is what two standard deviations of the load
        leave between it and capacity, on whichever side.

    Raises
    ------
    InputError
        If an argument is out of its range.

    Notes
    -----
    A queue forgets in about 1 / (1 - load)^2 requests, however many servers it has (Whitt, "Planning queueing
    simulations for heavy traffic", Management Science 35(11), 1989). Near capacity most runs see no long busy
    period and a few see one, or draw documents that bring them above capacity: their figures are so skewed
    (7 in single runs at load 0.95) that no interval over twenty of them can be right. A rule that looked at
    these figures would pass the groups of runs that happen to miss the long busy periods.

    The skewness of a mean over R runs of n requests falls as 1 / sqrt(R n slack^2). Where seeds differ in
    load and the slack is nothing, longer runs do not help: only a lower rate or more replicas do.
    """
    if not requests >= 0.0:
        raise InputError(f"requests is {requests}; it must be at least 0")
    if not load_cv >= 0.0:
        raise InputError(f"load_cv is {load_cv}; it must be at least 0")
    if offered_load is None or math.isinf(offered_load):
        return True
    if not offered_load >= 0.0:
        raise InputError(f"offered_load is {offered_load}; it must be at least 0")
    slack = max(abs(1.0 - offered_load) - SPREADS * load_cv * offered_load, 0.0)
    return requests * slack**2 >= MEMORIES
