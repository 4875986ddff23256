"""What is right for each form that people's traces have: on copies made here, and on the shared samples."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from fastsim import Cluster, simulate
from fastsim.cluster.prefix import ideal_hit_rate
from fastsim.cluster.step_time import StepTime
from fastsim.errors import InputError
from fastsim.workloads import Workload, load
from tests.trace_files import dropped, prompts, refused

Load = Callable[..., Workload]


def jsonl(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def row(time=None, prompt=64, output: int | None = 2, ids=None, **more) -> dict:
    """A row of Mooncake's; what is None is left out."""
    given = {"timestamp": time, "input_length": prompt, "output_length": output, "hash_ids": ids, **more}
    return {key: value for key, value in given.items() if value is not None}


def notes(workload: Workload) -> str:
    return "\n".join(workload.summary.notes)


@dataclass(frozen=True)
class Input:
    """A file by its name, the text of a copy, and what must hold when it is loaded."""

    name: str
    text: str
    holds: Callable[[Load], None]


# ---------------------------------------------------------------- units


def ms_whatever_the_rate(load: Load) -> None:
    workload = load()
    assert workload.summary.time_unit == "ms"
    assert len(workload) == 2000
    assert workload.summary.span_s == pytest.approx(20, abs=1.5)
    assert workload.summary.rate_rps == pytest.approx(100, rel=0.08)
    assert not workload.summary.notes


AT_100 = jsonl(*(row(10 * i + 9, 100 + i % 7, 5, [i]) for i in range(2000)))


def bailian_seconds_and_threads(load: Load) -> None:
    workload = load()
    summary = workload.summary
    assert (summary.format, summary.time_unit, summary.block_tok) == ("bailian", "s", 16)
    assert summary.block_why.startswith("as the file's name says, 100 % of the rows fit")
    assert workload.arrival_s.tolist() == [0.0, 0.017, 9.4, 9.4, 61.114]
    assert workload.session.tolist() == [0, 1, 0, 2, 0]
    assert "parents that are not in the file, each taken for the start of a session: 1" in notes(workload)
    assert summary.ignored_columns == ("type", "turn")


BAILIAN = jsonl(
    row(0.0, 40, 12, [10, 11, 12], chat_id=1, parent_chat_id=-1, type="text", turn=1),
    row(0.017, 33, 5, [10, 13, 14], chat_id=2, parent_chat_id=-1, type="search", turn=1),
    row(9.4, 70, 8, [10, 11, 12, 15, 16], chat_id=3, parent_chat_id=1, type="text", turn=2),
    row(9.4, 64, 3, [20, 21, 22, 23], chat_id=4, parent_chat_id=99, type="file", turn=3),
    row(61.114, 96, 132, [10, 11, 12, 15, 17, 18], chat_id=5, parent_chat_id=3, type="image", turn=3),
)

# ---------------------------------------------------------------- sessions


def turns_wait_for_answers(load: Load) -> None:
    with refused(r"line 4, column hash_ids: a list of 3 ids .* state turns = 'added'"):
        load()
    workload = load(turns="added")
    # s-1: 300 + 40 + 150 = 490, + 20 + 90 = 600; s-2: 900 + 64 + 120 = 1084.
    assert workload.prompt_tok.tolist() == [300, 900, 490, 600, 1084]
    assert workload.session.tolist() == [0, 1, 0, 0, 1]
    assert workload.follows.tolist() == [-1, -1, 0, 2, 1]
    assert workload.think_s.tolist() == [0.0, 0.0, 2.0, 4.0, 12.0]
    paths = prompts(workload)
    assert [[tok for _, tok in path] for path in paths[:3]] == [[300], [512, 388], [300, 40, 150]]
    assert paths[3][:4] == [*paths[2], (workload.answer[2], 20)]  # the turn before, its answer, the new part
    assert paths[4][0] == paths[1][0]
    result = simulate(workload, Cluster(1, step_time=StepTime.fixed(1.0, 0.5)), "round_robin")
    at = dict(zip(result.columns["request"].tolist(), range(5), strict=True))
    arrival, done = result.columns["arrival_s"], result.columns["done_s"]
    for later, before, think_s in ((2, 0, 2.0), (3, 2, 4.0), (4, 1, 12.0)):
        assert arrival[at[later]] == pytest.approx(done[at[before]] + think_s, abs=1e-9)


MULTITURN = jsonl(
    row(0, 300, 40, session_id="s-1"),
    row(None, 150, 20, session_id="s-1", delay=2000),
    row(500, 900, 64, [1, 2], session_id="s-2"),
    row(None, 120, 64, [1, 2, 3], session_id="s-2", delay=12000),
    row(None, 90, 33, session_id="s-1", delay=4000),
)


def a_first_delay_is_an_offset(load: Load) -> None:
    with refused("line 4, column delay: -5 is not allowed; it must be a finite time, 0 or more"):
        load()
    workload = load(skip_bad=True)
    assert workload.arrival_s.tolist() == [0.1, 0.12, 0.5]
    assert not workload.is_closed
    assert "sessions whose first row has a delay, taken for an offset from the start: 2" in notes(workload)


FIRST_DELAY = jsonl(
    row(None, 10, session_id="a", delay=500),
    row(100, 20, session_id="a"),
    row(50, 5, 1, session_id="b", delay=70),
    row(None, 5, 1, session_id="a", delay=-5),
)


def conversations_when_asked(load: Load) -> None:
    apart = load()
    assert ideal_hit_rate(apart, 16) == 0.0
    assert "if they are conversations that grow, state turns = 'growing'" in notes(apart)
    workload = load(turns="growing")
    assert workload.prompt_tok.tolist() == [400, 400, 720, 720, 1040, 1040, 1360, 1360]
    paths = list(zip(prompts(workload), workload.session.tolist(), strict=True))
    by_session = [[path for path, session in paths if session == k] for k in (0, 1)]
    for turns in by_session:
        for before, after in pairwise(turns):
            assert after[: len(before)] == before
            assert [tok for _, tok in after[len(before) :]] == [120, 200]
    mine, theirs = ({symbol for turn in turns for symbol, _ in turn} for turns in by_session)
    assert not mine & theirs
    # Of 3,520 tokens a session, 520 + 840 + 1160 stood in the turn before or its answer, in whole blocks.
    assert ideal_hit_rate(workload, 20) == pytest.approx((520 + 840 + 1160) / 3520, rel=1e-12)


GROWING = jsonl(
    *(row(1000 * k + 100 * s, 400 + 320 * k, 120, session_id=f"s{s}") for s in (0, 1) for k in range(4))
)

# ---------------------------------------------------------------- prefixes and ids


def groups_share_a_prefix(load: Load) -> None:
    workload = load()
    assert workload.prompt_tok.tolist() == [1292] * 5
    assert prompts(workload) == [[(0, 1024)]] * 5
    assert workload.arrival_s.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert ideal_hit_rate(workload, 16) == pytest.approx(4 * 1024 / (5 * 1292))


BLIS_NAMES = (
    "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,"
    "input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,"
    "deadline_us,server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,"
    "num_chunks,status,error_message,finish_reason\n"
)


def blis(name, at_us, group="", prefix=0, tokens=268, output=32) -> str:
    return (
        f"{name},c,t,standard,,0,{group},{prefix},true,{tokens},{output},{tokens},0,0,0,0,m,0,"
        f"{tokens + prefix},"
        f"{at_us},{1787000000000000 + at_us},0,0,1,ok,,stop\n"
    )


BLIS = BLIS_NAMES + "".join(blis(i, 250_000 * i, "g0", 1024) for i in range(5))


def repeated_ids_are_kept(load: Load) -> None:
    workload = load()
    assert workload.arrival_s.tolist() == [0.0, 1.0, 2.0, 3.0]
    said = "warning: rows whose request_id stood before: 1 (first: line 4); all are kept"
    assert said in notes(workload)


REPEATED = BLIS_NAMES + "".join(
    blis(name, 10**6 * i, tokens=100, output=10) for i, name in enumerate(["r1", "r2", "r1", "r3"])
)


def a_partial_block_is_another_block_when_full(load: Load) -> None:
    workload = load()
    first, second, third = prompts(workload)
    assert [tok for _, tok in first] == [512, 512, 276]
    assert first[:2] == second[:2]
    assert first[2][0] not in [symbol for symbol, _ in second]
    assert second == third
    said = "warning: hash ids of a partial block in one prompt and a longer one in another: 1 (first: line 1"
    assert said in notes(workload)


PARTIAL = jsonl(
    row(0, 1300, 8, [0, 1, 2]), row(1000, 2048, 8, [0, 1, 2, 3]), row(2000, 2048, 8, [0, 1, 2, 3])
)


def ids_are_chained(load: Load) -> None:
    workload = load()
    assert "warning: hash ids that stand behind different prefixes: 2;" in notes(workload)
    cluster = Cluster(1, step_time=StepTime.fixed(0.001, 0.001), block_tok=16)
    assert simulate(workload, cluster).columns["hit_tok"].tolist() == [0, 512, 0]


NOT_PREFIXES = jsonl(
    row(0, 1200, 52, [0, 1, 2]), row(105, 1800, 26, [0, 3, 4, 5]), row(274, 1300, 52, [1, 4, 6])
)

# ---------------------------------------------------------------- what is missing


def failures_are_dropped_and_counted(load: Load) -> None:
    workload = load()
    assert workload.output_tok.tolist() == [18, 230, 276]
    assert [rows for _, rows in dropped(workload)] == [1, 1]
    assert "2 dropped" in str(workload.summary)
    kept = load(zero_output="prefill")
    assert (kept.prompt_tok[-1], kept.output_tok[-1]) == (1360, 1)
    assert "kept as prefills" in str(kept.summary)
    # A prefill and nothing more: one step, at whose end the one token is there.
    result = simulate(kept.window(150), Cluster(1, step_time=StepTime.fixed(1.0, 7.0)))
    assert result.columns["done_s"].tolist() == result.columns["first_token_s"].tolist() == [36.0]


BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
FAILURES = BURST + (
    "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,230,1317,Conversation log\n"
    "118,GPT-4,417,276,693,Conversation log\n185,ChatGPT,1360,0,1360,API log\n185,ChatGPT,0,0,0,API log\n"
)


def arrivals_are_stated(load: Load) -> None:
    with refused(r"column 'arrived_at' is missing; .* state an arrival process, such as arrivals = .poisson"):
        load()
    workload = load(arrivals="poisson(2)", seed=3)
    assert workload.prompt_tok.tolist() == [3772, 2015, 3900, 12, 700]
    assert load(arrivals="poisson(2)", seed=3).digest() == workload.digest()
    assert load(arrivals="poisson(2)", seed=4).digest() != workload.digest()
    assert load(arrivals="poisson(4)", seed=3).arrival_s.tolist() == (workload.arrival_s / 2).tolist()
    assert load(arrivals="deterministic(2)").arrival_s.tolist() == [0.5, 1.0, 1.5, 2.0, 2.5]
    assert "requests start as stated: poisson(2)" in notes(workload)


LENGTHS = (
    "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.85\n2015,156,2171,12.9\n"
    "3900,1,3901,3900.0\n12,800,812,0.015\n700,700,1400,1.0\n"
)


def lengths_of_answers_are_stated(load: Load) -> None:
    with refused(r"column 'output_length' is missing; .* state output_tok, such as 200 or "):
        load()
    with refused("column 'output_length' is missing"):
        load(skip_bad=True)
    assert load(output_tok=200).output_tok.tolist() == [200] * 6
    drawn = load(output_tok="lognormal(200, 0.8)", seed=1)
    assert len(set(drawn.output_tok.tolist())) > 3
    assert load(output_tok="lognormal(200, 0.8)", seed=1).digest() == drawn.digest()
    assert load(output_tok="lognormal(200, 0.8)", seed=1, replicate=1).digest() != drawn.digest()
    assert "output_length is missing in 6 rows and taken as lognormal(200, 0.8), as stated" in notes(drawn)


NO_OUTPUT = jsonl(*(row(1000 * i, 900 + i, None, [0, 10 + i]) for i in range(6)))


def a_ramp_gets_a_word_of_warning(load: Load) -> None:
    (said,) = load().summary.notes
    assert said.startswith("warning: the trace opens at 4.1 % of its later rate; requests/s in tenths")


RAMP = BURST + "".join(
    f"{at},ChatGPT,200,20,220,API log\n" for at in (*range(0, 1200, 30), *(1200 + i // 3 for i in range(120)))
)

# ---------------------------------------------------------------- files


def a_pointer_is_named(load: Load) -> None:
    with refused("Git LFS pointer, .* git lfs pull"):
        load()


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 3029533\n"


def an_array_is_read(load: Load) -> None:
    assert load().arrival_s.tolist() == [0.0, 0.005]
    assert "one JSON array: line n of a message is its n-th element" in notes(load())


ARRAY = "[" + jsonl(row(0), row(5)).strip().replace("\n", ",\n ") + "]\n"


def a_header_is_named(load: Load) -> None:
    with refused("this is the header of a BLIS trace; give the CSV file beside it"):
        load()


INPUTS = [
    Input("trap_mooncake_100_per_s.jsonl", AT_100, ms_whatever_the_rate),
    Input("fmt_bailian_blksz_16.jsonl", BAILIAN, bailian_seconds_and_threads),
    Input("fmt_mooncake_multiturn.jsonl", MULTITURN, turns_wait_for_answers),
    Input("trap_delay_before_first.jsonl", FIRST_DELAY, a_first_delay_is_an_offset),
    Input("trap_session_without_ids.jsonl", GROWING, conversations_when_asked),
    Input("fmt_blis_tracev2.csv", BLIS, groups_share_a_prefix),
    Input("fmt_blis_tracev2.yaml", "trace_version: 2\ntime_unit: us\n", a_header_is_named),
    Input("bad_duplicate_ids.csv", REPEATED, repeated_ids_are_kept),
    Input("trap_partial_then_full.jsonl", PARTIAL, a_partial_block_is_another_block_when_full),
    Input("trap_hash_not_prefix_unique.jsonl", NOT_PREFIXES, ids_are_chained),
    Input("fmt_burstgpt_v11.csv", FAILURES, failures_are_dropped_and_counted),
    Input("fmt_vidur_lengths_only.csv", LENGTHS, arrivals_are_stated),
    Input("trap_no_output_length.jsonl", NO_OUTPUT, lengths_of_answers_are_stated),
    Input("trap_burstgpt_ramp.csv", RAMP, a_ramp_gets_a_word_of_warning),
    Input("bad_git_lfs_pointer.jsonl", POINTER, a_pointer_is_named),
    Input("bad_json_array_not_lines.jsonl", ARRAY, an_array_is_read),
]
every_input = pytest.mark.parametrize("each", INPUTS, ids=lambda each: each.name)


@every_input
def test_what_is_right_for_a_copy(tmp_path, each):
    path = tmp_path / each.name
    path.write_text(each.text)
    each.holds(lambda **options: load(path, cache=False, **options))


@every_input
def test_what_is_right_for_the_sample(shared_path, each):
    path = shared_path(f"traces/inputs2/{each.name}")
    each.holds(lambda **options: load(path, cache=False, **options))


def test_every_sample_has_its_rule(shared_path):
    samples = {path.name for path in shared_path("traces/inputs2").iterdir()} - {"README.md"}
    assert samples == {each.name for each in INPUTS}


STATED = {
    "fmt_mooncake_float_seconds.jsonl": {"time_unit": "s"},
    "fmt_sharegpt.json": {"arrivals": "poisson(1)", "chars_per_tok": 4},
}


def test_the_first_samples_are_those_that_the_readers_are_tested_on(shared_path):
    """Both give the same workload, or are refused in the same words."""
    ours = Path(__file__).parent / "data" / "traces"
    for path in sorted(shared_path("traces/inputs").iterdir()):
        if path.name == "README.md":
            continue
        found = []
        for each in (path, ours / path.name):
            try:
                found.append(load(each, cache=False, **STATED.get(path.name, {})).digest())
            except InputError as error:
                found.append(str(error).replace(str(each), ""))
        assert found[0] == found[1], path.name


# ---------------------------------------------------------------- beyond the samples


def loaded(tmp_path, text: str | bytes, **options) -> Workload:
    path = tmp_path / "trace"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load(path, cache=False, **options)


def test_the_shorter_prefix_of_a_group_is_the_start_of_the_longer(tmp_path):
    text = BLIS_NAMES + blis(0, 0, "g", 100) + blis(1, 1, "g", 40) + blis(2, 2, "h", 40) + blis(3, 3)
    assert prompts(loaded(tmp_path, text)) == [[(0, 40), (1, 60)], [(0, 40)], [(2, 40)], []]


def test_a_whole_prompt_that_is_another_sum_gets_a_word_of_warning(tmp_path):
    text = BLIS_NAMES + blis(0, 0, "g", 100).replace(",368,", ",999,")
    workload = loaded(tmp_path, text)
    assert workload.prompt_tok.tolist() == [368]
    assert (
        "warning: rows whose server_input_tokens is not input_tokens and prefix_length together: 1"
        in notes(workload)
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(0), row(None)], "line 2, column timestamp: a row without it .* or a delay in the later rows"),
        ([row(0), row(None, delay=5)], "line 2, column delay: 5 is not allowed; it must be in a row with a"),
        (
            [row(0, session_id="a"), row(9, session_id="a", delay=5)],
            "line 2, column delay: 5 is not allowed; it must not stand beside a timestamp",
        ),
        ([row(0, session_id="a"), row(None, session_id="a", delay="5")], "column delay: '5' is not allowed"),
    ],
)
def test_delays_that_are_not_clear_are_refused(tmp_path, rows, message):
    with refused(message):
        loaded(tmp_path, jsonl(*rows))


def test_a_session_whose_first_turn_is_left_out_goes_on_without_it(tmp_path):
    rows = [row(1000, 9, 0, session_id="a"), row(None, 9, 3, session_id="a", delay=7000)]
    rows += [row(None, 9, 3, session_id="a", delay=500)]
    workload = loaded(tmp_path, jsonl(*rows))
    assert workload.arrival_s.tolist() == [8.0, 8.5]
    assert workload.follows.tolist() == [-1, 0]
    rows[0]["output_length"], rows[1]["output_length"] = 3, 0
    workload = loaded(tmp_path, jsonl(*rows))
    assert workload.follows.tolist() == [-1, 0]
    assert workload.think_s.tolist() == [0.0, 7.5]


def test_a_turn_shorter_than_its_history_starts_anew(tmp_path):
    rows = [row(0, 50, 10, session_id="a"), row(1, 59, 10, session_id="a"), row(2, 69, 5, session_id="a")]
    workload = loaded(tmp_path, jsonl(*rows), turns="growing")
    first, second, third = prompts(workload)
    assert second[0] not in first
    assert third[: len(second)] == second
    assert [tok for _, tok in third] == [59, 10]
    assert "turns shorter than the turn before and its answer: 1 (first: line 2)" in notes(workload)


def test_turns_need_sessions_and_no_ids(tmp_path):
    with refused("turns: 'growing' does not apply to .*, which has no sessions"):
        loaded(tmp_path, jsonl(row(0)), turns="growing")
    with refused("turns: 'growing' does not apply to .* its hash ids say what prompts share"):
        loaded(tmp_path, jsonl(row(0, ids=[1], session_id="a")), turns="growing")


def test_what_is_stated_fills_only_what_is_missing(tmp_path):
    rows = [row(0, output=7), row(1, output=None)]
    assert loaded(tmp_path, jsonl(*rows), output_tok=3).output_tok.tolist() == [7, 3]
    with refused("line 2, column output_length: a row without it .*; or state output_tok"):
        loaded(tmp_path, jsonl(*rows))
    with refused("output_tok: 3 does not apply to .*: no row lacks output_length"):
        loaded(tmp_path, jsonl(row(0)), output_tok=3)


def test_stated_arrivals_start_sessions_and_keep_the_distances_within(tmp_path):
    rows = [row(5000, session_id="a"), row(5250, session_id="a"), row(9000, session_id="b"), row(9999)]
    workload = loaded(tmp_path, jsonl(*rows), arrivals="deterministic(0.1)")
    assert workload.arrival_s.tolist() == [10.0, 10.25, 20.0, 30.0]


def test_a_csv_row_that_is_cut_short_is_dropped_aloud(tmp_path):
    workload = loaded(tmp_path, "t,input,output\n0,10,5\n1,10")
    assert (len(workload), dropped(workload)) == (1, [("the last line is cut short", 1)])
    with refused("line 3: a row of 2 values is not allowed"):
        loaded(tmp_path, "t,input,output\n0,10,5\n1,10\n")


def test_a_whole_line_without_an_end_is_no_line_cut_short(tmp_path):
    text = jsonl(row(0)) + "INFO served 3 requests"
    with refused("line 2: 'INFO served 3 requests' is not allowed"):
        loaded(tmp_path, text)


@pytest.mark.parametrize(
    ("start", "word"),
    [
        (b"PK\x03\x04", "zip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\xfd7zXZ\x00", "xz"),
        (b"BZh9", "bzip2"),
        (b"ARROW1", "Arrow"),
        (b"", "binary"),
        (b"PAR1", "Parquet file, but cannot be read"),
    ],
)
def test_binary_files_are_named_and_not_shown(tmp_path, start, word):
    content = start + np.random.default_rng(0).bytes(5000)
    with pytest.raises(InputError, match=word) as refusal:
        loaded(tmp_path, content)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < len(str(tmp_path)) + 200


@pytest.mark.parametrize("option", [{}, {"skip_bad": True}])
def test_messages_show_no_raw_bytes_and_not_much(tmp_path, option):
    junk = "\x1b[31m\x07\u202e" + "\U0001f4a3\u200b" * 500
    for text in (
        jsonl(row(0)) + "{" + junk + "}\n",
        json.dumps({**row(0), "input_length": junk}) + "\n",
        json.dumps({**row(0), junk: 1, "timestamp": None}) + "\n",
        f"t,input,{junk}\n0,1,1\n",
        f"t,{junk},output\n0,1,1\n",
        f"t,input,output\n{junk},1,1\n",
        junk,
    ):
        try:
            said = str(loaded(tmp_path, text, **option).summary).replace("\n", " ")
        except InputError as refusal:
            said = str(refusal)
        assert said.isprintable()
        assert len(said) < 1500


def test_links_are_followed_in_any_order_and_in_circles(tmp_path):
    n = 5_000
    rows = [row(i, 16, 1, [i], chat_id=n - i, parent_chat_id=n - i - 1, turn=1) for i in range(n - 1)]
    rows += [row(n, 16, 1, [0], chat_id=1, parent_chat_id=-1, turn=1)]
    assert not loaded(tmp_path, jsonl(*rows)).session.any()
    rows[-1]["parent_chat_id"] = n
    assert not loaded(tmp_path, jsonl(*rows)).session.any()
