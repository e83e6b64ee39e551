"""The range of the training inputs, outside which fits to noisy samples predict constants."""

from __future__ import annotations

import numpy as np

__all__ = ["input_range"]

# Of each column's range, added at either end: the range of 300 Gaussian samples is 6 standard deviations, which few of
# 20,000 new ones exceed by a quarter.
_MARGIN = 0.25


def input_range(X, margin=_MARGIN):
    """Minimum and maximum of each column of X (n, D), widened by `margin` times their difference at either end; (2, D).

    Polynomials and ReLU networks that were fitted to noisy samples extrapolate without bound: a single new sample far
    outside may cost more than all others.
    """
    low, high = X.min(axis=0), X.max(axis=0)
    added = margin * (high - low)
    return np.stack([low - added, high + added])
