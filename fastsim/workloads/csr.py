"""Rows of different lengths in two flat arrays: row i is ``values[ptr[i]:ptr[i + 1]]``."""

from __future__ import annotations

import numpy as np


def gather(ptr: np.ndarray, values: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (ptr, values) of the chosen rows, in the order given."""
    length = np.diff(ptr)[rows]
    new_ptr = np.concatenate(([0], np.cumsum(length)))
    shift = np.repeat(ptr[rows] - new_ptr[:-1], length)
    return new_ptr, values[np.arange(new_ptr[-1]) + shift]
