"""A hundred thousand mutants of sweeps, calls and command lines: how many end in anything but a sentence.

Run as ``python -m tests.study.mutants [COUNT [SEED]]``.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys

from tests.mutants import KINDS

SHARES = {"sweeps": 0.3, "calls": 0.65, "lines": 0.05}


def main(count: int, seed: int) -> None:
    """Try them, and print every fault."""
    for kind, share in SHARES.items():
        tried = faults = 0
        for mutant in itertools.islice(KINDS[kind](seed), round(share * count)):
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                fault = mutant.fault()
            tried += 1
            if fault is not None:
                faults += 1
                print(f"{kind}: {type(fault).__name__}: {fault}\n    {mutant.words}", flush=True)
        print(f"{kind}: {tried:,} tried, {faults} faults", flush=True)


if __name__ == "__main__":
    main(*(int(word) for word in (sys.argv[1:] + ["100000", "1"][len(sys.argv) - 1 :])))
