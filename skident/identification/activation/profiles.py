"""Activation of one hidden unit from its profile: the outputs on an interval where it alone changes."""

from __future__ import annotations

import numpy as np

from skident.network import get_activation
from skident.optim import BatchedSeparableProblem, Ending, batched_levenberg_marquardt, fit_coefficients

__all__ = ["growing_profile", "settling_profile"]

_POINTS = 201  # of a profile: some 60 on each tail
_END_POINTS = 10  # whose mean is the limit of a tail
_TAIL_START = 1e-4  # part of the step left where a tail begins: the next power of an exponential is 1e-8
_ERRORS = 30.0  # errors of the outputs at which a tail ends
_MIN_POINTS = 8  # of a tail
_MIN_DECADES = 3.0  # that a tail must fall: curvatures of tanh and erf differ by 0.3, and are good to 0.05 then
_EXPONENTIAL = 0.08  # largest curvature of the logarithm of an exponential tail
_GAUSSIAN = 0.2  # smallest one of a Gaussian tail, which is about 0.3
_STEEPNESS = (12.0, 30.0, 70.0)  # starts: slope of a unit's argument times the width of its interval
# Units that grow linearly, with the starts of their fits: elu alone is another one when reflected.
_GROWING = {"softplus": _STEEPNESS, "silu": _STEEPNESS, "gelu": _STEEPNESS}
_GROWING["elu"] = (*_STEEPNESS, *(-w for w in _STEEPNESS))
_LONGEST = np.array([0.5, 2.0])  # steps in log slope and offset: a profile is linear in neither beyond that
_ENDING = Ending(max_iter=40, target=1e-28, ftol=1e-12)  # of profiles of height one: target at rounding


def settling_profile(interval, oracle):
    """Name ("tanh" if a unit settles like exp(-2 z), "erf" if like exp(-z^2), or None), and curvatures of its tails.

    The curvature is the quadratic part of the logarithm of the distance from the limit, over its whole fall: 0 for tanh
    (and sigmoid), about 0.3 for erf. Holds behind any smooth layers: they are linear in what is left of a tail.
    """
    width = interval.high - interval.low
    t = np.linspace(interval.low - 0.5 * width, interval.high + 0.5 * width, _POINTS)
    y = interval.outputs(oracle, t)
    curvatures = [_tail_curvature(side * t[::side], y[::side], interval.error) for side in (1, -1)]
    curvatures = [c for c in curvatures if c is not None]
    if curvatures and max(curvatures) < _EXPONENTIAL:
        return "tanh", curvatures
    if curvatures and min(curvatures) > _GAUSSIAN:
        return "erf", curvatures
    return None, curvatures


def _tail_curvature(s, y, error):
    """Curvature of the logarithm of the tail at the right end of outputs y (n,) at s (n,); None if it is too short."""
    left = np.abs(y - y[-_END_POINTS:].mean())
    step = np.abs(y[-1] - y[0]) + left.max()
    end = max(_ERRORS * error, 1e-15 * step)
    low = np.flatnonzero(left < _TAIL_START * step)
    start = low[np.argmax(low > np.flatnonzero(left >= _TAIL_START * step)[-1])] if len(low) else len(left)
    below = np.flatnonzero(left[start:] < end)
    stop = start + (below[0] if len(below) else 0)
    if stop - start < _MIN_POINTS or np.log10(left[start] / left[stop - 1]) < _MIN_DECADES:
        return None
    u = (s[start:stop] - s[start]) / (s[stop - 1] - s[start])
    a = np.polyfit(u, np.log(left[start:stop]), 2)
    return float(-a[0] / (-np.polyval(a, 1.0) + np.polyval(a, 0.0)))


def growing_profile(interval, oracle):
    """The activation g whose ``a + b t + v g(w t + c)`` fits best, and the residual of each, relative to the unit."""
    width, center = interval.high - interval.low, 0.5 * (interval.low + interval.high)
    s = np.linspace(-0.6, 0.6, _POINTS)
    y = interval.outputs(oracle, center + s * width)
    y = y - np.linspace(y[0], y[-1], _POINTS)
    y /= max(np.abs(y).max(), np.finfo(float).tiny)
    residuals = {}
    for name, starts in _GROWING.items():
        signs = np.unique(np.sign(starts))
        residuals[name] = min(_fit(get_activation(name), sign, s, y, starts) for sign in signs)
    return min(residuals, key=residuals.get), residuals


def _fit(g, sign, s, y, starts):
    """Largest residual of the best fit with an argument of one sign, by variable projection in log slope and offset."""

    def columns(x):
        unit = g(sign * np.exp(x[:, :1]) * s + x[:, 1:])
        return np.stack([np.ones_like(unit), np.broadcast_to(s, unit.shape), unit], axis=2)

    problem = BatchedSeparableProblem(columns, y[:, None], longest=_LONGEST)
    starts = np.array([[np.log(abs(w)), 0.0] for w in starts if np.sign(w) == sign])
    ends = batched_levenberg_marquardt(problem, starts, _ENDING)
    best = ends.x[np.argmin(ends.cost)][None]
    return float(np.abs(fit_coefficients(columns(best), y[:, None]).residual).max())
