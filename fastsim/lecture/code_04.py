"""The figures of the lecture's code 04 (which model for which module, a toy world) beside ours.

The lecture does not give its worlds. Ours are those of `fastsim.selection.latent`, under which an independent
reference run came near its figures. They are drawn many times here, and a figure is judged against the
interval and against the spread of runs of the lecture's length: ten pools, or one seed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastsim.lecture import toy_worlds as toy
from fastsim.lecture.verdicts import PICKED as CHOSEN
from fastsim.lecture.verdicts import Row, apart, claim, exact, figure, measured
from fastsim.rng import generator
from fastsim.stats import Interval, mean_interval

__all__ = ["code_04", "exercises"]

Array = NDArray[np.float64]

PICKED = 384  # the seed under which demonstration 1 has the lecture's digits
DEMOS, POOLS = 300, 200
POOLS_OF_LECTURE = 10
SUBSETS = 2_000  # of ten pools, for the spread of runs of the lecture's length
POINT = 100.0
HAND_PICKED = f"seed {PICKED}, picked with its abilities from some 600,000 to have these digits"
SEEDS = f"{DEMOS} seeds with the same abilities"
WORLDS = f"{POOLS} pools of 5 models"


def code_04(workers: int = 1) -> list[Row]:
    """Simulate all that code 04 shows (M1 to M9, exercises 6 and 7); under a minute on two cores.

    Parameters
    ----------
    workers : int
        Processes; the result does not depend on it.
    """
    picked = toy.demonstration(PICKED)
    demos = toy.across(toy.demonstration, range(DEMOS), workers)
    pools = toy.across(toy.pool, range(POOLS), workers)
    return [
        *_local_optimum(picked, demos),
        *_escape(picked, demos),
        *_starts(picked, demos),
        *_searchers(pools),
        *_diagnosers(pools),
        *_blind(pools),
        *_diverse(pools),
        *_budgets(picked, demos),
        *_prices(picked, demos),
    ]


def exercises(workers: int = 1) -> list[Row]:
    """Exercises 6 and 7, budgets and prices; seconds.

    Parameters
    ----------
    workers : int
        Processes; the result does not depend on it.
    """
    picked = toy.demonstration(PICKED)
    demos = toy.across(toy.demonstration, range(DEMOS), workers)
    rows = (*_budgets(picked, demos), *_prices(picked, demos))
    return [row for row in rows if row.id in ("E6", "E7")]


def _local_optimum(picked: dict[str, float], demos: dict[str, Array]) -> Iterator[Row]:
    """M1."""
    for pair, said in (("C+C", 0.45), ("A+C", 0.44), ("C+B", 0.44)):
        yield _picked("M1", f"train accuracy {pair}, one seed", said, picked[f"train {pair}"], 2)
        found = mean_interval(demos[f"train {pair}"])
        spread = (demos[f"train {pair}"], "single seeds with 100 questions")
        yield figure("M1", f"train accuracy {pair}, over seeds", "", said, 2, found, spread, SEEDS)
    note = f"C+C keeps both greedy searchers; {SEEDS}"
    yield claim(
        "M1",
        "share of seeds where C+C is a local optimum",
        "it is",
        _share(demos["stuck"]),
        (0.95, 1.0),
        note,
    )


def _escape(picked: dict[str, float], demos: dict[str, Array]) -> Iterator[Row]:
    """M2."""
    for pair, who, said in (("C+C", "greedy", 0.51), ("A+B", "LLMSelector", 0.99)):
        name = f"test {pair}"
        yield _picked("M2", f"test accuracy of {who} from C+C, one seed", said, picked[name], 2)
        spread = (demos[name], "single seeds with 200 questions")
        yield figure(
            "M2", f"test accuracy {pair}, over seeds", "", said, 2, mean_interval(demos[name]), spread, SEEDS
        )
    for name, who in (("selected", "true diagnoser"), ("selected, noisy", "diagnoser right 0.8")):
        quantity = f"share of seeds where LLMSelector goes C+C to A+B, {who}"
        yield claim("M2", quantity, "it does", _share(demos[name]), (0.95, 1.0), SEEDS)
    yield _picked("M2", "allocations evaluated, one seed", 20, picked["evaluated"], 0)
    evaluated = demos["evaluated"]
    yield figure(
        "M2",
        "allocations evaluated, over seeds",
        "",
        20,
        0,
        mean_interval(evaluated),
        (evaluated, "single seeds"),
        SEEDS,
    )


def _starts(picked: dict[str, float], demos: dict[str, Array]) -> Iterator[Row]:
    """M3."""
    failed = demos["failed steepest_greedy"]
    quantity = "starts of 25 from which greedy (steepest) fails"
    yield _picked("M3", f"{quantity}, one seed", 8, picked["failed steepest_greedy"], 0)
    note = f"{int((failed >= 8).sum())} of {SEEDS} give 8 or more: the digit is its seed's, failing is not"
    found, spread = mean_interval(failed), (failed, "single seeds")
    yield figure("M3", f"{quantity}, over seeds", "", 8, 0, found, spread, note)
    failed = mean_interval(demos["failed coordinate_greedy"])
    note = f"the lecture does not say which greedy it means; {picked['failed coordinate_greedy']:.0f} with "
    note += f"seed {PICKED}; {SEEDS}"
    quantity = "starts of 25 from which greedy (module by module) fails, over seeds"
    yield measured("M3", quantity, "", None, failed, note=note)
    failed = demos["failed llmselector"]
    quantity = "share of seeds where LLMSelector never fails"
    yield claim("M3", quantity, "never fails", _share(failed == 0.0), (0.95, 1.0), f"25 starts each; {SEEDS}")
    fewer = mean_interval(failed - demos["failed steepest_greedy"])
    yield claim(
        "M3", "starts where it fails less those where greedy does", "fewer", fewer, (-np.inf, 0.0), SEEDS
    )


def _searchers(pools: dict[str, Array]) -> Iterator[Row]:
    """M4: the lecture gives the range over its systems; locate-solve gains least, self-refine most."""
    said = {
        ("locate_solve", "llmselector"): 1.6,
        ("self_refine", "llmselector"): 7.5,
        ("locate_solve", "exhaustive"): 2.6,
        ("self_refine", "exhaustive"): 8.4,
    }
    names = {
        "llmselector": "LLMSelector",
        "exhaustive": "exhaustive",
        "coordinate_greedy": "greedy",
        "random": "random search",
    }
    for searcher, name in names.items():
        for system in toy.SYSTEMS:
            gain = POINT * (pools[f"{system} {searcher}"] - pools[f"{system} best_single"])
            end = {"locate_solve": ", the least of three", "self_refine": ", the most of three"}.get(
                system, ""
            )
            quantity = f"{name} over the best single model, {_words(system)}"
            lecture = said.get((system, searcher))
            quantity += end if lecture else ""
            yield _of_pools(
                "M4", quantity, "points", lecture, 1, gain, "the lecture gives the range over its systems"
            )
    for system, said_less in (("locate_solve", 1.0), ("self_refine", 0.9)):
        less = POINT * (pools[f"{system} exhaustive"] - pools[f"{system} llmselector"])
        quantity = f"exhaustive less LLMSelector, {_words(system)}"
        yield _of_pools("M4", quantity, "points", said_less, 1, less, "the two figures above, paired")
    for searcher, words, wanted in (
        ("coordinate_greedy", "about equal", (-1.0, 1.0)),
        ("random", "worse at equal budget", (-np.inf, 0.0)),
    ):
        for system in toy.SYSTEMS:
            less = POINT * (pools[f"{system} {searcher}"] - pools[f"{system} llmselector"])
            note = f"{WORLDS}, paired" + ("; we take 'about' as a point" if words.startswith("about") else "")
            quantity = f"{names[searcher]} less LLMSelector, {_words(system)}"
            yield claim("M4", quantity, words, mean_interval(less), wanted, note, "points")


def _diagnosers(pools: dict[str, Array]) -> Iterator[Row]:
    """M5."""
    said = {1.0: 68.0, 0.6: 633.0}
    for accuracy in toy.ACCURACIES:
        evaluated = pools[f"diagnoser {accuracy:g} evaluated"]
        quantity = f"allocations evaluated, debate, diagnoser right {accuracy:g}"
        note = f"stopped at {toy.BUDGET}"
        yield _of_pools("M5", quantity, "", said.get(accuracy), 0, evaluated, note)
    for accuracy in toy.ACCURACIES:
        quantity = f"test accuracy, debate, diagnoser right {accuracy:g}"
        yield measured(
            "M5", quantity, "", None, mean_interval(pools[f"diagnoser {accuracy:g} accuracy"]), note=WORLDS
        )
    curve = np.array([pools[f"diagnoser {accuracy:g} accuracy"] for accuracy in toy.ACCURACIES])
    lost = mean_interval(POINT * (curve[0] - curve[-1]))
    note = f"we take 'slowly' as at most 2 points from 1 to 0.6; {WORLDS}, paired"
    yield claim("M5", "test accuracy lost from 1 to 0.6", "slowly", lost, (0.0, 2.0), note, "points")
    runs = curve.reshape(len(curve), -1, POOLS_OF_LECTURE).mean(axis=2)
    crooked = _share((np.diff(runs, axis=0) > 0.0).any(axis=0))
    note = f"{crooked.n} runs of ten pools"
    quantity = "share of runs of ten pools whose accuracy rises somewhere"
    yield claim("M5", quantity, "not monotone", crooked, (0.5, 1.0), note)


def _blind(pools: dict[str, Array]) -> Iterator[Row]:
    """M6."""
    for name, who in (
        ("blind separates", "the best allocation"),
        ("blind selector separates", "LLMSelector"),
    ):
        quantity = f"share of pools where {who} separates critic and generator"
        yield claim("M6", quantity, "10 of 10", _share(pools[name]), (0.95, 1.0), WORLDS)
    for name, who, said in (
        ("blind gain", "the best allocation", 7.7),
        ("blind selector gain", "LLMSelector", None),
    ):
        quantity = f"{who} over the best with one model for both"
        yield _of_pools("M6", quantity, "points", said, 1, POINT * pools[name], "")


def _diverse(pools: dict[str, Array]) -> Iterator[Row]:
    """M7."""
    for world, about in (("DIV", "swayed debaters"), ("P1", "debaters who keep their own")):
        said = (0.6, 2.6) if world == "DIV" else (None, None)
        note = f"world {world}"
        quantity = f"share of pools that want 2 or 3 generating models, {about}"
        yield _of_pools("M7", quantity, "", said[0], 1, pools[f"{world} several"], note)
        quantity = f"over the best with one generating model, {about}"
        yield _of_pools("M7", quantity, "points", said[1], 1, POINT * pools[f"{world} gain"], note)
        for searcher, name in (("selector", "LLMSelector"), ("greedy", "greedy")):
            gain = POINT * pools[f"{world} {searcher} over single"]
            yield _of_pools(
                "M7", f"{name} over the best single model, {about}", "points", None, 1, gain, note
            )


def _budgets(picked: dict[str, float], demos: dict[str, Array]) -> Iterator[Row]:
    """M8 and exercise 6."""
    fewest, note = toy.smallest_run(), "run: from an optimum that is the only one, six rounds of ten"
    for id in ("M8", "E6"):
        yield exact(
            id,
            "exhaustive allocations, 10 models, 6 modules",
            "",
            1e6,
            toy.all_allocations(),
            0,
            "all were evaluated",
        )
        yield exact(id, "LLMSelector evaluates at least", "", 60, fewest, 0, note)
    for quantity, said, name, note in (
        ("evaluated from C+C, confirmation included", 20, "evaluated", "4 rounds of 5"),
        (
            "evaluated until A+B was found",
            10,
            "evaluated until found",
            "2 rounds of 5, as the paper counts",
        ),
    ):
        yield _picked("E6", quantity, said, picked[name], 0, note)
    found = demos["evaluated until found"]
    known = found[np.isfinite(found)]
    yield figure(
        "E6",
        "evaluated until A+B was found, over seeds",
        "",
        10,
        0,
        mean_interval(known),
        (known, "single seeds"),
        SEEDS,
    )


def _prices(picked: dict[str, float], demos: dict[str, Array]) -> Iterator[Row]:
    """M9 and exercise 7."""
    prices = dict(zip("ABCDE", toy.PRICES, strict=True))
    dear, cheap = prices["A"] + prices["B"], 2 * prices["C"]
    for id in ("M9", "E7"):
        yield exact(id, "cost of A+B", "a question", 8, dear, 1, "both modules are always called")
        yield exact(id, "cost of C+C", "a question", 2, cheap, 1, "both modules are always called")
        points = POINT * (picked["test A+B"] - picked["test C+C"])
        note = f"{HAND_PICKED}: {points:.0f} points for {dear - cheap:g}"
        yield apart(exact(id, "A+B over C+C, a point", "", 0.125, (dear - cheap) / points, 3, note), CHOSEN)
    a_point = (dear - cheap) / (POINT * (demos["test A+B"] - demos["test C+C"]))
    yield figure(
        "E7",
        "A+B over C+C, a point, over seeds",
        "",
        0.125,
        3,
        mean_interval(a_point),
        (a_point, "single seeds"),
        SEEDS,
    )
    stay = _share(a_point > 0.1)
    yield claim("E7", "share of seeds where 0.1 a point keeps C+C", "stay at C+C", stay, (0.95, 1.0), SEEDS)
    yield from _penalties(picked, demos)


def _penalties(picked: dict[str, float], demos: dict[str, Array]) -> Iterator[Row]:
    """Exercise 7 (c): where the penalty goes."""
    best = demos["test A+B"]
    lost = mean_interval(POINT * (best - demos["tiny penalty inside"]))
    note = (
        "the lecture takes the price from the module's score: each question's argmax then breaks its ties "
        "for the cheapest model, whatever the size of the penalty, here 1e-6; one seed "
        f"{picked['tiny penalty inside']:.3f} instead of {picked['test A+B']:.2f}; {SEEDS}"
    )
    yield claim(
        "E7",
        "lost to a tiny penalty inside the argmax",
        "a way to count cost",
        lost,
        (-1.0, 1.0),
        note,
        "points",
    )
    for name, words, wanted in (
        ("tiny penalty after", "nothing lost", (-1.0, 1.0)),
        ("penalty 0.5", "", (-1.0, 10.0)),
        ("penalty 0.8", "", (10.0, 100.0)),
    ):
        lost = mean_interval(POINT * (best - demos[name]))
        size = {"tiny penalty after": "of 1e-6", "penalty 0.5": "of 0.5", "penalty 0.8": "of 0.8"}[name]
        quantity = f"lost to a penalty {size} after the mean"
        note = f"one seed {picked[name]:.3f}; {SEEDS}"
        if words:
            yield claim("E7", quantity, words, lost, wanted, note, "points")
        else:
            yield measured("E7", quantity, "points", None, lost, note=note)


def _picked(id: str, quantity: str, said: float, ours: float, decimals: int, note: str = "") -> Row:
    """A number of the seed that was chosen because it has the lecture's digits."""
    note = "; ".join(filter(None, [note, HAND_PICKED]))
    return apart(exact(id, quantity, "", said, ours, decimals, note), CHOSEN)


def _of_pools(
    id: str, quantity: str, unit: str, lecture: float | None, decimals: int, values: Array, note: str
) -> Row:
    """A figure of the pools, beside runs of ten of them."""
    spread = (_tens(values), f"means of {POOLS_OF_LECTURE} pools")
    note = "; ".join(filter(None, [WORLDS, note]))
    found = _share(values) if np.isin(values, (0.0, 1.0)).all() else mean_interval(values)
    return figure(id, quantity, unit, lecture, decimals, found, spread, note)


def _tens(values: Array) -> Array:
    """Means over ten pools drawn without replacement, many times; pools are the last axis."""
    rng = generator(PICKED, 0, "pools of ten")
    drawn = np.array([rng.permutation(values.shape[-1])[:POOLS_OF_LECTURE] for _ in range(SUBSETS)])
    return values[..., drawn].mean(axis=-1)


def _share(values: NDArray[np.bool_] | Array) -> Interval:
    """A share of seeds with the exact interval of Clopper and Pearson (1934)."""
    from scipy.special import betaincinv

    n, k = len(values), int(np.sum(values))
    low = float(betaincinv(k, n - k + 1, 0.025)) if k else 0.0
    high = float(betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
    return Interval(k / n, low, high, n)


def _words(name: str) -> str:
    return name.replace("_", "-")
