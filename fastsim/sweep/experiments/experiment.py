"""What a sweep needs to know about the thing it repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastsim.sweep.params import Params


@dataclass(frozen=True)
class Metric:
    """One measured column of an experiment's rows.

    Attributes
    ----------
    label : str
        Name in tables and on axes, without its unit.
    unit : str
        ``"s"``, ``"1/s"``, or empty for a pure number.
    type : type
        float, int, bool or str, as stored.
    optional : bool
        A run may have no such value (None, and NaN, which is stored as None), as where nothing was served.
    tail : bool
        Withheld, with its differences, where the point is unstable: an overloaded queue has no P99.
    pools : str or None
        The metric, a P99 of single runs, of which this one is the P99 of all runs' requests together. A row
        then holds a histogram, as text; tables show no interval.
    doc : str
        What it is, where the label does not say: the legend of tables.
    more : bool
        More of it is better.
    """

    label: str
    unit: str = ""
    type: type = float
    tail: bool = False
    pools: str | None = None
    doc: str = ""
    more: bool = False
    optional: bool = False

    def title(self) -> str:
        """Label and unit: ``P99 latency (s)``."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True, eq=False)
class Experiment:
    """A thing that can be swept: parameters in, a row out.

    Attributes
    ----------
    name, doc : str
        Name in ``[sweep] experiment``, and one sentence on it.
    parameters : callable
        () -> every dotted name that some cell may set: for axes, overrides and suggestions.
    validate : callable
        Raw parameters -> all parameters, typed and with defaults filled in. Raises InputError.
    workload : callable
        Full parameters -> those that decide the random input. The policies under comparison never occur in
        it: points that share it, the seed and the replicate get the same workload (common random numbers).
    prepare : callable
        (full parameters, seed, replicate) -> the workload, built once for all points that share it.
    run : callable
        (full parameters, workload, seed, replicate) -> the row, a dict with the keys of `metrics`.
    metrics : mapping of str to Metric
        Columns of a row, in order. ``warmup_s`` and ``samples`` say what was deleted and what was used. An
        experiment that can be overloaded has a ``backlog_score`` (`fastsim.stats.backlog_score`): all
        replications' scores together tell whether a point is stable.
    table : sequence of str
        Metrics that ``show`` prints unless told otherwise.
    contrast : sequence of str
        Of these, ``show`` also prints the paired differences.
    compare : str
        The parameter whose values are compared in pairs, the first being the reference.
    lost : str
        The metric, if there is one, that says which share of the input no other metric counts: a table shows
        it wherever any is lost.
    settle : callable
        (cells that share a workload, seed, note) -> the same cells with what they must have in common, such
        as a warm-up that pilot runs find, filled in. Asked once before a sweep runs.
    lists : callable
        () -> dotted names of the parameters whose value is a list: of these, an axis is a list of lists.
    estimates : callable
        (cells of a table) -> what their figures estimate, in sentences that a table's footer says.
    warmup : callable
        (all cells' full parameters, note) -> None. Compiles and reads whatever they need, before workers
        start; says through `note` what a user should know.
    measure : callable
        (full parameters of the cells to run, seed, threads) -> None. Finds out what takes long and serves
        many points, such as a capacity, before workers start, so that each need not.
    """

    name: str
    doc: str
    parameters: Callable[[], Sequence[str]]
    validate: Callable[[Mapping[str, Any]], Params]
    workload: Callable[[Params], Params]
    prepare: Callable[[Params, int, int], Any]
    run: Callable[[Params, Any, int, int], dict[str, Any]]
    metrics: Mapping[str, Metric]
    table: Sequence[str]
    contrast: Sequence[str]
    compare: str
    lost: str = ""
    settle: Callable[[Sequence[Params], int, Callable[[str], None]], Sequence[Params]] = (
        lambda cells, seed, note: cells
    )
    lists: Callable[[], Sequence[str]] = lambda: ()
    estimates: Callable[[Sequence[Params]], Sequence[str]] = lambda cells: ()
    warmup: Callable[[Sequence[Params], Callable[[str], None]], None] = lambda cells, note: None
    measure: Callable[[Sequence[Params], int, int], None] = lambda cells, seed, jobs: None

    def row(self, params: Params, workload: Any, seed: int, replicate: int) -> dict[str, Any]:
        """Run a point and give its row, each value of its metric's type.

        Raises
        ------
        ValueError
            If `run` gave a row with other keys than `metrics`, or one without a value that it must have.
        """
        row = self.run(params, workload, seed, replicate)
        if row.keys() != self.metrics.keys():
            odd = ", ".join(sorted(row.keys() ^ self.metrics.keys()))
            raise ValueError(f"experiment {self.name} gave a row that differs from its metrics in {odd}")
        known = {name: _value(metric, row[name]) for name, metric in self.metrics.items()}
        for name, value in known.items():
            if value is None and not self.metrics[name].optional:
                raise ValueError(f"experiment {self.name} gave {row[name]} for {name}, which every run has")
        return known


def _value(metric: Metric, value: Any) -> Any:
    """As stored: of the metric's type, None for no value."""
    return None if value is None or value != value else metric.type(value)
