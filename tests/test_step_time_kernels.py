"""The step-time kernels against their twins, bit for bit, and against sums made step by step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastsim.cluster import _step_time as kernels
from fastsim.cluster.step_time import StepTime
from tests.twins import step_time as twin

Arrays = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

pytestmark = pytest.mark.small
examples = settings(derandomize=True, deadline=None, max_examples=200)

# Few small values as well, so that ties and equal slopes are common.
small = st.integers(0, 3)


def up_to(limit: int) -> st.SearchStrategy[int]:
    return st.one_of(small, st.integers(0, limit))


@st.composite
def compiled(draw: st.DrawFn, max_pieces: int = 4) -> Arrays:
    """Arrays as `StepTime.compiled` makes them, but for any integers that keep a step below 2**62 fs."""
    pieces = draw(st.integers(1, max_pieces))
    coef = np.zeros((pieces, 9), dtype=np.int64)
    rows, knot_ptr = [], [0]
    limits = (10**15, 10**15, 10**15, 10**12, 10**6, 10**7, 10**13, 10**9)
    for p in range(pieces):
        coef[p, :8] = [draw(up_to(limit)) for limit in limits]
        tokens = sorted(draw(st.sets(st.integers(2, 20_000), max_size=6))) if draw(st.booleans()) else None
        if tokens is not None:
            tokens = [draw(st.integers(0, 1)), *tokens]
            rows += [(t, draw(up_to(10**15)), draw(st.integers(-(10**11), 10**11))) for t in tokens]
        knot_ptr.append(len(rows))
    return coef, np.array(knot_ptr, dtype=np.int64), np.array(rows, dtype=np.int64).reshape(-1, 3)


@given(compiled(), up_to(20_000), up_to(10**10), up_to(1_024), up_to(10**8))
@examples
def test_step_equals_its_twin(arrays: Arrays, n: int, pairs: int, b: int, ctx: int) -> None:
    assert kernels.step_fs(*arrays, 0, len(arrays[0]), n, pairs, b, ctx) == twin.step_fs(
        *arrays, n, pairs, b, ctx
    )


@given(compiled(), st.integers(1, 1_024), up_to(10**8))
@examples
def test_decode_line_equals_its_twin(arrays: Arrays, b: int, ctx: int) -> None:
    line = tuple(int(x) for x in kernels.decode_line(*arrays, 0, len(arrays[0]), b, ctx))
    assert line == twin.decode_line(*arrays, b, ctx)


@given(compiled(max_pieces=3), st.integers(1, 20), up_to(3_000))
@examples
def test_decode_line_is_what_stepping_gives(arrays: Arrays, b: int, ctx: int) -> None:
    alpha, beta, steps = (int(x) for x in kernels.decode_line(*arrays, 0, len(arrays[0]), b, ctx))
    single = [
        kernels.step_fs(*arrays, 0, len(arrays[0]), 0, ctx + i * b, b, ctx + i * b)
        for i in range(min(steps, 30))
    ]
    assert single == [alpha + beta * i for i in range(len(single))]
    total = sum(int(step) for step in single)
    assert total == twin.sum_fs(alpha, beta, len(single))
    last_and_next = (steps - 1, steps) if steps <= 10**6 else ()
    exceeded = [
        int(kernels.step_fs(*arrays, 0, len(arrays[0]), 0, ctx + i * b, b, ctx + i * b)) > alpha + beta * i
        for i in last_and_next
    ]
    assert exceeded == [False, True][: len(exceeded)]


def lines(max_fs: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(up_to(max_fs), st.one_of(up_to(max_fs), up_to(10**9)))


@given(lines(2**61), st.one_of(st.integers(-3, 50), st.integers(0, 4 * 10**18)))
@example((0, 1), 4 * 10**18)  # the longest run a slope allows: 2.8e9 steps
@example((1, 1), 4 * 10**18)
@example((1, 0), 4 * 10**18)
@example((0, 2**62), 4 * 10**18)
@example((0, 0), 1)
@settings(examples, max_examples=600)
def test_steps_until_equals_its_twin(line: tuple[int, int], x_fs: int) -> None:
    assert int(kernels.steps_until(*line, x_fs)) == twin.steps_until(*line, x_fs)


@given(lines(10**16), st.integers(1, 3 * 10**9), st.integers(-1, 1))
@settings(examples, max_examples=600)
def test_steps_until_is_exact_at_the_boundary(line: tuple[int, int], steps: int, off_fs: int) -> None:
    """Where the sum of `steps` steps is x, x - 1 or x + 1 itself: one femtosecond decides."""
    alpha, beta = line
    while twin.sum_fs(alpha, beta, steps) > 4 * 10**18 - 1:
        steps //= 2
    x_fs = twin.sum_fs(alpha, beta, steps) + off_fs
    assert int(kernels.steps_until(alpha, beta, x_fs)) == twin.steps_until(alpha, beta, x_fs)


def test_equal_pieces_prefer_the_steeper_line() -> None:
    coef = np.zeros((3, 9), dtype=np.int64)
    coef[:, 0] = 10, 4, 6  # at context 6 all pieces take 10
    coef[1, 7] = coef[2, 5] = 1
    coef[2, 0] = 4
    arrays = coef, np.zeros(4, dtype=np.int64), np.zeros((0, 3), dtype=np.int64)
    assert tuple(kernels.decode_line(*arrays, 0, len(arrays[0]), 2, 6)) == (10, 2, kernels.FOREVER)
    assert tuple(kernels.decode_line(*arrays, 0, len(arrays[0]), 2, 5)) == (10, 0, 1)
    assert tuple(kernels.decode_line(*arrays, 0, len(arrays[0]), 2, 1)) == (10, 0, 3)


@given(st.integers(1, 256), st.integers(1, 2_000), st.integers(1, 300))
@settings(examples, max_examples=40)
@pytest.mark.parametrize(
    "model",
    [
        StepTime.roofline("a6000", "mistral-7b"),
        StepTime.roofline("h200", "qwen3-235b-a22b-fp8", 4),
        StepTime.calibrated("l8_h100_vllm"),
        StepTime.linear(4e-3, 0.12e-3, 0.4e-3),
    ],
    ids=["roofline", "experts", "table", "linear"],
)
def test_a_run_by_lines_takes_what_its_steps_take(model: StepTime, b: int, context: int, steps: int) -> None:
    """The engine's use: line after line until `steps` are done."""
    arrays = model.compiled()
    ctx = b * context
    by_lines, done = 0, 0
    while done < steps:
        alpha, beta, valid = (
            int(x) for x in kernels.decode_line(*arrays, 0, len(arrays[0]), b, ctx + done * b)
        )
        k = min(valid, steps - done)
        by_lines += twin.sum_fs(alpha, beta, k)
        done += k
    assert by_lines == sum(twin.step_fs(*arrays, 0, at, b, at) for at in range(ctx, ctx + steps * b, b))
