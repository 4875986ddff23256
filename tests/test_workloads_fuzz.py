"""Readers on damaged and random input: no error but InputError, and both ways of reading agree."""

from __future__ import annotations

import json
import string
from datetime import datetime

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fastsim.errors import InputError
from fastsim.workloads import FORMATS
from fastsim.workloads.readers import mooncake, tables
from fastsim.workloads.readers.columns import Complaints
from fastsim.workloads.readers.options import ReadOptions
from fastsim.workloads.readers.read import read_trace
from fastsim.workloads.readers.source import Source
from tests.trace_files import SAMPLES

CONTENTS = {path.name: path.read_bytes() for path in sorted(SAMPLES.iterdir())}

# Pieces that have broken readers elsewhere, to be put in anywhere.
NASTY = [
    *(
        b"\x00",
        b"\xff",
        b'"',
        b"'",
        b"\\",
        b"\n",
        b"\r",
        b"\r\n",
        b",",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b"\xef\xbb\xbf",
    ),
    *(
        b"NaN",
        b"Infinity",
        b"-",
        b"1e999",
        b"1e-999",
        b"1e99999999",
        b"9" * 30,
        b"9" * 5000,
        b"true",
        b"null",
        b"",
    ),
    *(
        b"\\ud800",
        b"0.5",
        b"-0.0",
        b"1_0",
        "٣".encode(),
        b"2024-02-30 00:00:00",
        b"\x1f\x8b",
        b"[" * 2000,
        b" ",
    ),
]


# What users state, on top of anything.
STATED: list[dict] = [
    {},
    {"arrivals": "poisson(2)", "chars_per_tok": 4.0},
    {"output_tok": "lognormal(20, 1)", "zero_output": "prefill"},
    {"turns": "growing", "zero_output": "refuse"},
    {"turns": "added", "time_unit": "ms"},
    {"time_unit": "s"},
]


@st.composite
def damaged(draw) -> bytes:
    """A sample with up to four bytes flipped, stretches cut out, repeated, or nasty pieces put in."""
    data = bytearray(CONTENTS[draw(st.sampled_from(sorted(CONTENTS)))])
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 40)))
        kind = draw(st.sampled_from(["flip", "cut", "repeat", "nasty", "replace"]))
        if kind == "flip" and start < len(data):
            data[start] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del data[start:end]
        elif kind == "repeat":
            data[start:start] = data[start:end]
        else:
            data[start : end if kind == "replace" else start] = draw(st.sampled_from(NASTY))
    return bytes(data)


@given(
    damaged() | st.binary(max_size=80),
    st.none() | st.sampled_from(sorted(FORMATS)),
    st.booleans(),
    st.sampled_from(STATED),
)
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
def test_damaged_files_give_a_workload_or_an_input_error(data, name, skip_bad, stated):
    refusal = None
    try:
        workload = read_trace("some file", data, ReadOptions(format=name, skip_bad=skip_bad, **stated))
    except InputError as error:
        refusal = str(error)
        said = refusal
    else:
        summary = workload.summary
        dropped = sum(finding.rows for finding in summary.dropped)
        assert len(workload) == summary.rows_read - dropped
        said = str(summary)
    assert refusal is None or "some file" in refusal or "does not apply" in refusal
    said.encode()  # any terminal can show it
    if refusal is not None:
        assert refusal.isprintable()
        assert len(refusal) < 700


NAMES = st.text(string.ascii_letters + string.digits + ' ":,{}[]\\é\ud7ff', max_size=8)
TIMES = st.integers(0, 10**7) | st.floats(0, 1e7) | st.sampled_from([0, 0.0, 3000, 1.5])
IDS = st.integers(-5, 40) | st.integers(-(2**70), 2**70)


@st.composite
def jsonl(draw) -> bytes:
    """Lines that are all right, with or without ids, sessions and keys of no meaning."""
    size = draw(st.sampled_from([16, 64, 512]))
    with_ids = draw(st.booleans())
    extra = draw(st.booleans())
    rows = []
    for _ in range(draw(st.integers(1, 12))):
        prompt = draw(st.integers(1, 4 * size))
        row = {"timestamp": draw(TIMES), "input_length": prompt, "output_length": draw(st.integers(1, 9))}
        if draw(st.booleans()):
            row["input_length"] = float(prompt)
        if with_ids:
            count = -(-prompt // size)
            row["hash_ids"] = draw(st.lists(IDS, min_size=count, max_size=count))
        if extra and draw(st.booleans()):
            row["session_id"] = draw(st.integers(0, 3) | NAMES | st.none())
            row[draw(NAMES)] = draw(NAMES | st.integers() | st.none())
        rows.append(json.dumps(row))
    return "\n".join(rows).encode() + draw(st.sampled_from([b"", b"\n"]))


@given(jsonl())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_both_ways_of_reading_json_lines_agree(data):
    fast = mooncake._fast(data)
    assume(fast is not None)
    assert fast is not None
    slow = mooncake._careful(data, Complaints("f", skip_bad=False))
    same(fast, slow, data)


def same(fast, slow, data: bytes) -> None:
    """Both give the same columns and, through the rest of the way, the same workload."""
    assert fast.time.tolist() == slow.time.tolist()
    assert fast.line.tolist() == slow.line.tolist()
    assert fast.prompt_tok.tolist() == slow.prompt_tok.tolist()
    assert fast.output_tok.tolist() == slow.output_tok.tolist()
    assert fast.session == slow.session
    assert set(fast.ignored) == set(slow.ignored)
    spaced = data.replace(b"\n", b"\n\n") + b"\n\n"  # blank lines send it down the careful way
    options = ReadOptions(time_unit=None if b"TIMESTAMP" in data else "ms")
    try:
        straight = read_trace("f", data, options)
    except InputError:
        with pytest.raises(InputError):
            read_trace("f", spaced, options)
    else:
        assert straight.digest() == read_trace("f", spaced, options).digest()


@st.composite
def csv_trace(draw) -> bytes:
    """A CSV trace that is all right: some order of columns, some unit of time."""
    azure = draw(st.booleans())
    names = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"] if azure else ["t", "input", "output"]
    order = draw(st.permutations([*range(3), 3]))
    zone = draw(st.sampled_from(["", "Z", "+00:00"]))
    rows = [[*names, "extra"]]
    for _ in range(draw(st.integers(1, 12))):
        if azure:
            moment = draw(st.datetimes(datetime(2000, 1, 1), datetime(2020, 1, 1)))
            time = moment.isoformat(sep=" ") + zone
        else:
            time = str(draw(st.integers(0, 10**6) | st.floats(0, 1e6).map(lambda x: round(x, 4))))
        rows.append([time, str(draw(st.integers(1, 9999))), str(draw(st.integers(1, 999))), "x"])
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return end.join(",".join(row[i] for i in order) for row in rows).encode() + end.encode()


@given(csv_trace())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_both_ways_of_reading_csv_agree(data):
    table = tables.Table("t", "input", "output", "s")
    if b"TIMESTAMP" in data:
        table = tables.Table("TIMESTAMP", "ContextTokens", "GeneratedTokens", "date")
    fast = tables._fast(data, table)
    assert fast is not None
    slow = tables._careful(data, table, Complaints("f", skip_bad=False))
    same(fast, slow, data)
    assert len(table.read(Source("f", data), Complaints("f", skip_bad=False), ReadOptions())) == len(fast)
