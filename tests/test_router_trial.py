"""Policies from outside the package are tried before they run: what they may not do is said, and where."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import fastsim
from fastsim import Cluster, simulate
from fastsim.cluster import guard, trial
from fastsim.cluster.routers import ROUTERS
from fastsim.cluster.routers import view as rv
from fastsim.cluster.routers.tree import KEEP_ALL, remember, tree_match
from fastsim.cluster.routers.view import least, least_loaded
from fastsim.cluster.simulate import begun
from fastsim.errors import InputError
from fastsim.rng import below
from fastsim.workloads import make

small = pytest.mark.small

LAST = 2  # of three replicas
NATIVE = {"view": "native", "routers": 2, "caches": "native", "counted_from": "sent"}
ANSWERS = f"it must return a replica, a whole number from 0 to {LAST}, or REJECT or HOLD"


def asked(requests: int = 40) -> Any:
    return make("long_documents", requests=requests, rate_rps=4.0, documents=6)


@contextmanager
def registered(policy: Callable[..., Any], **settings: Any) -> Iterator[str]:
    fastsim.router(policy.__name__, **settings)(policy)
    yield policy.__name__
    del ROUTERS[policy.__name__]


def refusal(policy: Callable[..., Any], **settings: Any) -> str:
    """What is said of a policy, after its name."""
    with registered(policy, **settings) as name, pytest.raises(InputError) as refused:
        simulate(asked(), Cluster(LAST + 1), name)
    assert str(refused.value).startswith(f"router {name!r}: ")
    return str(refused.value).removeprefix(f"router {name!r}: ")


def at(function: Callable[..., Any], sign: str) -> str:
    """How the line of a function's source that has `sign` is named."""
    lines, first = inspect.getsourcelines(function)
    offset, text = next((k, line.strip()) for k, line in enumerate(lines) if sign in line)
    return f"line {first + offset} of {__file__} ({text})"


# --- what is wrong, and where -------------------------------------------------------------------------------


@small
@pytest.mark.parametrize("place", [8, 10**9, -9, -(10**9)])
def test_reading_outside_an_array(place):
    def reads(view, request):
        return view.memory[place]  # here

    said = f"reads view.memory[{place}], which has 8 entries: 0 to 7"
    assert refusal(reads) == f"{at(reads, '# here')} {said}"


@small
def test_writing_outside_its_own_array():
    def writes(view, request):
        view.real[request] = 1.5  # here
        return 0

    said = "writes to view.real[7], which has 7 entries: 0 to 6"
    assert refusal(writes, real=7) == f"{at(writes, '# here')} {said}"


@small
@pytest.mark.parametrize(
    "name", ["load", "work", "match", "kv_used", "limits", "params", "path", "rng", "tree"]
)
def test_arrays_of_the_cluster_are_not_writable(name):
    def writes(view, request):
        getattr(view, name)[0] = 1
        return 0

    made = guard.View({name: np.ones(2)})
    with pytest.raises(
        guard.Refused, match=rf"writes to view.{name}\[0\], which is not its own; a policy may"
    ):
        writes(made, 0)


@small
def test_of_the_prompt_only_what_is_asked_for_is_writable():
    def writes(view, request):
        view.prompt[rv.SEND_BLK] = 0
        view.prompt[rv.PROMPT_TOK] = 1  # here
        return 0

    said = f"writes to view.prompt[{rv.PROMPT_TOK}], which is not its own; {guard._WRITABLE}"
    assert refusal(writes) == f"{at(writes, '# here')} {said}"


@small
def test_a_helper_led_astray_is_the_line_that_called_it():
    def strays(view, request):
        return tree_match(view, request + 10**6)  # here

    settings = {"tree": lambda params, cluster: fastsim.cluster.routers.registry.Tree(KEEP_ALL)}
    assert refusal(strays, **settings).startswith(f"{at(strays, '# here')} reads view.path_ptr[10000")


@small
@pytest.mark.parametrize("answer", [0.5, LAST + 1, -1, 10**12])
def test_an_answer_that_is_none(answer):
    def answers(view, request):
        return answer  # here

    assert refusal(answers) == f"{at(answers, '# here')} returns {answer}; {ANSWERS}"


@small
def test_no_answer_on_some_path():
    def answers(view, request):
        if request < 3:
            return 1

    assert refusal(answers) == f"{at(answers, 'if request')} returns nothing; {ANSWERS}"


@small
def test_raising():
    def raises(view, request):
        if request == 5:
            raise ValueError("five")
        return 0

    assert refusal(raises) == f"{at(raises, 'raise Val')} raises ValueError: five; a policy may not"


@small
def test_looping_for_ever(monkeypatch):
    monkeypatch.setattr(trial, "LONGEST_S", 0.1)

    def loops(view, request):
        k = 0
        while k >= 0:
            k = k + 1 - 1  # here
        return k

    said = "has not answered after 0.1 s in plain Python; it seems to loop for ever there"
    assert refusal(loops).replace(at(loops, "while"), at(loops, "# here")) == f"{at(loops, '# here')} {said}"


@pytest.mark.parametrize("where", ["attribute", "name", "text"])
def test_what_cannot_be_compiled(where):
    def attribute(view, request):
        return 0 if request < 10**6 else view.nothing[0]  # here

    def name(view, request):
        return 0 if request < 10**6 else nothing_of_that_name  # noqa: F821  # pyright: ignore  # here

    def text(view, request):
        return 0 if request < 10**6 else "zero" * request  # here

    policy = {"attribute": attribute, "name": name, "text": text}[where]
    said = refusal(policy)
    assert said.startswith(f"{at(policy, 'here')} cannot be compiled: ")
    assert len(said.split("cannot be compiled: ")[1]) < 120, said


@small
def test_what_is_heard_is_tried_too():
    def heard(view, kind, what, replica, value):
        view.memory[10**6 + what] = kind  # here
        return 0

    def listens(view, request):
        return 0

    said = "writes to view.memory[1000000], which has 8 entries: 0 to 7"
    assert refusal(listens, heard=heard) == f"{at(heard, '# here')} {said}"


# --- what is right ------------------------------------------------------------------------------------------


def busy(view, request):
    """Draw, remember, count and choose among equals."""
    view.memory[0] += below(view.rng, 5)
    view.real[0] = view.memory[0] / (1 + view.load[0]) + 1 / view.memory[1]
    view.memory[-1] = view.memory[0] << 60
    view.count[0, 1] = int(view.real[0] % 3.0) if view.real[0] < 10.0 else 0
    for r in range(len(view.load)):
        view.score[r] = view.load[r] - view.match[r] / 1000.0
    remember(view, request, least_loaded(view))
    return (least(view.score) + view.memory[0]) % view.load.shape[0]


def heard(view, kind, what, replica, value):
    """Take note."""
    view.memory[2] += kind + replica
    return 0


BUSY = {
    "needs": ["matches"],
    "heard": heard,
    "real": 1,
    "count": 1,
    "tree": lambda params, cluster: fastsim.cluster.routers.registry.Tree(KEEP_ALL),
}


def test_a_trial_changes_nothing():
    with registered(busy, **BUSY) as tried:
        once, again = (simulate(asked(), Cluster(3), tried, routers=2).requests for _ in range(2))
    with registered(busy, **BUSY, trial=False) as untried:
        assert not ROUTERS[untried].trial
        plain = simulate(asked(), Cluster(3), untried, routers=2).requests
    assert once.equals(plain)
    assert again.equals(plain)


@small
def test_a_trial_is_of_the_first_requests_and_ends_in_time():
    with registered(busy, **BUSY) as name:
        workload = asked(1_000).take(trial.REQUESTS)
        made = begun(workload, Cluster(3), name, None, **{**NATIVE, "routers": 1}, seed=0, replicate=0)
        began_s = time.process_time()
        answers = trial.Trial(*made).run()
        assert 0 < len(answers) <= trial.REQUESTS
        assert time.process_time() - began_s < 2 * trial.TIME_S + 0.5
        made = begun(workload, Cluster(3), name, None, **{**NATIVE, "routers": 1}, seed=0, replicate=0)
        assert len(trial.Trial(*made).run(0.0)) == 1


@pytest.mark.parametrize("router", list(ROUTERS))
def test_the_packages_own_policies_pass_and_answer_as_in_the_run(router):
    """In plain Python with every access checked, and compiled: the same answers."""
    assert not ROUTERS[router].trial
    made = begun(asked(), Cluster(3, kv_tok=100_000), router, None, **NATIVE, seed=0, replicate=0)
    answers = dict(trial.Trial(*made).run(60.0))
    result = simulate(asked(), Cluster(3, kv_tok=100_000), router, routers=2)
    assert [answers[i] for i in range(40)] == result.columns["replica"].tolist()


# --- an interrupt -------------------------------------------------------------------------------------------

LOOPS_LATER = """
import fastsim
from fastsim.workloads import make

@fastsim.router("loops_later")
def loops_later(view, request):
    '''Past the trial, round and round.'''
    k = 0
    while request >= 400 and k >= 0:
        k = k + 1 - 1
    return k

workload = make("long_documents", requests=500, rate_rps=4.0)
fastsim.simulate(workload.take(390), fastsim.Cluster(2), "loops_later")
print("begins", flush=True)
try:
    fastsim.simulate(workload, fastsim.Cluster(2), "loops_later")
except KeyboardInterrupt:
    print("heard", flush=True)
"""


def test_a_policy_that_never_returns_hears_an_interrupt_within_a_second():
    with subprocess.Popen([sys.executable, "-c", LOOPS_LATER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        time.sleep(1.0)
        assert process.poll() is None
        began_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "heard\n"
        assert time.monotonic() - began_s < 1.0
        assert process.wait(60.0) == 0  # the thread that loops ends with the process
