"""Overload is told from a long busy period, a filling system and a rising rate; error rates by simulation."""

import math

import numpy as np
import pytest

from fastsim.errors import InputError
from fastsim.stats import backlog_score, is_stable, point_is_stable
from tests.study.stability import called_overloaded, scores


def fcfs_done_s(arrival_s, service_s):
    """Departure times of one server that begins idle."""
    total_s = np.cumsum(service_s)
    return np.maximum.accumulate(arrival_s - (total_s - service_s)) + total_s


@pytest.mark.parametrize(
    ("n", "utilisation", "servers", "at_most"),
    [
        (600, 0.8, 1, 0.01),
        (600, 0.9, 4, 0.01),
        (600, 0.95, 1, 0.03),
        (600, 0.95, 16, 0.03),
        (10_000, 0.95, 4, 0.01),
    ],
)
def test_stable_queues_are_rarely_called_overloaded(n, utilisation, servers, at_most) -> None:
    """400 runs each; measured rates are 0.0-1.1 %, far below the limits."""
    score = scores(400, n, utilisation, servers=servers)
    assert called_overloaded(score, 1) <= at_most
    assert called_overloaded(score, 20) == 0.0


@pytest.mark.parametrize(
    ("n", "utilisation", "at_least"),
    [(600, 1.2, 0.6), (2_000, 1.2, 0.97), (10_000, 1.05, 0.65), (600, 2.0, 0.97)],
)
def test_overloaded_queues_are_found(n, utilisation, at_least) -> None:
    """200 runs each; measured rates are 72, 99, 77 and 99.5 %."""
    score = scores(200, n, utilisation, servers=4)
    assert called_overloaded(score, 1) >= at_least
    assert called_overloaded(score, 20) == 1.0


def test_one_run_on_each_side_of_capacity() -> None:
    rng = np.random.default_rng(1)
    service_s = rng.standard_exponential(5_000)
    gaps_s = rng.standard_exponential(5_000)
    for gap_s, stable in ((1 / 0.8, True), (1 / 1.3, False)):
        arrival_s = np.cumsum(gaps_s * gap_s)
        assert is_stable(arrival_s, fcfs_done_s(arrival_s, service_s)) is stable


def test_order_of_service_does_not_matter() -> None:
    """Last come first served departs at the same instants, with other requests."""
    rng = np.random.default_rng(2)
    arrival_s = np.cumsum(rng.standard_exponential(3_000) / 1.2)
    done_s = fcfs_done_s(arrival_s, np.ones(3_000))
    assert backlog_score(arrival_s, rng.permutation(done_s)) == backlog_score(arrival_s, done_s) > 2.0


def test_the_unit_of_time_does_not_matter() -> None:
    rng = np.random.default_rng(3)
    arrival_s = np.cumsum(rng.standard_exponential(1_000))
    done_s = fcfs_done_s(arrival_s, rng.standard_exponential(1_000))
    assert backlog_score(arrival_s * 1024, done_s * 1024) == backlog_score(
        arrival_s, done_s
    )  # exact in binary


def test_a_system_that_is_still_filling_is_not_overloaded() -> None:
    """Infinitely many servers: the number grows while the first requests stay for a third of the run."""
    arrival_s = np.arange(600.0)
    assert is_stable(arrival_s, arrival_s + 200.0)
    stays_s = np.random.default_rng(4).exponential(200.0, (200, 600))
    assert sum(not is_stable(arrival_s, arrival_s + row) for row in stays_s) <= 2


def test_a_rate_that_doubles_without_queueing_is_not_overload() -> None:
    rng = np.random.default_rng(5)
    arrival_s = 1_000 * (np.sqrt(1 + 3 * np.sort(rng.random(20_000))) - 1)  # density rises linearly, 1 to 2
    done_s = arrival_s + rng.exponential(100.0, 20_000)
    in_system = np.arange(1, 20_001) - np.searchsorted(np.sort(done_s), arrival_s, side="right")
    assert in_system[-1] > 1.3 * in_system[7_000]  # it does grow
    assert is_stable(arrival_s, done_s)


def test_requests_that_never_finish_count_as_waiting() -> None:
    arrival_s = np.arange(1_000.0)
    done_s = arrival_s + 0.5
    done_s[np.arange(1_000) % 3 == 0] = math.nan
    assert not is_stable(arrival_s, done_s)
    done_s[np.isnan(done_s)] = math.inf
    assert not is_stable(arrival_s, done_s)


def test_too_few_requests_and_a_batch_at_once_cannot_tell() -> None:
    assert backlog_score(np.arange(99.0), np.full(99, 1e6)) == 0.0
    assert backlog_score(np.zeros(500), np.arange(1.0, 501.0)) == 0.0
    assert backlog_score(np.arange(500.0), np.arange(500.0) + 0.5) == 0.0
    assert is_stable([1.0], [2.0])


def test_a_point_needs_less_evidence_from_each_of_many_runs() -> None:
    assert point_is_stable([1.5])
    assert not point_is_stable([1.5] * 20)
    assert point_is_stable([1.0] * 20)
    assert not point_is_stable([2.01])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: is_stable([1.0, 2.0], [3.0]), "done_s has 1 values and arrival_s has 2"),
        (lambda: is_stable([2.0, 1.0], [3.0, 3.0]), "arrival_s decreases"),
        (lambda: is_stable([1.0, math.nan], [3.0, 3.0]), "arrival_s holds nan"),
        (lambda: is_stable([], []), "arrival_s is empty"),
        (lambda: point_is_stable([]), "scores is empty"),
    ],
)
def test_bad_input_is_one_clear_sentence(call, says) -> None:
    with pytest.raises(InputError, match=says):
        call()
