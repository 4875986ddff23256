"""Parsed traces on disk: found by content, never stale, never fatal, never too many."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fastsim import _paths
from fastsim.errors import InputError
from fastsim.workloads import cache, load, sessions
from fastsim.workloads.readers import read as reading
from tests.trace_files import SAMPLES

SAMPLE = SAMPLES / "fmt_mooncake_fast25.jsonl"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Iterator[Path]:
    """A cache folder of the test's own."""
    monkeypatch.setenv("FASTSIM_CACHE_DIR", str(tmp_path / "cache"))
    _paths.cache_root.cache_clear()
    yield tmp_path / "cache" / "workloads"
    _paths.cache_root.cache_clear()


@pytest.fixture
def parses(monkeypatch) -> list[str]:
    """The paths that were really parsed."""
    seen: list[str] = []
    original = reading.unpack

    def spy(path, raw, **options):
        seen.append(Path(path).name)
        return original(path, raw, **options)

    monkeypatch.setattr(reading, "unpack", spy)
    return seen


def test_a_second_load_parses_nothing_and_gives_the_same(folder, parses):
    first, second = load(SAMPLE), load(SAMPLE)
    assert parses == [SAMPLE.name]
    assert first.digest() == second.digest()
    assert first.summary == second.summary
    assert str(first.summary) == str(second.summary)
    assert len(list(folder.glob("*.npz"))) == 1
    assert second.arrival_s.flags.writeable
    assert all(getattr(second, name).flags.c_contiguous for name in ("symbols", "symbol_ptr", "prompt_tok"))


def test_the_same_bytes_elsewhere_are_found_under_their_new_name(tmp_path, parses):
    load(SAMPLE)
    copy = tmp_path / "renamed.jsonl"
    copy.write_bytes(SAMPLE.read_bytes())
    workload = load(copy)
    assert parses == [SAMPLE.name]
    assert (workload.name, workload.summary.source) == ("renamed", str(copy))


def test_other_options_or_bytes_or_code_are_other_entries(tmp_path, parses, monkeypatch):
    load(SAMPLE)
    assert load(SAMPLE, time_unit="s").arrival_s[-1] == 6000.0
    assert load(SAMPLE, block_tok=512).summary.block_why.startswith("stated")
    load(SAMPLE, skip_bad=True)
    load(SAMPLE, format="mooncake")
    assert len(parses) == 5
    changed = tmp_path / "changed.jsonl"
    changed.write_bytes(SAMPLE.read_bytes().replace(b"300", b"301"))
    assert 301 in load(changed).output_tok
    assert len(parses) == 6
    monkeypatch.setattr(cache, "_code", lambda: "other code")
    load(SAMPLE)
    assert len(parses) == 7


def test_the_cache_can_be_left_alone(folder, parses):
    load(SAMPLE, cache=False)
    load(SAMPLE, cache=False)
    assert len(parses) == 2
    assert not folder.exists()


def test_derived_sessions_are_kept(folder, monkeypatch):
    first = load(SAMPLE, shuffle_sessions=True)
    assert len(list(folder.glob("*.npz"))) == 2
    monkeypatch.setattr(sessions, "derive_sessions", None)
    assert load(SAMPLE, shuffle_sessions=True).digest() == first.digest()
    with pytest.raises(TypeError):
        load(SAMPLE, shuffle_sessions=True, cache=False)


def test_refusals_are_not_kept(folder):
    for _ in range(2):
        with pytest.raises(InputError, match="line 2, column input_length"):
            load(SAMPLES / "bad_float_counts.jsonl")
    assert not list(folder.glob("*"))


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "foreign", "other arrays", "wrong arrays"])
def test_a_damaged_entry_is_a_miss_and_is_replaced(folder, parses, damage):
    good = load(SAMPLE)
    (entry,) = folder.glob("*.npz")
    content = entry.read_bytes()
    if damage == "empty":
        entry.write_bytes(b"")
    elif damage == "cut":
        entry.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        place = content.index(np.float64(3.0).tobytes())  # an arrival time
        entry.write_bytes(content[:place] + b"\x01" + content[place + 1 :])
    elif damage == "foreign":
        entry.write_bytes(b"not a zip file" * 100)
    elif damage == "other arrays":
        np.savez(entry, x=np.arange(3))
    else:
        with np.load(entry) as stored:
            arrays = {name: stored[name] for name in stored.files}
        arrays["symbols"] = arrays["symbols"] + 1000
        np.savez(entry, allow_pickle=False, **arrays)
    again = load(SAMPLE)
    assert again.digest() == good.digest()
    assert len(parses) == 2
    load(SAMPLE)
    assert len(parses) == 2


def test_no_place_to_write_is_no_reason_to_fail(monkeypatch, parses):
    monkeypatch.setattr(cache, "cache_root", lambda: None)
    assert load(SAMPLE).digest() == load(SAMPLE).digest()
    assert len(parses) == 2


def test_a_folder_that_cannot_be_made_is_no_reason_to_fail(folder, parses):
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("a file where the folder should be")
    assert load(SAMPLE).digest() == load(SAMPLE).digest()
    assert len(parses) == 2


def test_the_least_recently_used_go_first(folder, monkeypatch):
    for name in "abc":
        cache.store(name, {"x": np.zeros(1000)})
    stamp = time.time() - 1000
    for i, name in enumerate("abc"):
        os.utime(folder / f"{name}.npz", (stamp + i, stamp + i))
    assert cache.fetch("a") is not None  # now the newest
    size = (folder / "a.npz").stat().st_size
    monkeypatch.setattr(cache, "MAX_BYTES", 3 * size)
    cache.store("d", {"x": np.zeros(1000)})
    assert sorted(path.stem for path in folder.iterdir()) == ["a", "c", "d"]
    assert cache.fetch("b") is None


def test_nothing_but_whole_entries_is_left(folder, monkeypatch):
    def fails(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", fails)
        assert len(load(SAMPLE)) == 5
    assert not list(folder.iterdir())
