"""The grid of a binary number format: spacing, nearest numbers, and whether values lie on it.

Exponents are unbounded here: multiplying a ReLU unit by a power of two changes no bit of a mantissa.
"""

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import EPS

FORMAT_DIGITS = {"float32": 24, "float16": 11, "bfloat16": 8}  # binary digits of a mantissa, the leading one included

RELATIVE_ERRORS = 4.0 * EPS * 8.0 ** np.arange(9)  # tried errors over a unit's largest weight: to 1.5e-8
WITHIN = 5.0  # errors within which every value must lie on the grid (statistics: 6e-7 per value)
INFORMATIVE = 4.0 * WITHIN  # spacings over errors from which a value's distance to the grid says something
FAR_OFF = 0.05  # distance over spacing from which a value is not on the grid: nine tenths of values off the grid
PROBABLY_OFF = 1e-4  # values off the grid that are assumed beside those detected: one of ten thousand single biases
_NATS_OFF_GRID = 15.0  # evidence against the grid by a value that is not on it: as much as one in its favor
_MAX_INTEGER = 128  # largest integer of weights of 8 bits
_INTEGER_TOL = 1e-6  # distance of a multiple to an integer that is rounding: 128 times float32's
_MIN_MULTIPLES = 4  # values near integers by chance: 128 (2e-6)^3


@dataclass(frozen=True)
class Evidence:
    """How values lie on a grid.

    Attributes
    ----------
    error : float
        Smallest relative error of the values with which they lie on the grid.
    nats : float
        Logarithm of the odds for the grid against values drawn from a density, for the informative values.
    count : int
        Number of values whose error is small against the spacing.
    n_off : int
        How many of these do not lie on the grid.
    """

    error: float
    nats: float
    count: int
    n_off: int

    @property
    def share_off(self):
        """Probable share of values off the grid: above 0 also if none is detected."""
        return (self.n_off + PROBABLY_OFF) / (self.count + 1.0)


def spacing(values, digits):
    """Spacing of the numbers with so many binary digits at values of any shape; 0 at 0."""
    return np.where(values == 0.0, 0.0, np.ldexp(1.0, np.frexp(values)[1] - digits))


def nearest(values, digits):
    """The nearest numbers with so many binary digits."""
    step = spacing(values, digits)
    return np.rint(values / np.where(step > 0.0, step, 1.0)) * step


def distances(values, digits):
    """Distances to the nearest numbers with so many binary digits."""
    return np.abs(values - nearest(values, digits))


def evidence_of(values, size, digits):
    """Evidence that most values lie on the grid, at the error for which it is largest.

    `size` is the unit by which errors are measured: a scalar or the shape of `values`. A value with error s and grid
    spacing u lies within 5 s of the grid by chance with probability 10 s / u.
    """
    off, step = (part(values, digits).ravel() for part in (distances, spacing))
    width = WITHIN * np.multiply.outer(RELATIVE_ERRORS, np.broadcast_to(size, np.shape(values)).ravel())
    informative = step > INFORMATIVE / WITHIN * width
    within = informative & (off <= width)
    n_off = np.sum(informative & (off > FAR_OFF * step), axis=1)
    gains = np.log(np.where(within, step, 1.0) / np.where(within, 2.0 * width, 1.0)).sum(axis=1)
    gains -= _NATS_OFF_GRID * n_off
    best = int(np.argmax(gains))
    if not gains[best] > 0.0:
        return Evidence(np.inf, 0.0, 0, 0)
    return Evidence(float(RELATIVE_ERRORS[best]), float(gains[best]), int(informative[best].sum()), int(n_off[best]))


def integer_multiples(values):
    """The smallest n <= 128 such that all values are integer multiples of the largest over n, to rounding; else None.

    Weights that were quantized to 8 bits are such multiples; only values that far more than determine n are called so.
    """
    size = np.abs(values).max(initial=0.0)
    if size == 0.0 or values.size < _MIN_MULTIPLES:
        return None
    multiples = np.multiply.outer(np.arange(1, _MAX_INTEGER + 1), values.ravel() / size)
    near = np.abs(multiples - np.rint(multiples)).max(axis=1) < _INTEGER_TOL
    return int(np.argmax(near)) + 1 if near.any() else None
