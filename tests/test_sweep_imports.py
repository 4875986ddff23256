"""Policies of a user's own in sweeps: found by every worker, part of what a result depends on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fastsim
from fastsim.cluster.routers import ROUTERS
from fastsim.errors import InputError
from fastsim.sweep import imports, load, read, run, summarise
from fastsim.sweep.replay import replay
from fastsim.sweep.work import WORKLOADS

ROOT = Path(__file__).parents[1]
POLICY = """
import fastsim
from own_helper import pick

@fastsim.router("own_choice")
def own_choice(view, request):
    '''The replica that a helper names.'''
    return pick()
"""
HELPER = """
from fastsim._jit import kernel

@kernel(signature="int64()")
def pick():
    return {replica}
"""
SWEEP = """
[sweep]
name = "own"
seeds = 2
import = ["policies/own.py"]

[base.workload]
name = "long_documents"
requests = 20

[base.cluster]
engine = "lecture"
replicas = 3

[grid]
router = ["round_robin", "own_choice"]
"""


@pytest.fixture
def toml(tmp_path):
    """A sweep with a policy of its own, always replica 0; afterwards nothing of it is left in the process."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "own.py").write_text(POLICY)
    write_helper(tmp_path, 0)
    path = tmp_path / "own.toml"
    path.write_text(SWEEP)
    before, modules = list(sys.path), set(sys.modules)
    yield path
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        if name.startswith(("own_", "_fastsim_import")):
            del sys.modules[name]
    imports._LOADED.clear()
    if "own_choice" in ROUTERS:
        del ROUTERS["own_choice"]


def write_helper(folder: Path, replica: int) -> None:
    (folder / "policies" / "own_helper.py").write_text(HELPER.format(replica=replica))


def shares(folder: Path) -> list[float]:
    (table,) = summarise(read(folder), metrics=["busiest_share"])
    return [cell.metrics["busiest_share"].value for cell in table.cells]  # pyright: ignore


@pytest.mark.parametrize("backend", ["threads", "processes", "dask"])
def test_every_backend_knows_an_imported_policy(toml, tmp_path, backend):
    sweep = load(str(toml))
    report = run(sweep, tmp_path / "results", jobs=1, backend=backend)
    assert (report.simulated, report.failed) == (4, {})
    assert shares(tmp_path / "results")[1] == 1.0


def test_an_edited_policy_is_not_found_as_done(toml, tmp_path):
    results = tmp_path / "results"
    first = load(toml)
    assert run(first, results).simulated == 4
    assert run(load(toml), results).simulated == 0
    write_helper(tmp_path, 2)  # the last of the sweep's replicas
    edited = load(toml)
    assert edited.code_version != first.code_version
    assert edited.spec_hash() == first.spec_hash()
    assert run(edited, results).simulated == 4  # all, for any may depend on what is imported
    write_helper(tmp_path, 0)
    assert load(toml).code_version == first.code_version
    assert run(load(toml), results).simulated == 0


def test_results_are_shown_though_the_policy_is_gone_or_edited(toml, tmp_path):
    results = tmp_path / "results"
    run(load(toml), results)
    stored = read(results)
    assert stored.notes == ()
    write_helper(tmp_path, 1)
    edited = read(results)
    assert edited.notes == (
        "import policies/own.py: it was edited; what is shown was made by the older source",
    )
    assert edited.rows.equals(stored.rows)
    (tmp_path / "policies" / "own.py").unlink()
    gone = read(results)
    assert "own.py is gone; what it gave is shown as it was stored" in gone.notes[0]
    assert gone.rows.equals(stored.rows)


def test_a_worker_without_the_file_gets_its_source(toml, tmp_path):
    sent = imports.parcel(load(toml).imports)
    for path in (tmp_path / "policies").iterdir():
        path.unlink()
    imports._LOADED.clear()
    sys.modules.pop("own_helper", None)
    del ROUTERS["own_choice"]
    imports.unpack(sent)
    assert fastsim.routers()["own_choice"] == "The replica that a helper names."


def test_a_module_is_imported_by_its_name(toml, tmp_path):
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "policy.py").write_text(POLICY.replace("own_helper", ".helper"))
    (package / "helper.py").write_text(HELPER.format(replica=1))
    toml.write_text(SWEEP.replace("policies/own.py", "own_package.policy"))
    (source,) = load(toml).imports
    assert (source.name, source.root) == ("own_package.policy", str(tmp_path))
    assert set(imports.parcel([source]).files[0]) == {
        "own_package/__init__.py",
        "own_package/policy.py",
        "own_package/helper.py",
    }


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, r"import policies/own.py: there is no file .*own.py"),
        ("1 / 0\n", r"import policies/own.py fails: ZeroDivisionError: division by zero \(own.py, line 1\)"),
        ("x = = 1\n", r"import own.py fails: invalid syntax .*line 1"),
        (
            "import no_such_thing\n",
            r"import policies/own.py fails: ModuleNotFoundError: No module named 'no_",
        ),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(toml, tmp_path, content, sentence):
    (tmp_path / "policies" / "own.py").unlink()
    if content is not None:
        (tmp_path / "policies" / "own.py").write_text(content)
    with pytest.raises(InputError, match=sentence):
        load(toml)


def test_a_module_that_does_not_exist_is_named(toml):
    with pytest.raises(InputError, match=r"import own_nothing: there is no such module; a file is written"):
        load(toml, imports=["own_nothing"])


def test_a_policy_of_this_process_counts_by_its_source_and_stays_in_it(toml, tmp_path):
    toml.write_text(SWEEP.replace('import = ["policies/own.py"]', ""))
    with pytest.raises(InputError, match="'own_choice' is not known"):
        load(toml)

    versions = set()
    for replica in (0, 1):
        namespace = {"fastsim": fastsim, "__name__": "__main__"}
        exec(
            compile(
                f"@fastsim.router('own_choice')\ndef own_choice(view, request):\n    return {replica}\n",
                "<notebook>",
                "exec",
            ),
            namespace,
        )
        versions.add(load(toml).code_version)
    assert len(versions) == 2
    with pytest.raises(InputError, match=r"router 'own_choice' was registered in this process, so workers"):
        run(load(toml), tmp_path / "results", backend="processes")
    WORKLOADS.clear()
    assert run(load(toml), tmp_path / "results").simulated == 4


def test_replay_compares_what_is_imported(toml, tmp_path, monkeypatch):
    monkeypatch.setattr("fastsim.sweep.replay.SHORT_LIST", ("round_robin",))
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        "".join(
            f'{{"timestamp": {1000 * k}, "input_length": 512, "output_length": 4, "hash_ids": [{k}]}}\n'
            for k in range(20)
        )
    )
    found = replay({"workload": {"trace": str(trace)}}, imports=[str(tmp_path / "policies" / "own.py")])
    assert {row["router"]: row["busiest_share"] for row in found.rows} == {
        "round_robin": 0.25,
        "own_choice": 1.0,
    }


def test_commands_take_files_relative_to_where_they_are_called(toml, tmp_path):
    toml.write_text(SWEEP.replace('import = ["policies/own.py"]', ""))

    def fastsim(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-c", "from fastsim.cli import main; main()", *arguments],
            cwd=tmp_path / "policies",
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    given = ("--import", "own.py", "--backend", "processes", "--jobs", "1", "--out", "here")
    code, out, err = fastsim("run", "../own.toml", *given)
    assert code == 0, err
    assert "4 points simulated" in out
    assert "own_choice" in out
    (tmp_path / "policies" / "own.py").unlink()
    code, shown, err = fastsim("show", "here")
    assert code == 0
    assert "own_choice" in shown
    assert "own.py is gone; what it gave is shown as it was stored" in err
