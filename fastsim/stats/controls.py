"""Control variates: narrower intervals from quantities whose means are known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fastsim.errors import InputError
from fastsim.stats.intervals import Interval, finite_values, standard_error, t_quantile


@dataclass(frozen=True, slots=True)
class ControlledInterval(Interval):
    """An interval adjusted by control variates.

    Attributes
    ----------
    coefficients : tuple of float
        beta, one a control, in units of the value over units of the control.
    vrf : float
        Variance reduction factor: squared ratio of the plain standard error to the adjusted one. Below 1 the
        controls do not earn the degrees of freedom they cost.
    """

    coefficients: tuple[float, ...] = ()
    vrf: float = math.nan


def control_variates(
    values: ArrayLike, controls: ArrayLike, known_means: ArrayLike, level: float = 0.95
) -> ControlledInterval:
    """Regression-adjusted mean with its t interval.

    Parameters
    ----------
    values : array_like, shape (R,)
        One value a replication, finite.
    controls : array_like, shape (R,) or (R, k)
        The realised controls of the same replications, such as the mean service time and the number of
        arrivals.
    known_means : array_like, shape () or (k,)
        Their exact expectations, in the units of the controls.
    level : float
        Nominal coverage, in (0, 1).

    Returns
    -------
    ControlledInterval
        qbar - beta' (Cbar - mu) with beta = S_CC^-1 S_Cq, +- t_{R-k-1} s sqrt(1/R + (Cbar - mu)' A^-1 (Cbar
        - mu)), where A is the matrix of the controls' centred sums of products and s^2 the residual
        variance with R - k - 1 degrees of freedom; in the unit of the values.

    Raises
    ------
    InputError
        Shapes that do not fit, R < k + 2, controls that are constant or collinear, numbers that are not
        finite.

    Notes
    -----
    Exact when values and controls are jointly normal, which averages over long replications nearly are; use
    R >= 20. Helps means much and P99 moderately. Source: Lavenberg and Welch, Management Science 27(3), 1981;
    Asmussen and Glynn, Stochastic Simulation, 2007, section V.2.
    """
    q = finite_values(values, "values")
    mu = finite_values(known_means, "known_means")
    c = finite_values(controls, "controls").reshape(-1, mu.size)
    replications, k = q.size, mu.size
    if c.shape[0] != replications:
        raise InputError(
            f"controls has {np.size(controls)} entries; {k} for each of {replications} values are needed"
        )
    if replications < k + 2:
        raise InputError(
            f"values has {replications} entries; {k} controls need at least {k + 2} replications"
        )
    scale = c.std(axis=0)
    if (scale <= 1e-12 * np.abs(c).max(axis=0)).any():
        raise InputError("controls holds a column that does not vary; leave it out")
    centred = (c - c.mean(axis=0)) / scale  # scaled, so that units do not decide about collinearity
    beta, _, rank, _ = np.linalg.lstsq(centred, q - q.mean(), rcond=1e-10)
    if rank < k:
        raise InputError("controls holds columns that are linear combinations of others; leave them out")
    residual = q - q.mean() - centred @ beta
    off = (c.mean(axis=0) - mu) / scale
    leverage = 1 / replications + float(off @ np.linalg.solve(centred.T @ centred, off))
    df = replications - k - 1
    error = math.sqrt(float(residual @ residual) / df * leverage)
    center = float(q.mean() - off @ beta)
    half = t_quantile(level, df) * error
    vrf = (standard_error(q) / error) ** 2 if error else math.inf
    return ControlledInterval(
        center, center - half, center + half, replications, level, tuple((beta / scale).tolist()), vrf
    )
