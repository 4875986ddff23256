"""Readers on small synthetic samples: what each form means, what is refused, what is said."""

from __future__ import annotations

import pytest

from tests.trace_files import dropped, prompts, read, refused

FAILURES = ", taken for failures (zero_output = 'prefill' keeps them)"

# ---------------------------------------------------------------- legal samples


@pytest.mark.parametrize("name", ["fmt_mooncake_fast25.jsonl", "fmt_mooncake_fast25.jsonl.gz"])
def test_mooncake(name):
    workload = read(name)
    assert workload.arrival_s.tolist() == [0.0, 0.0, 3.0, 3.0, 6.0]
    assert workload.prompt_tok.tolist() == [1300, 1800, 640, 2048, 100]
    assert workload.output_tok.tolist() == [52, 26, 1, 300, 9]
    full = 512
    assert prompts(workload) == [
        [(0, full), (1, full), (2, 276)],
        [(0, full), (1, full), (3, full), (4, 264)],
        [(0, full), (5, 128)],
        [(0, full), (1, full), (3, full), (6, full)],
        [(7, 100)],
    ]
    summary = workload.summary
    assert (summary.format, summary.rows_read) == ("mooncake", 5)
    assert (summary.block_tok, summary.time_unit) == (512, "ms")
    assert summary.block_why.startswith("guessed, 100 % of the rows fit")
    assert summary.time_unit_why == "as published, with which the trace runs at 0.6667 requests/s"
    assert workload.name == "fmt_mooncake_fast25"


def test_mooncake_in_seconds_is_not_guessed():
    with refused(
        r"0\.2 has a fraction; in ms the trace would run at 2286 requests/s, in s at 2\.286 requests/s"
    ):
        read("fmt_mooncake_float_seconds.jsonl")
    workload = read("fmt_mooncake_float_seconds.jsonl", time_unit="s")
    assert workload.arrival_s.tolist() == [0.0, 0.2, 0.4, 1.75, 1.75]
    stated = read("fmt_mooncake_float_seconds.jsonl", time_unit="ms")
    assert stated.arrival_s.tolist() == [0.0, 0.0002, 0.0004, 0.00175, 0.00175]
    assert stated.summary.time_unit_why == "stated by the user"


def test_azure_2023():
    workload = read("fmt_azure_2023.csv")
    assert workload.arrival_s.tolist() == [0.0, 4.314579, 4.314579, 14.31941, 14.5094101]
    assert workload.prompt_tok.tolist() == [374, 396, 879, 4808, 12]
    assert workload.output_tok.tolist() == [44, 109, 55, 1, 800]
    assert len(workload.symbols) == 0
    assert workload.summary.format == "azure"


def test_azure_2024_has_zones_and_whole_seconds():
    workload = read("fmt_azure_2024_1week.csv")
    assert workload.arrival_s.tolist() == [0.0, 0.070499, 0.071662, 0.071662, 0.154389]
    assert workload.prompt_tok.tolist() == [2162, 2399, 76, 2376, 7670]


def test_burstgpt_failures_are_dropped_aloud_and_sessions_kept():
    with refused("line 5, column Response tokens: 0 is not allowed"):
        read("fmt_burstgpt_v12.csv", zero_output="refuse")
    workload = read("fmt_burstgpt_v12.csv")
    assert workload.arrival_s.tolist() == [5.0, 45.0, 118.0, 86399.0]
    assert workload.session.tolist() == [0, 0, -1, 1]
    assert dropped(workload) == [(f"Response tokens of 0{FAILURES}", 1)]
    assert workload.summary.rows_read == 5
    assert workload.summary.ignored_columns == ("Elapsed time", "Model", "Total tokens", "Log Type")


def test_servegen_requests():
    workload = read("fmt_servegen_requests.csv")
    assert workload.arrival_s.tolist() == [0.0, 0.001, 0.25]
    assert workload.prompt_tok.tolist() == [258, 487, 90]
    assert workload.output_tok.tolist() == [119, 15, 7]
    assert workload.summary.ignored_columns == ("client",)


def test_vidur():
    workload = read("fmt_vidur_processed.csv")
    assert workload.arrival_s.tolist() == [0.0, 0.052, 0.0795, 1.9, 1.9]
    assert workload.prompt_tok.tolist() == [4808, 3180, 110, 7433, 34]
    assert workload.summary.time_unit_why == "the format's own"


def test_relative_time_beside_unix_time():
    workload = read("trap_epoch_vs_relative.csv")
    assert workload.arrival_s.tolist() == [23.0, 24.0, 25.0, 26.0, 27.0]
    assert (workload.summary.format, workload.summary.time_unit) == ("blis", "us")
    assert "send_time_us" in workload.summary.ignored_columns
    assert "send_time_us, which may be Unix time, is not used" in str(workload.summary)


def test_rates_are_no_requests():
    name = "fmt_servegen_chunk-0-trace.csv"
    with refused(f"{name}: .*ServeGen chunk file, which holds arrival rates .* not requests"):
        read(name)


# ---------------------------------------------------------------- traps


def test_unsorted_rows_are_sorted_stably_and_aloud():
    workload = read("trap_unsorted_and_ties.jsonl")
    assert workload.arrival_s.tolist() == [0.0, 0.0, 1.0, 3.0, 3.0]
    # Symbols are numbered as they appear in the file, so they tell which row went where.
    assert workload.symbols.tolist() == [1, 4, 3, 0, 2]
    (moved,) = workload.summary.repaired
    assert (moved.rows, moved.first) == (3, "line 2")
    assert "sorted by time" in moved.reason
    assert "3 repaired" in str(workload.summary)


def test_zero_output_is_dropped_aloud_or_refused():
    with refused("line 3, column input_length: 0 is not allowed; it must be a whole"):
        read("trap_zero_output.jsonl", zero_output="refuse")
    workload = read("trap_zero_output.jsonl")
    assert workload.output_tok.tolist() == [1, 1]
    assert workload.prompt_tok.tolist() == [64, 1]
    assert dropped(workload) == [
        ("input_length of 0, which is no request", 1),
        (f"output_length of 0{FAILURES}", 1),
    ]
    assert "4 read, 2 dropped" in str(workload.summary)
    assert "(first: line 3)" in str(workload.summary)
    refused_rows = read("trap_zero_output.jsonl", zero_output="refuse", skip_bad=True)
    assert refused_rows.digest() == workload.digest()


def test_zero_output_is_kept_as_a_prefill_where_asked():
    workload = read("trap_zero_output.jsonl", zero_output="prefill")
    assert workload.prompt_tok.tolist() == [64, 64, 1]
    assert workload.output_tok.tolist() == [1, 1, 1]
    (kept,) = workload.summary.repaired
    assert kept.reason == "output_length of 0: kept as prefills, whose one token comes with them"
    assert (kept.rows, kept.first) == (1, "line 1")


def test_hash_count_mismatch_names_the_row_and_both_numbers():
    with refused(r"line 1, column hash_ids: a list of 3 ids .* hold 2 for input_length 655"):
        read("trap_hash_count_mismatch.jsonl")
    with refused(r"no request in the file, dropped: 3 x hash_ids must hold as many"):
        read("trap_hash_count_mismatch.jsonl", skip_bad=True)
    with refused(r"line 2, .* hold 1 for input_length 20 at 256 tokens an id"):
        read("trap_hash_count_mismatch.jsonl", block_tok=256)


def test_a_prompt_of_any_length_is_read():
    assert read("trap_prompt_over_kv.jsonl").prompt_tok.tolist() == [500, 40160, 500]


# ---------------------------------------------------------------- bad samples


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bad_empty.jsonl", "the file is empty"),
        ("bad_gzip_truncated.jsonl.gz", "the gzip data end early, after 24 bytes"),
        ("bad_line_not_json.jsonl", "line 2: 'INFO served 3 requests' is not allowed; it must be a JSON"),
        ("bad_missing_column.csv", "column 'GeneratedTokens' is missing; the header has TIME.*output_tok"),
        ("bad_nan_inf.jsonl", "line 1, column timestamp: nan is not allowed; it must be a finite"),
        ("bad_negative.jsonl", "line 1, column timestamp: -5 is not allowed"),
        ("bad_float_counts.jsonl", r"line 2, column input_length: 64\.5 is not allowed; it must be a"),
    ],
)
def test_bad_files_are_refused_by_file_line_column_and_value(name, message):
    with refused(rf"{name}.*{message}"):
        read(name)


@pytest.mark.parametrize(
    ("name", "kept", "rules"),
    [
        ("bad_line_not_json.jsonl", 2, [("the row must be a JSON object", 1)]),
        ("bad_float_counts.jsonl", 1, [("input_length must be a whole number from 1 to 1,000,000,000", 4)]),
    ],
)
def test_skipping_bad_rows_counts_and_reports_them(name, kept, rules):
    workload = read(name, skip_bad=True)
    assert len(workload) == kept
    assert dropped(workload) == rules
    assert workload.summary.rows_read == kept + sum(rows for _, rows in rules)


def test_a_last_line_that_is_cut_short_is_dropped_aloud():
    workload = read("bad_truncated_last_line.jsonl")
    assert len(workload) == 1
    assert dropped(workload) == [("the last line is cut short", 1)]
    assert workload.summary.rows_read == 2


@pytest.mark.parametrize("name", ["bad_nan_inf.jsonl", "bad_negative.jsonl"])
def test_nothing_left_is_refused_with_what_was_dropped(name):
    with refused(r"there is no request in the file, dropped: .*\(first: line 1: "):
        read(name, skip_bad=True)


def test_byte_order_mark_and_crlf_are_accepted():
    workload = read("bad_bom_crlf.csv")
    assert (workload.prompt_tok.tolist(), workload.output_tok.tolist()) == ([374], [44])
