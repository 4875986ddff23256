"""Where the golden records are, and how a served workload is compared with one."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

TIME_TOLERANCE_S = 1e-6


def engine_files() -> list[Path]:
    """Engine records of this project and of the folder named in ``FASTSIM_GOLDEN``."""
    return _files("engine*/*.json") + _files("engine*/*.json.gz")


def router_files() -> list[Path]:
    """Router records, from the same places."""
    return _files("routers*/*.json.gz")


def _files(pattern: str) -> list[Path]:
    folders = [Path(__file__).parents[1] / "golden"]
    if os.environ.get("FASTSIM_GOLDEN"):
        folders.append(Path(os.environ["FASTSIM_GOLDEN"]))
    return [path for folder in folders for path in sorted(folder.glob(pattern))]


def load(path: Path) -> dict:
    """One engine record."""
    read = gzip.open if path.suffix == ".gz" else open
    with read(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def differences(record: dict, served: list[tuple[float, float, int, int]]) -> list[str]:
    """Requests that were served otherwise than the record says.

    Parameters
    ----------
    record : an engine record.
    served : (first_token_s, done_s, hit_tok, preemptions) of each request, in the record's order.
    """
    wrong = []
    for expected, (first_token_s, done_s, hit_tok, preemptions) in zip(record["expect"], served, strict=True):
        same = abs(first_token_s - expected["first_token_s"]) <= TIME_TOLERANCE_S
        same &= abs(done_s - expected["done_s"]) <= TIME_TOLERANCE_S
        same &= hit_tok == expected["hit_tokens"] and preemptions == expected["preemptions"]
        if not same:
            wrong.append(f"{expected} served as {(first_token_s, done_s, hit_tok, preemptions)}")
    return wrong
