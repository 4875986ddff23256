"""Running a sweep: the same rows whatever happens, and no finished point simulated twice."""

import copy
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fastsim.errors import InputError
from fastsim.sweep import Interrupted, backends, parse, read, run
from fastsim.sweep.parts import open_run

ROOT = Path(__file__).parents[1]
DOCUMENT = {
    "sweep": {"name": "small", "experiment": "tests.fake_experiment:FAKE", "seed": 3, "seeds": 4},
    "base": {},
    "grid": {"router": ["alpha", "beta"], "rate_rps": [0.5, 1.0, 1.5]},
}
POINTS = 24
# What a test's own log file, or an edit of the sources while the tests run, changes.
PROVENANCE = ["params", "point", "spec_hash", "code_version"]


def document(log: Path | None = None, **base):
    made = copy.deepcopy(DOCUMENT)
    made["base"] = {"log": "" if log is None else str(log), **base}
    return made


def simulated(log: Path) -> Counter:
    lines = log.read_text().splitlines() if log.exists() else []
    return Counter(line for line in lines if not line.startswith("workload"))


def workloads(log: Path) -> Counter:
    return Counter(line for line in log.read_text().splitlines() if line.startswith("workload"))


def rows(folder: Path) -> pl.DataFrame:
    return read(folder).rows


def measured(folder: Path) -> pl.DataFrame:
    return rows(folder).drop(PROVENANCE)


def in_a_process(folder: Path, made: dict, cwd: Path = ROOT, **options) -> subprocess.Popen:
    """Run a sweep in a process of its own, which can be killed; like the command, a script elsewhere."""
    version = parse(DOCUMENT).code_version  # so that an edit while the tests run does not matter
    script = folder.parent / f"{folder.name}-script" / "script.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(
        "import msgspec\n"
        "from pathlib import Path\n"
        "from fastsim.sweep import parse, run\n"
        "if __name__ == '__main__':\n"
        f"    sweep = msgspec.structs.replace(parse({made!r}), code_version={version!r})\n"
        f"    report = run(sweep, Path({str(folder)!r}), **{options!r})\n"
        "    print(report.simulated, report.found + report.shared, len(report.failed))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    streams: Any = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, str(script)], cwd=cwd, env=environment, **streams)


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def part_names(folder: Path) -> set[str]:
    return {path.name for path in (folder / "parts").glob("*")} if (folder / "parts").exists() else set()


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> pl.DataFrame:
    folder = tmp_path_factory.mktemp("reference")
    report = run(parse(document()), folder, jobs=1)
    assert (report.simulated, report.found, report.failed) == (POINTS, 0, {})
    return rows(folder)


def test_rows_say_where_they_come_from(reference):
    sweep = parse(document())
    assert reference.height == POINTS
    assert set(reference["spec_hash"]) == {sweep.spec_hash()}
    assert set(reference["code_version"]) == {sweep.code_version}
    assert reference["replicate"].to_list() == [0, 1, 2, 3] * 6
    assert reference["params"].str.json_path_match("$.traffic.rate_rps").to_list()[:9] == ["0.5"] * 8 + ["1"]
    assert set(reference["samples"]) == {50}


@pytest.mark.parametrize(("backend", "jobs"), [("threads", 2), ("threads", 5), ("processes", 2)])
def test_same_rows_whatever_the_workers(tmp_path, reference, backend, jobs):
    run(parse(document()), tmp_path, jobs=jobs, backend=backend)
    assert rows(tmp_path).equals(reference)


def test_dask_gives_the_same_rows_and_survives_a_killed_worker(tmp_path, reference):
    pytest.importorskip("distributed")
    made = document(tmp_path / "log", fate="kill_once", doomed=2)
    process = in_a_process(tmp_path / "out", made, jobs=2, backend="dask")
    out, err = process.communicate(timeout=60)
    simulated_now, found, failed = map(int, out.split())
    # Dask may ask again for a point whose result died with the worker: its part is found.
    assert (simulated_now + found, failed) == (POINTS, 0), err
    assert measured(tmp_path / "out").equals(reference.drop(PROVENANCE))


def test_same_rows_whatever_the_hash_seed(tmp_path, reference):
    for hash_seed in ("1", "2"):
        folder = tmp_path / hash_seed
        old = os.environ.get("PYTHONHASHSEED")
        os.environ["PYTHONHASHSEED"] = hash_seed
        try:
            process = in_a_process(folder, document(), jobs=2)
        finally:
            os.environ.pop("PYTHONHASHSEED") if old is None else os.environ.update(PYTHONHASHSEED=old)
        out, err = process.communicate(timeout=30)
        assert (out.split(), err) == (["24", "0", "0"], "")
        assert measured(folder).equals(reference.drop(PROVENANCE))


def test_each_workload_is_built_once_and_each_point_simulated_once(tmp_path):
    log = tmp_path / "log"
    run(parse(document(log)), tmp_path / "out", jobs=4)
    assert set(simulated(log).values()) == {1}
    assert len(simulated(log)) == POINTS
    assert len(workloads(log)) == 12
    assert sum(workloads(log).values()) == 12


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_two_runs_on_one_folder_share_the_points(tmp_path, reference, backend):
    log = tmp_path / "log"
    made = document(log, pause_s=0.05)
    both = [in_a_process(tmp_path / "out", made, jobs=2, backend=backend) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in both]
    counts = [[int(word) for word in out.split()] for out, _ in said]
    assert [err for _, err in said] == ["", ""]
    assert [simulated_now + theirs for simulated_now, theirs, _ in counts] == [POINTS, POINTS]
    assert sum(simulated_now for simulated_now, _, _ in counts) == POINTS
    assert set(simulated(log).values()) == {1}
    assert measured(tmp_path / "out").equals(reference.drop(PROVENANCE))


def test_a_run_goes_on_with_the_points_of_one_that_is_killed(tmp_path, reference):
    log = tmp_path / "log"
    made = document(log, pause_s=0.2)
    killed = in_a_process(tmp_path / "out", made, jobs=2)
    wait_for(lambda: len(part_names(tmp_path / "out")) >= 2)
    other = in_a_process(tmp_path / "out", made, jobs=2)
    wait_for(lambda: sum(simulated(log).values()) >= 10)
    killed.kill()
    killed.communicate()
    out, err = other.communicate(timeout=120)
    simulated_now, theirs, failed = map(int, out.split())
    assert (simulated_now + theirs, failed, err) == (POINTS, 0, "")
    assert theirs >= 2
    assert measured(tmp_path / "out").equals(reference.drop(PROVENANCE))


def test_a_second_run_simulates_nothing(tmp_path):
    log = tmp_path / "log"
    first = run(parse(document(log)), tmp_path / "out", jobs=2)
    before = rows(tmp_path / "out")
    again = run(parse(document(log)), tmp_path / "out", jobs=2)
    assert (first.simulated, again.simulated, again.found) == (POINTS, 0, POINTS)
    assert sum(simulated(log).values()) == POINTS
    assert rows(tmp_path / "out").equals(before)


def test_a_longer_sweep_uses_the_points_of_a_shorter_one(tmp_path):
    log = tmp_path / "log"
    run(parse(document(log)), tmp_path / "out")
    longer = parse(document(log), ["sweep.seeds=6", "rate_rps=[0.5, 3.0]"])
    report = run(longer, tmp_path / "out")
    assert (report.found, report.simulated) == (2 * 4, 2 * 2 + 2 * 6)
    run(longer, tmp_path / "fresh")
    here, fresh = rows(tmp_path / "out"), rows(tmp_path / "fresh")
    assert here.drop("spec_hash").equals(fresh.drop("spec_hash"))


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_killed_and_resumed_equals_uninterrupted(tmp_path, reference, backend):
    log, folder = tmp_path / "log", tmp_path / "out"
    made = document(log, pause_s=0.1)
    process = in_a_process(folder, made, jobs=2, backend=backend)
    wait_for(lambda: len(part_names(folder)) >= 5)
    process.kill()
    process.communicate()
    time.sleep(0.3)  # orphaned worker processes end what they are at
    finished = part_names(folder)
    begun = sum(simulated(log).values())
    assert 5 <= len(finished) < POINTS
    report = run(parse(made), folder, jobs=2, backend=backend)
    assert (report.found, report.simulated) == (len(finished), POINTS - len(finished))
    assert sum(simulated(log).values()) - begun == POINTS - len(finished)
    assert not list((folder / "tmp").glob("*-*"))
    assert measured(folder).equals(reference.drop(PROVENANCE))


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_ctrl_c_keeps_what_is_done_and_nothing_appears_later(tmp_path, backend):
    folder = tmp_path / "out"
    process = in_a_process(folder, document(pause_s=0.2), jobs=2, backend=backend)
    wait_for(lambda: len(part_names(folder)) >= 4)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    at_the_message = part_names(folder)
    assert "Interrupted" in err
    time.sleep(0.6)
    assert part_names(folder) == at_the_message
    assert 4 <= len(at_the_message) < POINTS
    assert not list((folder / "tmp").glob("*run*"))


def test_a_killed_worker_costs_a_retry(tmp_path, reference):
    log = tmp_path / "log"
    made = document(log, fate="kill_once", doomed=2)
    report = run(parse(made), tmp_path / "out", jobs=2, backend="processes")
    assert (report.simulated, report.failed) == (POINTS, {})
    assert measured(tmp_path / "out").equals(reference.drop(PROVENANCE))
    assert max(simulated(log).values()) <= 2


def test_a_point_that_kills_its_worker_is_marked_failed(tmp_path):
    log = tmp_path / "log"
    made = document(log, fate="kill", doomed=2)
    report = run(parse(made, ["rate_rps=[0.5]"]), tmp_path / "out", jobs=2, backend="processes")
    assert report.simulated == 7
    ((point, error),) = report.failed.items()
    assert point == "traffic.rate_rps=0.5, router=beta, replicate 2"
    assert error.startswith("its worker was killed, twice")
    assert simulated(log)["beta 0.5 2"] == 2


def test_an_error_in_a_point_leaves_the_others_alone(tmp_path):
    report = run(parse(document(fate="raise", doomed=1)), tmp_path, jobs=2)
    assert report.simulated == POINTS - 3
    assert set(report.failed.values()) == {"ValueError: doomed"}
    assert (tmp_path / "failed.txt").read_text().count("Traceback") == 3
    again = run(parse(document(fate="raise", doomed=1)), tmp_path, jobs=2)
    assert (again.found, len(again.failed)) == (POINTS - 3, 3)


def test_two_runs_at_once_give_each_part_once(tmp_path, reference):
    log, folder = tmp_path / "log", tmp_path / "out"
    processes = [in_a_process(folder, document(log, pause_s=0.02), jobs=2) for _ in range(2)]
    for process in processes:
        out, err = process.communicate(timeout=30)
        assert (err, out.split()[2]) == ("", "0")
    assert len(part_names(folder)) == POINTS
    assert measured(folder).equals(reference.drop(PROVENANCE))


def test_a_full_disk_leaves_nothing_behind_and_is_said(tmp_path):
    """The limit on the size of a file stands for a full disk: writing fails in the middle."""
    script = (
        "import resource, sys\n"
        "from fastsim import cli\n"
        "from fastsim.sweep import parse, run\n"
        f"sweep = parse({document()!r})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "from pathlib import Path\n"
        f"cli.app = lambda *words, **options: run(sweep, Path({str(tmp_path)!r}))\n"
        "cli.main()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("fastsim: ")
    assert done.stderr.count("\n") == 1
    (tmp_path / "tmp" / "manifest-0123").write_text("of an earlier version")
    with open_run(tmp_path):
        assert not list((tmp_path / "tmp").glob("manifest-*"))
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == ["lock"]


def test_an_interrupt_while_python_ends_is_one_sentence_and_status_130(tmp_path):
    script = (
        "import atexit, os, signal, threading, time\n"
        "from fastsim import cli\n"
        "def at_exit():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(1)\n"
        "HOOK\n"
        "cli.app = lambda *words, **options: 0\n"
        "cli.main()\n"
    )
    hooks = ("threading._register_atexit(at_exit)", "atexit.register(at_exit)")
    for hook in hooks:
        command = [sys.executable, "-c", script.replace("HOOK", hook)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "fastsim: interrupted\n")


def test_an_interrupt_while_processes_shut_down_is_heard(tmp_path, monkeypatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(backends, "shut_down", interrupted)
    with pytest.raises(Interrupted, match="interrupted; 24 points are kept"):
        run(parse(document()), tmp_path, jobs=2)


def test_workers_find_a_users_module_before_an_installed_one(tmp_path, monkeypatch):
    """As their parent does, whose path begins with the working directory; but Python's own come first."""
    monkeypatch.chdir(tmp_path)
    library, installed = (sysconfig.get_path(kind) for kind in ("stdlib", "purelib"))
    for here in ("", str(tmp_path)):
        monkeypatch.setattr(sys, "path", [here, library, installed])
        with backends._worker_environment():
            assert sys.path == [library, here, installed]
        assert sys.path == [here, library, installed]


def test_odd_folders_and_a_shadowing_file(tmp_path, reference):
    """Brackets and accents in paths; modules of the user that carry Python's names (joblib#806, #1378)."""
    here = tmp_path / "données [1]"
    (here / "tmp").mkdir(parents=True)
    for name in ("signal.py", "queue.py", "random.py", "types.py"):
        (here / name).write_text("raise RuntimeError('shadowed')\n")
    old = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(here / "tmp")
    try:
        process = in_a_process(here / "out[*]", document(), cwd=here, jobs=2, backend="processes")
    finally:
        os.environ.pop("TMPDIR") if old is None else os.environ.update(TMPDIR=old)
    out, err = process.communicate(timeout=30)
    assert (out.split(), err) == (["24", "0", "0"], "")
    assert measured(here / "out[*]").equals(reference.drop(PROVENANCE))


def test_bad_options(tmp_path):
    with pytest.raises(InputError, match=r"backend 'thread' is unknown; did you mean 'threads'\?"):
        run(parse(document()), tmp_path, backend="thread")
    with pytest.raises(InputError, match="jobs is 0"):
        run(parse(document()), tmp_path, jobs=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        run(parse(document()), tmp_path / "file")
