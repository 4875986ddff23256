"""Small traces for the tests of readers: samples in files, and files made on the spot."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fastsim.errors import InputError
from fastsim.workloads import Workload, load

SAMPLES = Path(__file__).parent / "data" / "traces"


def read(name: str, **options) -> Workload:
    return load(SAMPLES / name, cache=False, **options)


def from_text(tmp_path: Path, text: str | bytes, **options) -> Workload:
    path = tmp_path / "trace"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load(path, cache=False, **options)


def refused(message: str):
    return pytest.raises(InputError, match=message)


def line(time=0, prompt=64, output=2, **more) -> str:
    return json.dumps({"timestamp": time, "input_length": prompt, "output_length": output, **more}) + "\n"


def dropped(workload: Workload) -> list[tuple[str, int]]:
    return [(finding.reason, finding.rows) for finding in workload.summary.dropped]


def prompts(workload: Workload) -> list[list[tuple[int, int]]]:
    """Each prompt as (symbol, tokens) pairs."""
    rows = np.split(workload.symbols, workload.symbol_ptr[1:-1])
    return [[(int(s), int(workload.symbol_tok[s])) for s in row] for row in rows]
