"""Activations that are known by values alone: a piecewise polynomial between two straight lines."""

from dataclasses import dataclass, field

import numpy as np
from numpy.polynomial import chebyshev

from .activations import Activation

_DEGREE = 15  # of the polynomials: adaptive intervals of GELU and softplus are then one to two units long
_LAST = 3  # coefficients of a series at whose size it has converged
_AT_BENDS = 32.0  # error over that size at a bend in the middle of an interval: 1 / (1 - cos(pi / 15)), and rounding
_MOST = 400  # intervals (budget): a bend at one point takes some 90
_SMOOTH = 1e-3  # jump of a second derivative, relative to the largest, that is rounding of values (1e-13, times 1e4)
_LONGEST = 10_000  # intervals of a table that is read (budget)


class _TableJet:
    """The polynomials between the lines, and their derivatives; picklable, equal if the numbers are."""

    def __init__(self, edges, coefficients, slopes):
        self.edges, self.coefficients, self.slopes = edges, coefficients, slopes

    def __eq__(self, other):
        mine, theirs = ((g.edges, g.coefficients, g.slopes) for g in (self, other))
        return isinstance(other, _TableJet) and all(map(np.array_equal, mine, theirs))

    def __hash__(self):
        return hash((len(self.edges), float(self.coefficients.sum())))

    def __call__(self, z, order):
        z = np.asarray(z, dtype=float)
        low, high = self.edges[0], self.edges[-1]
        inside = np.clip(z, low, high)
        place = np.minimum(np.searchsorted(self.edges, inside, side="right"), len(self.edges) - 1) - 1
        half = 0.5 * np.diff(self.edges)
        x = (inside - 0.5 * (self.edges[1:] + self.edges[:-1])[place]) / half[place]
        jet = [np.zeros_like(x) for _ in range(order + 1)]
        for column in self.coefficients.T[::-1]:
            for k in range(order, 0, -1):
                jet[k] = jet[k] * x + k * jet[k - 1]
            jet[0] = jet[0] * x + column[place]
        left, right = self.slopes
        # Not a sum of two products: a slope of 0 times an infinite distance is no number.
        beyond = np.where(z < low, left and left * (z - low), np.where(z > high, right and right * (z - high), 0.0))
        jet[0] = jet[0] + beyond
        outside = (z < low) | (z > high)
        for k in range(1, order + 1):
            line = np.where(z < low, left, right) if k == 1 else 0.0
            jet[k] = np.where(outside, line, jet[k] / half[place] ** k)
        return tuple(jet)


@dataclass(frozen=True)
class Tabulated(Activation):
    """A piecewise polynomial between two straight lines; `tabulate` and `tabulated` make one.

    Parameters
    ----------
    error : float
        Largest error of its values.
    """

    error: float = field(default=0.0, compare=False)


def tabulated(edges, coefficients, slopes, error=0.0):
    """The activation of polynomials on adjacent intervals, and of straight lines beyond them.

    Parameters
    ----------
    edges : array-like of shape (k + 1,)
        Ends of the intervals, increasing.
    coefficients : array-like of shape (k, d + 1)
        Of the powers 0 to d of a variable that increases from -1 to 1 on each interval.
    slopes : (float, float)
        Of the lines on the left and on the right.
    error : float, default=0.0
        Largest error of its values.

    Returns
    -------
    Tabulated

    Raises
    ------
    ValueError
        If shapes do not fit, numbers are not finite, or edges do not increase.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.network.tabulated import tabulated
    >>> ramp = tabulated([-1.0, 1.0], [[0.25, 0.5, 0.25]], (0.0, 1.0))
    >>> print(ramp(np.array([-5.0, 0.0, 3.0])))
    [0.   0.25 3.  ]
    """
    edges, coefficients, slopes = (np.array(part, dtype=float) for part in (edges, coefficients, slopes))
    shapes = edges.ndim == 1 and coefficients.ndim == 2 and coefficients.size and slopes.shape == (2,)
    if not shapes or len(edges) != len(coefficients) + 1 or len(edges) > _LONGEST:
        raise ValueError(
            f"a table needs one edge more than rows of coefficients, and two slopes, got shapes {edges.shape}, "
            f"{coefficients.shape} and {slopes.shape}."
        )
    if not all(np.isfinite(part).all() for part in (edges, coefficients, slopes, error)) or np.diff(edges).min() <= 0:
        raise ValueError("a table needs finite numbers, and edges that increase.")
    for part in (edges, coefficients, slopes):
        part.setflags(write=False)
    jet = _TableJet(edges, coefficients, slopes)
    return Tabulated("tabulated", jet, smooth=_is_smooth(jet), error=float(error))


def _is_smooth(jet):
    """Whether slopes and second derivatives agree where intervals meet."""
    edges = jet.edges[1:-1]
    sides = [jet(np.nextafter(edges, side * np.inf), 2)[1:] for side in (-1.0, 1.0)]
    sizes = [np.abs(part).max() for part in jet(jet.edges, 2)[1:]]
    return all(np.abs(a - b).max(initial=0.0) <= _SMOOTH * size for a, b, size in zip(*sides, sizes, strict=True))


def tabulate(function, low, high, slopes, tol):
    """The table of a function between `low` and `high`, by interpolation at Chebyshev points of adaptive intervals.

    Parameters
    ----------
    function : callable
        Of an array (n,); beyond the interval it is linear.
    low, high : float
        Ends; at 0, inside, an interval begins.
    slopes : (float, float)
        Of the lines on the left and on the right.
    tol : float
        An interval is halved until its series has converged to that; at a bend, errors are up to 32 times larger.

    Returns
    -------
    Tabulated or None
        None if that takes too many intervals.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.network.tabulated import tabulate
    >>> table = tabulate(lambda z: np.logaddexp(0.0, z), -40.0, 40.0, (0.0, 1.0), 1e-13)
    >>> z = np.linspace(-50.0, 50.0, 1001)
    >>> print(np.abs(table(z) - np.logaddexp(0.0, z)).max() < 1e-12)
    True
    """
    # With both ends: a bend close to one of them is not missed, and intervals agree where they meet.
    angles = np.pi * np.arange(_DEGREE + 1) / _DEGREE
    ends = np.where(np.arange(_DEGREE + 1) % _DEGREE == 0, 0.5, 1.0)
    to_series = np.cos(np.outer(angles, np.arange(_DEGREE + 1))) * ends[:, None] * ends * (2.0 / _DEGREE)
    pending, done = np.array([[low, 0.0], [0.0, high]]), []
    while len(pending):
        if len(done) + len(pending) > _MOST:
            return None
        half = 0.5 * np.diff(pending, axis=1)
        Z = pending.mean(axis=1)[:, None] + half * np.cos(angles)
        series = function(Z.ravel()).reshape(Z.shape) @ to_series
        left = np.abs(series[:, -_LAST:]).max(axis=1)
        done += list(zip(*pending[left <= tol].T, series[left <= tol], strict=True))
        open_ones = pending[left > tol]
        middle = open_ones.mean(axis=1)
        pending = np.concatenate(
            [np.column_stack([open_ones[:, 0], middle]), np.column_stack([middle, open_ones[:, 1]])]
        )
    done.sort(key=lambda part: part[0])
    powers = np.array([np.pad(p := chebyshev.cheb2poly(c), (0, _DEGREE + 1 - len(p))) for *_, c in done])
    return tabulated([done[0][0], *(part[1] for part in done)], powers, slopes, _AT_BENDS * tol)
