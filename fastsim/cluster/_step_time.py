"""Kernels of the step time: one step, a run of decode steps in closed form, and its inverse.

A step's time is the maximum over pieces of an integer number of femtoseconds (`StepTime.compiled` makes the
arrays):

    coef[p,0] + coef[p,1] [n > 0] + coef[p,2] [b > 0] + coef[p,3] n + coef[p,4] n^2
    + coef[p,5] pairs + coef[p,6] b + coef[p,7] ctx + f_p(n + b)

for n prefill tokens, b decoding requests, pairs of a computed token and one it attends to, ctx context tokens
read, and f_p linear between the knots (tokens, value, slope) in rows knot_ptr[p] to knot_ptr[p+1] - 1.
"""

from __future__ import annotations

import math

from fastsim._jit import kernel

FOREVER = 1 << 40  # steps; stands for "no end"


# Inlined always: a call would copy three arrays' descriptors, 8 ns of 12.
@kernel(inline="always")
def _knot_fs(knot_ptr, knots, p, tokens):
    """f_p(tokens); below the first knot and above the last the nearest segment is extended."""
    row = knot_ptr[p]
    size = knot_ptr[p + 1] - row
    if size == 0:
        return 0
    while size > 1:  # halves the rows left, always in as many turns: a loop the CPU predicts
        half = size >> 1
        if knots[row + half, 0] <= tokens:
            row += half
        size -= half
    return knots[row, 1] + knots[row, 2] * (tokens - knots[row, 0])


@kernel(inline="always")
def step_fs(coef, knot_ptr, knots, first, last, n, pairs, b, ctx):
    """Time of one step in femtoseconds.

    Parameters
    ----------
    coef, knot_ptr, knots : int64[P, 9], int64[P + 1], int64[K, 3]
        From `StepTime.compiled`.
    first, last : int64
        The pieces of this replica are rows `first` to `last` - 1.
    n, pairs, b, ctx : int64
        Prefill tokens, attended pairs, decoding requests, context tokens read.

    Returns
    -------
    int64
    """
    worst = -(1 << 62)
    for p in range(first, last):
        time = coef[p, 0] + coef[p, 5] * pairs + coef[p, 7] * ctx + _knot_fs(knot_ptr, knots, p, n + b)
        if n > 0:
            time += coef[p, 1] + (coef[p, 3] + coef[p, 4] * n) * n
        if b > 0:
            time += coef[p, 2] + coef[p, 6] * b
        if time > worst:
            worst = time
    return worst


@kernel(inline="always")
def _first_decode_fs(coef, knot_ptr, knots, p, b, ctx):
    """Piece p at the first step of a decode run."""
    fixed = coef[p, 0] + coef[p, 2] + coef[p, 6] * b + _knot_fs(knot_ptr, knots, p, b)
    return fixed + (coef[p, 5] + coef[p, 7]) * ctx


@kernel(inline="always")
def decode_line(coef, knot_ptr, knots, first, last, b, ctx):
    """Step times of a decode run as a line: step i = 0, 1, ... < steps takes alpha + beta i.

    Each step adds one context token per request, so every piece is affine in i and k steps take
    k alpha + beta k (k - 1) / 2 femtoseconds exactly, for k <= steps.

    Parameters
    ----------
    coef, knot_ptr, knots : int64[P, 9], int64[P + 1], int64[K, 3]
        From `StepTime.compiled`.
    first, last : int64
        The pieces of this replica are rows `first` to `last` - 1.
    b : int64
        Decoding requests, at least 1.
    ctx : int64
        Sum of their contexts at the first step, each including the token being computed; also the pairs.

    Returns
    -------
    alpha, beta, steps : int64
        The line of the piece that is the maximum at i = 0 (of equals the steepest, then the first), and for
        how many steps it stays the maximum; `FOREVER` if it is never exceeded.
    """
    alpha = _first_decode_fs(coef, knot_ptr, knots, first, b, ctx)
    beta = (coef[first, 5] + coef[first, 7]) * b
    for p in range(first + 1, last):
        start = _first_decode_fs(coef, knot_ptr, knots, p, b, ctx)
        slope = (coef[p, 5] + coef[p, 7]) * b
        if start > alpha or (start == alpha and slope > beta):
            alpha = start
            beta = slope
    steps = FOREVER
    for p in range(first, last):
        slope = (coef[p, 5] + coef[p, 7]) * b
        if slope > beta:
            behind = alpha - _first_decode_fs(coef, knot_ptr, knots, p, b, ctx)
            steps = min(steps, behind // (slope - beta) + 1)
    return alpha, beta, steps


@kernel(inline="always")
def steps_until(alpha, beta, x_fs):
    """How many steps of a decode run last `x_fs`: the smallest j of which j steps take at least that.

    Exact: the float root of j alpha + beta j (j - 1) / 2 = x_fs is off by less than 1e-5 steps (j < 3e9 where
    beta >= 1), so its floor is never beyond the answer nor, by more than 1e-5 of a step, its sum beyond
    `x_fs`; integers walk the rest, and nothing overflows.

    Parameters
    ----------
    alpha, beta : int64
        From `decode_line`; not negative, their sum below 2**63.
    x_fs : int64
        At most 4e18.

    Returns
    -------
    int64
        0 if `x_fs` is not positive; `FOREVER` if the steps take no time.
    """
    if x_fs <= 0:
        return 0
    if x_fs <= alpha:
        return 1
    if beta == 0:
        return (x_fs - 1) // alpha + 1 if alpha > 0 else FOREVER
    linear = alpha - 0.5 * beta
    root = math.sqrt(linear * linear + 2.0 * beta * x_fs)
    # Of the two forms of the quadratic's root, the one without cancellation.
    guess = 2.0 * x_fs / (linear + root) if linear >= 0.0 else (root - linear) / beta
    steps = int(guess)
    missing = x_fs - steps * alpha - beta * ((steps * (steps - 1)) >> 1)
    while missing > 0:
        missing -= alpha + beta * steps
        steps += 1
    return steps
