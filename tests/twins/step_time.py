"""The step-time kernels again with unbounded integers and fractions, each definition taken literally."""

from __future__ import annotations

from fractions import Fraction

from fastsim.cluster.step_time import Piece, StepTime

FOREVER = 1 << 40
FS_PER_S = 10**15
COEFFICIENTS = (
    "base_s", "prefill_s", "decode_s", "per_prefill_token_s", "per_prefill_token2_s",
    "per_pair_s", "per_decode_request_s", "per_context_token_s",
)  # fmt: skip


def step_fs(coef, knot_ptr, knots, n: int, pairs: int, b: int, ctx: int) -> int:
    """The largest piece."""
    return max(piece_fs(coef, knot_ptr, knots, p, n, pairs, b, ctx) for p in range(len(coef)))


def decode_line(coef, knot_ptr, knots, b: int, ctx: int) -> tuple[int, int, int]:
    """Every line from its first two steps; the highest, then steepest; where others cross it."""
    lines = []
    for p in range(len(coef)):
        first, second = (piece_fs(coef, knot_ptr, knots, p, 0, at, b, at) for at in (ctx, ctx + b))
        lines.append((first, second - first))
    alpha, beta = max(lines)
    crossings = [Fraction(alpha - start, slope - beta) for start, slope in lines if slope > beta]
    return alpha, beta, min([FOREVER, *(crossing.__floor__() + 1 for crossing in crossings)])


def steps_until(alpha: int, beta: int, x_fs: int) -> int:
    """By doubling and halving on the sum."""
    if x_fs > 0 and alpha == beta == 0:
        return FOREVER
    high = 1
    while sum_fs(alpha, beta, high) < x_fs:
        high *= 2
    low = 0
    while low < high:
        middle = (low + high) // 2
        if sum_fs(alpha, beta, middle) < x_fs:
            low = middle + 1
        else:
            high = middle
    return low


def sum_fs(alpha: int, beta: int, steps: int) -> int:
    """Time of the first `steps` steps of a line."""
    return alpha * steps + beta * (steps * (steps - 1) // 2)


def piece_fs(coef, knot_ptr, knots, p: int, n: int, pairs: int, b: int, ctx: int) -> int:
    """One piece, term by term."""
    features = (1, n > 0, b > 0, n, n * n, pairs, b, ctx)
    total = sum(int(c) * int(feature) for c, feature in zip(coef[p], features, strict=False))
    rows = [tuple(int(x) for x in row) for row in knots[int(knot_ptr[p]) : int(knot_ptr[p + 1])]]
    if rows:
        tokens, value, slope = [row for row in rows if row[0] <= n + b or row is rows[0]][-1]
        total += value + slope * (n + b - tokens)
    return total


def exact_s(model: StepTime, n: int, pairs: int, b: int, ctx: int) -> Fraction:
    """`StepTime.seconds` without any rounding."""
    return max(sum(terms_s(piece, n, pairs, b, ctx), Fraction(0)) for piece in model.pieces)


def terms_s(piece: Piece, n: int, pairs: int, b: int, ctx: int) -> list[Fraction]:
    """The terms of a piece, the table's line as two."""
    features = (1, n > 0, b > 0, n, n * n, pairs, b, ctx)
    terms = [
        Fraction(getattr(piece, field)) * int(feature)
        for field, feature in zip(COEFFICIENTS, features, strict=True)
    ]
    if piece.knots:
        row = row_of(piece, n + b)
        from_tok, from_s = piece.knots[row]
        ends = piece.knots[row : row + 2] if row + 1 < len(piece.knots) else piece.knots[-2:]
        slope = Fraction(0)
        if len(ends) == 2:
            slope = (Fraction(ends[1][1]) - Fraction(ends[0][1])) / (ends[1][0] - ends[0][0])
        terms += [Fraction(from_s), slope * (n + b - from_tok)]
    return terms


def row_of(piece: Piece, tokens: int) -> int:
    """The last knot not above `tokens`, or the first."""
    return max([0, *(row for row, knot in enumerate(piece.knots) if knot[0] <= tokens)])


def rounding_bound_fs(model: StepTime, n: int, pairs: int, b: int, ctx: int) -> Fraction:
    """How far the integers may be off: half a unit for each use of a coefficient that is not zero."""
    features = (1, n > 0, b > 0, n, n * n, pairs, b, ctx)
    bounds = []
    for piece in model.pieces:
        uses = sum(int(f) for field, f in zip(COEFFICIENTS, features, strict=True) if getattr(piece, field))
        if piece.knots:
            uses += 1 + abs(n + b - piece.knots[row_of(piece, n + b)][0])
        bounds.append(Fraction(uses, 2))
    return max(bounds)
