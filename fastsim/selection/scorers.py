"""Scorers of answers, which tell a cascade when to stop: of a given quality, or what a router has learnt."""

from __future__ import annotations

import numpy as np

from fastsim.errors import InputError
from fastsim.rng import generator
from fastsim.selection.model_routers import FittedRouter
from fastsim.selection.tables import Floats, Outcomes


def scorer_of_auc(table: Outcomes, auc: float, *, seed: int = 0, replicate: int = 0) -> Floats:
    """Trust in every answer, as a scorer gives it that ranks a right above a wrong answer with this chance.

    Parameters
    ----------
    table : Outcomes
        n questions, K models.
    auc : float
        0.5 (knows nothing) to 1 (knows all).
    seed, replicate : int
        Of the random stream "scorer"; one draw an answer. Give train and test different replicates.

    Returns
    -------
    float64[n, K]
        In [0, 1].

    Notes
    -----
    Binormal: evidence is N(0, 1) for wrong answers and N(d, 1) for right ones, so AUC = Phi(d / sqrt 2)
    (Green and Swets, Signal Detection Theory, 1966); trust is the posterior from even odds. Fractional scores
    shift the evidence in proportion. The draws are shared by all values of `auc`.
    """
    if not 0.5 <= auc <= 1.0:
        raise InputError(f"auc is {auc:g}; it must lie from 0.5 to 1")
    right = _fraction(table)
    if auc == 1.0:
        return right
    from scipy.special import expit, ndtri

    apart = np.sqrt(2.0) * ndtri(auc)
    evidence = apart * right + generator(seed, replicate, "scorer").standard_normal(right.shape)
    return np.asarray(expit(apart * evidence - apart**2 / 2.0))


def judge(table: Outcomes, error: float, *, seed: int = 0, replicate: int = 0) -> Floats:
    """Trust 1 or 0: whether the answer is right (score above the middle), flipped with the chance `error`.

    The simulated cascade of RouterBench (arXiv 2403.12031). Parameters otherwise as in `scorer_of_auc`.
    """
    if not 0.0 <= error <= 1.0:
        raise InputError(f"error is {error:g}; it must lie from 0 to 1")
    right = _fraction(table) > 0.5
    flipped = generator(seed, replicate, "scorer").random(right.shape) < error
    return (right ^ flipped).astype(np.float64)


def learnt(router: FittedRouter, table: Outcomes) -> Floats:
    """A router's predictions as trust: the same before and after the answer, as it never sees it."""
    low, high = table.score_range
    return np.clip((router.quality(table) - low) / (high - low), 0.0, 1.0)


def _fraction(table: Outcomes) -> Floats:
    low, high = table.score_range
    return (table.scores - low) / (high - low)
