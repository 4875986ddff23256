"""Times of traces: zones, Unix time, units stated and guessed."""

from __future__ import annotations

import numpy as np
import pytest

from fastsim.workloads.readers.clock import WHOLE_MS, read_clock
from tests.trace_files import from_text, line, refused


def test_zones_mixed_with_none_are_refused(tmp_path):
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-12 00:00:00+00:00,1,1\n2024-05-12 00:00:01,1,1\n"
    with refused("line 3, column TIMESTAMP: .* it must be with a time zone"):
        from_text(tmp_path, text)
    assert len(from_text(tmp_path, text, skip_bad=True)) == 1


def test_zones_are_applied(tmp_path):
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-12T00:00:00Z,1,1\n"
        "2024-05-12 02:00:01.5+02:00,2,1\n2024-05-11 20:30:02-0330,3,1\n"
    )
    assert from_text(tmp_path, text).arrival_s.tolist() == [0.0, 1.5, 2.0]


@pytest.mark.parametrize(
    "value", ["2024-02-30 00:00:00", "12:00", "today", "NaT", "2024-05-12", "1969-01-01 00:00:00"]
)
def test_dates_must_exist(tmp_path, value):
    with refused("line 2, column TIMESTAMP: "):
        from_text(tmp_path, f"TIMESTAMP,ContextTokens,GeneratedTokens\n{value},1,1\n")


@pytest.mark.parametrize(("unit", "scale"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_unix_time_is_counted_from_the_first_arrival(tmp_path, unit, scale):
    times = [1_787_000_023 * scale, 1_787_000_023 * scale + scale // 2 + 1, 1_787_000_025 * scale]
    workload = from_text(tmp_path, "".join(line(time=t) for t in times))
    assert workload.arrival_s.tolist() == [0.0, (scale // 2 + 1) / scale, 2.0]
    assert workload.summary.time_unit == unit
    assert "size of Unix time; counted from the first arrival" in workload.summary.time_unit_why


def test_unix_and_relative_times_in_one_column_are_refused(tmp_path):
    text = line(time=0) + line(time=1_787_000_023_000) + line(time=2000)
    with refused("line 2, column timestamp: 1787000023000 .* this looks like Unix time"):
        from_text(tmp_path, text)
    assert from_text(tmp_path, text, skip_bad=True).arrival_s.tolist() == [0.0, 2.0]
    mostly_unix = line(time=1_787_000_023_000) * 2 + line(time=2000)
    with refused("line 3, column timestamp: 2000 .* this looks relative"):
        from_text(tmp_path, mostly_unix)


def test_a_month_in_milliseconds_is_not_unix_time_in_seconds(tmp_path):
    times = range(0, 2_600_000_000, 100_000_000)
    assert from_text(tmp_path, "".join(line(time=t) for t in times)).arrival_s[-1] == 2_500_000.0


@pytest.mark.parametrize("rate_rps", [0.001, 0.5, 3.4, 78.4, 100, 900, 5000])
def test_whole_numbers_are_ms_as_published_whatever_their_rate(rate_rps):
    times = np.rint(np.arange(2000) * 1000.0 / rate_rps)
    for written in (times, times.astype(np.int64)):
        clock = read_clock("f", written, WHOLE_MS, None)
        assert clock.unit == "ms"
        assert clock.why.startswith("as published, with which the trace runs at ")


@pytest.mark.parametrize("rate_rps", [0.01, 0.5, 3.4, 100, 5000])
@pytest.mark.parametrize("written_in_s", [True, False])
def test_times_with_fractions_may_be_in_s_and_are_refused_unless_the_unit_is_stated(rate_rps, written_in_s):
    times = (np.arange(1, 400) + 0.1234) / rate_rps * (1 if written_in_s else 1000)
    with refused(
        r"^f: the unit of the times is not clear: .* in ms the trace would run at .*state time_unit"
    ):
        read_clock("f", times, WHOLE_MS, None)
    for unit in ("s", "ms"):
        assert read_clock("f", times, WHOLE_MS, unit).unit == unit


def test_an_unheard_of_rate_in_ms_gets_a_word_of_warning(tmp_path):
    text = "".join(line(time=t) for t in range(100))
    assert not from_text(tmp_path, text).summary.notes
    fast = "".join(line(time=t // 3) for t in range(100))
    (note,) = from_text(tmp_path, fast).summary.notes
    assert note.startswith(
        "warning: in ms, the published unit, the trace runs at 3,000 requests/s; if its times"
    )
    assert not from_text(tmp_path, fast, time_unit="ms").summary.notes
