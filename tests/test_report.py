"""Tables line up and say what they withhold; figures come from stored results alone."""

import dataclasses
import math

import matplotlib.image
import msgspec
import numpy as np
import pytest

from fastsim.errors import InputError
from fastsim.report import data, draw, figures, text
from fastsim.stats import Interval
from fastsim.sweep import choice, parse, read, run, summarise
from tests.fake_experiment import FAKE

DOCUMENT = {
    "sweep": {"name": "small", "experiment": "tests.fake_experiment:FAKE", "seeds": 5},
    "grid": {"title": "Policies", "router": ["alpha", "beta"], "rate_rps": [0.5, 1.0, 3.0]},
    "figure": [{"figure": "curves", "x": "rate_rps", "y": "latency_p99_s"}],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    run(parse(DOCUMENT), folder)
    return read(folder)


def interval(value: float, half: float) -> Interval:
    return Interval(value, value - half, value + half, 5)


@pytest.mark.parametrize(
    ("value", "half", "written"),
    [
        (3.8812, 0.1234, "3.88 ± 0.12"),
        (1048.3, 40.1, "1048 ± 40"),
        (0.33107, 0.01951, "0.331 ± 0.020"),
        (12.3456, 0.000123, "12.34560 ± 0.00012"),
        (4.0, 0.0, "4 ± 0"),
        (3.14159, math.inf, "3.142 ± ?"),
        (-5.5, 0.999, "-5.50 ± 1.00"),
    ],
)
def test_half_widths_get_two_digits_and_values_the_same_decimals(value, half, written):
    assert text.with_half_width(interval(value, half)) == written


def test_a_signed_difference_shows_its_plus():
    assert text.with_half_width(interval(0.5, 0.25), signed=True) == "+0.50 ± 0.25"


def test_numbers_are_short_unless_all_their_digits_are_asked_for():
    assert [text.number(1.0001), text.number(1.0001, digits=12)] == ["1", "1.0001"]
    assert [text.number(65536), text.number(True), text.number(None)] == ["65,536", "yes", "-"]


def test_table_lines_up(results):
    (table,) = summarise(results)
    lines = text.summary(table, FAKE).splitlines()
    rule = next(line for line in lines if line.startswith("---"))
    ends = [n for n in range(1, len(rule) + 1) if rule[n - 1] == "-" and rule[n : n + 1] in ("", " ")]
    body = [line for line in lines[lines.index(rule) + 1 :] if line[:1].isdigit()]
    assert len(body) == 6
    for line in body:
        for end in ends[2:]:  # numbers end where their column ends
            assert line[end - 1 : end].strip()
            assert not line[end : end + 1].strip()


def test_lines_stay_together_though_another_axis_goes_with_the_last(results):
    (table,) = summarise(results)
    rate, router = table.axes
    rates = len({cell.axes[rate] for cell in table.cells})
    order = {"alpha": "fcfs", "beta": "longest_prefix"}
    cells = tuple(
        dataclasses.replace(cell, axes=cell.axes | {"order": order[cell.axes[router]]})
        for cell in table.cells
    )
    table = dataclasses.replace(table, axes=(rate, "order", router), cells=cells)
    body = text.summary(table, FAKE).split("---\n", 1)[1].partition("\n\nvalue ±")[0]
    groups = body.split("\n\n")
    assert [len(group.splitlines()) for group in groups] == [2] * rates, body


def test_table_says_what_it_withholds(results):
    (table,) = summarise(results)
    written = text.summary(table, FAKE)
    assert written.startswith("Policies\n")
    assert "mean latency" in written
    assert "(s)" in written
    assert "interval over 5 seeds" in written
    assert "Δ: minus alpha, paired by seed" in written
    overloaded = [line for line in written.splitlines() if line.startswith("3.0")]
    assert [line.count("unstable") for line in overloaded] == [1, 2]
    assert written.count("unstable") == 1 + 2 + 1  # and the note
    (means,) = summarise(results, metrics=["latency_mean_s"])
    assert text.summary(means, FAKE).count("unstable\n") == 2  # no P99 column, so a column says so


def test_differences_that_stand_in_their_family_are_marked(tmp_path):
    grid = {"router": ["alpha", "beta", "gamma"], "rate_rps": [0.5, 1.0]}
    run(parse({**DOCUMENT, "grid": grid}, ["sweep.seeds=12"]), tmp_path)
    (table,) = summarise(read(tmp_path))
    written = text.summary(table, FAKE)
    assert (
        "!: differs from alpha also when all 3 pairs of a setting and metric are judged together" in written
    )
    for cell, line in zip(
        table.cells, [row for row in written.splitlines() if row[:2] in ("0.", "1.")], strict=True
    ):
        stands = ["alpha" in cell.families[name].differs_from for name in ("latency_mean_s", "latency_p99_s")]
        assert line.count("!") == sum(stands)
    assert any(cell.families["latency_mean_s"].differs_from for cell in table.cells)
    rows = data.rows([table])
    assert rows[0]["latency_mean_s_family"] == 3
    assert set(rows[0]["latency_mean_s_differs_from"]) <= {"beta", "gamma"}


def test_a_grid_with_nothing_finished_says_so(results):
    (table,) = summarise(results)
    nothing = dataclasses.replace(table, cells=())  # a sweep stopped before this grid, or seen while it runs
    assert text.summary(nothing, FAKE) == "Policies\n\nno line has all its points yet"
    assert data.rows([nothing]) == []


def test_rows_for_machines(results):
    rows = data.rows(summarise(results))
    assert len(rows) == 6
    assert rows[1]["router"] == "beta"
    assert rows[1]["latency_mean_s"].keys() == {"value", "low", "high", "n"}
    assert rows[1]["latency_mean_s_difference"]["against"] == "alpha"
    assert rows[5]["stable"] is False
    assert rows[5]["latency_p99_s"] is None
    assert "latency_mean_s_difference" not in rows[0]
    msgspec.json.encode(rows)


def test_one_seed_is_null_and_not_infinite():
    assert data.estimate(Interval(1.0, -math.inf, math.inf, 1)) == {
        "value": 1.0,
        "low": None,
        "high": None,
        "n": 1,
    }


def test_figure_is_drawn_from_stored_results(results, tmp_path):
    (path,) = figures.write(results, tmp_path)
    assert path.name == "latency_p99_s-rate_rps.png"
    pixels = matplotlib.image.imread(path)
    assert pixels.shape[1] == 1280
    assert pixels.shape[0] > 700


def test_figure_has_a_line_a_policy_a_band_each_and_crosses_for_overload(results):
    (wanted,) = figures.check(results.sweep)
    (table,) = summarise(results, metrics=["latency_p99_s"])
    drawn = figures.curves(table, FAKE, wanted)
    main, strip = drawn.axes
    assert [line.get_label() for line in main.lines] == ["alpha", "beta"]
    assert [np.asarray(line.get_xdata()).tolist() for line in main.lines] == [[0.5, 1.0]] * 2
    assert len(main.collections) == 2
    assert [np.asarray(line.get_xdata()).tolist() for line in strip.lines] == [[3.0]] * 2
    assert main.get_xlabel() == "rate (requests/s)"
    assert main.get_ylabel() == "P99 latency (s)"


def test_axis_is_logarithmic_where_values_spread():
    def scale(high: float) -> str:
        lines = {"a": [draw.At(1.0, interval(1.0, 0.1), True), draw.At(2.0, interval(high, 0.1), True)]}
        return draw.curves({"": lines}, x_label="x", y_label="y", title="").axes[0].get_yscale()

    assert (scale(3.0), scale(30.0)) == ("linear", "log")


def test_no_two_lines_look_alike_with_colours_or_without():
    looks = [draw.style(place) for place in range(draw.MOST_LINES)]
    assert len(looks) >= 48  # all policies
    assert len({(look["color"], look["marker"]) for look in looks}) == len(looks)
    assert len({(look["marker"], str(look["linestyle"])) for look in looks}) == len(looks)
    with pytest.raises(ValueError, match="would look like another"):
        draw.style(draw.MOST_LINES)


def test_every_axis_on_which_cells_differ_is_drawn(tmp_path):
    """Router x size x rate against size: the overload of one rate is not that of all."""
    document = {
        **DOCUMENT,
        "grid": {**DOCUMENT["grid"], "size": [10, 20]},
        "figure": [
            {"figure": "curves", "x": "size", "y": "latency_p99_s"},
            {
                "figure": "curves",
                "x": "size",
                "y": "latency_p99_s",
                "where": {"rate_rps": 0.5},
                "file": "one",
            },
            {"figure": "curves", "x": "rate_rps", "y": "latency_mean_s", "lines": "size", "file": "sizes"},
            {"figure": "curves", "x": "size", "y": "latency_mean_s", "average": ["rate_rps"], "file": "mean"},
        ],
    }
    run(parse(document), tmp_path)
    results = read(tmp_path)
    drawn = [_drawn(results, wanted) for wanted in figures.check(results.sweep)]
    by_rate, one, sizes, mean = (
        [axes for axes in figure.axes if axes.get_legend_handles_labels()[1]] for figure in drawn
    )
    assert _titles(drawn[0]) == [f"rate {rate} requests/s" for rate in (0.5, 1.0, 3.0)]
    assert [[len(np.asarray(line.get_xdata())) for line in axes.lines] for axes in by_rate] == [
        [2, 2],
        [2, 2],
        [0, 0],
    ]
    assert [len(axes.lines) for axes in one] == [2]
    assert [line.get_label() for line in sizes[0].lines] == ["size 10", "size 20"]
    assert _titles(drawn[2]) == ["router alpha", "router beta"]
    assert [line.get_label() for line in mean[0].lines] == ["alpha", "beta"]
    assert by_rate[0].get_shared_y_axes().joined(by_rate[0], by_rate[1])
    assert len(figures.write(results, tmp_path)) == 4


def _titles(figure):
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


def _drawn(results, wanted):
    grid = choice.only(results.sweep.grids[0], wanted.where)
    shown = figures.shown(wanted, grid, "router")
    (table,) = summarise(results, shown.axes, [wanted.y], 0, where=wanted.where, average=wanted.average)
    return figures.curves(table, FAKE, wanted)


@pytest.mark.parametrize(
    ("axes", "sentence"),
    [
        ({"size": list(range(10, 23))}, r"size \(13\) would make 13 panels, of which 12 can be told apart; "),
        ({"pause_s": [n / 1e6 for n in range(99)], "router": "alpha"}, r"pause_s \(99\) would make 99 lines"),
    ],
)
def test_more_panels_or_lines_than_can_be_told_apart_are_refused(axes, sentence):
    with pytest.raises(InputError, match=sentence + ".*choose some with where = {"):
        figures.check(parse({**DOCUMENT, "grid": {**DOCUMENT["grid"], **axes}}))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"where": {"rate_rps": 7.0}},
            r"\[\[figure\]\] where rate_rps = 7.0: no cell .* there are 0.5, 1.0, 3",
        ),
        ({"where": {"rat_rps": 0.5}}, r"\[\[figure\]\] where 'rat_rps' is unknown; did you mean 'rate_rps'"),
        ({"lines": "ruoter"}, r"\[\[figure\]\] lines 'ruoter' is unknown; did you mean 'router'"),
        ({"average": ["size"]}, r"\[\[figure\]\] average 'size' is unknown"),
        ({"figure": "curve"}, r"figure 'curve' is unknown; did you mean 'curves'\?"),
        ({"x": "rate"}, r"\[\[figure\]\] x 'rate' is unknown"),
        ({"x": "router"}, r"router has the value 'alpha'; it must be a number"),
        ({"y": "latency_p98_s"}, r"no metric 'latency_p98_s'; did you mean 'latency_p99_s'\?"),
        ({"grid": 1}, r"grid is 1; the sweep has 1, counted from 0"),
        ({"titel": "x"}, r"\[\[figure\]\] has no 'titel'; did you mean 'title'\?"),
    ],
)
def test_figures_are_checked_before_anything_runs(change, sentence):
    with pytest.raises(InputError, match=sentence):
        figures.check(parse({**DOCUMENT, "figure": [{**DOCUMENT["figure"][0], **change}]}))
