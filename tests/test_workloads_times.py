"""Times of traces: zones, Unix time, units stated and guessed."""

from __future__ import annotations

import numpy as np
import pytest

from fastsim.workloads.readers.clock import GUESS, read_clock
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


@pytest.mark.parametrize(
    ("rate_rps", "span_s", "written_in", "taken_for"),
    [
        (3.4, 3537, "ms", "ms"),  # Mooncake
        (78.4, 128, "ms", "ms"),
        (900, 100, "ms", "ms"),
        (0.5, 3600, "s", "s"),
        (3.4, 86_400, "s", "s"),
        (20, 60, "s", "s"),
        (0.001, 4e6, "ms", "ms"),
    ],
)
def test_unit_is_guessed_from_the_rate(rate_rps, span_s, written_in, taken_for):
    n = int(rate_rps * span_s) + 1
    times = np.linspace(0, span_s, n) * (1000 if written_in == "ms" else 1)
    assert read_clock(times, GUESS, None).unit == taken_for
