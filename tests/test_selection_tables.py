"""Tables of outcomes: known means, what is refused and how, and splits that keep repeats together."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.errors import InputError
from fastsim.selection.prices import make_prices, read_prices
from fastsim.selection.read_tables import read
from fastsim.selection.tables import split
from tests.selection_tables import make_table

FOLDER = "questions/"
PRICES = {"a": {"input_price": 1.0, "output_price": 2.0}, "b": {"input_price": 4.0, "call_price": 0.5}}
LONG = """question,model,score,text
q1,a,1,What is 1+1?
q1,b,0.5,What is 1+1?
q2,b,1,Who?
q2,a,0,Who?
"""


def written(tmp_path, text: str, name: str = "table.csv"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


# --- the real tables ----------------------------------------------------------------------------------------


def test_gsm8k(shared_path):
    table = read(shared_path(FOLDER + "routellm_gsm8k.csv.gz"))
    assert table.scores.mean(axis=0).tolist() == pytest.approx([0.638, 0.857], abs=0.0005)
    assert table.scores.max(axis=1).mean() == pytest.approx(0.929, abs=0.0005)
    assert table.costs.mean(axis=0).tolist() == [0.0, 1.0]
    assert table.assumptions == ("no prices: a call of 'strong' costs 1 and one of 'weak' 0",)
    priced = read(
        shared_path(FOLDER + "routellm_gsm8k.csv.gz"),
        prices={"weak": {"input_price": 4.0, "output_price": 8.0}, "strong": {"input_price": 40.0}},
    )
    assert priced.cost_unit == "$"
    assert priced.costs[0].tolist() == pytest.approx([(280 + 2 * 233) / 1e6, 10 * 280 / 1e6], rel=1e-12)
    assert priced.assumptions == ("tokens are taken as characters / 4",)


def test_mtbench_turns_stay_together(shared_path):
    table = read(shared_path(FOLDER + "routellm_mtbench_scores.csv"))
    assert sorted(table.scores.mean(axis=0)) == pytest.approx([8.34, 9.23], abs=0.005)
    assert table.size == 160
    assert np.bincount(table.question).tolist() == [2] * 80


def test_zeroeval(shared_path):
    gsm8k = shared_path(FOLDER + "routellm_gsm8k.csv.gz")
    path = shared_path(FOLDER + "zeroeval_gsm_correct.csv.gz")
    with pytest.raises(InputError, match="it holds no costs, and 43 models have no prices; give prices"):
        read(path)
    models = read(path, models=["gpt-4o-2024-08-06", "gpt-4o-mini-2024-07-18"], texts=gsm8k)
    assert models.texts == read(gsm8k).texts
    prices = {model: {"output_price": 1.0} for model in all_models(path)}
    table = read(path, prices=prices)
    assert table.scores.shape == (1319, 43)
    assert table.scores.max(axis=1).mean() == pytest.approx(0.996, abs=0.0005)
    assert table.costs[0, 0] == pytest.approx(199 / 4 / 1e6, rel=1e-12)
    assert table.assumptions == ("tokens are taken as characters / 4",)


def all_models(path):
    return gzip.decompress(path.read_bytes()).split(b"\n")[0].decode().strip().split(",")[1:]


def test_llmrouter9_leaves_out_what_is_tested_on_too(shared_path):
    table = read(
        shared_path(FOLDER + "llmrouter9_scores.csv.gz"),
        prices=shared_path(FOLDER + "llmrouter9_prices.json"),
    )
    means = table.scores.mean(axis=0)
    assert (means.min(), means.max()) == (pytest.approx(0.173, abs=5e-4), pytest.approx(0.617, abs=5e-4))
    assert table.scores.max(axis=1).mean() == pytest.approx(0.797, abs=0.0005)
    assert table.size - len(np.unique(table.question)) == 119
    parts = split(table)
    assert (parts.train.size, parts.test.size) == (5608 - 119, 500)
    assert parts.notes[1].startswith("119 rows to learn from were left out")
    assert "the table does not hold the length of answers: their tokens are not charged for" in (
        table.assumptions
    )
    longer = read(
        shared_path(FOLDER + "llmrouter9_scores.csv.gz"),
        prices=shared_path(FOLDER + "llmrouter9_prices.json"),
        answer_tok=100,
    )
    at = table.models.index("gemma-2-9b-it")
    np.testing.assert_allclose(longer.costs[:, at] - table.costs[:, at], 100 * 0.1 / 1e6, rtol=1e-9)


def test_routerarena_has_real_costs(shared_path):
    table = read(shared_path(FOLDER + "routerarena_cached.csv"))
    assert table.scores.shape == (809, 2)
    assert dict(zip(table.models, table.costs.mean(axis=0), strict=True)) == pytest.approx(
        {"claude-3-haiku-20240307": 1.76e-4, "gemini-2.0-flash-001": 4.75e-5}, rel=1e-3
    )
    assert table.scores.min() == pytest.approx(-0.033019, abs=1e-6)
    parts = split(table, by="domain")
    assert not set(parts.train.domain or ()) & set(parts.test.domain or ())


# --- plain tables -------------------------------------------------------------------------------------------


def test_a_long_table(tmp_path):
    table = read(written(tmp_path, LONG, "table.csv.gz"), prices=PRICES)
    assert table.models == ("a", "b")
    assert table.scores.tolist() == [[1, 0.5], [0, 1]]
    assert table.texts == ("What is 1+1?", "Who?")
    assert table.length is not None
    assert table.length.tolist() == [12, 4]
    assert table.costs[1].tolist() == pytest.approx([1e-6, 0.5 + 4e-6], rel=1e-12)


def test_a_long_table_with_costs_needs_no_prices(tmp_path):
    text = "question,model,score,cost,input_tokens,output_tokens\nq,a,1,0.5,3,4\nq,b,0,0.25,3,9\n"
    table = read(written(tmp_path, text))
    assert table.costs.tolist() == [[0.5, 0.25]]
    assert table.output_tok is not None
    assert table.output_tok.tolist() == [[4, 9]]
    assert table.assumptions == ()


def test_a_wide_table_keeps_equal_texts_together(tmp_path):
    table = read(written(tmp_path, "text,split,a,b\nx,train,1,0\ny,test,0,1\nx,test,1,1\n"))
    assert table.question.tolist() == [0, 1, 0]
    assert table.split == ("train", "test", "test")
    with pytest.raises(InputError, match="leaves 0 questions to train on and 2 to test on"):
        split(table)


PROMPTS = """question,prompt,answer,a,b
q1,"What is 1+1, in words?",two,1,TRUE
q2,Who wrote it?,nobody,0.5,false
q3,7 times 6,42,0,1
"""


def test_columns_of_text_beside_the_models_play_no_part(tmp_path):
    table = read(written(tmp_path, PROMPTS))
    assert table.models == ("a", "b")
    assert table.scores.tolist() == [[1.0, 1.0], [0.5, 0.0], [0.0, 1.0]]
    assert table.assumptions[0] == "columns that play no part: 'prompt', 'answer'"


def test_models_that_are_named_are_all_that_is_read(tmp_path):
    path = written(tmp_path, "question,id,note,a,b,c\nq1,7,x,1,0,oops\nq2,8,y,0,1,0\n")
    with pytest.raises(InputError, match=r"row 1 of the data, column c: 'oops' is not a number"):
        read(written(tmp_path, "question,a,b,c\nq1,1,0,oops\nq2,0,1,0\n", "typo.csv"))
    with pytest.raises(InputError, match=r"model 'id' is 7; .* no model, name those that are: --model"):
        read(written(tmp_path, "question,id,a,b\nq1,7,1,0\nq2,8,0,1\n", "id.csv"))
    assert read(path, models=["b", "a"]).scores.tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_a_long_table_reports_what_it_does_not_read(tmp_path):
    text = LONG.replace("text", "text,judge").replace("?\n", "?,me\n")
    table = read(written(tmp_path, text))
    assert "columns that play no part: 'judge'" in table.assumptions


def test_a_table_of_texts_names_the_columns_needed(tmp_path):
    with pytest.raises(
        InputError, match=r"column prompt: 'hi' is not a number; a table needs a column of num"
    ):
        read(written(tmp_path, "prompt,answer,a\nhi,you,1\nho,me,0\n"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("question,a,b\n", "table.csv: there is no question in the table"),
        ("question,a\n1,1\n", "there is a choice among at least 2 models, not 1"),
        (
            "question,a,b\n1,1.5,0\n",
            "of question 0 (counted from 0) and model 'a' is 1.5; it must be from 0 to",
        ),
        ("question,a,b\n1,1,\n", "scores: the value of question 0 (counted from 0) and model 'b' is missing"),
        ("question,a,b\n1,yes,0\n", "table.csv, row 1 of the data, column a: 'yes' is not a number"),
        ("question,a,b\n1,nan,0\n", "table.csv, row 1 of the data, column a: 'nan' is not a number"),
        ("question,split,a,b\n1,dev,1,0\n", "split 'dev' of row 0 is not known; say train or test"),
        ("question,length,a,b\n1,-2,1,0\n", "a length is missing or negative; it must be 0 or more"),
        (LONG + "q2,a,1,Who?\n", "the answer of model 'a' to question 'q2' is there twice"),
        (LONG + "q3,a,1,Why?\n", "the answer of model 'b' to question 'q3' is missing"),
        ("question,model,score,cost\nq,a,1,-1\nq,b,1,0\n", "model 'a' is -1; it must be finite and 0"),
        ('question,a,b\n1,"0,1\n', "table.csv is not a CSV table"),
    ],
)
def test_bad_tables_get_one_clear_sentence(tmp_path, text, said):
    with pytest.raises(InputError) as error:
        read(written(tmp_path, text))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_what_else_is_refused(tmp_path):
    path = written(tmp_path, LONG)
    odd = written(tmp_path, json.dumps({"a": 3}), "prices.json")
    cases = [
        (lambda: read(tmp_path / "none.csv"), "cannot be read: No such file"),
        (lambda: read(path, format="lon"), "format 'lon' is not known; did you mean 'long'?"),
        (lambda: read(path, format="routerarena"), "format routerarena needs a column 'global_index'"),
        (lambda: read(path, models=["a", "B"]), "there is no model 'B'; did you mean 'b'?"),
        (lambda: read(path, models=["a", "a"]), "model 'a' is there twice"),
        (lambda: read(path, prices={"a": {}}), "model 'b' has no price"),
        (lambda: read(path, prices={"a": {}, "b": {}}), "every call is free under these prices"),
        (lambda: read(path, prices=tmp_path / "p.json"), "cannot be read"),
        (lambda: read_prices(odd), "price of 'a': 3 is not allowed; give input_price and output_price"),
        (lambda: make_prices({"a": {"input_price": -1}}), "price of 'a': input_price = -1 is not allowed"),
        (lambda: make_prices({"a": {"inputprice": 1}}), "it has no parameter 'inputprice'; did you mean"),
        (lambda: read(path, answer_tok=-1), "answer_tok is -1; it must be finite and 0 or more"),
        (lambda: read(path, texts=written(tmp_path, "question,a,b\n1,1,0\n", "t.csv")), "holds no texts"),
        (lambda: split(make_table(), by="topic"), "split by 'topic' is not known"),
        (lambda: split(make_table(), by="table"), "it has no split to split by"),
        (lambda: split(make_table(), test_share=1.0), "test_share = 1.0 is not allowed; it must be a number"),
    ]
    for refused, said in cases:
        with pytest.raises(InputError) as error:
            refused()
        assert said in str(error.value)


# --- splits -------------------------------------------------------------------------------------------------


def texts_of(table) -> list[str]:
    return list(table.texts)


@given(st.integers(0, 10**6), st.sampled_from(["question", "domain"]), st.sampled_from([0.2, 0.5, 0.8]))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_no_question_is_on_both_sides(seed, by, share):
    table = make_table(40, seed=seed, repeats=15)
    parts = split(table, by=by, test_share=share, seed=seed)
    assert not set(parts.train.question) & set(parts.test.question)
    # Repeats share their topic, so nothing leaks and nothing is lost.
    assert sorted(texts_of(parts.train) + texts_of(parts.test)) == sorted(texts_of(table))
    again = split(table, by=by, test_share=share, seed=seed)
    assert again.test.texts == parts.test.texts


def test_a_split_by_the_table_drops_rows_that_leak():
    table = make_table(20, repeats=5)
    parts = split(replace(table, split=("train",) * 15 + ("test",) * 5))
    assert (parts.train.size, parts.test.size) == (10, 5)
    assert not set(parts.train.question) & set(parts.test.question)


def test_take_and_only_keep_rows_and_columns_together():
    table = make_table(9, models=3, repeats=0, output_tok=np.arange(27.0).reshape(9, 3))
    some = table.take([4, 1]).only(["m2", "m0"])
    assert some.scores.tolist() == table.scores[[4, 1]][:, [2, 0]].tolist()
    assert some.output_tok is not None
    assert some.output_tok.tolist() == [[14, 12], [5, 3]]
    assert texts_of(some) == [texts_of(table)[4], texts_of(table)[1]]
