"""Where a success rate crosses one half: a logistic curve with a profile-likelihood interval."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit

__all__ = ["fit_transition"]

# Half the 95 % quantile of chi-squared with one degree of freedom: the drop of the log-likelihood at an interval's end.
_DROP = 1.920729


def fit_transition(x, successes, trials):
    """Fit ``p(x) = 1 / (1 + exp(-slope (x - half)))`` to counts.

    The likelihood is penalised by Jeffreys' prior (Firth), so that a jump from none to all has a finite slope.

    Parameters
    ----------
    x, successes, trials : array-like of shape (m,)

    Returns
    -------
    half, slope : float
        nan where all trials succeeded or all failed.
    interval : tuple of float
        95 % profile-likelihood interval of `half`; an end is infinite where the data say nothing.

    Examples
    --------
    >>> from skident.landscape.half_point import fit_transition
    >>> half, slope, (low, high) = fit_transition([1, 2, 3, 4], [0, 0, 10, 10], [10, 10, 10, 10])
    >>> print(round(half, 3), slope > 0, 2.0 < low < high < 3.0)
    2.5 True True
    """
    x, successes, trials = (np.asarray(a, dtype=np.float64) for a in (x, successes, trials))
    if successes.sum() in (0.0, trials.sum()):
        # Nothing seen but one side of it; which way it lies is not known.
        return np.nan, np.nan, (-np.inf, np.inf)
    span = max(float(np.ptp(x)), 1e-12)
    center = np.average(x, weights=trials)
    sign = 1.0 if np.sum((x - center) * successes) >= 0 else -1.0

    def likelihood(half):
        """The penalised log-likelihood at its best slope, and that slope."""
        found = minimize_scalar(
            lambda b: -_penalised(x, successes, trials, half, sign * np.exp(b)),
            bounds=(np.log(1e-3 / span), np.log(1e4 / span)),
            method="bounded",
            options={"xatol": 1e-6},
        )
        return -found.fun, sign * float(np.exp(found.x))

    grid = np.linspace(x.min() - 0.5 * span, x.max() + 0.5 * span, 41)
    start = int(np.argmax([likelihood(half)[0] for half in grid]))
    low, high = grid[max(start - 1, 0)], grid[min(start + 1, len(grid) - 1)]
    half = float(
        minimize_scalar(lambda h: -likelihood(h)[0], bounds=(low, high), method="bounded", options={"xatol": 1e-6}).x
    )
    best, slope = likelihood(half)
    ends = [_crossing(lambda h: likelihood(h)[0] - best + _DROP, half, side, span) for side in (-1.0, 1.0)]
    return half, slope, (ends[0], ends[1])


def _penalised(x, successes, trials, half, slope):
    """Binomial log-likelihood plus half the logarithm of the determinant of its information."""
    z = slope * (x - half)
    likelihood = np.sum(successes * z - trials * np.logaddexp(0.0, z))
    weights = trials * expit(z) * expit(-z)
    information = np.sum(weights) * np.sum(weights * x * x) - np.sum(weights * x) ** 2
    return float(likelihood + 0.5 * np.log(max(information, 1e-300)))


def _crossing(f, start, side, span):
    """Where f falls through zero on one side of a point; infinite if not within three spans."""
    inner = start
    for step in span * np.geomspace(0.01, 3.0, 20):
        outer = start + side * step
        if f(outer) < 0:
            return float(brentq(f, inner, outer, xtol=1e-6))
        inner = outer
    return float(side * np.inf)
