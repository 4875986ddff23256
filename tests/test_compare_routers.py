"""Routers compared: resampling by question, measures on draws, and the command that prints them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fastsim import cli
from fastsim.errors import InputError
from fastsim.selection import route_metrics as measure
from fastsim.selection.cascade_curve import cascade_curve
from fastsim.selection.compare_routers import MEASURES, TWO_MODELS, compare
from fastsim.selection.model_routers import MODEL_ROUTERS, fit
from fastsim.selection.resample import draw_questions, interval, paired
from fastsim.selection.tables import split
from tests.selection_tables import make_table

# `main` reads the command line itself, as the console script does; cyclopts takes that for a slip in tests.
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")

QUICK: Any = {"draws": 100, "seed": 1}

# --- resampling ---------------------------------------------------------------------------------------------


def test_rows_of_a_question_are_drawn_together():
    question = np.array([7, 3, 7, 5, 3, 3])
    draws = draw_questions(question, 200, seed=0)
    assert draws.clusters == 3
    assert (draws.count.sum(axis=1) == 3).all()
    assert (draws.weight[:, 0] == draws.weight[:, 2]).all()
    assert (draws.weight[:, 1] == draws.weight[:, 5]).all()
    values = np.random.default_rng(0).random((6, 2))
    slow = [np.repeat(values, w.astype(int), axis=0).mean(axis=0) for w in draws.weight]
    np.testing.assert_allclose(draws.means(values), slow, rtol=1e-12)


def covered(repeated: int, *, as_clusters: bool, trials: int = 300, questions: int = 60) -> float:
    """Share of 95 % intervals for a mean of 0 that hold it, every question being there `repeated` times."""
    rng = np.random.default_rng(11)
    hits = 0
    for trial in range(trials):
        values = np.repeat(rng.standard_normal(questions), repeated)
        names = np.repeat(np.arange(questions), repeated) if as_clusters else np.arange(len(values))
        draws = draw_questions(names, 200, seed=trial)
        found = interval(float(values.mean()), draws.means(values[:, None])[:, 0], draws.clusters)
        hits += found is not None and found.contains(0.0)
    return hits / trials


def test_intervals_cover_when_repeats_are_drawn_together_and_not_otherwise():
    # A percentile interval over 60 questions covers at 93 to 95 %; 4 standard errors of 300 trials are 5.5 %.
    assert covered(3, as_clusters=True) == pytest.approx(0.94, abs=0.055)
    assert covered(3, as_clusters=False) < 0.85


def test_paired_differences_use_the_same_draws():
    a, b = np.arange(100.0), np.arange(100.0) + 3.0
    found = paired(1.0, a, 4.0, b, clusters=9)
    assert found is not None
    assert (found.value, found.low, found.high, found.vrf, found.n) == (-3.0, -3.0, -3.0, math.inf, 9)
    assert paired(math.nan, a, 4.0, b, 9) is None
    assert interval(math.inf, a, 9) is None
    unreached = interval(0.5, np.r_[np.full(50, -np.inf), np.full(50, 0.5)], 9)
    assert unreached is not None
    assert (unreached.low, unreached.high) == (-math.inf, 0.5)


@pytest.mark.parametrize(
    ("question", "draws", "said"),
    [([0, 1], 99, "draws is 99; an interval needs at least 100"), ([4, 4], 100, "only 1 question")],
)
def test_too_few_to_resample(question, draws, said):
    with pytest.raises(InputError, match=said):
        draw_questions(np.array(question), draws, 0)


# --- comparisons --------------------------------------------------------------------------------------------


def test_measures_are_those_of_the_test_questions():
    table = make_table(200, models=2)
    found = compare(table, **QUICK)
    parts = split(table, seed=1)
    lines = {line.name: line for line in found.lines}
    assert list(lines) == list(MODEL_ROUTERS)
    for name, line in lines.items():
        routed = fit(name, parts.train, seed=1).route(parts.test)
        quality, cost = line.measures["quality"], line.measures["cost"]
        assert quality is not None
        assert cost is not None
        assert quality.value == pytest.approx(routed.score.mean(), abs=1e-12)
        assert cost.value == pytest.approx(routed.cost.mean(), rel=1e-12)
        assert quality.low <= quality.value <= quality.high
        assert set(line.measures) - {"router_arena"} <= {*MEASURES, *TWO_MODELS}
        assert ("aiq" in line.measures) == line.has_dial == (not MODEL_ROUTERS[name].fixed)
    strong = int(parts.train.scores.mean(axis=0).argmax())
    predicted = fit("knn", parts.train, seed=1).quality(parts.test)
    scores = parts.test.scores
    curve = measure.strong_curve(
        predicted[:, strong] - predicted[:, 1 - strong], scores[:, 1 - strong], scores[:, strong]
    )
    apgr = lines["knn"].measures["apgr"]
    assert apgr is not None
    assert apgr.value == pytest.approx(float(measure.apgr(curve)), abs=1e-12)


def test_random_recovers_half_and_differs_from_itself_by_nothing():
    found = compare(make_table(200, models=2), ["random", "oracle"], **QUICK)
    random, oracle = found.lines if found.lines[0].name == "random" else reversed(found.lines)
    values = {name: random.measures[name] for name in TWO_MODELS}
    assert [round(x.value, 9) for x in values.values() if x] == [0.5, 0.5, 0.5, 0.8]
    for difference in random.versus.values():
        assert difference is None or (difference.low, difference.value, difference.high) == (0, 0, 0)
    better = oracle.versus["aiq"]
    assert better is not None
    assert better.low > 0.0


def test_no_router_is_better_than_the_oracle():
    found = compare(make_table(300, models=4), **QUICK)
    for line in found.lines:
        gap = line.measures["gap_at_oracle"]
        assert gap is not None
        assert gap.low >= 0.0
        assert (gap.high == 0.0) == (line.name == "oracle")


def test_outcomes_of_the_test_questions_do_not_change_the_costs():
    table = make_table(100, models=3, repeats=0, split=("train", "test") * 50)
    flipped = table.scores.copy()
    flipped[1::2] = 1.0 - flipped[1::2]
    for before, after in zip(
        compare(table, **QUICK).lines,
        compare(replace(table, scores=flipped), **QUICK).lines,
        strict=True,
    ):
        if not before.bound:
            assert before.cost == after.cost
            assert before.dial.tolist() == after.dial.tolist()


def test_cascades_are_compared_beside_routers():
    table = make_table(300, models=3)
    found = compare(table, ["knn"], extra=lambda parts: [cascade_curve(parts, 0.95, seed=1)], **QUICK)
    assert [line.name for line in found.lines] == ["knn", "cascade (AUC 0.95)"]
    cascade = found.lines[1]
    assert (np.diff(cascade.dial) < 0).all()  # mean costs where it was searched for, dearest first
    best = max(quality.value for _, quality in found.models.values() if quality)
    top = cascade.measures["quality"]
    assert top is not None
    assert top.value > best  # a good scorer beats any one model


def test_routers_that_lack_features_are_left_out_and_said_so():
    table = make_table(100, texts=None)
    found = compare(table, **QUICK)
    assert [line.name for line in found.lines] == ["oracle", "random", "cheapest", "best_single"]
    assert found.notes[-1].endswith("left out: the table holds no texts or lengths of questions")
    with pytest.raises(InputError, match="which model router knn needs"):
        compare(table, ["knn"], **QUICK)


def test_the_same_seed_gives_the_same_comparison():
    table = make_table(100)
    first, again, other = (compare(table, draws=100, seed=seed).to_dict() for seed in (1, 1, 2))
    assert first == again
    assert first != other


# --- the command --------------------------------------------------------------------------------------------


@pytest.fixture
def run(capsys, monkeypatch):
    def fastsim(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["fastsim", *arguments])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        out, err = capsys.readouterr()
        return int(exit.value.code or 0), out, err

    return fastsim


@pytest.fixture
def csv(tmp_path):
    table = make_table(120, models=3)
    scores = [",".join(f"{score:g}" for score in row) for row in table.scores]
    texts = table.texts or ()
    rows = ["text,a,b,c", *(f"{text},{row}" for text, row in zip(texts, scores, strict=True))]
    path, prices = tmp_path / "mine.csv", tmp_path / "prices.json"
    path.write_text("\n".join(rows))
    prices.write_text(json.dumps({name: {"input_price": float(k + 1)} for k, name in enumerate("abc")}))
    return str(path), str(prices)


def test_route_prints_a_table_and_draws(run, csv, tmp_path):
    path, prices = csv
    picture = tmp_path / "out" / "r.png"
    code, out, err = run(
        "route", path, "--prices", prices, "--scorer-auc", "0.9", "--draws", "100", "--out", str(picture)
    )
    assert (code, err) == (0, "")
    first = [line.split("  ")[0] for line in out.splitlines()]
    assert set(MODEL_ROUTERS) | {"cascade (AUC 0.9)", "a", "b", "c"} <= set(first)
    assert "tokens are taken as characters / 4" in out
    assert "split by question" in out
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_route_as_json_is_what_compare_gives(run, csv):
    from fastsim.selection.read_tables import read

    path, prices = csv
    code, out, _ = run("route", path, "--prices", prices, "--draws", "100", "--set", "knn.k=7", "--json")
    found = compare(read(path, prices=prices), params={"knn": {"k": 7}}, draws=100)
    knn = next(line for line in found.lines if line.name == "knn").measures["aiq"]
    assert code == 0
    line = next(line for line in json.loads(out)["lines"] if line["name"] == "knn")
    assert knn is not None
    assert line["measures"]["aiq"]["value"] == knn.value
    assert set(json.loads(out)["models"]["a"]) == {"cost", "quality"}


def test_route_on_two_models_prints_what_routellm_measures(run, shared_path, tmp_path):
    picture = tmp_path / "g.png"
    gsm8k = str(shared_path("questions/routellm_gsm8k.csv.gz"))
    asked = ["--router", "length", "--router", "random", "--draws", "100", "--out", str(picture)]
    code, out, _ = run("route", gsm8k, *asked)
    assert code == 0
    assert "CPT(80 %)" in out
    assert "no prices: a call of 'strong' costs 1 and one of 'weak' 0" in out


PAIR = ["{csv}", "--model", "a", "--model", "b"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.csv"], "path: 'none.csv' cannot be read: No such file or directory"),
        (["{csv}"], "mine.csv: it holds no costs, and 3 models have no prices; give prices"),
        ([*PAIR, "--router", "kn"], "model router 'kn' is not known; did you mean 'knn'?"),
        ([*PAIR, "--set", "k=3"], "setting 'k' names no router"),
        ([*PAIR, "--scorer-auc", "2"], "auc is 2; it must lie from 0.5 to 1"),
        ([*PAIR, "--by", "domain"], "it has no domain to split by"),
        (["{csv}", "--out", "x.pdf"], "out is 'x.pdf'; pictures are PNG files, so it must end in .png"),
    ],
)
def test_route_refuses_in_one_sentence(run, csv, arguments, said):
    code, out, err = run("route", *(text.replace("{csv}", csv[0]) for text in arguments))
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_model_routers_are_listed(run):
    code, out, _ = run("model-routers")
    assert code == 0
    assert all(name in out.splitlines() for name in MODEL_ROUTERS)
    code, out, _ = run("model-routers", "--json")
    assert {entry["name"]: entry["parameters"] for entry in json.loads(out)}["knn"] == {"k": 40}
