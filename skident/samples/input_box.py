"""Range of the training inputs, outside which predictions are held constant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from skident.budget.constants import RANGE_MARGIN

__all__ = ["InputBox"]

# Heavy tails: of a thousand times as many rows of a power law, the largest value is (z_3 / z_30)^3 times as large; z_r
# has rank r. Ranks above one keep single outliers out, and the ratio of Gaussian tails is divided out. Narrower bounds
# cost more: with the second power, one of 20,000 new lognormal rows was clipped for half of the networks, with up to a
# hundred times the error of all others together.
_RANK = 3
_TAIL_RANK = 30  # statistics: ten times the rank above, so that their ratio is that of ten times as many rows
_TAIL_POWER = 3  # statistics: ten times as many rows, three times, are a thousand times as many
_FEWEST_ROWS = 300  # below, rank 30 is no tail
_LARGEST_FACTOR = 10.0  # of the largest value, beyond which a straight line is not continued


@dataclass(frozen=True)
class InputBox:
    """Bounds of whitened inputs ``z = (x - center) @ whitener``: the range of the training rows, a quarter wider.

    Heavy tails are continued up to ten times the largest value.

    Attributes
    ----------
    center : ndarray of shape (d,)
    whitener : ndarray of shape (d, k)
    low, high : ndarray of shape (k,)
        Bounds of z.
    """

    center: np.ndarray
    whitener: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, sample):
        """The box of the rows of a sample, or of the standardized columns if rows are too few to whiten others."""
        # Whitened, new rows have n / (n - k) times the variance of the rows: the margin is for less.
        if sample.dim > RANGE_MARGIN * (sample.n_rows - sample.dim):
            sample = sample.standardized()
        low, high = sample.extremes(_TAIL_RANK)
        margin, few = RANGE_MARGIN * (high[0] - low[0]), sample.n_rows < _FEWEST_ROWS
        lowest, highest = (z[0] if few else z[0] * _tail_factor(np.abs(z), sample.n_rows) for z in (low, high))
        return cls(
            sample.center, sample.whitener, np.minimum(low[0] - margin, lowest), np.maximum(high[0] + margin, highest)
        )

    def clipped(self, X):
        """Rows whose whitened inputs are within the bounds.

        X (n, d); returns (n, d).
        """
        Z = (X - self.center) @ self.whitener
        outside = np.any((self.low > Z) | (self.high < Z), axis=1)
        if not outside.any():
            return X
        X = np.array(X, dtype=np.float64)
        X[outside] = self.center + np.clip(Z[outside], self.low, self.high) @ np.linalg.pinv(self.whitener)
        return X


def _tail_factor(z, n_rows):
    """How many times the largest values (k,) new rows may be, from values (30, k) by descending size."""
    gaussian = norm.isf(_RANK / n_rows) / norm.isf(_TAIL_RANK / n_rows)
    ratio = z[_RANK - 1] / np.maximum(z[-1], np.finfo(float).tiny)
    return np.clip((ratio / gaussian) ** _TAIL_POWER, 1.0, _LARGEST_FACTOR)
