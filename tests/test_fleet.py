"""The fleet: equal to one clock in plain Python, nothing lost, nothing early, load decides when it should."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim import Cluster, fleet
from fastsim import simulate as serve_cluster
from fastsim.cluster.step_time import StepTime
from fastsim.errors import InputError
from fastsim.fleet.play import groups
from fastsim.fleet.simulate import seed_of
from fastsim.selection.cascades import Cascade
from fastsim.selection.costs import Costs
from fastsim.selection.model_routers import fit
from fastsim.selection.routed import NO_CALL
from fastsim.selection.scorers import scorer_of_auc
from fastsim.selection.systems import SYSTEMS, get
from fastsim.selection.worlds import World
from fastsim.workloads import Workload
from tests.twins import fleet as twin
from tests.twins.convert import to_pieces
from tests.twins.engine import StepTime as TwinStepTime

small = pytest.mark.small

STEPS = (
    StepTime.linear(0.01, 1e-4, 1e-3),
    StepTime.linear(0.03, 3e-4, 2e-3),
    StepTime.linear(0.02, 2e-4, 0.0),
)
NAMES = ("weak", "middle", "strong")


def table_of(size=120, models=3, seed=0, **changes):
    """Short questions in few topics, of which dearer models know more."""
    given = {
        "size": size,
        "accuracy": (0.5, 0.7, 0.9)[:models],
        "input_price": (1.0, 4.0, 10.0)[:models],
        "output_price": (2.0, 8.0, 30.0)[:models],
        "answer_tok": (10.0, 12.0, 14.0)[:models],
        "prompt_tok": 30.0,
        "topics": 5,
        "context_tok": 40,
    }
    return fleet.make_table(NAMES[:models], fleet.Made(**{**given, **changes}), seed=seed)


def tokens_of(table):
    """Tokens of prompts and answers, which made tables always hold."""
    assert table.input_tok is not None
    assert table.output_tok is not None
    return table.input_tok, table.output_tok


def arrivals_of(size, rate_rps=6.0, seed=0):
    return np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate_rps, size))


def cluster_of(model, replicas=2):
    return Cluster(replicas, kv_tok=2048, max_batch_tok=256, max_seqs=8, step_time=STEPS[model])


def served_of(models=3, replicas=2, router="least_loaded", **last):
    found = {name: fleet.Served(cluster_of(k, replicas), router) for k, name in enumerate(NAMES[:models])}
    name = NAMES[models - 1]
    return {**found, name: fleet.Served(cluster_of(models - 1, replicas), router, **last)}


def cascade_plan(table, thresholds=(0.5, 0.5), scorer_s=0.05, context_tok=40):
    trust = scorer_of_auc(table, 0.8)
    cascade = Cascade(table.models[: len(thresholds) + 1], thresholds)
    return fleet.of_cascade(table, cascade, trust, scorer_s=scorer_s, context_tok=context_tok)


def system_plan(table, name="self_refine", allocation=None, context_tok=40):
    world = World.from_table(get(name), table)
    return fleet.of_system(world, allocation or (0,) * world.slots, table, context_tok=context_tok)


# --- one clock ----------------------------------------------------------------------------------------------


def on_one_clock(plan, arrival_s, served):
    clusters = {}
    for model, name in enumerate(plan.models):
        what = served[name]
        engine = {
            "num_blocks": what.cluster.kv_blocks + 1,
            "block_size": what.cluster.block,
            "max_num_batched_tokens": what.cluster.batch_tok,
            "max_num_seqs": what.cluster.seqs,
        }
        steps = TwinStepTime({"kind": "pieces", "pieces": to_pieces(what.cluster.steps)})
        limits = {"most_load": what.most_load, "per_load": what.per_load}
        clusters[model] = twin.Cluster(engine, steps, what.cluster.replicas, what.router, **limits)
    found = twin.Fleet(plan, arrival_s, clusters)
    found.run()
    return found


def assert_same(result, found):
    trace = result.trace
    reached = {tuple(map(int, at)) for at in np.argwhere(trace.made | trace.refused)}
    assert reached == set(found.calls)
    for (question, stage), call in found.calls.items():
        at = (question, stage)
        assert trace.refused[at] == call.refused, at
        assert trace.replica[at] == call.replica, at
        assert round(trace.ready_s[at] * 1e12) == call.ready_ps, at
        if not call.refused:
            assert trace.first_s[at] == call.request.first_token_fs // 1000 * 1e-12, at
            assert trace.done_s[at] == call.request.done_fs // 1000 * 1e-12, at
            assert trace.hit_tok[at] == call.request.hit_tok, at
    last = [max(done[stage] for stage in result.plan.last) for done in found.done_ps]
    np.testing.assert_array_equal(np.rint(result.columns["done_s"] * 1e12), last)


some = settings(max_examples=8, deadline=None, derandomize=True)


@given(
    seed=st.integers(0, 10**6),
    thresholds=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=2),
    replicas=st.integers(1, 3),
    router=st.sampled_from(["least_loaded", "round_robin"]),
    limits=st.sampled_from([{}, {"most_load": 1.0}, {"per_load": 0.05}, {"most_load": 2.0, "per_load": 0.1}]),
)
@some
def test_a_cascade_is_what_happens_on_one_clock(seed, thresholds, replicas, router, limits):
    table = table_of(60, seed=seed)
    plan = cascade_plan(table, tuple(thresholds), scorer_s=0.05 * (seed % 2))
    served = served_of(replicas=replicas, router=router)
    last = NAMES[len(thresholds)]
    served[last] = fleet.Served(served[last].cluster, router, **limits)
    arrival_s = arrivals_of(60, 9.0, seed)
    result = fleet.simulate(plan, arrival_s, served)
    assert_same(result, on_one_clock(plan, arrival_s, served))


@given(
    seed=st.integers(0, 10**6),
    system=st.sampled_from(["locate_solve", "self_refine", "debate"]),
    router=st.sampled_from(["least_loaded", "round_robin"]),
)
@some
def test_a_system_is_what_happens_on_one_clock(seed, system, router):
    """Models are called after their own answers, too."""
    table = table_of(25, seed=seed)
    slots = len(get(system).slots)
    allocation = tuple(np.random.default_rng(seed).integers(0, 3, slots).tolist())
    plan = system_plan(table, system, allocation)
    arrival_s = arrivals_of(25, 4.0, seed)
    served = served_of(router=router)
    result = fleet.simulate(plan, arrival_s, served)
    assert_same(result, on_one_clock(plan, arrival_s, served))


# --- against one cluster ------------------------------------------------------------------------------------


@small
def test_a_threshold_that_accepts_everything_is_one_cluster():
    table = table_of(80, models=2)
    plan = cascade_plan(table, (-1.0,), scorer_s=0.0)
    arrival_s = arrivals_of(80)
    served = served_of(2, router="power_of_two")
    result = fleet.simulate(plan, arrival_s, served, seed=5)
    context = np.unique(np.asarray(table.domain), return_inverse=True)[1]
    tok, answer_tok = (values[:, 0].astype(int) for values in tokens_of(table))
    alone = Workload(
        name="alone",
        arrival_s=arrival_s,
        prompt_tok=tok,
        output_tok=answer_tok,
        symbol_ptr=np.arange(0, 161, 2),
        symbols=np.column_stack((context, np.arange(80) + 5)).ravel(),
        symbol_tok=np.concatenate((np.full(5, 40), tok - 40)),
    )
    one = serve_cluster(alone, served["weak"].cluster, "power_of_two", seed=seed_of(5, 0))
    np.testing.assert_array_equal(result.columns["done_s"], one.columns["done_s"])
    np.testing.assert_array_equal(result.trace.replica[:, 0], one.columns["replica"])
    np.testing.assert_array_equal(result.trace.hit_tok[:, 0], one.columns["hit_tok"])
    assert list(result.clusters) == ["weak"]
    for name in ("latency_p99_s", "latency_mean_s", "hit_rate"):
        assert result.figures[name] == one.figures[name]


# --- conservation and causality -----------------------------------------------------------------------------


def plans():
    table = table_of(100)
    routed = fit("random", table).route(table, 0.05)
    return {
        "cascade": cascade_plan(table),
        "router": fleet.of_calls(table, routed, context_tok=40),
        "self_refine": system_plan(table, "self_refine", (0, 1, 0)),
        "debate": system_plan(table, "debate", (0, 1, 2, 0, 0, 1)),
    }


@small
@pytest.mark.parametrize("name", list(plans()))
def test_every_question_is_answered_once_and_no_call_is_early(name):
    plan = plans()[name]
    arrival_s = arrivals_of(100)
    result = fleet.simulate(plan, arrival_s, served_of())
    columns, trace = result.columns, result.trace
    made = plan.calls != NO_CALL
    np.testing.assert_array_equal(trace.made, made)
    np.testing.assert_array_equal(columns["calls"], made.sum(axis=1))
    np.testing.assert_allclose(columns["cost"], plan.price.sum(axis=1), rtol=1e-15)
    for model, served in result.clusters.items():
        place = plan.models.index(model)
        assert served.replicas["requests"].sum() == (plan.calls == place).sum()
        assert served.replicas["requests"].sum() == round(plan.loads[place] * plan.size)
    assert (trace.first_s[made] > trace.ready_s[made]).all()
    assert (trace.done_s[made] >= trace.first_s[made]).all()
    for stage, inputs in enumerate(plan.inputs):
        for before in inputs:
            waited = trace.done_s[:, before] + plan.after_s[before] * trace.made[:, before]
            assert (trace.ready_s[:, stage] >= waited).all()
    assert (columns["done_s"] == trace.done_s[:, list(plan.last)].max(axis=1)).all()
    assert result.calls.height == made.sum()
    assert result.questions["score"].mean() == result.figures["accuracy"]


@small
def test_what_a_cascade_answers_costs_and_calls_is_what_it_routes():
    table = table_of(100)
    trust = scorer_of_auc(table, 0.8)
    cascade = Cascade(NAMES, (0.4, 0.6))
    routed = cascade.route(table, trust)
    result = fleet.simulate(fleet.of_cascade(table, cascade, trust), arrivals_of(100), served_of())
    np.testing.assert_array_equal(result.columns["answer"], routed.answer)
    np.testing.assert_array_equal(result.columns["score"], routed.score)
    np.testing.assert_allclose(result.columns["cost"], routed.cost, rtol=1e-15)
    assert result.figures["escalated"] == (routed.stages > 1).mean()


@small
def test_escalated_calls_have_the_lengths_of_the_questions_that_escalate():
    table = table_of(3000, models=2, harder_longer=0.6, context_tok=0)
    plan = cascade_plan(table, (0.5,), context_tok=0)
    escalated = plan.calls[:, 1] == 1
    prompt_tok = tokens_of(table)[0][:, 1]
    np.testing.assert_array_equal(plan.prompt_tok[escalated, 1], prompt_tok[escalated])
    assert plan.prompt_tok[escalated, 1].mean() > 1.1 * prompt_tok.mean()


@small
def test_a_refiner_that_does_not_run_costs_and_loads_nothing():
    table = table_of(200)
    system = get("self_refine")
    world = World.from_table(system, table)
    allocation = (0, 1, 2)
    plan = fleet.of_system(world, allocation, table)
    costs = Costs(world, np.broadcast_to(table.costs.T, world.success.shape))
    assert plan.price.sum(axis=1).mean() == pytest.approx(costs.of(allocation), rel=1e-12)
    ran = world.ran(allocation, 2)
    assert ran is not None
    assert plan.loads[2] == ran.mean()
    assert 0 < plan.loads[2] < 1
    assert plan.score[:, 0].mean() == world.accuracy(allocation)
    prompt_tok, answer_tok = tokens_of(table)
    drafts, critiques = answer_tok[:, 0], answer_tok[:, 1]
    np.testing.assert_array_equal(plan.prompt_tok[:, 1], prompt_tok[:, 1] + drafts)
    np.testing.assert_array_equal(plan.prompt_tok[:, 2], prompt_tok[:, 2] + drafts + critiques)


@small
def test_clusters_are_simulated_in_the_order_of_calls():
    table = table_of(60)
    assert list(groups(cascade_plan(table))) == [([0], False), ([1], False), ([2], False)]
    backwards = fleet.of_calls(table, np.tile([2, 0], (60, 1)))
    order = [model for group, _ in groups(backwards) for model in group]
    assert order.index(2) < order.index(0)
    assert ([0, 1], True) in list(groups(system_plan(table, "self_refine", (0, 1, 0))))


# --- load decides -------------------------------------------------------------------------------------------


@small
def test_shed_exactly_while_the_strong_cluster_is_busy():
    table = table_of(200, models=2)
    plan = cascade_plan(table, (0.7,))
    per_load = 0.1
    result = fleet.simulate(plan, arrivals_of(200, 12.0), served_of(2, per_load=per_load, most_load=3.0))
    trace = result.trace
    escalating = np.flatnonzero(plan.calls[:, 1] == 1)
    order = escalating[np.argsort(trace.ready_s[escalating, 1], kind="stable")]
    admitted: list[int] = []
    for question in order:
        now = trace.ready_s[question, 1]
        load = sum(trace.done_s[q, 1] > now for q in admitted) / 2
        refused = load > 3.0 or plan.margin[question, 1] < per_load * load
        assert trace.refused[question, 1] == refused, question
        if not refused:
            admitted.append(question)
    shed = trace.refused[:, 1]
    assert 10 < shed.sum() < len(escalating) - 10
    assert result.figures["shed"] == shed.mean()
    assert (result.columns["answer"][shed] == 0).all()
    np.testing.assert_array_equal(result.columns["score"][shed], table.scores[shed, 0])
    np.testing.assert_array_equal(result.columns["done_s"][shed], trace.done_s[shed, 0] + 0.05)
    assert np.isfinite(result.columns["done_s"]).all()


@small
def test_without_load_the_threshold_is_as_it_was():
    table = table_of(60, models=2)
    plan = cascade_plan(table, (0.6,))
    rare = np.arange(60) * 100.0
    free = fleet.simulate(plan, rare, served_of(2))
    reacting = fleet.simulate(plan, rare, served_of(2, per_load=5.0, most_load=0.0))
    np.testing.assert_array_equal(free.columns["done_s"], reacting.columns["done_s"])
    assert reacting.figures["shed"] == 0.0


@small
def test_an_overloaded_strong_cluster_makes_the_point_unstable_and_load_can_save_it():
    table = table_of(1500, models=2)
    plan = cascade_plan(table, (0.9,))
    arrival_s = arrivals_of(1500, 40.0)
    served = served_of(2, replicas=4)
    served["middle"] = fleet.Served(cluster_of(1, 1), "least_loaded")
    overloaded = fleet.simulate(plan, arrival_s, served).summary
    assert not overloaded["stable"]
    assert overloaded["latency_p99_s"] is None
    assert not overloaded["clusters"]["middle"]["stable"]
    assert overloaded["clusters"]["weak"]["stable"]
    served["middle"] = fleet.Served(cluster_of(1, 1), "least_loaded", most_load=6.0)
    saved = fleet.simulate(plan, arrival_s, served).summary
    assert saved["stable"]
    assert saved["latency_p99_s"] < overloaded["latency_mean_s"]
    assert saved["accuracy"] < overloaded["accuracy"]


@pytest.mark.parametrize(("weak", "strong", "questions_rps"), [(2, 1, 20.0), (8, 1, 40.0)])
def test_the_capacity_is_that_of_the_most_loaded_cluster(weak, strong, questions_rps):
    """Steps of 0.1 s with a prompt each: 10 calls a second and replica; every fourth question escalates."""
    n = 400
    served = {
        name: Cluster(
            replicas, step_time=StepTime.fixed(0.1, 0.1), kv_tok=1 << 14, max_batch_tok=64, max_seqs=8
        )
        for name, replicas in (("weak", weak), ("strong", strong))
    }
    plan = fleet.Plan(
        models=("weak", "strong"),
        calls=np.column_stack((np.zeros(n, np.int64), np.where(np.arange(n) % 4 == 0, 1, NO_CALL))),
        inputs=((), (0,)),
        prompt_tok=np.full((n, 2), 64),
        output_tok=np.ones((n, 2), np.int64),
        shared_tok=np.zeros((n, 2), np.int64),
        question=np.arange(n),
        context=np.arange(n),
        price=np.zeros((n, 2)),
        score=np.ones((n, 2)),
        after_s=np.zeros(2),
    )
    for rate_rps in (0.5 * questions_rps, 1.5 * questions_rps):
        summary = fleet.simulate(plan, np.arange(n) / rate_rps, served).summary
        assert summary["capacity_rps"] == pytest.approx(questions_rps, rel=0.01)
        assert summary["stable"] == (summary["offered_load"] < 1.0) == (rate_rps < questions_rps)
        loads = {name: one["offered_load"] for name, one in summary["clusters"].items()}
        expected = {"weak": rate_rps / 10 / weak, "strong": rate_rps / 4 / 10 / strong}
        assert loads == pytest.approx(expected, rel=0.01)


def test_a_cluster_whose_router_refuses_all_has_no_capacity_and_takes_nothing():
    n = 40
    plan = fleet.Plan(
        models=("weak",),
        calls=np.zeros((n, 1), np.int64),
        inputs=((),),
        prompt_tok=np.full((n, 1), 64),
        output_tok=np.ones((n, 1), np.int64),
        shared_tok=np.zeros((n, 1), np.int64),
        question=np.arange(n),
        context=np.arange(n),
        price=np.zeros((n, 1)),
        score=np.ones((n, 1)),
        after_s=np.zeros(1),
    )
    cluster = Cluster(2, step_time=StepTime.fixed(0.1, 0.1), kv_tok=1 << 14, max_batch_tok=64, max_seqs=8)
    served = {"weak": fleet.Served(cluster, "mooncake", {"ttft_slo_s": 1e-9})}
    summary = fleet.simulate(plan, np.arange(n) / 2.0, served).summary
    assert (summary["capacity_rps"], summary["offered_load"], summary["stable"]) == (0.0, None, True)
    assert summary["unanswered"] == 1.0


# --- money, seeds, mistakes ---------------------------------------------------------------------------------


@small
def test_gpus_are_paid_for_all_the_time():
    table = table_of(50, models=2)
    arrival_s = np.arange(50) * 0.5
    served = {
        "weak": fleet.Served(cluster_of(0, 3), gpu_hour=2.0),
        "middle": fleet.Served(Cluster(2, tp=2, kv_tok=2048, step_time=STEPS[1]), gpu_hour=4.0),
    }
    summary = fleet.simulate(cascade_plan(table, (-1.0,)), arrival_s, served).summary
    assert summary["gpu_cost"] == pytest.approx((3 * 2.0 + 4 * 4.0) * 0.5 / 3600.0, rel=1e-12)
    assert summary["call_cost"] == pytest.approx(table.costs[:, 0].mean(), rel=1e-12)
    assert summary["cost"] == summary["call_cost"] + summary["gpu_cost"]


@small
def test_same_seed_same_bits():
    plan = plans()["debate"]
    runs = [fleet.simulate(plan, arrivals_of(100), served_of(router="random"), seed=s) for s in (1, 1, 2)]
    np.testing.assert_array_equal(runs[0].columns["done_s"], runs[1].columns["done_s"])
    assert (runs[0].columns["done_s"] != runs[2].columns["done_s"]).any()
    one, other = (fleet.make_table(NAMES[:2], fleet.Made(size=50), seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.scores, other.scores)
    np.testing.assert_array_equal(tokens_of(one), tokens_of(other))


@small
def test_made_questions_are_as_asked():
    made = fleet.Made(size=40_000, context_tok=0)
    table = fleet.make_table(("a", "b"), made, seed=1)
    error = 4 / np.sqrt(40_000)  # four standard errors of a share, at most
    np.testing.assert_allclose(table.scores.mean(axis=0), made.accuracy, atol=error)
    prompt_tok, answer_tok = tokens_of(table)
    np.testing.assert_allclose(answer_tok.mean(axis=0), made.answer_tok, rtol=4 * 0.7 / 200)
    np.testing.assert_allclose(prompt_tok.mean(), made.prompt_tok, rtol=4 * 0.7 / 200)
    hard = table.scores.sum(axis=1) == 0
    assert answer_tok[hard].mean() > 1.2 * answer_tok.mean()


@small
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"served": {"weak": cluster_of(0)}}, "model 'middle' is called, but it has no cluster"),
        ({"served": {**served_of(), "week": cluster_of(0)}}, r"no model 'week'; did you mean 'weak'\?"),
        ({"arrival_s": np.arange(5.0)}, r"arrival_s has the shape \(5,\); the plan has 100 questions"),
        ({"arrival_s": -np.arange(100.0)}, "arrival_s must be finite and ascending, from 0 on"),
        ({"warmup_s": -1.0}, r"warmup_s = -1\.0 is not allowed; it must be a number from 0 to 1e\+12"),
    ],
)
def test_mistakes_are_named(change, sentence):
    given = {"arrival_s": arrivals_of(100), "served": served_of(), **change}
    arrival_s, served = given.pop("arrival_s"), given.pop("served")
    with pytest.raises(InputError, match=sentence):
        fleet.simulate(plans()["cascade"], arrival_s, served, **given)


@small
def test_mistakes_in_plans_are_named():
    table = table_of(20)
    world = World.from_table(get("locate_solve"), table)
    with pytest.raises(InputError, match="load of 'strong' cannot decide on calls of a compound system"):
        fleet.simulate(system_plan(table, allocation=(0, 2, 0)), arrivals_of(20), served_of(most_load=1.0))
    with pytest.raises(
        InputError, match="served: per_load = -1 is not allowed; it must be a number, at least 0"
    ):
        fleet.Served(cluster_of(0), per_load=-1)
    with pytest.raises(InputError, match="the world must be on the table's 19 questions"):
        fleet.of_system(world, (0, 0), table.take(np.arange(19)))
    with pytest.raises(InputError, match=r"context_tok = -4 is not allowed; it must be a whole number"):
        cascade_plan(table, context_tok=-4)
    with pytest.raises(InputError, match="trust has the shape"):
        fleet.of_cascade(table, Cascade(NAMES, (0.5, 0.5)), np.zeros((20, 2)))
    with pytest.raises(
        InputError, match=r"accuracy has 3 entries; it must have one for each of the models a"
    ):
        fleet.make_table(("a",), fleet.Made(accuracy=(0.1, 0.2, 0.3)))


@small
def test_every_system_has_a_plan():
    table = table_of(30)
    for name, system in SYSTEMS.items():
        plan = system_plan(table, name, (1,) * len(system.slots))
        assert plan.stages == len(system.slots)
        assert np.isfinite(fleet.simulate(plan, arrivals_of(30), served_of()).columns["done_s"]).all()
