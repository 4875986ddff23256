"""Bits of numbers, and columns looked at several numbers at a time, against plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim._bits import bit_count, key_of, lowest_bit, value_of
from fastsim.cluster import _scan
from fastsim.cluster._state import BITS

pytestmark = pytest.mark.small
many = settings(max_examples=200, deadline=None)

numbers = st.floats(allow_nan=False)
columns = st.one_of(
    st.lists(st.sampled_from([-math.inf, -2.5, -1.0, -0.0, 0.0, 1.0, 7.5]), min_size=1, max_size=200).map(
        np.array
    ),
    st.lists(numbers, min_size=1, max_size=9).map(np.array),
    st.lists(st.integers(-3, 3), min_size=1, max_size=200).map(lambda row: np.array(row, np.int64)),
)


@given(st.integers(1, 2**62))
@many
def test_bits_of_an_integer(x):
    assert lowest_bit(x) == f"{x:b}"[::-1].index("1")
    assert bit_count(x) == f"{x:b}".count("1")


@given(numbers, numbers)
@many
def test_keys_have_the_order_of_their_floats(a, b):
    assert (key_of(a) < key_of(b)) >= (a < b)  # -0.0 comes before 0.0
    assert (key_of(a) > key_of(b)) >= (a > b)
    for x in (a, b):
        back = value_of(key_of(x), x)
        assert (back, math.copysign(1.0, back)) == (x, math.copysign(1.0, x))


def test_an_integer_is_its_own_key():
    for x in (-(1 << 62), -1, 0, 3):
        assert key_of(x) == value_of(x, x) == x


@given(columns)
@many
def test_smallest_and_largest(column):
    assert _scan.lowest(column) == min(column.tolist())
    assert _scan.highest(column) == max(column.tolist())


@given(columns, st.data())
@many
def test_places_of_a_value(column, data):
    value = data.draw(st.sampled_from([*column.tolist(), type(column.tolist()[0])(99)]))
    places = [k for k, x in enumerate(column.tolist()) if x == value]
    assert _scan.times_in(column, value) == len(places)
    assert _scan.times_up_to(column, value) == sum(x <= value for x in column.tolist())
    assert _scan.last_place_in(column, value) == max(places, default=0)
    part = column[:64]
    assert _scan.bits_at(part, value) % 2**64 == sum((x == value) << k for k, x in enumerate(part.tolist()))
    assert _scan.bits_below(part, value) % 2**64 == sum((x < value) << k for k, x in enumerate(part.tolist()))
    for skip in range(len(places) + 1):
        assert _scan.place_in(column, value, skip) == (places[skip] if skip < len(places) else 0)


@given(
    st.lists(st.sampled_from([-math.inf, -0.0, 0.0, 1.0, 7.5, math.inf]), min_size=1, max_size=200), st.data()
)
@many
def test_the_lowest_of_a_mask(column, data):
    members = data.draw(st.sets(st.integers(0, len(column) - 1)))
    mask = np.zeros(-(-len(column) // BITS), np.int64)
    for k in members:
        mask[k // BITS] |= 1 << (k % BITS)
    wanted = min(sorted(members), key=lambda k: column[k], default=-1)
    assert _scan.lowest_of(np.array(column), mask) == wanted
