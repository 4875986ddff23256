"""A user's policy on trial: the first requests of a run, every access and every answer checked.

Compiled policies are not checked: one that reads or writes outside its arrays does what it likes to the run
and to the process. So before a policy from outside the package runs, it is asked about the first requests in
plain Python (`guard`), while the cluster itself runs compiled, on a state and views of its own: the run that
follows knows nothing of it. What is wrong is said with the line that did it.
"""

from __future__ import annotations

import linecache
import math
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numba.core.errors import NumbaError

from fastsim.cluster import _state as st
from fastsim.cluster import guard
from fastsim.cluster._loop import run
from fastsim.cluster._script import (
    ANSWER,
    ASKED,
    FIRST_REPORT,
    FIRST_SENT,
    N_HEARD,
    NOBODY,
    OF_REPORT,
    READY,
    SENT,
    noted,
    scripted,
)
from fastsim.cluster.config import Cluster
from fastsim.cluster.routers.registry import Router
from fastsim.cluster.routers.view import FIELDS, HOLD, NOW_PS, REJECT, View, pack_views
from fastsim.errors import InputError
from fastsim.workloads import Workload

REQUESTS = 300  # of a trial, at most
TIME_S = 0.3  # after which no further request is tried
LONGEST_S = 3.0  # after which a policy is taken to loop for ever; in plain Python, some 10^6 lines
_REPORTS = 1 << 14  # between two requests; what is heard beyond them is not tried

_tried: set[tuple[Any, ...]] = set()


def try_out(policy: Router, key: tuple[Any, ...], workload: Workload, cluster: Cluster, start: Any) -> None:
    """Try a policy on the first requests of a workload, unless that was done before in this process.

    Parameters
    ----------
    policy : Router
    key : tuple
        What else decides how it answers: parameters and views.
    workload, cluster
        Of the run to come. Restarts and late joins are left out.
    start : callable
        ``start(workload, cluster)`` gives a new state and new views at time 0.

    Raises
    ------
    InputError
        If it reads or writes where it may not, answers what is no answer, raises, loops for ever or cannot be
        compiled; the message names the line.
    """
    done = (policy.policy, workload.name, repr(cluster), *map(repr, key))
    if done not in _tried:
        plain_cluster = replace(cluster, restarts=None, joins_s=None)
        Trial(policy, *start(workload.take(REQUESTS), plain_cluster)).run()
        _compile(policy)
        _tried.add(done)


class Trial:
    """A policy's answers to the requests of a small run.

    Parameters
    ----------
    policy : Router
    state, views
        At time 0; they are used up.
    """

    def __init__(self, policy: Router, state: Any, views: list[Any]) -> None:
        self.policy, self.state, self.views = policy, state, views
        known: dict[int, Any] = {}
        self._route = guard.plain(policy.policy, known)
        self._heard = None if policy.heard is None else guard.plain(policy.heard, known)
        words = FIRST_REPORT + OF_REPORT * (_REPORTS if policy.heard is not None else 0)
        self._scripts = [np.zeros(words, np.int64) for _ in views]
        for script in self._scripts:
            script[ASKED] = NOBODY
        self.answers: list[tuple[int, int]] = []  # request, answer

    def run(self, time_s: float = TIME_S) -> list[tuple[int, int]]:
        """Let the run go on until it ends, or for some time after the first answer; returns all answers."""
        from fastsim.cluster.simulate import repaired  # which starts trials

        end_s = math.inf
        policy = replace(self.policy, policy=scripted)
        shown = self._shown()
        while (fault := int(run(self.state, pack_views(shown), scripted, noted))) != st.NO_FAULT:
            if fault == st.HELD_FOREVER or time.perf_counter() > end_s:
                break
            if fault == st.BAD_ROUTE:
                self._answer()
                end_s = min(end_s, time.perf_counter() + time_s)
            else:
                self.state, self.views = repaired(fault, self.state, self.views, policy)
                shown = self._shown()
        return self.answers

    def _shown(self) -> list[Any]:
        """The views as compiled code has them, with scripts for memories."""
        pairs = zip(self.views, self._scripts, strict=True)
        return [View(**{**_arrays(view), "memory": script}) for view, script in pairs]

    def _answer(self) -> None:
        """Ask the policy what the run stopped for."""
        for view, script in zip(self.views, self._scripts, strict=True):
            self._report(view, script)
        k = next(k for k, script in enumerate(self._scripts) if script[ASKED] != NOBODY)
        view, script = self.views[k], self._scripts[k]
        request = int(script[ASKED])
        script[ASKED] = NOBODY
        answer = _checked(self.policy.name, self._route, (guard.View(_arrays(view)), request), len(view.load))
        script[READY], script[ANSWER] = request + 1, answer
        script[FIRST_SENT : FIRST_SENT + len(SENT)] = view.prompt[list(SENT)]
        self.state.pool[st.FAULT] = st.NO_FAULT
        self.answers.append((request, answer))

    def _report(self, view: Any, script: np.ndarray) -> None:
        """Tell the policy what was heard since it was asked last."""
        now_ps = int(view.prompt[NOW_PS])
        rows = script[FIRST_REPORT : FIRST_REPORT + OF_REPORT * int(script[N_HEARD])].reshape(-1, OF_REPORT)
        for *report, ps in rows.tolist():
            view.prompt[NOW_PS] = ps
            _guarded(self.policy.name, self._heard, (guard.View(_arrays(view)), *report))
        script[N_HEARD] = 0
        view.prompt[NOW_PS] = now_ps


def _arrays(view: Any) -> dict[str, np.ndarray]:
    return {name: getattr(view, name) for name in FIELDS}


# --- what a policy does, and where --------------------------------------------------------------------------


def _checked(name: str, route: Any, args: tuple[Any, ...], replicas: int) -> int:
    """What a policy answers, if it is an answer."""
    answer, line = _guarded(name, route, args)
    allowed = f"it must return a replica, a whole number from 0 to {replicas - 1}, or REJECT or HOLD"
    where = _place(name, route.__code__, line)
    if answer is None:
        raise InputError(f"{where} returns nothing; {allowed}")
    if not isinstance(answer, bool | np.bool_ | int | np.integer):
        raise InputError(f"{where} returns {answer!r}; {allowed}")
    if not 0 <= answer < replicas and answer not in (REJECT, HOLD):
        raise InputError(f"{where} returns {int(answer)}; {allowed}")
    return int(answer)


def _guarded(name: str, function: Any, args: tuple[Any, ...]) -> tuple[Any, int]:
    """Call a policy's plain function; returns what it returns, and from which line."""
    watch = _Watch(function.__code__)
    try:
        with np.errstate(all="ignore"), watch.tracing():
            return function(*args), watch.line
    except guard.Refused as error:
        code, line = _deepest(error, function)
        raise InputError(f"{_place(name, code, line)} {error}") from None
    except Exception as error:
        code, line = _deepest(error, function)
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise InputError(f"{_place(name, code, line)} raises {what}; a policy may not") from error


class _Watch:
    """Follows a policy line by line: from which line it returns, and whether it does so in time."""

    def __init__(self, code: Any) -> None:
        self._code = code
        self._end_s = time.perf_counter() + LONGEST_S
        self.line = code.co_firstlineno

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Follow what is called meanwhile in this thread."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: Any, event: str, arg: Any) -> Any:
        return self._step if frame.f_code.co_filename != guard.__file__ else None

    def _step(self, frame: Any, event: str, arg: Any) -> Any:
        if event == "return" and frame.f_code is self._code:
            self.line = frame.f_lineno
        elif event == "line" and time.perf_counter() > self._end_s:
            raise guard.Refused(
                f"has not answered after {LONGEST_S:g} s in plain Python; it seems to loop for ever there"
            )
        return self._step


def _deepest(error: BaseException, function: Any) -> tuple[Any, int]:
    """Where in the policy's own code an error arose: the deepest frame of a file that the policy is in."""
    found = function.__code__, function.__code__.co_firstlineno
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == function.__code__.co_filename:
            found = at.tb_frame.f_code, at.tb_lineno
        at = at.tb_next
    return found


def _place(name: str, code: Any, line: int) -> str:
    source = linecache.getline(code.co_filename, line).strip()
    quoted = f" ({source})" if source else ""
    return f"router {name!r}: line {line} of {code.co_filename}{quoted}"


# --- what cannot be compiled --------------------------------------------------------------------------------


def _compile(policy: Router) -> None:
    """Compile a policy, which is to be done anyway; an InputError with the line if that is not possible."""
    for made in (policy.policy, policy.heard):
        if not hasattr(made, "py_func"):
            continue
        try:
            made.compile(None)
        except (NumbaError, TypeError) as error:
            code = made.py_func.__code__
            cause = error.__cause__ if isinstance(error.__cause__, NumbaError) else error
            reason = _reason(error) if cause is error else "it makes an array or a text, which takes memory"
            place = _place(policy.name, code, _line_of(cause, code))
            raise InputError(f"{place} cannot be compiled: {reason}") from error


def _line_of(error: Exception, code: Any) -> int:
    """The last line of the policy's file that an error of numba's names, else where the policy begins."""
    places = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    lines = [int(line) for file, line in places if code.co_filename.endswith(file.lstrip("./"))]
    loc = getattr(error, "loc", None)
    if not lines and loc is not None and loc.filename == code.co_filename:
        lines = [loc.line]
    return lines[-1] if lines else code.co_firstlineno


def _reason(error: Exception) -> str:
    """What numba says is wrong, in one line without its own internals."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in str(error).splitlines()]
    beside = ("Failed in", "File ", "During", "^", "<")
    said = [line for line in lines if line and not line.startswith(beside)]
    return _VIEW.sub("the view", said[0]) if said else type(error).__name__


_VIEW = re.compile(r"(type )?RouterView\((?:[^()]|\([^()]*\))*\)")  # with all its fields, as numba spells it
