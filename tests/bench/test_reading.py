"""How long it takes to read a trace: afresh, from the disk cache, and by the standard library alone."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from fastsim import _paths
from fastsim.workloads import load
from tests.conftest import shared_path

TRACES = ["ref_fixed_block64.jsonl.gz", "mooncake_conversation.jsonl.gz", "azure_conv_2023.csv.gz"]


def unit(name: str) -> str | None:
    """Of times that do not say so."""
    return "ms" if "ref" in name else None


every_trace = pytest.mark.parametrize("name", TRACES)


@every_trace
def test_fresh(benchmark, name):
    """Bytes to workload, symbols interned and checked; target for ref_fixed_block64: 0.06 s."""
    path = shared_path(f"traces/{name}")
    benchmark.group = f"read {name}"
    benchmark(lambda: load(path, time_unit=unit(name), cache=False))


@every_trace
def test_cached(benchmark, name, tmp_path, monkeypatch):
    """The same from the cache: hashing the file, loading arrays, checking them."""
    path = shared_path(f"traces/{name}")
    monkeypatch.setenv("FASTSIM_CACHE_DIR", str(tmp_path))
    _paths.cache_root.cache_clear()
    load(path, time_unit=unit(name))
    benchmark.group = f"read {name}"
    benchmark(lambda: load(path, time_unit=unit(name)))
    _paths.cache_root.cache_clear()


@every_trace
def test_standard_library(benchmark, name):
    """Decompress and split into Python objects, without looking at any of them."""
    path = shared_path(f"traces/{name}")
    benchmark.group = f"read {name}"
    benchmark(lambda: _plain(path))


def _plain(path: Path) -> list:
    lines = gzip.decompress(path.read_bytes()).splitlines()
    return list(map(json.loads, lines)) if "jsonl" in path.name else [line.split(b",") for line in lines]
