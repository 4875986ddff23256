"""Long work that hears Ctrl-C: it runs in threads, while the caller's waits for them.

Python notices an interrupt between two of its own instructions, so a kernel that runs for an hour is deaf for
an hour. Kernels run without Python's global lock: in another thread they leave the waiting one free to hear.
What goes piece by piece calls `checkpoint` between pieces, and so ends soon after its caller was interrupted;
a single long kernel cannot be told, and is left to end with the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


class Abandoned(BaseException):
    """Raised by `checkpoint` in a thread whose caller no longer waits."""


def checkpoint() -> None:
    """End the work of this thread if the caller was interrupted; call it between two pieces."""
    stop = _stop.get()
    if stop is not None and stop.is_set():
        raise Abandoned


def interruptible(work: Callable[[], R]) -> R:
    """Do some work in a thread, and return what it returns or raise what it raises.

    An interrupt is raised here at once. Outside the main thread, which alone hears interrupts, the work is
    done where it is.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    return in_threads(lambda _: work(), (None,), 1)[0]


def hears_interrupts(work: Callable[P, R]) -> Callable[P, R]:
    """Make every call of a function `interruptible`."""

    @wraps(work)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return interruptible(lambda: work(*args, **kwargs))

    return call


def in_threads(work: Callable[[T], R], items: Iterable[T], workers: int) -> list[R]:
    """Do some work for each item, `workers` at a time; the results are in the order of the items.

    Raises
    ------
    BaseException
        What the work for an item raised; of several the first item's. No item is begun after that.
    KeyboardInterrupt
        At once, while the threads end at their next `checkpoint`.
    """
    todo, taking = enumerate(items), threading.Lock()
    outer, stop, done = _stop.get(), threading.Event(), threading.Semaphore(0)
    found: dict[int, R] = {}
    failed: dict[int, BaseException] = {}

    def serve() -> None:
        _stop.set(stop)
        while not stop.is_set() and not failed:
            with taking:
                place, item = next(todo, (-1, None))
            if place < 0:
                break
            try:
                found[place] = work(item)  # pyright: ignore[reportArgumentType]
            except BaseException as error:
                failed[place] = error
        done.release()

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            while not done.acquire(timeout=_LOOK_EVERY_S):
                if outer is not None and outer.is_set():  # these threads were started in one that is to end
                    raise Abandoned
    except BaseException:
        stop.set()
        raise
    if failed:
        raise failed[min(failed)]
    return [found[place] for place in sorted(found)]


_LOOK_EVERY_S = 0.2  # whether an outer caller was interrupted; one's own interrupt is heard at once
