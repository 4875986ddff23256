"""Compound systems and worlds: beside a twin question by question, as specified, and how they refuse."""

from __future__ import annotations

import dataclasses
import tomllib

import numpy as np
import pytest

from fastsim.errors import InputError
from fastsim.selection import roles, systems
from fastsim.selection.exhaustive import correct_counts
from fastsim.selection.latent import DIV, P1, Latent, demo_1
from fastsim.selection.searchers import search
from fastsim.selection.systems import Module, System
from fastsim.selection.tables import Outcomes
from fastsim.selection.worlds import Coupling, World
from tests.selection_worlds import SHIPPED, allocations, random_world
from tests.twins import selection as twin

A, B, C, D, E = range(5)


@pytest.mark.small
@pytest.mark.parametrize("system", SHIPPED)
@pytest.mark.parametrize("coupled", [False, True])
def test_every_question_is_answered_blamed_and_charged_as_by_the_twin(system, coupled):
    world = random_world(system, 3, questions=20, coupled=coupled)
    rng = np.random.default_rng(1)
    some = allocations(world)
    for allocation in (some[i] for i in rng.permutation(len(some))[:40]):
        right = world.correct(allocation)
        blame = [world.to_blame(allocation, slot) for slot in range(world.slots)]
        called = [world.ran(allocation, slot) for slot in range(world.slots)]
        for q in range(world.questions):
            wanted, wanted_blame, wanted_calls = twin.run(world, allocation, q)
            assert right[q] == wanted
            assert [bool(each[q]) for each in blame] == wanted_blame
            assert [each is None or bool(each[q]) for each in called] == wanted_calls


def test_a_twin_covers_every_shipped_system():
    assert set(SHIPPED) == set(twin.RULES)


@pytest.mark.small
def test_demonstration_1_has_the_digits_of_the_reference_run():
    train, test = demo_1()
    at = {(C, C): 0.45, (A, C): 0.44, (C, B): 0.44, (E, E): 0.20, (E, C): 0.27, (A, B): 0.95}
    assert {pair: train.accuracy(pair) for pair in at} == pytest.approx(at, abs=1e-12)
    at = {(C, C): 0.51, (A, B): 0.99, (E, B): 0.485}
    assert {pair: test.accuracy(pair) for pair in at} == pytest.approx(at, abs=1e-12)


# Test accuracy over ten pools: best single model, LLMSelector, exhaustive, coordinate greedy, random search
# with as many evaluations, and how many those are.
P1_TABLE = {
    "locate_solve": (0.667, 0.685, 0.690, 0.690, 0.653, 19),
    "self_refine": (0.799, 0.877, 0.877, 0.876, 0.866, 34),
    "debate": (0.893, 0.934, 0.937, 0.933, 0.925, 60),
}


@pytest.mark.parametrize("system", P1_TABLE)
def test_world_p1_reproduces_the_reference_table(system):
    searchers = ("best_single", "llmselector", "exhaustive", "coordinate_greedy", "random")
    rows = []
    for seed in range(10):
        scene = P1.draw(seed, systems.get(system))
        row, evaluated = [], 0
        for name in searchers:
            params = {"samples": evaluated} if name == "random" else {}
            found = search(scene.train, name, params, start=scene.start, rng=scene.rng)
            row.append(scene.test.accuracy(found.allocation))
            evaluated = int(found.evaluated) if name == "llmselector" else evaluated
        rows.append([*row, evaluated])
    *ours, evaluated = np.mean(rows, axis=0)
    *wanted, wanted_evaluated = P1_TABLE[system]
    assert ours == pytest.approx(wanted, abs=0.00051)  # three decimals printed, halves rounded either way
    assert evaluated == pytest.approx(wanted_evaluated, abs=0.5)


@pytest.mark.parametrize(
    ("train", "gamma", "evaluated"),
    [
        (200, 0.1, (60, 530, 638, 634, 725)),
        (100, 0.1, (62, 388, 612, 542, 524)),
        (100, 0.0, (62, 418, 809, 819, 818)),
    ],
)
def test_a_noisy_diagnoser_costs_what_it_cost_the_reference_run(train, gamma, evaluated):
    law = dataclasses.replace(P1, train=train)
    ours = []
    for accuracy in (1.0, 0.9, 0.8, 0.7, 0.6):
        scenes = [law.draw(seed, systems.get("debate")) for seed in range(10)]
        params = {"diagnoser": accuracy, "gamma": gamma}
        took = [
            search(each.train, "llmselector", params, start=each.start, rng=each.rng, budget=1000).evaluated
            for each in scenes
        ]
        ours.append(np.mean(took))
    assert ours == pytest.approx(evaluated, abs=0.51)


def best(counts) -> tuple[int, ...]:
    return tuple(int(k) for k in np.unravel_index(int(counts.argmax()), counts.shape))


def test_critics_blind_to_their_own_mistakes_are_kept_apart_from_the_generator():
    law, gains, selected = P1.with_latent(blind_to_own=0.3), [], []
    for seed in range(10):
        scene = law.draw(seed, systems.get("self_refine"))
        counts = correct_counts(scene.train)
        generator, critic, _ = np.indices(counts.shape)
        whole, same = best(counts), best(np.where(generator == critic, counts, -1))
        assert whole[0] != whole[1]
        gains.append(scene.test.accuracy(whole) - scene.test.accuracy(same))
        selected.append(search(scene.train, "llmselector", start=scene.start, rng=scene.rng).allocation)
    assert 100 * np.mean(gains) == pytest.approx(9.0, abs=0.051)
    assert all(allocation[0] != allocation[1] for allocation in selected)


def test_world_div_reproduces_the_reference_run():
    rows = []
    for seed in range(10):
        scene = DIV.draw(seed, systems.get("debate_swayed"))
        counts = correct_counts(scene.train)
        a, b, c, *_ = np.indices(counts.shape)
        whole, same = best(counts), best(np.where((a == b) & (b == c), counts, -1))
        single = search(scene.train, "best_single").allocation
        selector = search(scene.train, "llmselector", start=scene.start, rng=scene.rng)
        greedy = search(scene.train, "coordinate_greedy", start=scene.start, rng=scene.rng)
        accuracy = scene.test.accuracy
        gains = (accuracy(whole) - accuracy(same), accuracy(selector.allocation) - accuracy(single))
        rows.append(
            [
                len(set(whole[:3])) > 1,
                *gains,
                selector.evaluated,
                accuracy(greedy.allocation),
                accuracy(single),
            ]
        )
    several, gain, selected, evaluated, greedy, single = np.mean(rows, axis=0)
    assert several == 0.6
    assert (100 * gain, 100 * selected) == pytest.approx((2.4, 2.1), abs=0.051)
    assert evaluated == pytest.approx(71, abs=0.5)
    assert (greedy, single) == pytest.approx((0.823, 0.885), abs=0.00051)


def test_models_succeed_as_often_as_their_ability_says():
    abilities = np.array([[0.1, 0.9], [0.5, 0.97]])
    world = Latent(0.3, 0.5).draw(np.random.default_rng(1), systems.get("locate_solve"), abilities, 200_000)
    error = np.sqrt(abilities * (1 - abilities) / 200_000)
    assert (np.abs(world.success.mean(axis=2).T - abilities) < 4 * error).all()


def test_models_that_share_all_difficulty_never_differ_within_a_question():
    world = Latent(0.4, 0.6).draw(np.random.default_rng(1), systems.get("locate_solve"), [[0.5, 0.5]], 1000)
    assert (world.success[0] == world.success[1]).all()


@pytest.mark.small
def test_a_user_adds_a_system_in_a_few_lines_and_searches_it(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(
        """
        name = "plan_then_refine"
        [[module]]
        name = "plan"
        role = "step"
        [[module]]
        name = "draft"
        role = "step"
        inputs = ["plan"]
        [[module]]
        name = "check"
        role = "critique"
        inputs = ["draft"]
        [[module]]
        name = "mend"
        role = "refine"
        inputs = ["draft", "check"]
        """
    )
    system = systems.get(str(path))
    same = System(
        "plan_then_refine",
        (
            Module("plan", "step"),
            Module("draft", "step", ("plan",)),
            Module("check", "critique", ("draft",)),
            Module("mend", "refine", ("draft", "check")),
        ),
    )
    assert system == same
    rng = np.random.default_rng(4)
    world = World(system, ("A", "B"), rng.random((4, 2, 50)) < 0.6)
    plan, draft, check, mend = (world.success[slot, 1] for slot in range(4))
    assert (world.correct((1, 1, 1, 1)) == ((plan & draft) | (check & mend))).all()
    counts = correct_counts(world)
    assert [counts[a] for a in allocations(world)] == [world.correct(a).sum() for a in allocations(world)]


@pytest.mark.small
@pytest.mark.parametrize("name", list(systems.SYSTEMS))
def test_every_registered_system_keeps_the_contract(name):
    """All roles exist, it is described, and with models that never fail it is never wrong or to blame."""
    system = systems.get(name)
    assert system.doc.endswith(".")
    assert all(module.role in roles.ROLES for module in system.modules)
    world = World(system, ("A",), np.ones((len(system.slots), 1, 5), dtype=np.bool_))
    everywhere = (0,) * world.slots
    assert world.correct(everywhere).all()
    assert not any(world.to_blame(everywhere, slot).any() for slot in range(world.slots))
    failing = World(system, ("A",), np.zeros((len(system.slots), 1, 5), dtype=np.bool_))
    assert not failing.correct(everywhere).any()
    blamed = [failing.to_blame(everywhere, slot) for slot in range(world.slots)]
    assert np.any(blamed, axis=0).all()


@pytest.mark.small
@pytest.mark.parametrize("name", list(roles.ROLES))
def test_every_role_is_described_and_names_a_wrong_answer_or_passes_one_on(name):
    role = roles.get(name)
    assert role.doc.endswith(".")
    fewest, most = role.inputs
    assert 0 <= fewest <= most


def test_a_world_from_a_table_takes_answers_for_abilities():
    scores = np.array([[1.0, 0.0, 0.4], [0.0, 1.0, 0.6], [0.0, 0.0, 0.5]])
    table = Outcomes("t", ("x", "y", "z"), scores, np.zeros((3, 3)), np.arange(3))
    world = World.from_table(systems.get("self_refine"), table)
    assert world.correct((0, 1, 1)).tolist() == [True, True, False]
    assert world.correct((0, 0, 1)).tolist() == [True, False, False]  # its own critic sees no mistake
    assert world.accuracy((2, 2, 2)) == pytest.approx(2 / 3)
    assert World.from_table(systems.get("self_refine"), table, 0.6).accuracy((2, 2, 2)) == pytest.approx(
        1 / 3
    )


def outcomes() -> Outcomes:
    return Outcomes("t", ("x", "y"), np.ones((4, 2)), np.zeros((4, 2)), np.arange(4))


def chain(*modules: Module) -> System:
    return System("s", modules)


REFUSED = {
    "system s: module 'a': role 'stepp' is not known; did you mean 'step'?": lambda: chain(
        Module("a", "stepp")
    ),
    "system s: module 'b': input 'c' is no module before it; choose one of: a": lambda: chain(
        Module("a", "step"), Module("b", "step", ("c",))
    ),
    "system s: module 'b' has 1 inputs; role refine takes 2": lambda: chain(
        Module("a", "step"), Module("b", "refine", ("a",))
    ),
    "system s: module 'a' is there twice": lambda: chain(Module("a", "step"), Module("a", "step")),
    "system s: nobody reads what module 'a' answers": lambda: chain(Module("a", "step"), Module("b", "step")),
    "system s has no module that a model does": lambda: chain(),
    "system 'debat' is not known; did you mean 'debate'?": lambda: systems.get("debat"),
    "system gone.toml: No such file or directory": lambda: systems.get("gone.toml"),
    "system system: Object missing required field `module`": lambda: systems.parse({}),
    "system system: Object contains unknown field `modul`": lambda: systems.parse(
        {"module": [], "modul": []}
    ),
    "right_from is 0; scores of t lie in [0, 1]": lambda: World.from_table(
        systems.get("debate"), outcomes(), 0.0
    ),
    "success has shape (1, 1, 1); system locate_solve with 1 models needs (2, 1, questions)": lambda: World(
        systems.get("locate_solve"), ("A",), np.ones((1, 1, 1), dtype=np.bool_)
    ),
    "success holds float64; it must hold true and false": lambda: World(
        systems.get("locate_solve"),
        ("A",),
        np.ones((2, 1, 1)).astype(np.dtype(float)),  # pyright: ignore[reportArgumentType]
    ),
    "a world needs models and questions; this one has 1 and 0": lambda: World(
        systems.get("locate_solve"), ("A",), np.ones((2, 1, 0), dtype=np.bool_)
    ),
    "model 'A' is there twice": lambda: World(
        systems.get("locate_solve"), ("A", "A"), np.ones((2, 2, 3), dtype=np.bool_)
    ),
    "coupling of slot 0 with 1: the partner must be an earlier slot, of 0 to 1": lambda: World(
        systems.get("locate_solve"),
        ("A",),
        np.ones((2, 1, 3), dtype=np.bool_),
        (Coupling(0, 1, np.ones((1, 3), dtype=np.bool_)),),
    ),
    "allocation (0, 9): there is no model 9, only 0 to 4": lambda: demo_1()[0].allocation([0, 9]),
    "allocation (0,) has 1 models; it needs 2": lambda: demo_1()[0].allocation([0]),
    "shared 0.7 and per_model 0.7 are shares of one variance: 0 or more, at most 1 together": lambda: Latent(
        0.7, 0.7
    ),
    "ability holds 1.5; it must lie in [0, 1]": lambda: Latent(0.5, 0.5).draw(
        np.random.default_rng(0), systems.get("locate_solve"), [[0.5, 1.5]], 10
    ),
    "system debate has no critic that could be blind to its own mistakes": lambda: P1.with_latent(
        blind_to_own=0.5
    ).draw(0, systems.get("debate")),
}


@pytest.mark.small
@pytest.mark.parametrize("sentence", REFUSED)
def test_wrong_input_is_one_clear_sentence(sentence):
    with pytest.raises(InputError) as refused:
        REFUSED[sentence]()
    assert sentence in str(refused.value)


def test_a_file_that_is_no_toml_is_refused(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text("name = ")
    with pytest.raises(InputError, match="this is not TOML"):
        systems.read(path)
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(path.read_text())
