"""Hash ids of traces: block sizes, partial blocks, ids of any size."""

from __future__ import annotations

import pytest

from tests.trace_files import from_text, line, prompts, refused


def test_the_same_last_id_with_other_tokens_is_another_symbol(tmp_path):
    text = "".join(line(prompt=p, hash_ids=[1, 2]) for p in (600, 600, 700))
    assert prompts(from_text(tmp_path, text)) == [
        [(0, 512), (1, 88)],
        [(0, 512), (1, 88)],
        [(0, 512), (2, 188)],
    ]


def test_full_blocks_only_leaves_the_rest_private(tmp_path):
    workload = from_text(tmp_path, line(prompt=200, hash_ids=[5, 6, 7]) + line(prompt=130, hash_ids=[5, 6]))
    assert prompts(workload) == [[(0, 64), (1, 64), (2, 64)], [(0, 64), (1, 64)]]
    assert workload.summary.block_tok == 64
    assert "only full blocks have ids" in workload.summary.block_why


def test_a_prompt_shorter_than_a_block_may_have_no_id(tmp_path):
    workload = from_text(tmp_path, line(prompt=200, hash_ids=[5, 6, 7]) + line(prompt=63, hash_ids=[]))
    assert prompts(workload)[1] == []


def test_an_unusual_block_size_is_found_where_it_is_the_only_one(tmp_path):
    rows = [(1000, 10), (901, 10), (900, 9), (99, 1)]
    text = "".join(line(prompt=p, hash_ids=list(range(k))) for p, k in rows)
    assert from_text(tmp_path, text).summary.block_tok == 100
    assert "no other size fits" in from_text(tmp_path, text).summary.block_why
    rows = [(1099, 10), (1000, 10), (999, 9), (199, 1)]
    text = "".join(line(prompt=p, hash_ids=list(range(k))) for p, k in rows)
    assert from_text(tmp_path, text).summary.block_tok == 100
    assert "only full blocks have ids" in from_text(tmp_path, text).summary.block_why


def test_an_unusual_block_size_among_several_must_be_stated(tmp_path):
    rows = [(1099, 10), (1000, 10), (999, 9)]  # 111 with a partial block at the end, or 100 without
    text = "".join(line(prompt=p, hash_ids=list(range(k))) for p, k in rows)
    with refused("at 512 tokens an id, which is assumed as published"):
        from_text(tmp_path, text)
    assert len(from_text(tmp_path, text, block_tok=100)) == 3
    assert len(from_text(tmp_path, text, block_tok=111)) == 3


def test_most_rows_tell_the_block_size_and_the_others_are_wrong(tmp_path):
    text = line(prompt=640, hash_ids=list(range(10))) * 3 + line(prompt=640, hash_ids=[1, 2])
    with refused("line 4, column hash_ids: a list of 2 ids .* hold 10 for input_length 640"):
        from_text(tmp_path, text)
    workload = from_text(tmp_path, text, skip_bad=True)
    assert len(workload) == 3
    assert "75 % of the rows fit" in workload.summary.block_why


def test_a_stated_block_size_is_kept(tmp_path):
    workload = from_text(tmp_path, line(prompt=64, hash_ids=[0]), block_tok=128)
    assert workload.summary.block_tok == 128
    assert workload.summary.block_why.startswith("stated by the user")
    assert "16 would fit" not in workload.summary.block_why


BIG = [2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 2**63 - 1, 10**40, 0, -1, -(2**63)]


def test_ids_of_64_bits_and_more_stay_apart(tmp_path):
    text = "".join(line(prompt=512, hash_ids=[i]) for i in (*BIG, *BIG))
    workload = from_text(tmp_path, text)
    assert workload.symbols.tolist() == [*range(len(BIG)), *range(len(BIG))]


def test_scattered_64_bit_ids_are_interned(tmp_path):
    ids = [7 * 10**18, -7 * 10**18, 5, 7 * 10**18 + 1]
    text = "".join(line(prompt=512, hash_ids=[i]) for i in (*ids, *ids))
    assert from_text(tmp_path, text).symbols.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]


def test_ids_may_be_texts(tmp_path):
    text = "".join(line(prompt=512, hash_ids=[i]) for i in ("05", "5", 5, "a0", "05"))
    assert from_text(tmp_path, text).symbols.tolist() == [0, 1, 2, 3, 0]


@pytest.mark.parametrize("value", ["[1.5]", "[true]", "[null]", "[1e300]", "7", '"7"', "[[1]]"])
def test_other_ids_are_refused(tmp_path, value):
    with refused("line 1, column hash_ids: .* must be a list of whole numbers or texts"):
        from_text(tmp_path, line(hash_ids=[0]).replace("[0]", value))


def test_ids_must_be_there_in_every_row_or_in_none(tmp_path):
    assert len(from_text(tmp_path, line() * 2).symbols) == 0
    with refused("line 2, column hash_ids: a row without it"):
        from_text(tmp_path, line(hash_ids=[1]) + line())


def test_unknown_keys_are_ignored_but_listed(tmp_path):
    workload = from_text(tmp_path, line(think_s=1.5, hash_ids=[1]) + line(model='m: "x"', hash_ids=[1]))
    assert workload.summary.ignored_columns == ("think_s", "model")
    assert "ignored     columns think_s, model" in str(workload.summary)


def test_sessions_may_be_given(tmp_path):
    text = line(session_id=9) + line(session_id="b") + line() + line(session_id=9)
    assert from_text(tmp_path, text).session.tolist() == [0, 1, -1, 0]
