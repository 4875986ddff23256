"""Commands of model selection; `fastsim.cli` registers them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from fastsim.cli_shared import Json, Whole, print_json
from fastsim.errors import InputError

Settings = Annotated[
    tuple[str, ...],
    Parameter(name="--set", help="Set a parameter of the searcher: key=value. May be repeated."),
]


def select(
    table: Path,
    /,
    *,
    system: str = "debate",
    prices: Path | None = None,
    model: tuple[str, ...] = (),
    searcher: str = "llmselector",
    settings: Settings = (),
    budget: Whole | None = None,
    penalty: float = 0.0,
    spend: float | None = None,
    loss: float | None = None,
    right_from: float | None = None,
    test_share: float = 0.5,
    answer_tok: float | None = None,
    seed: Whole = 0,
    out: Path | None = None,
    as_json: Json = False,
) -> None:
    """Choose a model for every module of a compound system, from who answered which question right.

    Parameters
    ----------
    table
        Scores of models, question by question: a CSV file, plain or gzipped.
    system
        Name from `fastsim systems`, or a TOML file.
    prices
        JSON or TOML file with input_price, output_price ($/M tokens) and call_price ($) of each model.
    model
        Model to choose from, by default all of the table. May be repeated.
    searcher
        Name from `fastsim searchers`.
    settings
        Set a parameter of the searcher.
    budget
        Allocations that may be evaluated.
    penalty
        Accuracy that a call at the dearest mean price is worth.
    spend
        Also show the most accurate allocation that costs at most this a question.
    loss
        Also make what was found cheaper, giving up at most this accuracy.
    right_from
        Scores from here on count as right, by default the middle of their range.
    test_share
        Share of the questions to judge on, where the table does not say.
    answer_tok
        Tokens of an answer, where the table does not hold them.
    seed
        Root of all random streams.
    out
        Picture, by default results/select-SYSTEM.png; with --json only if given.
    as_json
        Print JSON.
    """
    from fastsim.report import allocation
    from fastsim.selection import systems
    from fastsim.selection.choose import choose
    from fastsim.selection.read_tables import read
    from fastsim.sweep.spec import setting

    what = systems.get(system)
    path = _png(out, as_json, f"select-{what.name}")
    found = choose(
        what,
        read(table, prices=prices, models=model or None, answer_tok=answer_tok),
        searcher=searcher,
        params=dict(map(setting, settings)),
        budget=budget,
        penalty=penalty,
        spend=spend,
        loss=loss,
        right_from=right_from,
        test_share=test_share,
        seed=seed,
    )
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        allocation.picture(found, table.name).savefig(path, dpi=160)
    if as_json:
        print_json(found.to_dict())
    else:
        print(allocation.text(found))
        print(f"figure: {path}")


def route(
    table: Path,
    /,
    *,
    prices: Path | None = None,
    model: tuple[str, ...] = (),
    router: tuple[str, ...] = (),
    settings: Annotated[
        tuple[str, ...],
        Parameter(name="--set", help="Set a parameter of a router: router.key=value. May be repeated."),
    ] = (),
    scorer_auc: tuple[float, ...] = (),
    stages: Whole = 3,
    texts: Path | None = None,
    answer_tok: float | None = None,
    by: str | None = None,
    test_share: float = 0.5,
    draws: Whole = 1000,
    seed: Whole = 0,
    out: Path | None = None,
    as_json: Json = False,
) -> None:
    """Compare routers from a request to a model on a table: quality, cost, intervals, paired differences.

    Parameters
    ----------
    table
        Scores of models, question by question: a CSV file, plain or gzipped.
    prices
        JSON or TOML file with input_price, output_price ($/M tokens) and call_price ($) of each model.
    model
        Model to choose from, by default all of the table. May be repeated.
    router
        Name from `fastsim model-routers`, by default all. May be repeated.
    settings
        Set a parameter of a router.
    scorer_auc
        Also cascades, whose scorer has this AUC (0.5 to 1). May be repeated.
    stages
        Most models in a cascade.
    texts
        Table whose texts belong to the same questions, where this one holds none.
    answer_tok
        Tokens of an answer, where the table does not hold them.
    by
        Split by question, domain or table; by default as the table says, else by question.
    test_share
        Share of the questions to test on, where the table does not say.
    draws
        Bootstrap draws.
    seed
        Root of all random streams.
    out
        Picture, by default results/route-TABLE.png; with --json only if given.
    as_json
        Print JSON.
    """
    from fastsim.report import model_routes
    from fastsim.selection.cascade_curve import cascade_curve
    from fastsim.selection.compare_routers import compare
    from fastsim.selection.model_routers import nested_params
    from fastsim.selection.read_tables import read
    from fastsim.sweep.spec import setting

    path = _png(out, as_json, f"route-{table.name.split('.')[0]}")
    found = compare(
        read(table, prices=prices, models=model or None, texts=texts, answer_tok=answer_tok),
        router,
        params=nested_params(dict(map(setting, settings))),
        extra=lambda parts: [cascade_curve(parts, auc, stages=stages, seed=seed) for auc in scorer_auc],
        by=by,
        test_share=test_share,
        draws=draws,
        seed=seed,
    )
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        model_routes.picture(found).savefig(path, dpi=160)
    if as_json:
        print_json(found.to_dict())
    else:
        print(model_routes.text(found))
        print(f"figure: {path}")


def _png(out: Path | None, as_json: bool, name: str) -> Path | None:
    path = out or (None if as_json else Path("results") / f"{name}.png")
    if path is not None and path.suffix != ".png":
        raise InputError(f"out is {str(path)!r}; pictures are PNG files, so it must end in .png")
    return path
