"""Whose shape the answers have where one unit changes."""

from __future__ import annotations

import numpy as np
from scipy.optimize import least_squares
from scipy.special import erf, expit

__all__ = ["growing_profile", "settling_profile"]

_POINTS = 201
_SHALLOWEST, _DEEPEST = 1e-4, 30.0  # of a tail: share of the step, and multiples of the answers' error
_FEWEST = 8  # points of a tail
_STRAIGHT, _BENT = 0.08, 0.2  # bend of a tail's logarithm of exponential and of Gaussian tails
_FLAT = 3.0  # decades that a tail must go down to tell


def settling_profile(stretch, oracle):
    """Whether a unit settles like exp(-2 z), as tanh and sigmoid do, or like exp(-z^2), as erf does.

    Parameters
    ----------
    stretch : Stretch
    oracle : Oracle

    Returns
    -------
    name : {"tanh", "erf", None}
    bends : list of float
        Of both tails, as far as they tell: the quadratic part of the logarithm of the distance from the limit over its
        fall: 0 of tanh, about .3 of erf.

    Notes
    -----
    Holds behind any smooth layers too: they are linear in what is left of a tail.
    """
    width = stretch.high - stretch.low
    t = np.linspace(stretch.low - 0.5 * width, stretch.high + 0.5 * width, _POINTS)
    y, bends = stretch.answers(oracle, t), []
    for side in (1, -1):
        end, s = y[::side][-10:].mean(), side * t[::side]
        left = np.abs(y[::side] - end)
        step = np.abs(y[-1] - y[0]) + left.max()
        rest = max(_DEEPEST * stretch.error, 1e-15 * step)
        low = np.flatnonzero(left < _SHALLOWEST * step)
        begin = low[np.argmax(low > np.flatnonzero(left >= _SHALLOWEST * step)[-1])] if len(low) else len(left)
        below = np.flatnonzero(left[begin:] < rest)
        stop = begin + (below[0] if len(below) else 0)
        if stop - begin < _FEWEST or np.log10(left[begin] / left[stop - 1]) < _FLAT:
            continue
        u = (s[begin:stop] - s[begin]) / (s[stop - 1] - s[begin])
        a = np.polyfit(u, np.log(left[begin:stop]), 2)
        bends.append(float(-a[0] / (-np.polyval(a, 1.0) + np.polyval(a, 0.0))))
    if bends and max(bends) < _STRAIGHT:
        return "tanh", bends
    if bends and min(bends) > _BENT:
        return "erf", bends
    return None, bends


# Units that grow linearly: value and derivative.
_GROWING = {
    "softplus": (lambda z: np.logaddexp(0.0, z), expit),
    "silu": (lambda z: z * expit(z), lambda z: expit(z) * (1.0 + z * expit(-z))),
    "gelu": (
        lambda z: 0.5 * z * (1.0 + erf(z / np.sqrt(2.0))),
        lambda z: 0.5 * (1.0 + erf(z / np.sqrt(2.0))) + z * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi),
    ),
    "elu": (lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0.0))), lambda z: np.exp(np.minimum(z, 0.0))),
}


def growing_profile(stretch, oracle):
    """Which unit fits best: ``a + b t + v g(w t + c)`` with g softplus, silu, gelu or elu.

    Parameters
    ----------
    stretch : Stretch
    oracle : Oracle

    Returns
    -------
    name : str
        The best.
    misfits : dict of str to float
        Largest residual of each over the unit's own contribution.

    Notes
    -----
    Two nonlinear unknowns from several starts, the linear ones eliminated.
    """
    width, centre = stretch.high - stretch.low, 0.5 * (stretch.low + stretch.high)
    s = np.linspace(-0.6, 0.6, _POINTS)
    y = stretch.answers(oracle, centre + s * width)
    y = y - np.linspace(y[0], y[-1], _POINTS)
    y /= max(np.abs(y).max(), np.finfo(float).tiny)
    misfits = {name: min(_misfit(g, s, y, w) for w in _STARTS[name]) for name, (g, _) in _GROWING.items()}
    return min(misfits, key=misfits.get), misfits


_STARTS = {name: (12.0, 30.0, 70.0, *((-12.0, -30.0, -70.0) if name == "elu" else ())) for name in _GROWING}


def _misfit(g, s, y, w):
    """Largest residual of the best fit from one start."""

    def residual(p):
        A = np.column_stack([np.ones_like(s), s, g(np.exp(p[0]) * np.sign(w) * s + p[1])])
        return A @ np.linalg.lstsq(A, y, rcond=None)[0] - y

    fit = least_squares(residual, [np.log(abs(w)), 0.0], xtol=1e-12, ftol=1e-15, gtol=1e-15, max_nfev=30)
    return float(np.abs(fit.fun).max())
