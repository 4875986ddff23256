"""Parts on disk: whatever is wrong with one is named, and costs that one only."""

import dataclasses
import io
import math
import shutil
from pathlib import Path

import msgspec
import polars as pl
import pyarrow.parquet as pq
import pytest

from fastsim.errors import InputError
from fastsim.sweep import checksum, flat, parse, read, run
from fastsim.sweep.experiments import experiment
from fastsim.sweep.parts import IDENTITY, RunClosed, open_run, schema, survey
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
    """Another row or rows, under a checksum that is right."""

    def spoil(path: Path) -> None:
        table = change(pl.read_parquet(path)).to_arrow()
        file = io.BytesIO()
        pq.write_table(table.replace_schema_metadata({"checksum": checksum.UNSEALED}), file)
        path.write_bytes(checksum.seal(file.getvalue()))

    return spoil


def of_another(name: str):
    """A good part of another point, or of the same by other code, under this one's name."""

    def spoil(path: Path) -> None:
        if name == "seed":
            other = parse(DOCUMENT, ["sweep.seed=1"])
        else:
            other = msgspec.structs.replace(parse(DOCUMENT), code_version="older")
        run(other, path.parents[1] / "other")
        for part in part_files(path.parents[1] / "other"):
            row = pl.read_parquet(part)
            same = pl.read_parquet(path)
            if row.select("params", "replicate").equals(same.select("params", "replicate")):
                rewrite(lambda rows, row=row: row.with_columns(point=pl.lit(path.stem)))(path)

    return spoil


SPOILT = [
    (lambda path: path.write_bytes(b""), "empty (0 bytes)"),
    (cut, "no checksum"),
    (lambda path: path.write_text("a,b\n1,2\n"), "no checksum"),
    (lambda path: path.write_bytes(checksum.seal(f"a,{checksum.UNSEALED}\n".encode())), "parquet"),
    (lambda path: pl.read_parquet(path).write_parquet(path), "no checksum"),
    (rewrite(lambda rows: rows.drop("samples")), "samples"),
    (rewrite(lambda rows: rows.with_columns(latency_mean_s=pl.lit(1))), "latency_mean_s"),
    (rewrite(lambda rows: rows.with_columns(point=pl.lit("0" * 32))), "another point"),
    (rewrite(lambda rows: rows.clear()), "no rows"),
    (rewrite(lambda rows: pl.concat([rows, rows])), "has 2 rows; it must have one"),
    (rewrite(lambda rows: rows.with_columns(replicate=pl.lit(7, pl.Int64))), "params and replicate 7"),
    (rewrite(lambda rows: rows.with_columns(replicate=None).cast({"replicate": pl.Int64})), "replicate None"),
    (rewrite(lambda rows: rows.with_columns(params=pl.lit("{}"))), "params and replicate"),
    (rewrite(lambda rows: rows.with_columns(latency_mean_s=math.nan)), "latency_mean_s is NaN"),
    (
        rewrite(lambda rows: rows.with_columns(latency_mean_s=None).cast({"latency_mean_s": pl.Float64})),
        "no latency_mean_s",
    ),
    (of_another("seed"), "seed is 1, not 0"),
    (of_another("code"), "code_version is older"),
]


@pytest.mark.parametrize(("spoil", "reason"), SPOILT)
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
    assert victim.name in (folder / "bad" / "reasons.txt").read_text()


def test_parts_have_a_flat_column_an_axis(tmp_path):
    """Named by the last word unless something else has it; of one type in all parts of a sweep."""
    document = {**DOCUMENT, "grid": {**DOCUMENT["grid"], "rate_rps": [1, 2.5], "size": [10, 20], "log": [""]}}
    run(parse(document), tmp_path)
    rows = pl.concat([pl.read_parquet(path) for path in part_files(tmp_path)])
    assert dict(rows.select("router", "rate_rps", "size").schema) == {
        "router": pl.String,
        "rate_rps": pl.Float64,
        "size": pl.Int64,
    }
    counts = rows.group_by("router", "rate_rps", "size").len()
    assert (counts.height, set(counts["len"])) == (8, {3})
    for params, router, size in rows.select("params", "router", "size").iter_rows():
        assert f'"router":"{router}"' in params
        assert f'"size":{size}' in params
    read_back = read(tmp_path).rows
    assert read_back.sort("point").equals(rows.select(read_back.columns).sort("point"))


def test_parts_of_a_sweep_with_other_axes_serve_as_well(folder):
    """Columns for readers of parts do not decide whether a part is good."""
    narrower = parse(DOCUMENT, ["router=alpha"])
    assert run(narrower, folder).simulated == 0
    wider = parse({**DOCUMENT, "grid": {**DOCUMENT["grid"], "size": [50, 60]}})
    assert run(wider, folder).simulated == 6
    rows = read(folder).rows
    assert sorted(rows["size"]) == [50] * 6 + [60] * 6
    assert rows["router"].null_count() == 0


@pytest.mark.parametrize(
    ("axes", "columns"),
    [
        ({"traffic.size": [1, 2], "pause_s": [0.0]}, {"size": int, "pause_s": float}),
        ({"rate_rps": [1, 2.0], "router": ["alpha"]}, {"rate_rps": float, "router": str}),
    ],
)
def test_types_of_flat_columns(axes, columns):
    sweep = parse({**DOCUMENT, "grid": axes})
    assert {column.name: column.type for column in flat.columns(sweep, IDENTITY)} == columns
    taken = flat.columns(sweep, (*IDENTITY, *columns))
    assert {column.name for column in taken} == {column.axis for column in taken if "." in column.axis}


def test_every_single_bit_that_flips_in_a_part_or_the_manifest_is_noticed(folder):
    """A sample of each; `tests/study/flips.py` flips them all."""
    before = read(folder).rows
    victim = part_files(folder)[2]
    for path, step in ((victim, 211), (folder / "sweep.json", 101)):
        content = path.read_bytes()
        for bit in range(0, 8 * len(content), step):
            path.write_bytes(flipped(content, bit))
            if path == victim:
                found = survey(folder, parse(DOCUMENT))
                assert (list(found.bad), found.rows.height) == ([victim], 5)
            else:
                with pytest.raises(InputError, match=r"sweep.json is damaged"):
                    read(folder)
        path.write_bytes(content)
    assert read(folder).rows.equals(before)


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("number", [1.0, float("nan"), None])
def test_a_value_that_every_run_has_is_asked_for_where_the_row_is_made(number):
    odd = dataclasses.replace(FAKE, run=lambda *args: {**FAKE.run(*args), "latency_mean_s": number})
    params = FAKE.validate({})
    if number == 1.0:
        assert odd.row(params, FAKE.prepare(params, 0, 0), 0, 0)["latency_mean_s"] == 1.0
        return
    with pytest.raises(ValueError, match=f"gave {number} for latency_mean_s, which every run has"):
        odd.row(params, FAKE.prepare(params, 0, 0), 0, 0)


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
        writer.claim("b")
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


def test_a_point_is_claimed_by_one_run_for_as_long_as_that_lives(tmp_path):
    with open_run(tmp_path) as second:
        with open_run(tmp_path) as first:
            assert first.claim("a")
            assert first.claim("a")  # its own
            assert not second.claim("a")
            assert second.claim("b")
            first.release("a")
            assert second.claim("a")
            assert second.claimed() == ["a", "b"]
            second.release("a")
            assert first.claim("a")
        assert second.claim("a")  # the first is over
        dead = tmp_path / "tmp" / "run-dead"
        dead.mkdir()
        (dead / "lock").touch()
        (dead / "c.claimed").touch()
        assert second.claim("c")


def test_one_schema(folder):
    columns = schema(FAKE)
    written = schema(FAKE, flat.columns(parse(DOCUMENT), columns.names))
    assert written.names == [*columns.names, "router"]
    for path in part_files(folder):
        assert pq.read_schema(path).equals(written)
    found = survey(folder, parse(DOCUMENT))
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
