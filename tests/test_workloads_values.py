"""Single values, keys, rows and files of traces: what is accepted and how the rest is named."""

from __future__ import annotations

import gzip

import pytest

from fastsim.workloads import FORMATS, load
from fastsim.workloads.readers.registry import choose_format
from fastsim.workloads.readers.source import Source
from tests.trace_files import SAMPLES, from_text, line, read, refused

# ---------------------------------------------------------------- values


@pytest.mark.parametrize("value", ["374.0", "374", "3.74e2"])
def test_whole_floats_are_counts(tmp_path, value):
    assert from_text(tmp_path, line().replace("64", value)).prompt_tok.tolist() == [374]
    assert from_text(tmp_path, f"t,input,output\n0,{value},1\n").prompt_tok.tolist() == [374]


@pytest.mark.parametrize("value", ["12.5", "true", '"64"', "1e30", "null", "[]", "-1", "NaN", "1e99999"])
def test_other_json_values_are_no_counts(tmp_path, value):
    with refused("line 1, column input_length: .* is not allowed"):
        from_text(tmp_path, line().replace("64", value))


@pytest.mark.parametrize("value", ["12.5", "true", "", "1e30", "-1", "nan", "1_000", "0x10", "٣", '"5'])
def test_other_csv_values_are_no_counts(tmp_path, value):
    with refused(r"line 2(, column input: |: )"):
        from_text(tmp_path, f"t,input,output\n0,{value},1\n")


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "1e400", "", "abc", "true", "1e30"])
def test_csv_times_must_be_finite_and_not_negative(tmp_path, value):
    with refused("line 3, column t: "):
        from_text(tmp_path, f"t,input,output\n0,1,1\n{value},1,1\n")


@pytest.mark.parametrize(
    "value", ["-1", "NaN", "Infinity", "1e400", '"0"', "true", "null", "1e30", "9" * 400]
)
def test_json_times_must_be_finite_and_not_negative(tmp_path, value):
    with refused("line 2, column timestamp: "):
        from_text(tmp_path, line() + line(time=7).replace("7", value))


def test_times_beyond_thirty_years_are_refused(tmp_path):
    with refused("line 3, column t: 7000000000 is not allowed; it must be a relative"):
        from_text(tmp_path, "t,input,output\n0.5,1,1\n7000000000,1,1\n")
    with refused(r"line 2, column timestamp: .* must lie within 1e\+09 s"):
        from_text(tmp_path, line() + line(time=10**13))


def test_a_missing_key_names_its_row(tmp_path):
    with refused("line 2, column output_length: a row without it is not allowed"):
        from_text(tmp_path, line() + '{"timestamp": 1, "input_length": 3}\n')


def test_a_key_given_twice_is_refused(tmp_path):
    twice = line().replace('"output_length"', '"input_length": 65, "output_length"')
    with refused("line 1, column input_length: .* must occur only once"):
        from_text(tmp_path, twice)


def test_rows_with_too_many_values_are_refused(tmp_path):
    with refused("line 3: a row of 4 values is not allowed; it must have 3 as the header"):
        from_text(tmp_path, "t,input,output\n0,1,1\n1,1,1,1\n")


def test_request_ids_that_occur_twice_get_a_word_of_warning(tmp_path):
    text = "request_id,arrival_time_us,input_tokens,output_tokens\n7,0,1,1\n8,1,1,1\n7,2,1,1\n"
    workload = from_text(tmp_path, text)
    assert len(workload) == 3
    said = "warning: rows whose request_id stood before: 1 (first: line 4); all are kept"
    assert workload.summary.notes[0] == said


# ---------------------------------------------------------------- files and options


def test_column_order_is_free(tmp_path):
    workload = from_text(tmp_path, "client,output,t,input\n4,3,0.5,2\n")
    assert (workload.arrival_s[0], workload.prompt_tok[0], workload.output_tok[0]) == (0.5, 2, 3)
    swapped = '{"output_length": 3, "hash_ids": [1], "input_length": 2, "timestamp": 500}\n'
    assert from_text(tmp_path, swapped).prompt_tok.tolist() == [2]


def test_gzip_in_several_members_and_with_a_byte_order_mark(tmp_path):
    parts = [b"\xef\xbb\xbf" + line().encode(), line(time=5).encode()]
    assert len(from_text(tmp_path, b"".join(map(gzip.compress, parts)))) == 2


def test_a_gzip_file_cut_short_can_be_used_aloud(tmp_path):
    whole = gzip.compress("".join(line(time=t * 17, hash_ids=[t]) for t in range(500)).encode(), mtime=0)
    workload = from_text(tmp_path, whole[: len(whole) // 2], skip_bad=True)
    assert 0 < len(workload) < 500
    assert "the gzip data end early" in workload.summary.repaired[0].reason


def test_damaged_gzip_is_refused(tmp_path):
    whole = bytearray(gzip.compress(line().encode() * 50, mtime=0))
    whole[-6] ^= 1  # the checksum
    with refused("the gzip data are damaged"):
        from_text(tmp_path, bytes(whole), skip_bad=True)


def test_wrong_encodings_are_named(tmp_path):
    with refused("UTF-16"):
        from_text(tmp_path, "t,input,output\n0,1,1\n".encode("utf-16"))
    with refused("line 2: byte 0xff is not allowed; it must be UTF-8"):
        from_text(tmp_path, b"t,input,output\n\xff,1,1\n")
    with refused("line 1: .* must be a JSON object in UTF-8"):
        from_text(tmp_path, line(note="?").encode().replace(b"?", b"\xff") + line().encode() * 2 + b"\n\nx")


def test_unknown_contents_are_refused_with_the_first_line(tmp_path):
    with refused("the format is not recognised, the first line is 'hello, world'; state"):
        from_text(tmp_path, "hello, world\n")


def test_a_stated_format_is_not_doubted(tmp_path):
    with refused("line 1: column 'input' is missing; the header has hello, world"):
        from_text(tmp_path, "hello, world\n1,2\n", format="servegen")
    assert "stated by the user" in str(from_text(tmp_path, line(), format="mooncake").summary)
    with refused(r"format: 'moncake' is not known; did you mean 'mooncake'\?"):
        from_text(tmp_path, line(), format="moncake")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_tok": 0}, "block_tok: 0 is not allowed"),
        ({"block_tok": 512.0}, r"block_tok: 512\.0 is not allowed"),
        ({"time_unit": "minutes"}, "time_unit: 'minutes' is not allowed; choose one of: s, ms, us, ns"),
        ({"rate_scale": 0}, "rate_scale: 0 is not allowed"),
        ({"rate_scale": float("nan")}, "rate_scale: nan is not allowed"),
        ({"rate_mode": "thinning"}, r"rate_mode: 'thinning' is not allowed; did you mean 'thin'\?"),
        ({"rate_mode": "thin", "rate_scale": 2}, "rate_scale: 2 is not allowed with thinning"),
        ({"repeat": 0}, "repeat: 0 is not allowed"),
        ({"limit": 0}, "limit: 0 is not allowed"),
        ({"zero_output": "keep"}, "zero_output: 'keep' is not allowed; choose one of: drop, prefill, refuse"),
        ({"output_tok": 0}, "output_tok: 0 is not allowed; it must be a whole number"),
        ({"output_tok": "lognormal(200)"}, r"output_tok: 'lognormal\(200\)' is .* lognormal\(mean, cv\)"),
        ({"output_tok": "pareto(2, 1)"}, r"output_tok: 'pareto\(2, 1\)' is not .* \"normal\(mean, cv\)\" or"),
        ({"arrivals": "poisson"}, "arrivals: 'poisson' is not allowed; it must be"),
        (
            {"arrivals": "poisson(0)"},
            r"arrivals: 'poisson\(0\)' is not .* poisson\(rate\) with numbers above 0",
        ),
        ({"arrivals": 3}, "arrivals: 3 is not allowed"),
        ({"turns": "grow"}, r"turns: 'grow' is not allowed; did you mean 'growing'\?"),
        ({"turns": ["growing"]}, r"turns: \['growing'\] is not allowed"),
        ({"think_s": -1.0}, r"think_s: -1\.0 is not allowed"),
        ({"chars_per_tok": 0}, r"chars_per_tok: 0(\.0)? is not allowed"),
        ({"seed": -1}, "seed: -1 is not allowed"),
        ({"replicate": True}, "replicate: True is not allowed"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_read(options, message):
    with refused(message.replace(": ", "(:| =) ", 1)):
        load("/no/such/file", **options)


def test_options_that_do_not_apply_are_refused():
    with refused("block_tok: 64 does not apply to format azure"):
        read("fmt_azure_2023.csv", block_tok=64)
    with refused("time_unit: 's' does not apply to format azure"):
        read("fmt_azure_2023.csv", time_unit="s")


def test_files_that_cannot_be_read_are_named(tmp_path):
    with refused("path: '.*nowhere' cannot be read: No such file"):
        load(tmp_path / "nowhere")
    with refused("cannot be read: Is a directory"):
        load(tmp_path)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_described_and_has_a_sample_that_is_recognised(name):
    assert FORMATS[name].name == name
    assert FORMATS[name].doc
    sources = [Source(path.name, path.read_bytes()) for path in SAMPLES.glob("*") if path.suffix != ".gz"]
    recognised = [
        source.name for source in sources if source.data and choose_format(source, None)[0].name == name
    ]
    assert recognised
