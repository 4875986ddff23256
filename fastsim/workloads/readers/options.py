"""What a user may state about a trace file, and laws written as calls, such as "poisson(2)"."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastsim.errors import InputError, nearest
from fastsim.workloads.readers.clock import PER_SECOND
from fastsim.workloads.readers.source import MAX_TEXT_GB

ZERO_OUTPUT = ("drop", "prefill", "refuse")
TURNS = ("separate", "growing", "added")
# Names of a law and of its arguments, all numbers above 0 (a cv may be 0).
ARRIVALS = {"poisson": ("rate",), "gamma": ("rate", "cv"), "deterministic": ("rate",)}
LENGTHS = {"normal": ("mean", "cv"), "lognormal": ("mean", "cv")}
MOST_TOK = 10**9

_CALL = re.compile(r"\s*([a-z_]+)\s*\(([^()]*)\)\s*", re.ASCII)


@dataclass(frozen=True)
class ReadOptions:
    """What a user may state about a trace file; see `fastsim.workloads.load` for their meaning.

    `draws` is (seed, replicate) of the random numbers, where what is stated needs some, else None.
    """

    format: str | None = None
    block_tok: int | None = None
    time_unit: str | None = None
    skip_bad: bool = False
    zero_output: str = "drop"
    output_tok: int | str | None = None
    arrivals: str | None = None
    turns: str = "separate"
    think_s: float = 0.0
    chars_per_tok: float | None = None
    max_text_gb: float = MAX_TEXT_GB
    draws: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.block_tok is not None and not _is_whole(self.block_tok, 1):
            raise InputError(
                f"block_tok: {self.block_tok!r} is not allowed; it must be a whole number of 1 or more tokens"
            )
        for name, value, choices in (
            ("time_unit", self.time_unit, PER_SECOND),
            ("zero_output", self.zero_output, ZERO_OUTPUT),
            ("turns", self.turns, TURNS),
        ):
            if value is not None and not (isinstance(value, str) and value in choices):
                raise InputError(f"{name}: {value!r} is not allowed; {nearest(str(value), choices)}")
        if self.arrivals is not None:
            called("arrivals", self.arrivals, ARRIVALS)
        if isinstance(self.output_tok, str):
            called("output_tok", self.output_tok, LENGTHS)
        elif self.output_tok is not None and not _is_whole(self.output_tok, 1, MOST_TOK):
            raise InputError(
                f"output_tok: {self.output_tok!r} is not allowed; it must be a whole number of 1 or more "
                f"tokens, or {_forms(LENGTHS)}"
            )
        if not _is_number(self.think_s) or self.think_s < 0:
            raise InputError(f"think_s: {self.think_s!r} is not allowed; it must be 0 or more seconds")
        chars = self.chars_per_tok
        if chars is not None and (not _is_number(chars) or chars <= 0):
            raise InputError(f"chars_per_tok: {chars!r} is not allowed; it must be a number above 0")

    @property
    def needs_draws(self) -> bool:
        """Whether what is stated needs random numbers."""
        return self.arrivals is not None or isinstance(self.output_tok, str)


def called(option: str, text: Any, laws: Mapping[str, tuple[str, ...]]) -> tuple[str, list[float]]:
    """Return the name and the arguments of a law written as a call.

    Raises
    ------
    InputError
        If it is no call of one of these laws.
    """
    match = _CALL.fullmatch(text) if isinstance(text, str) else None
    name = match.group(1) if match else ""
    if match is None or name not in laws:
        raise InputError(f"{option}: {text!r} is not allowed; it must be {_forms(laws)}")
    try:
        values = [float(part) for part in match.group(2).split(",")]
    except ValueError:
        values = []
    least = [0.0 if argument == "cv" and name != "gamma" else 1e-9 for argument in laws[name]]
    right = len(values) == len(least) and all(
        low <= value < math.inf for low, value in zip(least, values, strict=True)
    )
    if not right:
        form = f"{name}({', '.join(laws[name])})"
        raise InputError(f"{option}: {text!r} is not allowed; it must be {form} with numbers above 0")
    return name, values


def _forms(laws: Mapping[str, tuple[str, ...]]) -> str:
    return " or ".join(f'"{name}({", ".join(arguments)})"' for name, arguments in laws.items())


def _is_number(value: Any) -> bool:
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return number and math.isfinite(value)


def _is_whole(value: Any, least: int, most: float = math.inf) -> bool:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and bool(least <= value <= most)
