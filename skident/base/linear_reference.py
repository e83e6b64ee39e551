"""Linear models: their scores on held-out samples, as a reference for other fits."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

_ALPHAS = np.logspace(-3, 3, 7)  # ridges tried, for standardized columns: from almost none to almost constant fits


def linear_r2(X, Y, folds, weights=None):
    """R^2 of ridge regression of Y (n, k) on X (n, D), on samples held out in turn, averaged over targets.

    `folds` are the indices to hold out; the ridge is chosen on the others. `weights` (n,) are those of the samples.
    """
    w = np.ones(len(X)) if weights is None else weights
    center = np.average(Y, axis=0, weights=w)
    errors, spread = np.zeros(Y.shape[1]), np.zeros(Y.shape[1])
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(X)), fold)
        model = _fitted(RidgeCV(_ALPHAS), X[rest], Y[rest], w[rest])
        errors += w[fold] @ (Y[fold] - model.predict(X[fold]).reshape(len(fold), -1)) ** 2
        spread += w[fold] @ (Y[fold] - center) ** 2
    varies = spread > 0
    return float(np.mean(1.0 - errors[varies] / spread[varies])) if varies.any() else 0.0


def logistic_errors(X, labels, folds, weights=None):
    """Wrong classes (n,) of X (n, D) by logistic regression, as 1, on samples held out in turn; NaN outside folds.

    `weights` (n,) are those of the samples.
    """
    wrong, w = np.full(len(labels), np.nan), np.ones(len(X)) if weights is None else weights
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(X)), fold)
        if len(np.unique(labels[rest])) == 1:
            wrong[fold] = labels[fold] != labels[rest[0]]
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = _fitted(LogisticRegression(max_iter=200), X[rest], labels[rest], w[rest])
        wrong[fold] = model.predict(X[fold]) != labels[fold]
    return wrong


def linear_accuracy(X, labels, folds, weights=None):
    """Accuracy of logistic regression of labels (n,) on X (n, D), on samples held out in turn (`folds` of indices)."""
    wrong = logistic_errors(X, labels, folds, weights)
    held = np.isfinite(wrong)
    return 1.0 - float(np.average(wrong[held], weights=None if weights is None else weights[held]))


def _fitted(model, X, y, weights):
    """A model of standardized columns, fitted to weighted samples."""
    names = [f"{type(step).__name__.lower()}__sample_weight" for step in (StandardScaler(), model)]
    return make_pipeline(StandardScaler(), model).fit(X, y, **dict.fromkeys(names, weights))
