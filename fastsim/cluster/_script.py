"""Kernels that stand in for a policy on trial (`trial`): they answer, and note what is heard, by a script.

The script takes the place of the compiled view's memory: the request that may be answered, counted from 1;
the answer and the transfer asked for; the request that was asked about last; then the reports heard since.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster.routers.view import (
    HEARD,
    NOW_PS,
    PRIORITY,
    SEND_BLK,
    SEND_PS,
    SIGNATURE,
    SOURCE,
)

READY, ANSWER, ASKED, N_HEARD = 0, 1, 2, 3
FIRST_SENT, FIRST_REPORT, OF_REPORT = 4, 8, 5
SENT = (SOURCE, SEND_BLK, SEND_PS, PRIORITY)
NOBODY = -1  # is no answer: the run stops, and goes on once there is one


@kernel(signature=SIGNATURE)
def scripted(view, request):
    """Answer what the script says, or stop the run to have it written."""
    script = view.memory
    if script[READY] != request + 1:
        script[ASKED] = request
        return NOBODY
    script[READY] = 0
    view.prompt[SOURCE] = script[FIRST_SENT]
    view.prompt[SEND_BLK] = script[FIRST_SENT + 1]
    view.prompt[SEND_PS] = script[FIRST_SENT + 2]
    view.prompt[PRIORITY] = script[FIRST_SENT + 3]
    return script[ANSWER]


@kernel(signature=HEARD)
def noted(view, kind, what, replica, value):
    """Write down a report for the policy."""
    script = view.memory
    at = FIRST_REPORT + OF_REPORT * script[N_HEARD]
    if at + OF_REPORT <= script.shape[0]:
        script[at] = kind
        script[at + 1] = what
        script[at + 2] = replica
        script[at + 3] = value
        script[at + 4] = view.prompt[NOW_PS]
        script[N_HEARD] += 1
    return 0
