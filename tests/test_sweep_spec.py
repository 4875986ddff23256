"""What a sweep's TOML means, and what is refused before anything runs."""

import copy

import pytest

from fastsim.errors import InputError
from fastsim.report import figures
from fastsim.sweep import load, parse, run
from fastsim.sweep.params import text
from fastsim.sweep.points import batches, blocks, point_key, points

FAKE = "tests.fake_experiment:FAKE"
DOCUMENT = {
    "sweep": {"name": "small", "experiment": FAKE, "seed": 3, "seeds": 4},
    "base": {"traffic": {"size": 20}},
    "grid": {"router": ["alpha", "beta"], "rate_rps": [0.5, 1.0, 1.5]},
}


def document(**changes):
    made = copy.deepcopy(DOCUMENT)
    for key, value in changes.items():
        table, _, name = key.partition("__")
        if name:
            made.setdefault(table, {})[name] = value
        else:
            made[table] = value
    return made


def test_grid_expands_with_the_compared_axis_last():
    sweep = parse(DOCUMENT)
    (grid,) = sweep.grids
    assert grid.axes == ("traffic.rate_rps", "router")
    seen = [(cell["traffic"]["rate_rps"], cell["router"]) for cell in grid.cells]
    assert seen == [(rate, router) for rate in (0.5, 1.0, 1.5) for router in ("alpha", "beta")]
    assert all(cell["traffic"]["size"] == 20 for cell in grid.cells)


def test_several_grids_share_points_and_single_values_are_settings():
    sweep = parse(document(grid=[DOCUMENT["grid"], {"title": "size", "rate_rps": 1.0, "size": [20, 40]}]))
    assert [grid.axes for grid in sweep.grids] == [("traffic.rate_rps", "router"), ("traffic.size",)]
    assert sweep.grids[1].title == "size"
    assert len(sweep.cells()) == 6 + 1  # size 20 at rate 1.0 with alpha is in both


def test_axes_can_move_together():
    sweep = parse(document(grid={"router": ["alpha", "beta"], "rate_rps, size": [[0.5, 10], [1.0, 20]]}))
    assert sweep.grids[0].axes == ("traffic.rate_rps", "traffic.size", "router")
    assert [cell["traffic"]["size"] for cell in sweep.grids[0].cells] == [10, 10, 20, 20]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sweep__descripton": "x"}, r"\[sweep\] has no 'descripton'; did you mean 'description'\?"),
        ({"gird": {}}, r"sweep has no 'gird'; did you mean 'grid'\?"),
        ({"base__rooter": "alpha"}, r"fake has no 'rooter'; did you mean 'router'\?"),
        ({"grid__rate_rsp": [1.0]}, r"grid axis 'rate_rsp' is unknown; did you mean 'rate_rps'\?"),
        ({"grid__router": ["alpah"]}, r"router 'alpah' is unknown; did you mean 'alpha'\?"),
        ({"grid__router": []}, r"grid axis 'router' has no values"),
        ({"sweep__seeds": 0}, r"sweep\.seeds = 0 is not allowed; it must be a whole number, at least 1"),
        ({"sweep__experiment": "clutser"}, r"experiment 'clutser' is unknown; did you mean 'cluster'\?"),
        ({"sweep__metrics": ["latency_p9_s"]}, r"no metric 'latency_p9_s'; did you mean 'latency_p99_s'\?"),
        ({"stop": {"metric": "latency_p99_s", "rel_half_width": 0.1}}, r"seeds is 4 and there is a \[stop\]"),
        ({"stop": {"metrik": "latency_p99_s"}}, r"\[stop\] has no 'metrik'; did you mean 'metric'\?"),
        ({"grid": {"rate_rps, size": [[1.0, 2], [3.0]]}}, r"has the value \[3\.0\]; it needs lists of 2"),
        (
            {"grid": {"rate_rps": [1.0], "traffic.rate_rps": [2.0]}},
            r"'traffic.rate_rps' is given more than once",
        ),
    ],
)
def test_mistakes_are_named_before_anything_runs(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        parse(document(**changes))


def test_settings_reach_base_axes_and_tables():
    sweep = parse(DOCUMENT, ["size=99", "rate_rps=[2.5]", "router=gamma", "sweep.seeds=2"])
    (cell,) = sweep.cells()
    assert (cell["traffic"], cell["router"], sweep.seeds) == ({"rate_rps": 2.5, "size": 99}, "gamma", 2)
    assert sweep.grids[0].axes == ("traffic.rate_rps",)
    with pytest.raises(InputError, match=r"--set 'sizes' is unknown; did you mean 'size'\?"):
        parse(DOCUMENT, ["sizes=3"])
    with pytest.raises(InputError, match=r"--set 'seeds' is unknown; did you mean 'sweep.seeds'\?"):
        parse(DOCUMENT, ["seeds=3"])
    pairs = document(grid={"rate_rps, size": [[0.5, 10], [1.0, 20]]})
    with pytest.raises(InputError, match="moves together with others in the grid axis"):
        parse(pairs, ["size=3"])
    with pytest.raises(InputError, match="must read key=value"):
        parse(DOCUMENT, ["size"])


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match=r"none.toml cannot be read: No such file"):
        load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[sweep\n")
    with pytest.raises(InputError, match=r"bad.toml is not TOML: .*line 1"):
        load(tmp_path / "bad.toml")


def test_spec_hash_counts_only_what_is_computed():
    same = parse(document(sweep__name="other", sweep__description="words", sweep__jobs=2, figure=[{"x": 1}]))
    assert same.spec_hash() == parse(DOCUMENT).spec_hash()
    different = [{"sweep__seed": 4}, {"sweep__seeds": 5}, {"base__pause_s": 0.1}, {"grid__router": ["beta"]}]
    hashes = {parse(document(**changes)).spec_hash() for changes in different}
    assert len({*hashes, same.spec_hash()}) == 5


def test_workloads_are_shared_by_policies_and_by_nothing_else():
    sweep = parse(DOCUMENT)
    everything = [point for block in blocks(sweep) for point in points(sweep, block, range(sweep.seeds))]
    assert len({point.key for point in everything}) == len(everything) == 24
    by_workload: dict[str, set] = {}
    for point in everything:
        by_workload.setdefault(point.workload, set()).add(
            (point.params["traffic"]["rate_rps"], point.replicate, point.params["router"])
        )
    assert len(by_workload) == 3 * 4
    for members in by_workload.values():
        assert {router for *_, router in members} == {"alpha", "beta"}
        assert len({(rate, replicate) for rate, replicate, _ in members}) == 1


def test_a_point_is_known_by_its_content_alone():
    sweep, longer = parse(DOCUMENT), parse(document(sweep__seeds=9, grid__rate_rps=[1.0]))
    cell = text(longer.cells()[0])
    assert point_key(sweep, cell, 2) == point_key(longer, cell, 2)
    keys = {
        point_key(sweep, cell, 2),
        point_key(sweep, cell, 3),
        point_key(parse(document(sweep__seed=4)), cell, 2),
    }
    assert len(keys) == 3


def test_batches_keep_order_and_never_mix_workloads():
    sweep = parse(document(sweep__seeds=40, grid__router=["alpha", "beta", "gamma"]))
    todo = [point for block in blocks(sweep) for point in points(sweep, block, range(40))]
    for jobs in (1, 2, 16):
        cut = list(batches(todo, jobs))
        assert [point for batch in cut for point in batch] == todo
        assert all(len({point.workload for point in batch}) == 1 for batch in cut)
        assert len(cut) >= 8 * jobs


@pytest.mark.parametrize(
    "name",
    [
        "../../esc",
        "/tmp/esc",
        "a/b",
        "..",
        ".hidden",
        "a\\b",
        "a\nb",
        "a\0b",
        "x" * 300,
        "é" * 101,
        "a*",
        " a",
        "a ",
    ],
)
def test_a_name_that_could_lead_elsewhere_is_refused(name):
    with pytest.raises(InputError, match=r"\[sweep\] name (is|has)") as error:
        parse({"sweep": {"name": name, "experiment": "tests.fake_experiment:FAKE"}})
    assert "\n" not in str(error.value)
    figure = {"figure": "curves", "x": "traffic.rate_rps", "y": "latency_mean_s", "file": name}
    sweep = parse(
        {
            "sweep": {"name": "fine", "experiment": "tests.fake_experiment:FAKE"},
            "grid": {"traffic.rate_rps": [1.0, 2.0]},
            "figure": [figure],
        }
    )
    with pytest.raises(InputError, match=r"\[\[figure\]\] file (is|has)"):
        figures.check(sweep)


@pytest.mark.parametrize("name", ["lecture-02-a", "P99 (s), 2 replicas", "été_[1]", "v1.2", "50%"])
def test_plain_names_will_do(name):
    assert parse({"sweep": {"name": name, "experiment": "tests.fake_experiment:FAKE"}}).name == name


@pytest.mark.parametrize("inner", ["parts", "tmp", "bad", "figures"])
def test_nothing_is_written_through_links_inside_the_results_folder(tmp_path, inner):
    folder, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / inner).symlink_to(elsewhere)
    with pytest.raises(InputError, match=f"{inner} is a link"):
        run(
            parse({"sweep": {"name": "fine", "experiment": "tests.fake_experiment:FAKE", "seeds": 1}}), folder
        )
    assert not list(elsewhere.iterdir())
