"""A sweep as written (TOML) and as understood (every cell validated before anything runs)."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fastsim.errors import InputError, nearest, shown
from fastsim.sweep import imports as imported
from fastsim.sweep import params as P
from fastsim.sweep.experiments import Experiment, experiment
from fastsim.sweep.imports import Source
from fastsim.sweep.inside import check_name
from fastsim.sweep.params import Params
from fastsim.typed import check

DEFAULT_SEEDS = 10

Positive = Annotated[int, Meta(ge=1)]


class Stop(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Law's sequential rule: add seeds in batches until every policy's interval is narrow enough.

    Attributes
    ----------
    metric : str
        The metric whose interval is watched.
    rel_half_width : float
        Wanted half-width over value, such as 0.02.
    min_seeds, batch, max_seeds : int
        Seeds at the start, seeds a batch, and the cap.
    """

    metric: str
    rel_half_width: Annotated[float, Meta(gt=0, lt=1)]
    min_seeds: Annotated[int, Meta(ge=2)] = 10
    batch: Positive = 5
    max_seeds: Positive = 100


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """One table of results: the axes that vary and the cells they span.

    Attributes
    ----------
    title : str
    axes : tuple of str
        Dotted names, slowest first; the compared parameter, if it is among them, comes last.
    cells : tuple of dict
        Full parameters of each cell, in that order.
    """

    title: str
    axes: tuple[str, ...]
    cells: tuple[Params, ...]


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep as understood; also the manifest stored beside its results.

    Attributes
    ----------
    name, description, experiment : str
    seed : int
        Root of all random streams.
    seeds : int
        Replications of each cell; where `stop` is set, the cap.
    stop : Stop or None
    jobs : int or None
        Workers unless told otherwise.
    metrics : tuple of str
        Metrics to print.
    grids : tuple of Grid
    figures : tuple of dict
        ``[[figure]]`` tables as written; `fastsim.report` knows what they mean.
    code_version : str
        Digest of the simulator's sources, and of those imported.
    imports : tuple of Source
        A user's own modules.
    """

    name: str
    description: str
    experiment: str
    seed: int
    seeds: int
    stop: Stop | None
    jobs: int | None
    metrics: tuple[str, ...]
    grids: tuple[Grid, ...]
    figures: tuple[dict[str, Any], ...]
    code_version: str
    imports: tuple[Source, ...] = ()

    def cells(self) -> list[Params]:
        """The different cells of all grids, in order; grids may share some."""
        return list({P.text(cell): cell for grid in self.grids for cell in grid.cells}.values())

    def spec_hash(self) -> str:
        """Content hash of what is computed: names, titles, figures and the number of jobs do not count."""
        cells = [P.identity(cell) for cell in self.cells()]
        return P.digest([self.experiment, self.seed, self.seeds, self.stop, cells])


class _SweepTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1)]
    experiment: str = "cluster"
    description: str = ""
    seed: Annotated[int, Meta(ge=0)] = 0
    seeds: Positive | None = None
    jobs: Positive | None = None
    metrics: tuple[str, ...] = ()
    imports: tuple[str, ...] = msgspec.field(default=(), name="import")


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sweep: _SweepTable
    base: Params = {}
    grid: Params | list[Params] = {}
    stop: Stop | None = None
    figure: list[Params] = []


def load(path: str | Path, settings: Sequence[str] = (), imports: Sequence[str] = ()) -> Sweep:
    """Read a sweep from a TOML file.

    Parameters
    ----------
    path : str or Path
    settings : sequence of str
        ``"key=value"`` overrides: a parameter (``replicas=8``), an axis (``rate_rps=[1.0, 2.0]``), or a key
        of a table (``sweep.seeds=3``). Values are TOML; what TOML cannot read is text.
    imports : sequence of str
        A user's own modules to import, beside those of ``[sweep] import``: files, relative to the working
        directory (those of the sweep: to its file), or dotted names.

    Raises
    ------
    InputError
        For the first thing wrong in the file or in any cell of its grids.
    """
    path = Path(path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"sweep {path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise InputError(f"sweep {path} is nested too deeply") from None
    except ValueError as error:  # not TOML, not UTF-8, a name that no file can have, a number of 5,000 digits
        raise InputError(f"sweep {path} is not TOML: {error}") from None
    return parse(document, settings, imports, where=str(path), folder=path.parent)


def parse(
    document: Mapping[str, Any],
    settings: Sequence[str] = (),
    imports: Sequence[str] = (),
    *,
    where: str = "sweep",
    folder: Path = Path(),
) -> Sweep:
    """Understand a sweep given as nested tables; see `load`."""
    overrides = [setting(text) for text in settings]
    of_tables = {key: value for key, value in overrides if key.partition(".")[0] in _File.__struct_fields__}
    file = _typed(P.with_values(document, of_tables), where)
    check_name(file.sweep.name, "[sweep] name")
    sources = imported.bring_in(file.sweep.imports, folder) + imported.bring_in(imports, Path())
    what = experiment(file.sweep.experiment)
    base = file.base
    grids = file.grid if isinstance(file.grid, list) else [file.grid]
    grids = [_with_full_names(grid, what) for grid in grids or [{}]]
    known, lists = what.parameters(), what.lists()
    for key, value in overrides:
        for name, part in _parts(key, value, known) if key not in of_tables else ():
            name = _parameter(name, known)
            base, grids = _override(name, part, base, grids, is_axis=_is_axis(part, name in lists))
    for metric in file.sweep.metrics:
        _check_metric(metric, what, "[sweep] metrics")
    if file.stop is not None:
        _check_stop(file.stop, file.sweep.seeds, what)
    expanded = tuple(_expand(grid, what, base) for grid in grids)
    _check_used(base, expanded)
    cells = [cell for grid in expanded for cell in grid.cells]
    return Sweep(
        name=file.sweep.name,
        description=file.sweep.description,
        experiment=file.sweep.experiment,
        seed=file.sweep.seed,
        seeds=file.stop.max_seeds if file.stop else file.sweep.seeds or DEFAULT_SEEDS,
        stop=file.stop,
        jobs=file.sweep.jobs,
        metrics=file.sweep.metrics or tuple(what.table),
        grids=expanded,
        figures=tuple(file.figure),
        code_version=imported.code_version(_code_version(), sources, cells),
        imports=sources,
    )


def _typed(document: Mapping[str, Any], where: str) -> _File:
    """The document's own tables, keys checked first so that a typing slip gets a suggestion."""
    P.check_keys(document, _File.__struct_fields__, where)
    for table, struct in (("sweep", _SweepTable), ("stop", Stop)):
        if isinstance(document.get(table), Mapping):
            P.check_keys(document[table], struct.__struct_encode_fields__, f"{where}: [{table}]")
    return check(_File, document, where)


def setting(text: str) -> tuple[str, Any]:
    """Read ``key=value``, the value as in TOML, or as a bare word."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {shown(text)} must read key=value")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()
    except (ValueError, RecursionError):  # a number of 5,000 digits, lists in lists without end
        raise InputError(f"--set {shown(text)}: the value is too long or too deep") from None


def _parameter(key: str, known: Sequence[str]) -> str:
    """The whole name of a parameter that is set by the last part of it."""
    of_sweep = key in ("seed", "seeds", "jobs") and not any(name.split(".")[-1] == key for name in known)
    if of_sweep:
        raise InputError(f"--set {shown(key)} is unknown; did you mean 'sweep.{key}'?")
    return P.resolve(key, known, "--set")


def _parts(key: str, value: Any, known: Sequence[str]) -> list[tuple[str, Any]]:
    """The parameters that a setting sets: those in it, if it is a table of them."""
    if isinstance(value, dict) and any(name.startswith(f"{key}.") for name in known) and key not in known:
        return [(f"{key}.{name}", part) for name, part in value.items()]
    return [(key, value)]


def _is_axis(value: Any, list_wanted: bool) -> bool:
    """Whether a list is several values; where a value is itself a list, it takes a list of lists."""
    if not isinstance(value, list):
        return False
    return not list_wanted or (bool(value) and all(isinstance(each, list | str) for each in value))


def _override(
    name: str, value: Any, base: Params, grids: list[Params], *, is_axis: bool
) -> tuple[Params, list[Params]]:
    """Set a parameter where it is set now: in the grids that have it, else in the base."""
    if isinstance(value, list) and not is_axis:
        value = value if not any(name in grid for grid in grids) else [value]
    for key in (key for grid in grids for key in grid):
        if "," in key and name in key.split(","):
            raise InputError(f"--set {name}: it moves together with others in the grid axis {shown(key)}")
    if any(name in grid for grid in grids):
        return base, [{**grid, name: value} if name in grid else grid for grid in grids]
    if is_axis:
        return base, [{**grid, name: value} for grid in grids]
    return P.with_values(base, {name: value}), grids


def _with_full_names(grid: Params, what: Experiment) -> Params:
    """The grid with the dotted names of its axes written out."""
    known = what.parameters()
    full: Params = {}
    seen: set[str] = set()
    for key, value in grid.items():
        if key == "title":
            full[key] = value
            continue
        names = [P.resolve(name.strip(), known, "grid axis") for name in key.split(",")]
        for name in names:
            if name in seen:
                raise InputError(f"grid axis {shown(name)} is given more than once")
            seen.add(name)
        full[",".join(names)] = value
    return full


def _combinations(grid: Params) -> list[Params]:
    """Every combination of the axes' values, the last axis fastest; ``"a,b"`` is an axis of pairs."""
    names, columns = [], []
    for key, value in grid.items():
        if key == "title":
            continue
        values = value if isinstance(value, list) else [value]
        if not values:
            raise InputError(f"grid axis {shown(key)} has no values; give at least one")
        if "," in key:
            width = key.count(",") + 1
            for row in values:
                if not isinstance(row, list) or len(row) != width:
                    raise InputError(
                        f"grid axis {shown(key)} has the value {shown(row)}; it needs lists of {width}"
                    )
        names.append(key)
        columns.append(values)
    return [_spread(dict(zip(names, values, strict=True))) for values in itertools.product(*columns)]


def _spread(values: Params) -> Params:
    spread: Params = {}
    for key, value in values.items():
        spread.update(zip(key.split(","), value, strict=True) if "," in key else [(key, value)])
    return spread


def _expand(grid: Params, what: Experiment, base: Params) -> Grid:
    """Validate every cell. Axes with one value are settings, not axes; the compared one goes last."""
    axes = [name for key, value in grid.items() if isinstance(value, list) for name in key.split(",")]
    axes.sort(key=lambda name: name == what.compare)
    order = {key: grid[key] for key in sorted(grid, key=lambda key: key == what.compare)}
    cells = [msgspec.to_builtins(what.validate(P.with_values(base, one))) for one in _combinations(order)]
    different = {P.text(cell): cell for cell in cells}
    return Grid(title=str(grid.get("title", "")), axes=tuple(axes), cells=tuple(different.values()))


def _check_used(base: Params, grids: Sequence[Grid]) -> None:
    """Refuse what no cell takes up, such as the parameter of a router that is not in the sweep."""
    for grid in grids:
        used = {name for cell in grid.cells for name in P.flatten(cell)}
        for axis in grid.axes:
            if axis not in used:
                raise InputError(f"grid axis {axis!r} has no effect: no cell of its grid has that parameter")
    used = {name for grid in grids for cell in grid.cells for name in P.flatten(cell)}
    for name, value in P.flatten(base).items():
        if name not in used:
            raise InputError(f"[base] {name} = {value!r} has no effect: no cell has that parameter")


def _check_metric(name: str, what: Experiment, where: str) -> None:
    if name not in what.metrics:
        raise InputError(f"{where}: {what.name} has no metric {shown(name)}; {nearest(name, what.metrics)}")


def _check_stop(stop: Stop, seeds: int | None, what: Experiment) -> None:
    _check_metric(stop.metric, what, "[stop] metric")
    if seeds is not None:
        raise InputError(f"[sweep] seeds is {seeds} and there is a [stop] table; give one of them")
    if stop.max_seeds < stop.min_seeds:
        raise InputError(
            f"[stop] max_seeds is {stop.max_seeds}; it must be at least min_seeds {stop.min_seeds}"
        )


def _code_version() -> str:
    from fastsim._jit import SOURCE_DIGEST

    return SOURCE_DIGEST
