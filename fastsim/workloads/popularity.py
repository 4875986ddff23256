"""Which document, tool, video or problem a request is about."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from msgspec import Meta

from fastsim.errors import InputError
from fastsim.workloads.traffic import Cv, Sized

Share = Annotated[float, Meta(gt=0, lt=1, description="share of all requests")]


class Popular(Sized, frozen=True, kw_only=True):
    """How requests spread over items (documents, tools, videos, problems).

    By default a Zipf law cut off at the number of items, each request for itself. `hottest_share` gives the
    first item that share; the others keep their proportions. `instances` draws from a data set instead, as a
    published one is played: every item has a number of its own of entries (lognormal, of mean `instances` and
    `instances_cv`), all entries come once in random order, then again.
    """

    zipf: Annotated[float, Meta(ge=0, le=10, description="exponent of the items' popularity")] = 1.1
    hottest_share: Share | None = None
    instances: Annotated[float, Meta(ge=1, le=1e6, description="mean entries of an item")] | None = None
    instances_cv: Cv = 0.0


def choose(
    spec: Popular, rng: np.random.Generator, count: int, items: int, size: np.ndarray | None = None
) -> np.ndarray:
    """Draw the items of `count` requests.

    Parameters
    ----------
    spec : Popular
    rng : numpy Generator
    count, items : int
    size : ndarray of float, shape (items,), optional
        Popularity is also in proportion to this.

    Returns
    -------
    ndarray of int64, shape (count,)
        From 0, the first in popularity, on. A longer run starts with the same items as a shorter one.
    """
    if spec.instances is None:
        return draw_by_weight(rng, count, _weights(spec, items, size))
    if spec.hottest_share is not None or size is not None:
        raise InputError("instances: it cannot be given together with hottest_share or by_length")
    deck = np.repeat(np.arange(items), _entries(spec.instances, spec.instances_cv, items))
    rounds = -(-count // len(deck))
    return np.concatenate([rng.permutation(deck) for _ in range(rounds)])[:count]


def zipf_ranks(rng: np.random.Generator, count: int, items: int, exponent: float) -> np.ndarray:
    """Draw ranks, 0 the most popular, from a Zipf law cut off at `items`: p(r) ~ (r + 1)^-exponent."""
    return draw_by_weight(rng, count, np.arange(1, items + 1, dtype=np.float64) ** -exponent)


def draw_by_weight(rng: np.random.Generator, count: int, weight: np.ndarray) -> np.ndarray:
    """Draw indices with probabilities in proportion to `weight`."""
    below = np.cumsum(weight)
    # Inversion spends one uniform a draw, so a longer run starts with the same ranks as a shorter one.
    ranks = np.searchsorted(below, rng.random(count) * below[-1], side="right")
    return np.minimum(ranks, len(weight) - 1)


def _weights(spec: Popular, items: int, size: np.ndarray | None) -> np.ndarray:
    weight = np.arange(1, items + 1, dtype=np.float64) ** -spec.zipf
    if size is not None:
        weight = weight * size
    if spec.hottest_share is not None:
        if items < 2:
            raise InputError(f"hottest_share = {spec.hottest_share!r} is not allowed with a single item")
        weight[1:] *= (1.0 - spec.hottest_share) / weight[1:].sum()
        weight[0] = spec.hottest_share
    return weight


def _entries(mean: float, cv: float, items: int) -> np.ndarray:
    """Return every item's entries, most first, without a draw: means of equal slices of a lognormal law."""
    from scipy.special import ndtr, ndtri

    spread = math.sqrt(math.log1p(cv * cv))
    # Up to z, the law holds the share Phi(z - spread) of its mean.
    below = ndtr(ndtri(np.linspace(1.0, 0.0, items + 1)) - spread)
    return np.maximum(np.rint(mean * items * -np.diff(below)), 1).astype(np.int64)
