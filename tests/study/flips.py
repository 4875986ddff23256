"""Every single bit of a stored part and of a manifest, flipped one at a time: how many flips are noticed.

Run as ``python -m tests.study.flips``; it takes a minute, and fails unless all are noticed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from fastsim.errors import InputError
from fastsim.sweep import parse, run
from fastsim.sweep.parts import MANIFEST, read_manifest, survey

DOCUMENT = {
    "sweep": {"name": "flips", "experiment": "balls", "seeds": 2},
    "base": {"bins": 10, "trials": 10},
    "grid": {"choices": [1, 2]},
}


def flipped(content: bytes, bit: int) -> bytes:
    """The content with one bit changed."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def noticed_in_part(folder: Path) -> tuple[int, int]:
    """Flips that are noticed, of all there are in a part."""
    sweep, victim = parse(DOCUMENT), sorted((folder / "parts").iterdir())[0]
    content, noticed = victim.read_bytes(), 0
    for bit in range(8 * len(content)):
        victim.write_bytes(flipped(content, bit))
        found = survey(folder, sweep)
        noticed += list(found.bad) == [victim] and found.rows.height == 3
    victim.write_bytes(content)
    return noticed, 8 * len(content)


def noticed_in_manifest(folder: Path) -> tuple[int, int]:
    """The same of the manifest."""
    path = folder / MANIFEST
    content, noticed = path.read_bytes(), 0
    for bit in range(8 * len(content)):
        path.write_bytes(flipped(content, bit))
        try:
            read_manifest(folder)
        except InputError:
            noticed += 1
    path.write_bytes(content)
    return noticed, 8 * len(content)


def main() -> int:
    """Print both counts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(parse(DOCUMENT), folder, jobs=1)
        counts = {"part": noticed_in_part(folder), "manifest": noticed_in_manifest(folder)}
    for what, (noticed, bits) in counts.items():
        print(f"{what}: {noticed:,} of {bits:,} single-bit flips noticed")
    return int(any(noticed != bits for noticed, bits in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
