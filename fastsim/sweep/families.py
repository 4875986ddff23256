"""Which of a table's comparisons stand when all of a setting are judged together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastsim.stats import differing_pairs

Label = tuple[Any, ...]


@dataclass(frozen=True)
class Family:
    """What one line's metric comes to among all pairs of its setting.

    Attributes
    ----------
    pairs : int
        Comparisons in the family: all pairs of the compared values at one setting of the other axes.
    differs_from : tuple
        Compared values from which this line differs, at 5 % for the whole family (Holm).
    """

    pairs: int
    differs_from: tuple[Any, ...]


def families(
    lines: Mapping[Label, Mapping[int, float]], place: int, level: float = 0.95
) -> dict[Label, Family]:
    """Judge the lines of one metric, setting by setting.

    Parameters
    ----------
    lines : mapping of tuple to mapping of int to float
        Value by replicate of each line, named by its values on the axes.
    place : int
        Which of these values is the compared one.
    level : float
        Probability that a family holds no error.
    """
    settings: dict[Label, list[Label]] = {}
    for label in lines:
        settings.setdefault((*label[:place], *label[place + 1 :]), []).append(label)
    found: dict[Label, Family] = {}
    for together in settings.values():
        standing = differing_pairs([lines[label] for label in together], level)
        for i, label in enumerate(together):
            others = (other[place] for j, other in enumerate(together) if standing.differs(i, j))
            found[label] = Family(standing.family, tuple(others))
    return found
