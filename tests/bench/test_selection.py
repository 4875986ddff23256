"""Exhaustive search packed in bits beside one byte a question, and all that is kept of 10^8 allocations."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import numpy as np

from fastsim._jit import kernel
from fastsim.lecture import toy_worlds
from fastsim.selection.costs import Costs
from fastsim.selection.exhaustive import correct_counts, survey
from fastsim.selection.latent import DIV, P1, Pool
from fastsim.selection.systems import get
from fastsim.selection.worlds import World
from tests.bench.measure import ROOT, Job, interleaved
from tests.bench.tables import Row, Target, judged, show

MILLION_MS = {True: Target(20.0), False: Target(100.0)}  # with AVX-512 population counts, and without
HUNDRED_MILLION_S = Target(5.0)
POOLS_S = Target(60.0)  # two cores

# A processor without AVX, as numba is told in a fresh process: what `count` costs there.
PLAIN = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
IN_A_PROCESS = """
import json
from tests.bench.measure import Job, interleaved
from tests.bench.test_selection import million
from fastsim.selection.exhaustive import correct_counts
world = million("debate")
print(json.dumps(interleaved({"": Job(lambda: correct_counts(world))})[""].cpu_s))
"""


def million(system: str, law: Pool = P1, models: int = 10, questions: int = 1000) -> World:
    """10 models in a debate, 1,000 questions."""
    return dataclasses.replace(law, models=models, train=questions, test=1).draw(1, get(system)).train


@kernel
def count_bytes(answers, debaters, models, counts):
    """The debate of `roles.debate`, a byte a question: generators bool[3, K, Q], debaters bool[3, K, Q]."""
    questions = answers.shape[2]
    place = 0
    for a in range(models):
        for b in range(models):
            for c in range(models):
                for x in range(models):
                    for y in range(models):
                        for z in range(models):
                            total = 0
                            for q in range(questions):
                                first, second, third = answers[0, a, q], answers[1, b, q], answers[2, c, q]
                                known = first | second | third
                                one = first | (known & debaters[0, x, q])
                                two = second | (known & debaters[1, y, q])
                                three = third | (known & debaters[2, z, q])
                                split = one & (1 - two) & (1 - three) & (b != c)
                                total += (one & two) | (one & three) | (two & three) | split
                            counts[place] = total
                            place += 1


def bytewise(world: World) -> np.ndarray:
    success = world.success.astype(np.uint8)
    counts = np.empty(len(world.models) ** 6, dtype=np.int32)
    count_bytes(success[:3], success[3:], len(world.models), counts)
    return counts


def test_a_million_allocations(once):
    """10^6 debate allocations on 1,000 questions, leaves and table included, one thread."""
    once(lambda: a_million())


def a_million() -> None:
    worlds = {"debate": million("debate"), "debate, swayed": million("debate_swayed", DIV)}
    jobs = {name: Job(lambda w=world: correct_counts(w)) for name, world in worlds.items()}
    jobs["bytes"] = Job(lambda: bytewise(worlds["debate"]), rounds=3)
    best = interleaved(jobs)
    assert (best["bytes"].result == best["debate"].result.ravel()).all()
    rows: list[Row] = []
    for name, found in best.items():
        figures = {
            "": name,
            "ms": found.cpu_s * 1e3,
            "questions/s": 1e9 / found.cpu_s,
            "times bytes": best["bytes"].cpu_s / found.cpu_s,
        }
        target = MILLION_MS[counts_in_avx512()] if name != "bytes" else None
        rows.append(judged(figures, found.cpu_s * 1e3, target))
    plain_s = on_a_plain_processor()
    figures = {"": "debate, baseline x86-64", "ms": plain_s * 1e3, "questions/s": 1e9 / plain_s}
    rows.append(judged(figures, plain_s * 1e3, MILLION_MS[False]))
    show("selection", "10^6 allocations of a debate on 1,000 questions (CPU)", rows)


def counts_in_avx512() -> bool:
    """Whether the processor counts the bits of vectors."""
    import llvmlite.binding as llvm

    return bool(llvm.get_host_cpu_features().get("avx512vpopcntdq"))


def on_a_plain_processor() -> float:
    environment = dict(os.environ) | PLAIN
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def test_a_hundred_million_allocations(once):
    """22 models: nothing is kept but the ten best and the frontier."""
    once(lambda: a_hundred_million())


def a_hundred_million() -> None:
    world = million("debate", models=22)
    costs = Costs.of_calls(world, np.linspace(1.0, 5.0, 22))
    found = interleaved({"": Job(lambda: survey(world, costs), rounds=2)})[""]
    assert found.result.allocations == 22**6
    figures = {"": "22 models, top 10 and frontier", "s": found.cpu_s, "allocations/s": 22**6 / found.cpu_s}
    rows = [judged(figures, found.cpu_s, HUNDRED_MILLION_S)]
    show("selection_survey", "1.1 x 10^8 allocations of a debate on 1,000 questions (CPU)", rows)


def test_pools_of_the_lecture(once):
    """A pool on every setting of M4 to M7, and what 200 of them take on two cores."""
    once(lambda: pools_of_the_lecture())


def pools_of_the_lecture() -> None:
    found = interleaved({"": Job(lambda: [toy_worlds.pool(seed) for seed in range(5)], rounds=3)})[""]
    wall_s = found.cpu_s / 5 * 200 / 2
    rows = [judged({"": "200 pools, M4 to M7", "s on two cores": wall_s}, wall_s, POOLS_S)]
    show("selection_pools", "Worlds of the lecture's demonstrations 2 to 4 (CPU)", rows)
