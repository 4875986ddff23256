"""Limits for infinitely many servers or bins: d choices, old information, and balls into bins."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastsim.errors import InputError
from fastsim.queueing.checks import check_rate, check_stable
from fastsim.typed import checked

__all__ = ["PeriodicUpdate", "Supermarket", "balls_tails", "left_tails", "periodic_update"]

Array = NDArray[np.float64]

_TAIL = 1e-13  # probability beyond the longest queue kept
_LEAST = 1e-15  # fractions of servers below this are not followed
_LENGTH_MAX = 1 << 12
_TRIES, _DEPTH = 150, 8  # boards tried, and how many of the last ones are extrapolated from
_WATCHED = 40  # periods in which a board must not drift away
_PERIODS = 400  # to average over where no board stays as it is
_STEPS = 400  # Runge-Kutta steps for balls into bins: relative errors below 1e-9 for up to 16 balls a bin


@dataclass(frozen=True)
class Supermarket:
    """Join the shortest of d random queues, N -> infinity servers (the supermarket model).

    Attributes
    ----------
    arrival_rate, service_rate : float
        Per server and time unit.
    d : int
        Queues looked at, with replacement; 1 is random dispatch.

    Notes
    -----
    Poisson arrivals, exponential sizes. A limit: with N servers the error is O(1/N), growing towards rho = 1.
    Source: Mitzenmacher, "The power of two choices in randomized load balancing", IEEE TPDS 12(10), 2001;
    Vvedenskaya, Dobrushin and Karpelevich, Problems of Information Transmission 32, 1996.
    """

    arrival_rate: float
    d: int = 2
    service_rate: float = 1.0

    def __post_init__(self) -> None:
        check_rate("arrival_rate", self.arrival_rate)
        check_rate("service_rate", self.service_rate)
        if self.d < 1:
            raise InputError(f"d is {self.d}; at least 1 is needed")
        check_stable(self.utilisation)

    @property
    def utilisation(self) -> float:
        """Load a server."""
        return self.arrival_rate / self.service_rate

    def tail(self, length: int) -> float:
        """Fraction of servers with at least `length` requests, rho^((d^length - 1) / (d - 1))."""
        if length <= 0:
            return 1.0
        if self.d == 1:
            return self.utilisation**length
        if length * math.log(self.d) > 600.0:  # beyond the range of floats, as the power below would be
            return 0.0
        return self.utilisation ** ((float(self.d) ** length - 1.0) / (self.d - 1.0))

    @property
    def queue_length_mean(self) -> float:
        """Mean number of requests a server, the sum of the tails."""
        total, length = 0.0, 1
        while (term := self.tail(length)) > 1e-18 * total:
            total += term
            length += 1
        return total

    @property
    def response_mean(self) -> float:
        """Mean time in system, by Little's law."""
        return self.queue_length_mean / self.arrival_rate


@dataclass(frozen=True)
class PeriodicUpdate:
    """The long run under a board that is refreshed every so often.

    Attributes
    ----------
    response_mean : float
        Mean time in system, in the unit the rates are per.
    queue_length_mean : float
        Requests a server, averaged over a period.
    stationary : bool
        Whether every period is like the last. Where it is False the limit itself wanders (all queues looked
        at and a long period: the board overshoots), and the means are averages over many periods.
    board : float64[k]
        Fraction of servers posted with 0, 1, ... requests at the last refresh.
    """

    response_mean: float
    queue_length_mean: float
    stationary: bool
    board: Array


@checked
def periodic_update(
    arrival_rate: float, period: float, d: int | None = 2, service_rate: float = 1.0, tolerance: float = 1e-10
) -> PeriodicUpdate:
    """Join the shortest of d queues as a board refreshed every `period` shows them, N -> infinity servers.

    Parameters
    ----------
    arrival_rate, service_rate : float
        Per server and time unit.
    period : float
        Time between refreshes, above zero.
    d : int or None
        Queues looked at, with replacement; None looks at all of them.
    tolerance : float
        Largest change of any board fraction over a period at which the board counts as stationary.

    Returns
    -------
    PeriodicUpdate

    Raises
    ------
    InputError
        For rates, a period or a d out of range, an unstable load, or queues too long to compute.

    Notes
    -----
    Between refreshes servers posted alike are independent M/M/1 queues with one arrival rate, so a period is
    the exact transient law of a birth-death chain (by uniformisation) and the board is its fixed point.
    Source: Mitzenmacher, "How useful is old information?", IEEE TPDS 11(1), 2000, section 3.
    """
    for name, value in (("arrival_rate", arrival_rate), ("service_rate", service_rate), ("period", period)):
        check_rate(name, value)
    if d is not None and d < 1:
        raise InputError(f"d is {d}; at least 1 is needed, or None for all queues")
    check_stable(arrival_rate / service_rate)
    if d == 1:  # the board is not looked at
        rho = arrival_rate / service_rate
        return PeriodicUpdate(1.0 / (service_rate - arrival_rate), rho / (1.0 - rho), True, _geometric(rho))
    board = _fresh_board(arrival_rate / service_rate, d)

    def over_a_period(start: Array) -> tuple[Array, float]:
        return _one_period(start, arrival_rate, service_rate, period, d)

    found = _settled(over_a_period, board, period, tolerance)
    if found is not None and _returns(over_a_period, found[0], period):
        return PeriodicUpdate(found[1] / arrival_rate, found[1], True, np.trim_zeros(found[0], "b"))
    means = np.empty(_PERIODS)
    for k in range(_PERIODS):
        board, means[k] = over_a_period(_room(board, period))
    mean = float(means[_PERIODS // 2 :].mean())
    return PeriodicUpdate(mean / arrival_rate, mean, False, np.trim_zeros(board, "b"))


def _returns(over_a_period: Callable[[Array], tuple[Array, float]], found: Array, period: float) -> bool:
    """Whether a board close to the one found does not drift away from it, period after period."""
    board = 0.999 * found
    board[0] += 0.001
    distance = np.abs(board - found).max()
    for _ in range(_WATCHED):
        board = _room(board, period)
        board = over_a_period(board)[0]
    return bool(np.abs(board - np.pad(found, (0, board.size - found.size))).max() <= distance)


def _settled(
    over_a_period: Callable[[Array], tuple[Array, float]], board: Array, period: float, tolerance: float
) -> tuple[Array, float] | None:
    """The board that a period leaves as it was, and the mean number within; None if none is found.

    Anderson's acceleration: the next board is extrapolated from the last few, as a short period alone changes
    little.
    """
    boards, changes = [], []
    for _ in range(_TRIES):
        board = _room(board, period)
        if boards and boards[-1].size < board.size:
            boards, changes = [], []
        after, mean = over_a_period(board)
        change = after - board
        if np.abs(change).max() < tolerance:
            return after, mean
        boards, changes = [*boards[-_DEPTH:], after], [*changes[-_DEPTH:], change]
        board = after
        if len(boards) > 1:
            steps = np.diff(changes, axis=0).T
            weights = np.linalg.lstsq(steps, change, rcond=None)[0]
            board = np.maximum(after - np.diff(boards, axis=0).T @ weights, 0.0)
            board /= board.sum()
    return None


def _room(board: Array, period: float) -> Array:
    """The board, with as many lengths again if the longest kept are in use."""
    if board[-8:].sum() <= _TAIL:
        return board
    if board.size >= _LENGTH_MAX:
        raise InputError(f"period is {period:g}; queues grow beyond {_LENGTH_MAX}, so no limit is computed")
    return np.concatenate([board, np.zeros(board.size)])


def _fresh_board(rho: float, d: int | None) -> Array:
    """The fixed point for a board that is never old, to start from."""
    tails = [1.0, rho, 0.0] if d is None else [Supermarket(rho, d).tail(i) for i in range(1 << 12)]
    law = -np.diff(np.array(tails))
    shortest = np.flatnonzero(law > _TAIL)[-1] + 1
    board = np.zeros(1 << max(6, int(shortest + 8).bit_length()))
    board[:shortest] = law[:shortest]
    return board / board.sum()


def _one_period(board: Array, lam: float, mu: float, period: float, d: int | None) -> tuple[Array, float]:
    """The board one refresh later, and the mean number a server in between."""
    rates = _rates(board, lam, d)
    fed = rates > 1e-9 * lam
    after, mean = _starved(np.where(fed, 0.0, board), mu * period)
    posted = np.flatnonzero(fed & (board > _LEAST))
    clock = float(rates[posted].max()) + mu
    up, down = rates[posted, None] / clock, mu / clock
    law = np.zeros((posted.size, board.size))
    law[np.arange(posted.size), posted] = 1.0
    end, within = np.zeros_like(law), np.zeros_like(law)
    for now, later in _poisson_weights(clock * period):
        end += now * law
        within += later / (clock * period) * law
        law = _jump(law, up, down)
    after += board[posted] @ end
    mean += float(board[posted] @ within @ np.arange(board.size))
    return after / after.sum(), mean


def _starved(board: Array, served_mean: float) -> tuple[Array, float]:
    """`_one_period` for servers without arrivals: a Poisson number leaves, while there are any."""
    lengths = np.arange(board.size)
    after, mean = np.zeros(board.size), 0.0
    for k, (now, later) in enumerate(_poisson_weights(served_mean)):
        mean += later / served_mean * float(board @ np.maximum(lengths - k, 0))
        gone = min(k, board.size)
        after[: board.size - gone] += now * board[gone:]
        after[0] += now * board[:gone].sum()
    return after, mean


def _geometric(rho: float) -> Array:
    return (1.0 - rho) * np.power(
        rho, np.arange(math.ceil(math.log(_TAIL) / math.log(rho)), dtype=np.float64)
    )


def _rates(board: Array, lam: float, d: int | None) -> Array:
    """Arrival rate of one server by what it is posted with."""
    rates = np.zeros_like(board)
    if d is None:
        shortest = int(np.flatnonzero(board > _LEAST)[0])
        rates[shortest] = lam / board[shortest]
        return rates
    at_least = np.append(np.cumsum(board[::-1])[::-1], 0.0)
    some = board > _LEAST
    # (a^d - b^d) / (a - b), without the cancellation where a and b are close
    a, b = at_least[:-1][some], at_least[1:][some]
    rates[some] = lam * sum(a**k * b ** (d - 1 - k) for k in range(d))
    return rates


def _jump(law: Array, up: Array, down: float) -> Array:
    """One step of the uniformised chains; the longest queue kept turns arrivals away."""
    after = law * (1.0 - up - down)
    after[:, 1:] += up * law[:, :-1]
    after[:, -1:] += up * law[:, -1:]
    after[:, :-1] += down * law[:, 1:]
    after[:, :1] += down * law[:, :1]
    return after


def _poisson_weights(mean: float) -> list[tuple[float, float]]:
    """P(X = k) and P(X > k) for k = 0, 1, ... until the rest is below 1e-16."""
    count = int(mean + 9.0 * math.sqrt(mean) + 20.0)
    k = np.arange(count + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    weights = np.exp(k * math.log(mean) - mean - log_factorial)
    beyond = np.append(np.cumsum(weights[:0:-1])[::-1], 0.0)
    return list(zip(weights.tolist(), beyond.tolist(), strict=True))


@checked
def balls_tails(balls_per_bin: float, d: int, beta: float = 1.0) -> Array:
    """Fraction of bins with at least i balls after each ball went to the emptiest of d random bins.

    Parameters
    ----------
    balls_per_bin : float
        n / m, above zero.
    d : int
        Choices, with replacement; 1 gives the Poisson law.
    beta : float
        Fraction of the balls that have d choices; the others have one.

    Returns
    -------
    float64[k]
        Fractions for i = 0, 1, ..., down to 1e-300.

    Notes
    -----
    m -> infinity with n / m fixed: ds_i/dt = beta (s_{i-1}^d - s_i^d) + (1 - beta) (s_{i-1} - s_i), by
    Runge-Kutta. Source: Mitzenmacher, "The power of two choices in randomized load balancing", 2001, section
    3; Peres, Talwar and Wieder, "Graphical balanced allocations and the (1 + beta)-choice process", 2015, for
    beta.
    """

    def rate(s: Array) -> Array:
        chosen = beta * s**d + (1.0 - beta) * s
        return np.concatenate([[0.0], chosen[:-1] - chosen[1:]])

    return _trimmed(_integrate(rate, _empty_bins(balls_per_bin), balls_per_bin))


@checked
def left_tails(balls_per_bin: float, d: int) -> Array:
    """As `balls_tails` for always-go-left: one random bin in each of d groups, ties to the leftmost group.

    Returns
    -------
    float64[k]
        Fractions over all bins.

    Notes
    -----
    Source: Voecking, "How asymmetry helps load balancing", Journal of the ACM 50(4), 2003; the differential
    equations are those of Mitzenmacher and Voecking, "The asymptotics of selecting the shortest of two,
    improved", 1999.
    """

    def rate(s: Array) -> Array:
        higher = np.concatenate([s[:, 1:], np.zeros((d, 1))], axis=1)
        into = np.empty_like(s)  # probability that a ball lands in the group on a bin with exactly i
        for g in range(d):
            into[g] = (s[g] - higher[g]) * higher[:g].prod(axis=0) * s[g + 1 :].prod(axis=0)
        return np.concatenate([np.zeros((d, 1)), d * into[:, :-1]], axis=1)

    start = np.tile(_empty_bins(balls_per_bin), (d, 1))
    return _trimmed(_integrate(rate, start, balls_per_bin).mean(axis=0))


def _empty_bins(balls_per_bin: float) -> Array:
    start = np.zeros(int(balls_per_bin + 40.0 * math.sqrt(balls_per_bin) + 120.0))
    start[0] = 1.0
    return start


def _integrate(rate, state: Array, until: float) -> Array:
    """Classical Runge-Kutta of fourth order with fixed steps."""
    steps = max(_STEPS, int(_STEPS * until / 4.0))
    h = until / steps
    for _ in range(steps):
        k1 = rate(state)
        k2 = rate(state + 0.5 * h * k1)
        k3 = rate(state + 0.5 * h * k2)
        k4 = rate(state + h * k3)
        state = state + h / 6.0 * (k1 + 2.0 * (k2 + k3) + k4)
    return state


def _trimmed(tails: Array) -> Array:
    return tails[: int((tails > 1e-300).sum())]
