"""Whose shape the answers have where one unit changes."""

from __future__ import annotations

import numpy as np
from scipy.optimize import least_squares

from skident.network import get_activation

__all__ = ["growing_profile", "settling_profile"]

_POINTS = 201
_SHALLOWEST, _DEEPEST = 1e-4, 30.0  # of a tail: share of the step, and multiples of the answers' error
_FEWEST = 8  # points of a tail
_STRAIGHT, _BENT = 0.08, 0.2  # bend of a tail's logarithm of exponential and of Gaussian tails
_STEEP = (12.0, 30.0, 70.0)  # slopes of a unit's argument, beside the width of its interval, from which fits begin
# Units that grow linearly, and the starts of their fits: elu alone is another one turned round.
_GROWING = {"softplus": _STEEP, "silu": _STEEP, "gelu": _STEEP, "elu": (*_STEEP, *(-w for w in _STEEP))}
_FLAT = 3.0  # decades that a tail must go down to tell


def settling_profile(interval, oracle):
    """Whether a unit settles like exp(-2 z), as tanh and sigmoid do, or like exp(-z^2), as erf does.

    Parameters
    ----------
    interval : Interval
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
    width = interval.high - interval.low
    t = np.linspace(interval.low - 0.5 * width, interval.high + 0.5 * width, _POINTS)
    y, bends = interval.answers(oracle, t), []
    for side in (1, -1):
        end, s = y[::side][-10:].mean(), side * t[::side]
        left = np.abs(y[::side] - end)
        step = np.abs(y[-1] - y[0]) + left.max()
        rest = max(_DEEPEST * interval.error, 1e-15 * step)
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


def growing_profile(interval, oracle):
    """Which unit fits best: ``a + b t + v g(w t + c)`` with g softplus, silu, gelu or elu.

    Parameters
    ----------
    interval : Interval
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
    width, centre = interval.high - interval.low, 0.5 * (interval.low + interval.high)
    s = np.linspace(-0.6, 0.6, _POINTS)
    y = interval.answers(oracle, centre + s * width)
    y = y - np.linspace(y[0], y[-1], _POINTS)
    y /= max(np.abs(y).max(), np.finfo(float).tiny)
    misfits = {name: min(_misfit(get_activation(name), s, y, w) for w in starts) for name, starts in _GROWING.items()}
    return min(misfits, key=misfits.get), misfits


def _misfit(g, s, y, w):
    """Largest residual of the best fit from one start."""

    def residual(p):
        A = np.column_stack([np.ones_like(s), s, g(np.exp(p[0]) * np.sign(w) * s + p[1])])
        return A @ np.linalg.lstsq(A, y, rcond=None)[0] - y

    fit = least_squares(residual, [np.log(abs(w)), 0.0], xtol=1e-12, ftol=1e-15, gtol=1e-15, max_nfev=30)
    return float(np.abs(fit.fun).max())
