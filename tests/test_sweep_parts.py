"""Parts on disk: whatever is wrong with one is named, and costs that one only."""

import shutil
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from fastsim.errors import InputError
from fastsim.sweep import parse, read, run
from fastsim.sweep.experiments import experiment
from fastsim.sweep.parts import RunClosed, open_run, schema, survey
from fastsim.sweep.points import all_keys
from tests.fake_experiment import FAKE

DOCUMENT = {
    "sweep": {"name": "small", "experiment": "tests.fake_experiment:FAKE", "seeds": 3},
    "grid": {"router": ["alpha", "beta"]},
}


@pytest.fixture
def folder(tmp_path) -> Path:
    run(parse(DOCUMENT), tmp_path)
    return tmp_path


def part_files(folder: Path) -> list[Path]:
    return sorted((folder / "parts").iterdir())


def rerun(folder: Path):
    notes: list[str] = []
    report = run(parse(DOCUMENT), folder, note=notes.append)
    return report, "\n".join(notes)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def rewrite(change):
    def spoil(path: Path) -> None:
        change(pl.read_parquet(path)).write_parquet(path)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.write_bytes(b""), "empty (0 bytes)"),
        (cut, "out of spec"),
        (lambda path: path.write_text("a,b\n1,2\n"), "out of spec"),
        (rewrite(lambda rows: rows.drop("samples")), "samples"),
        (rewrite(lambda rows: rows.with_columns(extra=1)), "extra"),
        (rewrite(lambda rows: rows.with_columns(latency_mean_s=pl.lit(1))), "latency_mean_s"),
        (rewrite(lambda rows: rows.with_columns(point=pl.lit("0" * 32))), "another point"),
        (rewrite(lambda rows: rows.clear()), "no rows"),
    ],
)
def test_a_bad_part_is_named_and_done_again(folder, spoil, reason):
    before = read(folder).rows
    victim = part_files(folder)[2]
    spoil(victim)
    assert read(folder).rows.height == 5
    ((path, why),) = read(folder).bad.items()
    assert path == victim
    assert reason in why
    report, notes = rerun(folder)
    assert (report.found, report.simulated) == (5, 1)
    assert victim.name in notes
    assert reason in notes
    assert read(folder).rows.equals(before)
    assert (folder / "bad" / victim.name).exists()


def test_parts_of_others_are_left_apart(folder):
    before = read(folder).rows
    other = part_files(folder)[0].with_name("f" * 32 + ".parquet")
    shutil.copy(part_files(folder)[0], other)
    (folder / "parts" / "notes.tmp").write_text("not ours")
    report, notes = rerun(folder)
    assert (report.found, report.simulated) == (6, 0)
    assert f"left apart, from another sweep or another version of the code: {other.name}" in notes
    assert other.exists()
    assert read(folder).rows.equals(before)


def test_another_code_version_stays_apart(folder, monkeypatch):
    monkeypatch.setattr("fastsim.sweep.spec._code_version", lambda: "edited")
    report, notes = rerun(folder)
    assert (report.found, report.simulated) == (0, 6)
    assert "left apart" in notes
    assert len(part_files(folder)) == 12
    assert set(read(folder).rows["code_version"]) == {"edited"}


def test_no_results_yet(tmp_path):
    with pytest.raises(InputError, match=r"holds no sweep results: there is no sweep.json"):
        read(tmp_path)
    doomed = parse({**DOCUMENT, "base": {"fate": "raise"}}, ["router=beta", "sweep.seeds=1"])
    run(doomed, tmp_path)
    with pytest.raises(InputError, match="has no results yet: no point of sweep 'small' is finished"):
        read(tmp_path)


def test_a_closed_run_publishes_nothing(tmp_path):
    with open_run(tmp_path) as writer:
        writer.publish("a", b"rows")
    with pytest.raises(RunClosed):
        writer.publish("b", b"rows")
    with pytest.raises(RunClosed):
        writer.mark("b")
    assert [path.name for path in part_files(tmp_path)] == ["a.parquet"]


def test_what_a_killed_run_left_is_removed_but_not_what_a_live_one_uses(tmp_path):
    dead = tmp_path / "tmp" / "run-dead"
    dead.mkdir(parents=True)
    (dead / "half.parquet").write_text("half")
    with open_run(tmp_path) as first, open_run(tmp_path) as second:
        assert not dead.exists()
        first.publish("a", b"rows")
        second.publish("b", b"rows")
    assert len(part_files(tmp_path)) == 2
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == ["lock"]


def test_one_schema(folder):
    columns = schema(FAKE)
    for path in part_files(folder):
        assert pq.read_schema(path).equals(columns)
    found = survey(folder, FAKE, all_keys(parse(DOCUMENT)))
    assert found.rows.columns == columns.names
    assert not found.bad
    assert not found.foreign


def test_a_column_without_any_value_reads_with_the_others(tmp_path):
    run(parse(DOCUMENT, ["rate_rps=[1.0, 3.0]"]), tmp_path)
    assert read(tmp_path).rows["tpot_p99_s"].is_null().to_list() == ([False] * 6 + [True] * 6)


def test_experiments_are_found_by_name():
    assert experiment("tests.fake_experiment:FAKE").name == "fake"
    with pytest.raises(InputError, match="cannot be imported"):
        experiment("tests.fake_experiment:NONE")
