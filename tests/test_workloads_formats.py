"""The contract of every format in the registry, and the forms that come in JSON, Parquet and spans."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from fastsim import workloads
from fastsim.errors import InputError
from fastsim.workloads import FORMATS, Workload, load
from tests.trace_files import SAMPLES, prompts, read, refused

# Of every format: a sample, and what has to be stated to read it.
READ: dict[str, tuple[str, dict[str, Any]]] = {
    "mooncake": ("fmt_mooncake_fast25.jsonl", {}),
    "bailian": ("fmt_bailian_blksz_16.jsonl", {}),
    "azure": ("fmt_azure_2023.csv", {}),
    "servegen": ("fmt_servegen_requests.csv", {}),
    "burstgpt": ("fmt_burstgpt_v12.csv", {}),
    "vidur": ("fmt_vidur_processed.csv", {}),
    "blis": ("trap_epoch_vs_relative.csv", {}),
    "sharegpt": ("fmt_sharegpt.json", {"arrivals": "poisson(1)", "chars_per_tok": 4}),
    "otlp": ("fmt_otlp_spans.jsonl", {}),
    "weka": ("fmt_weka_kvcachetester_trace_0001.json", {}),
}
REFUSED = {"servegen_chunk"}
every_format = pytest.mark.parametrize("name", READ)


def loaded(tmp_path, content: str | bytes, name: str = "trace", **options) -> Workload:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return load(path, cache=False, **options)


def sample(name: str) -> tuple[bytes, dict[str, Any]]:
    file, options = READ[name]
    return (SAMPLES / file).read_bytes(), options


def test_every_format_is_here():
    assert set(READ) | REFUSED == set(FORMATS)


@every_format
def test_a_format_is_recognised_and_a_stated_one_is_the_same(tmp_path, name):
    content, options = sample(name)
    workload = loaded(tmp_path, content, **options)
    assert len(workload) > 0
    assert workload.summary.format == name
    assert "recognised by its" in workload.summary.format_why
    stated = loaded(tmp_path, content, format=name, **options)
    assert stated.digest() == workload.digest()
    assert workload.summary.rows_read == len(workload) + sum(f.rows for f in workload.summary.dropped)


@every_format
@pytest.mark.parametrize(
    "change",
    [gzip.compress, lambda b: b"\xef\xbb\xbf" + b, lambda b: b.replace(b"\r", b"").replace(b"\n", b"\r\n")],
    ids=["gzip", "byte-order mark", "CRLF"],
)
def test_the_same_in_another_dress_is_the_same(tmp_path, name, change):
    content, options = sample(name)
    plain = loaded(tmp_path, content, **options)
    assert loaded(tmp_path, change(content), **options).digest() == plain.digest()


@every_format
def test_a_format_says_what_its_file_lacks(tmp_path, name):
    """Wrong contents are refused by file, a file of nothing but a header, too; both whatever is skipped."""
    content, options = sample(name)
    first = content.split(b"\n")[0]
    for wrong in (b"{}\n" if FORMATS[name].is_json else first + b"\n", b"{\n", b"x,y\n1,2\n"):
        for skip_bad in (False, True):
            with pytest.raises(InputError, match=r"^\S+/trace[,:] "):
                loaded(tmp_path, wrong, format=name, skip_bad=skip_bad, **options)


@every_format
def test_stated_arrivals_replace_those_of_any_format(tmp_path, name):
    content, options = sample(name)
    own = loaded(tmp_path, content, **options)
    workload = loaded(tmp_path, content, **{**options, "arrivals": "deterministic(2)"})
    assert sorted(workload.prompt_tok.tolist()) == sorted(own.prompt_tok.tolist())
    assert workload.arrival_s[0] == 0.5
    starts = len(np.unique(workload.session[workload.session >= 0])) + np.sum(workload.session < 0)
    assert np.isin(0.5 * np.arange(1, starts + 1), workload.arrival_s).all()


@pytest.mark.parametrize("name", [name for name in READ if FORMATS[name].is_json])
def test_json_comes_in_lines_in_an_array_or_spread_out(tmp_path, name):
    content, options = sample(name)
    whole = json.loads(content) if content.lstrip().startswith(b"[") else None
    rows = whole or [json.loads(line) for line in content.splitlines()]
    digests = {
        loaded(tmp_path, text, READ[name][0], **options).digest()
        for text in (
            "\n".join(map(json.dumps, rows)),
            json.dumps(rows),
            json.dumps(rows, indent=2),
            *([json.dumps(rows[0], indent=1)] if len(rows) == 1 else []),
        )
    }
    assert len(digests) == 1


def parquet(frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.write_parquet(out)
    return out.getvalue()


def frame_of(name: str) -> pl.DataFrame:
    content, _ = sample(name)
    if not FORMATS[name].is_json:
        return pl.read_csv(content, try_parse_dates=True)
    return pl.read_json(content) if content.startswith(b"[") else pl.read_ndjson(content)


@pytest.mark.parametrize(
    "name", ["mooncake", "bailian", "azure", "servegen", "vidur", "sharegpt", "burstgpt"]
)
def test_parquet_is_the_same_table(tmp_path, name):
    content, options = sample(name)
    file = READ[name][0]
    plain = loaded(tmp_path, content, file, **options)
    from_parquet = loaded(tmp_path, parquet(frame_of(name)), file, **options)
    assert from_parquet.prompt_tok.tolist() == plain.prompt_tok.tolist()
    np.testing.assert_allclose(from_parquet.arrival_s, plain.arrival_s, rtol=0, atol=1e-6)  # dates in us
    assert from_parquet.symbols.tolist() == plain.symbols.tolist()
    assert from_parquet.session.tolist() == plain.session.tolist()
    assert any("a Parquet file" in note for note in from_parquet.summary.notes)


def test_damaged_parquet_is_refused(tmp_path):
    content = parquet(frame_of("vidur"))
    rng = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(content[: rng.integers(8, len(content) + 1)])
        damaged[int(rng.integers(4, len(damaged)))] ^= 1 << int(rng.integers(8))
        with contextlib.suppress(InputError):
            assert len(loaded(tmp_path, bytes(damaged))) > 0


# ---------------------------------------------------------------- conversations


def test_a_conversation_is_a_session_whose_turns_wait():
    with refused(
        "line 1, column conversations: the messages are texts without token counts .* chars_per_tok"
    ):
        read("fmt_sharegpt.json")
    with refused("conversations have no times; state an arrival process"):
        read("fmt_sharegpt.json", chars_per_tok=4)
    workload = read("fmt_sharegpt.json", arrivals="poisson(1)", chars_per_tok=1, think_s=2.5)
    # a0: 14 + 12, then 5 + 4; a1 and a2 have no answer to a question; a4: rules, q, r.
    assert sorted(workload.prompt_tok.tolist()) == sorted([14, 14 + 12 + 5, 5 + 1])
    second = int(np.argmax(workload.prompt_tok))
    assert workload.think_s[second] == 2.5
    first = int(workload.follows[second])
    assert prompts(workload)[second][:2] == [*prompts(workload)[first], (workload.answer[first], 12)]


def test_conversations_may_have_token_counts(tmp_path):
    turns = [{"role": "user", "tokens": 30}, {"role": "assistant", "tokens": 9, "content": "words"}]
    text = json.dumps([{"conversations": [*turns, *turns]}])
    workload = loaded(tmp_path, text, arrivals="poisson(1)")
    assert (workload.prompt_tok.tolist(), workload.output_tok.tolist()) == ([30, 69], [9, 9])
    with refused("chars_per_tok: it does not apply to .*, which has token counts"):
        loaded(tmp_path, text, arrivals="poisson(1)", chars_per_tok=4)
    with refused("line 1, column conversations: .* must have a text"):
        loaded(tmp_path, json.dumps([{"conversations": [{"from": "human"}]}]), arrivals="poisson(1)")


# ---------------------------------------------------------------- spans and sessions of others


def test_spans_are_calls_by_their_starts():
    workload = read("fmt_otlp_spans.jsonl")
    assert workload.arrival_s.tolist() == [0.0, 2.0, 7.6]
    assert workload.prompt_tok.tolist() == [1300, 1100, 77]
    assert workload.output_tok.tolist() == [40, 50, 5]
    assert "spans left out that only add up the calls below them: 1" in workload.summary.notes
    assert "warning: model calls left out that have no token counts: 1" in workload.summary.notes


def span(number: int, start_s: int, parent: int = 0, **attributes: Any) -> dict:
    kinds = {int: "intValue", str: "stringValue"}
    told = [{"key": key, "value": {kinds[type(value)]: str(value)}} for key, value in attributes.items()]
    return {
        "traceId": "t",
        "spanId": str(number),
        "parentSpanId": str(parent) if parent else "",
        "startTimeUnixNano": str((1_767_225_600 + start_s) * 10**9),
        "attributes": told,
    }


def test_a_call_belongs_to_the_conversation_of_what_is_above_it(tmp_path):
    tokens = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2}
    spans = [span(2, 5, 1, **tokens), span(3, 1, 1, **tokens), span(4, 9, **tokens)]
    spans += [span(1, 0, 0, **{"gen_ai.conversation.id": "c"})]
    text = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}, indent=1)
    workload = loaded(tmp_path, text)
    assert workload.arrival_s.tolist() == [0.0, 4.0, 8.0]
    assert workload.session.tolist() == [0, 0, 1]


def test_a_span_with_half_a_count_is_refused(tmp_path):
    spans = [span(1, 0, **{"gen_ai.usage.output_tokens": 2})]
    text = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    with refused("line 1, column gen_ai.usage.input_tokens: a span without it is not allowed"):
        loaded(tmp_path, text)


def test_weka_sessions_have_times_blocks_and_subagents_of_their_own():
    workload = read("fmt_weka_kvcachetester_trace_0001.json")
    assert workload.arrival_s.tolist() == [0.0, 12.5, 14.6, 5418.0]
    assert workload.prompt_tok.tolist() == [200, 330, 140, 500]
    assert workload.summary.block_tok == 64
    assert workload.summary.block_why.startswith("as the file says")
    paths = [[symbol for symbol, _ in path] for path in prompts(workload)]
    assert paths[1][:3] == paths[0]
    assert not set(paths[2]) & set(paths[3])


def test_ids_of_two_sessions_are_apart_unless_their_scope_is_global(tmp_path):
    content = json.loads((SAMPLES / "fmt_weka_kvcachetester_trace_0001.json").read_bytes())
    for scope, shared in (("local", 0), ("global", 3)):
        text = json.dumps(
            [{**content, "hash_id_scope": scope}, {**content, "hash_id_scope": scope, "id": "b"}]
        )
        workload = loaded(tmp_path, text, arrivals="deterministic(0.01)")
        assert workload.session.max() == 1
        first, second = (prompts(workload)[i] for i in np.flatnonzero(workload.prompt_tok == 200))
        assert len({*first} & {*second}) == shared
        assert "start as stated" in str(workload.summary)
    assert "warning: 2 sessions all start at 0; state arrivals to start them apart" in str(
        loaded(tmp_path, text).summary
    )
    with refused("line 2, column block_size: the sessions have block sizes of 64, 32 tokens"):
        loaded(tmp_path, json.dumps([content, {**content, "block_size": 32}]))


# ---------------------------------------------------------------- options from everywhere


def test_every_option_of_load_can_be_set_in_sweeps():
    from fastsim.sweep.experiments.cluster import CLUSTER
    from fastsim.workloads.load import STATED

    known = CLUSTER.parameters()
    for name in (*STATED, "max_tok", "limit", "repeat"):
        assert f"workload.{name}" in known


def test_arrival_times_of_a_trace_are_taken_for_their_pattern(tmp_path):
    """Their unit does not matter where they are stretched to a rate."""
    path = tmp_path / "trace.jsonl"
    rows = [{"timestamp": t, "input_length": 5, "output_length": 1} for t in (0.5, 1.75, 2.0, 4.5)]
    path.write_text("\n".join(map(json.dumps, rows)))
    with refused("state time_unit, 's' or 'ms'"):
        load(path)
    given = {"arrivals": "trace", "arrival_trace": str(path), "rate_rps": 3.0, "requests": 4}
    workload = workloads.make("unique", **given)
    np.testing.assert_allclose(workload.arrival_s, np.array([0.0, 1.25, 1.5, 4.0]) / 4.0, rtol=1e-12)
