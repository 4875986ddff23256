"""The commands of model selection: what they print and draw, and how they refuse."""

import dataclasses
import itertools
import json

import matplotlib.image
import numpy as np
import pytest

from fastsim import cli
from fastsim.errors import InputError
from fastsim.selection import systems
from fastsim.selection.choose import choose
from fastsim.selection.costs import Costs, per_call
from fastsim.selection.exhaustive import survey
from fastsim.selection.read_tables import read
from fastsim.selection.tables import Outcomes, split
from fastsim.selection.worlds import World

# `main` reads the command line itself, as the console script does; cyclopts takes that for a slip in tests.
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")

MODELS = ("ant", "bee", "cow")
PRICES = {"ant": {"call_price": 1}, "bee": {"call_price": 2}, "cow": {"call_price": 6}}


def make_table(questions: int = 120) -> Outcomes:
    rng = np.random.default_rng(5)
    scores = (rng.random((questions, 3)) < (0.4, 0.5, 0.7)).astype(float)
    costs = np.tile([1.0, 2.0, 6.0], (questions, 1))
    return Outcomes("made", MODELS, scores, costs, np.arange(questions))


@pytest.fixture
def files(tmp_path):
    scores = make_table().scores.astype(int)
    lines = [",".join(("qid", *MODELS)), *(f"{q},{','.join(map(str, row))}" for q, row in enumerate(scores))]
    (tmp_path / "scores.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "prices.json").write_text(json.dumps(PRICES))
    return tmp_path


@pytest.fixture
def run(capsys, monkeypatch, files):
    def fastsim(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.chdir(files)
        monkeypatch.setattr("sys.argv", ["fastsim", *arguments])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        out, err = capsys.readouterr()
        return int(exit.value.code or 0), out, err

    return fastsim


SELECT = ("select", "scores.csv", "--prices", "prices.json")


def test_select_prints_allocations_and_draws_them(run, files):
    code, out, err = run(*SELECT, "--system", "self_refine", "--spend", "5", "--loss", "0.05")
    assert (code, err) == (0, "")
    assert out.startswith("self_refine: 3 models in 3 modules\n")
    for words in (
        "best single model",
        "llmselector, cheaper for 0.05",
        "best within 5",
        "Pareto frontier of cost and accuracy",
        "split by question: 60 rows to learn from, 60 to test on",
        "in every module a model can do its part on just the questions that it answered right",
        "figure: results/select-self_refine.png",
    ):
        assert words in out
    picture = matplotlib.image.imread(files / "results" / "select-self_refine.png")
    assert picture.shape[1] == 8 * 160
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 50  # not blank


def test_select_as_json_is_what_choose_gives(run, files):
    code, out, _ = run(*SELECT, "--searcher", "exhaustive", "--model", "cow", "--model", "ant", "--json")
    assert code == 0
    table = read(files / "scores.csv", prices=files / "prices.json", models=["cow", "ant"])
    found = json.loads(out)
    assert found == json.loads(
        json.dumps(choose(systems.get("debate"), table, searcher="exhaustive").to_dict())
    )
    assert found["models"] == ["cow", "ant"]
    assert set(found["rows"][0]["allocation"].values()) == {"cow"}
    assert not (files / "results").exists()


def test_select_takes_parameters_of_the_searcher_and_a_system_in_toml(run, files):
    (files / "pair.toml").write_text(
        '[[module]]\nname = "a"\nrole = "step"\n[[module]]\nname = "b"\nrole = "step"\ninputs = ["a"]\n'
    )
    code, out, _ = run(
        *SELECT,
        "--system",
        "pair.toml",
        "--set",
        "diagnoser=0.9",
        "--set",
        "scoring=paper",
        "--budget",
        "9",
        "--json",
    )
    found = json.loads(out)
    assert (code, found["system"]) == (0, "pair")
    assert found["search"]["evaluated"] <= 9


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--system debat", "system 'debat' is not known; did you mean 'debate'?"),
        ("--searcher greedy", "searcher 'greedy' is not known; choose one of: "),
        ("--set gama=1", "searcher llmselector: it has no parameter 'gama'; did you mean 'gamma'?"),
        ("--set gamma", "--set 'gamma' must read key=value"),
        ("--model dog", "scores.csv: there is no model 'dog'; choose one of: ant, bee, cow"),
        ("--spend 0.1", "0.1 a question is too little; the cheapest allocation costs 6"),
        ("--budget 0", "budget is 0 evaluated allocations; it must be at least 1"),
        ("--budget 2.5", "--budget: '2.5' is not a whole number"),
        ("--out picture.pdf", "out is 'picture.pdf'; pictures are PNG files, so it must end in .png"),
        ("--test-share 1", "test_share = 1.0 is not allowed; it must be a number, above 0 and below 1"),
        ("--right-from 2", "right_from is 2; scores of scores.csv lie in [0, 1]"),
        ("--answer-tok -1", "answer_tok is -1; it must be finite and 0 or more"),
    ],
)
def test_wrong_input_is_one_clear_sentence(run, arguments, sentence):
    code, out, err = run(*SELECT, *arguments.split())
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_cycle_of_ties_ends(run):
    code, out, _ = run(*SELECT, "--system", "debate_swayed", "--set", "max_rounds=7")
    assert code == 0
    assert "llmselector evaluated 21 allocations" in out
    assert "it did not settle before its budget or limit" in out


def test_a_table_with_a_missing_score_is_refused(run, files):
    (files / "scores.csv").write_text("qid,ant,bee,cow\n0,1,,1\n1,0,1,1\n")
    code, _, err = run(*SELECT)
    assert code == 2
    assert "the value of question 0 (counted from 0) and model 'bee' is missing" in err


@pytest.mark.parametrize("what", ["systems", "searchers"])
def test_listings_name_every_entry(run, what):
    from fastsim.selection.searchers import SEARCHERS

    known = systems.SYSTEMS if what == "systems" else SEARCHERS
    code, out, _ = run(what)
    assert code == 0
    assert {line for line in out.splitlines() if not line.startswith(" ")} == set(known)
    code, out, _ = run(what, "--json")
    assert [entry["name"] for entry in json.loads(out)] == list(known)


# --- choose ---


def test_choices_are_judged_on_questions_they_were_not_made_by():
    table = make_table()
    found = choose(systems.get("self_refine"), table, searcher="exhaustive", spend=9.0, loss=0.0)
    parts = split(table)
    train, test = (World.from_table(systems.get("self_refine"), part) for part in (parts.train, parts.test))
    costs = Costs(test, per_call(test, money=parts.test.costs.T))
    for row in (*found.rows, *found.frontier, *found.singles):
        assert row.train_accuracy == train.accuracy(row.allocation)
        assert row.accuracy.value == pytest.approx(test.accuracy(row.allocation))
        assert row.accuracy.n == 60
        assert row.cost == pytest.approx(costs.of(row.allocation))
    single, best = found.rows[:2]
    assert single.gain.value == 0.0
    assert best.train_accuracy == max(map(train.accuracy, itertools.product(range(3), repeat=3)))
    assert best.gain.value == pytest.approx(best.accuracy.value - single.accuracy.value)


def test_repeats_of_a_question_count_as_one():
    table = make_table()
    twice = table.take(np.repeat(np.arange(table.size), 2))
    once, again = (choose(systems.get("debate"), each) for each in (table, twice))
    assert [row.accuracy for row in again.rows] == [row.accuracy for row in once.rows]


def test_the_frontier_of_many_models_is_that_of_the_most_promising(monkeypatch):
    """None of the three is beaten in both cost and accuracy, so the most accurate two stay."""
    table = make_table()
    monkeypatch.setattr("fastsim.selection.choose.MOST_FOR_FRONTIER", 8)
    found = choose(systems.get("self_refine"), table)
    assert "the frontier is that of 2 of the 3 models" in found.notes[-1]
    part = split(table).train
    assert (np.diff(part.scores.mean(axis=0)) > 0.0).all()
    kept = part.only(["bee", "cow"])
    world = World.from_table(systems.get("self_refine"), kept)
    wanted = survey(world, Costs(world, per_call(world, money=kept.costs.T))).frontier
    assert [row.allocation for row in found.frontier] == [
        tuple(k + 1 for k in point.allocation) for point in wanted
    ]


def test_a_beaten_model_leaves_before_a_less_accurate_one(monkeypatch):
    table = make_table()
    dear = dataclasses.replace(table, costs=np.tile([1.0, 7.0, 6.0], (table.size, 1)))
    monkeypatch.setattr("fastsim.selection.choose.MOST_FOR_FRONTIER", 8)
    found = choose(systems.get("self_refine"), dear)
    assert {k for row in found.frontier for k in row.allocation} == {0, 2}


@pytest.mark.parametrize("system", ["locate_solve", "self_refine", "debate", "debate_swayed"])
def test_real_tables_can_be_chosen_from(shared_path, system):
    table = read(
        shared_path("questions/llmrouter9_scores.csv.gz"),
        prices=shared_path("questions/llmrouter9_prices.json"),
        models=["qwen2.5-7b-instruct", "llama-3.1-8b-instruct", "gemma-2-9b-it"],
    )
    found = choose(systems.get(system), table)
    assert found.rows[0].accuracy.n == 500
    assert "scores of 0.5 and above count as right" in found.notes
    assert found.frontier[-1].train_accuracy >= max(row.train_accuracy for row in found.rows) - 1e-12


def test_a_price_that_is_missing_is_named(shared_path):
    with pytest.raises(InputError, match=r"model 'Athene-70B' has no price"):
        read(shared_path("questions/zeroeval_gsm_correct.csv.gz"), prices={"gpt": {"output_price": 1}})
