"""Progress of long computations, where somebody looks at a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def counted(items: Iterable[T], words: str, total: int, unit: str = " runs") -> Iterator[T]:
    """Pass items on, with a bar on stderr if that is a terminal: how many of how many, and the time left."""
    from tqdm import tqdm

    yield from tqdm(items, desc=words, total=total, unit=unit, disable=None, leave=False)
