"""Range of the training inputs, outside which predictions are held constant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["InputBox"]

# Of the range of a whitened input: the largest of 20 000 new Gaussian values lies beyond the largest of 1 000 by .15 of
# their range, so ordinary new rows stay as they are, and a straight line is continued by a quarter of its length only.
_MARGIN = 0.25


@dataclass(frozen=True)
class InputBox:
    """Bounds of whitened inputs ``z = (x - center) @ whitener``: the range of the training rows, a quarter wider.

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
        """The box of the rows of a sample."""
        low, high = sample.extent()
        margin = _MARGIN * (high - low)
        return cls(sample.center, sample.whitener, low - margin, high + margin)

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
