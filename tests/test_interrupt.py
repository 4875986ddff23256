"""Ctrl-C during long work: heard at once, and the work ends at its next checkpoint."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from fastsim._interrupt import checkpoint, in_threads, interruptible

pytestmark = pytest.mark.small


def interrupt_after(seconds: float) -> None:
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


def test_an_interrupt_is_heard_at_once_and_ends_the_work_at_its_next_checkpoint():
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        try:
            while True:
                time.sleep(0.01)
                checkpoint()
        finally:
            ended.set()

    interrupt_after(0.1)
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        interruptible(work)
    assert begun.is_set()
    assert time.perf_counter() - start < 1.0
    assert ended.wait(1.0)


def test_threads_within_threads_end_too():
    ended = threading.Event()

    def work(_: int) -> None:
        try:
            while True:
                time.sleep(0.01)
                checkpoint()
        finally:
            ended.set()

    interrupt_after(0.1)
    with pytest.raises(KeyboardInterrupt):
        in_threads(lambda _: in_threads(work, [0], 1), [0], 1)
    assert ended.wait(1.0)


@pytest.mark.parametrize("workers", [1, 3, 50])
def test_results_are_in_the_order_of_the_items(workers):
    assert in_threads(lambda x: x * x, range(20), workers) == [x * x for x in range(20)]
    assert in_threads(lambda x: x, [], workers) == []


def test_the_first_failure_is_raised_and_nothing_begun_after_it():
    seen = []

    def work(x: int) -> None:
        seen.append(x)
        raise ValueError(x)

    with pytest.raises(ValueError, match=r"^0$"):
        in_threads(work, range(10), 1)
    assert seen == [0]


def test_outside_the_main_thread_work_is_done_where_it_is():
    (inside,) = in_threads(lambda _: interruptible(threading.get_ident) == threading.get_ident(), [0], 1)
    assert inside
