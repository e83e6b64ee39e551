"""Linear models: their scores on held-out samples, as a reference for other fits."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

__all__ = ["linear_accuracy", "linear_r2", "logistic_errors"]

_ALPHAS = np.logspace(-3, 3, 7)  # ridges tried, for standardized columns: from almost none to almost constant fits


def linear_r2(X, Y, folds):
    """R^2 of ridge regression of Y (n, k) on X (n, D), on samples held out in turn, averaged over targets.

    `folds` are the indices to hold out; the ridge is chosen on the others.
    """
    errors, spread = np.zeros(Y.shape[1]), np.zeros(Y.shape[1])
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(X)), fold)
        model = make_pipeline(StandardScaler(), RidgeCV(_ALPHAS)).fit(X[rest], Y[rest])
        errors += np.sum((Y[fold] - model.predict(X[fold]).reshape(len(fold), -1)) ** 2, axis=0)
        spread += np.sum((Y[fold] - Y.mean(axis=0)) ** 2, axis=0)
    varies = spread > 0
    return float(np.mean(1.0 - errors[varies] / spread[varies])) if varies.any() else 0.0


def logistic_errors(X, labels, folds):
    """Wrong classes (n,) of X (n, D) by logistic regression, as 1, on samples held out in turn; NaN outside folds."""
    wrong = np.full(len(labels), np.nan)
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(X)), fold)
        if len(np.unique(labels[rest])) == 1:
            wrong[fold] = labels[fold] != labels[rest[0]]
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)).fit(X[rest], labels[rest])
        wrong[fold] = model.predict(X[fold]) != labels[fold]
    return wrong


def linear_accuracy(X, labels, folds):
    """Accuracy of logistic regression of labels (n,) on X (n, D), on samples held out in turn (`folds` of indices)."""
    return float(1.0 - np.nanmean(logistic_errors(X, labels, folds)))
