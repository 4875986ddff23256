# ruff: noqa: D102 - what the methods of a law return is said once, in `Law`
"""Laws of sizes and of gaps between arrivals: their moments, and kernels' draws from them.

A law is a frozen dataclass; adding one is writing a subclass of `Law` and listing it in `LAWS`. All but the
empirical one have mean 1 unless told otherwise, so that times come out in mean service times.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastsim.errors import InputError, nearest, shown
from fastsim.queueing import draws
from fastsim.queueing.checks import number, numbers, whole

__all__ = [
    "LAWS",
    "BoundedPareto",
    "Deterministic",
    "Empirical",
    "Erlang",
    "Exponential",
    "Hyperexponential",
    "Law",
    "Lognormal",
    "Pareto",
    "Weibull",
    "law",
    "with_cv",
]

Array = NDArray[np.float64]


PHASES_MAX = 10_000
MEAN_LOWEST, MEAN_HIGHEST = 1e-6, 1e9  # histograms of times reach from 1e-9 to 1e12


def _require(name: str, value: float, low: float, high: float = math.inf) -> None:
    if not low < number(name, value) < high:
        allowed = f"above {low:g}" if high == math.inf else f"in ({low:g}, {high:g})"
        raise InputError(f"{name} is {value}; it must be {allowed}")


def _require_mean(mean: float) -> None:
    _require("mean", mean, 0.0)
    if not MEAN_LOWEST <= mean <= MEAN_HIGHEST:
        raise InputError(
            f"mean is {mean:g}; it must lie in [{MEAN_LOWEST:g}, {MEAN_HIGHEST:g}], take another unit of time"
        )


class Law:
    """A law of positive numbers.

    Attributes
    ----------
    name : str
        Name in `LAWS`.
    mean : float
        First moment, in the unit of the draws.
    second_moment : float
        E[X^2]; infinite where it is.
    """

    name: ClassVar[str]
    mean: float

    @property
    def second_moment(self) -> float:
        """E[X^2], in the squared unit of the draws."""
        raise NotImplementedError

    @property
    def scv(self) -> float:
        """Squared coefficient of variation, variance over squared mean."""
        return self.second_moment / (self.mean * self.mean) - 1.0

    def fill(self, state: NDArray[np.uint64], out: Array) -> None:
        """Fill `out`, float64[n], with independent draws from a stream."""
        raise NotImplementedError

    def partial_mean(self, x: float) -> float:
        """E[X; X <= x], which size intervals (SITA) are cut by."""
        raise InputError(f"size is {self.name}; its intervals are not known, give the cutoffs")


@dataclass(frozen=True)
class Deterministic(Law):
    """All draws equal `mean`."""

    name = "deterministic"
    mean: float = 1.0

    def __post_init__(self) -> None:
        _require_mean(self.mean)

    @property
    def second_moment(self) -> float:
        return self.mean * self.mean

    def fill(self, state: NDArray[np.uint64], out: Array) -> None:
        out.fill(self.mean)


@dataclass(frozen=True)
class Exponential(Law):
    """Exponential with the given mean."""

    name = "exponential"
    mean: float = 1.0

    def __post_init__(self) -> None:
        _require_mean(self.mean)

    @property
    def second_moment(self) -> float:
        return 2.0 * self.mean * self.mean

    def fill(self, state: NDArray[np.uint64], out: Array) -> None:
        draws.exponentials(state, out, self.mean)

    def partial_mean(self, x: float) -> float:
        z = x / self.mean
        return self.mean * (-math.expm1(-z) - z * math.exp(-z))


@dataclass(frozen=True)
class Erlang(Law):
    """Sum of exponentials: `phases` of them, or fitted to a coefficient of variation below 1.

    With `cv` given, k - 1 or k phases of one mean are mixed so that mean and cv are exact, 1/k <= cv^2 <=
    1/(k-1). Source: Tijms, A First Course in Stochastic Models, section B.2.
    """

    name = "erlang"
    mean: float = 1.0
    phases: int = 2
    cv: float | None = None

    def __post_init__(self) -> None:
        _require_mean(self.mean)
        whole("phases", self.phases, 1, PHASES_MAX)
        if self.cv is not None and not 0.01 <= number("cv", self.cv) <= 1.0:
            raise InputError(f"cv is {self.cv}; an Erlang mixture needs one in [0.01, 1]")

    @property
    def second_moment(self) -> float:
        scv = 1.0 / self.phases if self.cv is None else self.cv * self.cv
        return (1.0 + scv) * self.mean * self.mean

    def fill(self, state: NDArray[np.uint64], out: Array) -> None:
        phases, fewer = self._mixture()
        draws.erlangs(state, out, phases, fewer, self.mean / (phases - fewer))

    def partial_mean(self, x: float) -> float:
        from scipy.special import gammainc

        k, fewer = self._mixture()
        unit = self.mean / (k - fewer)  # E[Y; Y <= x] of j phases is the law of j + 1 phases times the mean
        z = max(0.0, x / unit)
        shorter = fewer * (k - 1) * gammainc(k, z) if fewer > 0.0 else 0.0
        return unit * float(shorter + (1.0 - fewer) * k * gammainc(k + 1, z))

    def _mixture(self) -> tuple[int, float]:
        """Phases k, and the probability of k - 1."""
        if self.cv is None:
            return self.phases, 0.0
        scv = self.cv * self.cv
        k = math.ceil(1.0 / scv - 1e-9)
        root = max(0.0, k * (1.0 + scv) - k * k * scv)
        return k, max(0.0, (k * scv - math.sqrt(root)) / (1.0 + scv))


@dataclass(frozen=True)
class Hyperexponential(Law):
    """One of two exponentials, by coefficient of variation `cv` >= 1 and balanced means (p1 m1 = p2 m2).

    Source: Tijms, A First Course in Stochastic Models, section B.2.
    """

    name = "hyperexponential"
    mean: float = 1.0
    cv: float = 2.0

    def __post_init__(self) -> None:
        _require_mean(self.mean)
        if not 1.0 <= number("cv", self.cv) < math.inf:
            raise InputError(f"cv is {self.cv}; a hyperexponential needs one of at least 1")

    @property
    def first(self) -> float:
        """Probability of the shorter kind."""
        scv = self.cv * self.cv
        return 0.5 * (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0)))

    @property
    def second_moment(self) -> float:
        return (1.0 + self.cv * self.cv) * self.mean * self.mean

    def fill(self, state: NDArray[np.uint64], out: Array) -> None:
        p = self.first
        draws.hyperexponentials(state, out, p, self.mean / (2.0 * p), self.mean / (2.0 * (1.0 - p)))

    def partial_mean(self, x: float) -> float:
        p = self.first
        kinds = (Exponential(self.mean / (2.0 * p)), Exponential(self.mean / (2.0 * (1.0 - p))))
        return p * kinds[0].partial_mean(x) + (1.0 - p) * kinds[1].partial_mean(x)


@dataclass(frozen=True)
class Lognormal(Law):
    """exp of a normal number, by mean and coefficient of variation."""

    name = "lognormal"
    mean: float = 1.0
    cv: float = 2.0

    def __post_init__(self) -> None:
        _require_mean(self.mean)
        _require("cv", self.cv, 0.0)

    @property
    def second_moment(self) -> float:
        return (1.0 + self.cv * self.cv) * self.mean * self.mean

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return math.sqrt(math.log1p(self.cv * self.cv))

    @property
    def mu(self) -> float:
        """Mean of the logarithm."""
        return math.log(self.mean) - 0.5 * self.sigma**2

    def fill(self, state: NDArray[np.uint64], out: Array) -> None:
        draws.lognormals(state, out, self.mu, self.sigma)

    def partial_mean(self, x: float) -> float:
        if x <= 0.0:
            return 0.0
        z = (math.log(x) - self.mu) / self.sigma - self.sigma
        return 0.5 * self.mean * math.erfc(-z / math.sqrt(2.0))


@dataclass(frozen=True)
class Weibull(Law):
    """Weibull; a `shape` below 1 is heavier than exponential."""

    name = "weibull"
    mean: float = 1.0
    shape: float = 0.5

    def __post_init__(self) -> None:
        _require_mean(self.mean)
        _require("shape", self.shape, 0.05, 100.0)

    @property
    def scale(self) -> float:
        """63 % of the draws lie below it."""
        return self.mean / math.gamma(1.0 + 1.0 / self.shape)

    @property
    def second_moment(self) -> float:
        return self.scale**2 * math.gamma(1.0 + 2.0 / self.shape)

    def fill(self, state: NDArray[np.uint64], out: Array) -> None:
        draws.weibulls(state, out, self.shape, self.scale)

    def partial_mean(self, x: float) -> float:
        from scipy.special import gammainc

        if x <= 0.0:
            return 0.0
        return self.mean * float(gammainc(1.0 + 1.0 / self.shape, (x / self.scale) ** self.shape))


@dataclass(frozen=True)
class Pareto(Law):
    """Pareto from its least value up, P(X > x) = (low / x)^alpha; infinite variance for alpha <= 2."""

    name = "pareto"
    mean: float = 1.0
    alpha: float = 2.5

    def __post_init__(self) -> None:
        _require_mean(self.mean)
        _require("alpha", self.alpha, 1.0)

    @property
    def low(self) -> float:
        """Least value."""
        return self.mean * (self.alpha - 1.0) / self.alpha

    @property
    def second_moment(self) -> float:
        if self.alpha <= 2.0:
            return math.inf
        return self.alpha * self.low**2 / (self.alpha - 2.0)

    def fill(self, state: NDArray[np.uint64], out: Array) -> None:
        draws.paretos(state, out, self.alpha, self.low, 1.0)

    def partial_mean(self, x: float) -> float:
        return self.mean * (1.0 - (self.low / x) ** (self.alpha - 1.0)) if x > self.low else 0.0


@dataclass(frozen=True)
class BoundedPareto(Law):
    """Pareto cut off at `ratio` times its least value."""

    name = "bounded_pareto"
    mean: float = 1.0
    alpha: float = 1.1
    ratio: float = 1e4

    def __post_init__(self) -> None:
        _require_mean(self.mean)
        _require("alpha", self.alpha, 0.0, 100.0)
        _require("ratio", self.ratio, 1.0, 1e15)

    @property
    def low(self) -> float:
        """Least value."""
        return self.mean / self._moment(1, self.ratio)

    @property
    def second_moment(self) -> float:
        return self.low**2 * self._moment(2, self.ratio)

    def fill(self, state: NDArray[np.uint64], out: Array) -> None:
        draws.paretos(state, out, self.alpha, self.low, 1.0 - self.ratio**-self.alpha)

    def partial_mean(self, x: float) -> float:
        if x <= self.low:
            return 0.0
        return self.low * self._moment(1, min(x / self.low, self.ratio))

    def _moment(self, k: int, x: float) -> float:
        """E[Y^k; Y <= x] of the law with least value 1."""
        gap = k - self.alpha
        grown = math.log(x) if abs(gap) < 1e-12 else math.expm1(gap * math.log(x)) / gap
        return self.alpha * grown / (1.0 - self.ratio**-self.alpha)


@dataclass(frozen=True, eq=False)
class Empirical(Law):
    """Draws with replacement from given values, scaled to `mean` if it is given."""

    name = "empirical"
    values: Array = field(default_factory=lambda: np.empty(0))
    mean: float = math.nan

    def __post_init__(self) -> None:
        values = numbers("values", self.values)
        if values.size == 0:
            raise InputError("values is empty; an empirical law needs at least one")
        if values.size > draws.SPAN_MAX:
            raise InputError(f"values has {values.size} entries; at most {draws.SPAN_MAX} are possible")
        if not (np.isfinite(values).all() and values.min() >= 0.0 and values.max() > 0.0):
            raise InputError("values must be finite, not negative and not all zero")
        if math.isnan(self.mean):
            object.__setattr__(self, "mean", float(values.mean()))
        _require_mean(self.mean)
        object.__setattr__(self, "values", values * (self.mean / float(values.mean())))

    @property
    def second_moment(self) -> float:
        return float(np.mean(self.values**2))

    def fill(self, state: NDArray[np.uint64], out: Array) -> None:
        draws.resampled(state, out, self.values)

    def partial_mean(self, x: float) -> float:
        return float(self.values[self.values <= x].sum()) / self.values.size


LAWS: dict[str, Callable[..., Law]] = {
    kind.name: kind
    for kind in (
        Deterministic,
        Exponential,
        Erlang,
        Hyperexponential,
        Lognormal,
        Weibull,
        Pareto,
        BoundedPareto,
        Empirical,
    )
}


def law(text: str | Law, **parameters: Any) -> Law:
    """Make a law from its name and parameters, or from text such as ``"lognormal(cv=3)"``.

    Parameters
    ----------
    text : str or Law
        A name in `LAWS`, with parameters in brackets if any; a law is returned as it is.
    **parameters
        Fields of the law, besides those in the text.

    Raises
    ------
    InputError
        For an unknown name or parameter, or a value out of range.
    """
    if isinstance(text, Law):
        return text
    if not isinstance(text, str):
        raise InputError(f"{shown(text)} is not a law, as 'lognormal(cv=3)'")
    name, found = parse_call(text)
    kind = LAWS.get(name)
    if kind is None:
        raise InputError(f"there is no law {name!r}; {nearest(name, LAWS)}")
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for key in found | parameters:
        if key not in known:
            raise InputError(f"{name} has no parameter {key!r}; {nearest(key, known)}")
    return kind(**(found | parameters))


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``"name(key=value, ...)"`` into name and parameters; values are literals."""
    try:
        node = ast.parse(
            text.strip().replace("-", "_") if "(" not in text else text.strip(), mode="eval"
        ).body
        if isinstance(node, ast.Name):
            return node.id, {}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
            return node.func.id, {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}
    except (SyntaxError, ValueError):
        pass
    raise InputError(f"{text!r} is not a name or a name with parameters, as 'lognormal(cv=3)'")


def with_cv(cv: float, mean: float = 1.0) -> Law:
    """The law of gaps or sizes with a chosen coefficient of variation.

    Parameters
    ----------
    cv : float
        Standard deviation over mean: 0 constant, below 1 mixed Erlang, 1 exponential, above hyperexponential.
    mean : float
        In the unit of the draws.
    """
    if cv == 0.0:
        return Deterministic(mean)
    if cv == 1.0:
        return Exponential(mean)
    return Erlang(mean, cv=cv) if cv < 1.0 else Hyperexponential(mean, cv)
