"""Gradient boosting of trees: its score on held-out samples, as a reference for other fits."""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from skident.budget.constants import CLEAR_GAIN

__all__ = ["clearly_better_boosting_r2"]

_FEWEST_SAMPLES = 100  # below, no comparison: leaves of 20 samples are a fifth of them
_TREES = 60  # at twice the usual rate instead of 100 (budget)
_RATE = 0.2  # twice the usual (budget)


def clearly_better_boosting_r2(X, y, folds, r2, weights=None):
    """R^2 of boosting for y (n,) on held-out samples if it is clearly above `r2` on the same folds, else NaN.

    Steps, thresholds and interactions of discrete columns are approximated better by trees than by smooth functions,
    which neither a linear model nor a kernel reveals. `weights` (n,) are those of the samples, with mean one.
    """
    w = np.ones(len(y)) if weights is None else weights
    if len(X) < _FEWEST_SAMPLES or r2 > 1.0 - CLEAR_GAIN:
        return np.nan
    squares = np.empty(len(y))
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(y)), fold)
        model = HistGradientBoostingRegressor(learning_rate=_RATE, max_iter=_TREES, random_state=0)
        squares[fold] = (model.fit(X[rest], y[rest], w[rest]).predict(X[fold]) - y[fold]) ** 2
    squares *= w / np.average((y - np.average(y, weights=w)) ** 2, weights=w)
    score = 1.0 - float(squares.mean())
    return score if score - squares.std() / np.sqrt(len(y)) > r2 + CLEAR_GAIN else np.nan
