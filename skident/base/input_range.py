"""The range of the training inputs, outside which fits to noisy samples predict constants."""

import numpy as np

from skident.budget.constants import RANGE_MARGIN


def input_range(X, margin=RANGE_MARGIN):
    """Minimum and maximum of each column of X (n, D), widened by `margin` times their difference at either end; (2, D).

    Polynomials and ReLU networks that were fitted to noisy samples extrapolate without bound: a single new sample far
    outside may cost more than all others.
    """
    low, high = X.min(axis=0), X.max(axis=0)
    added = margin * (high - low)
    return np.stack([low - added, high + added])
