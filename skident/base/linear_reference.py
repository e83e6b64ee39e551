"""What a linear model reaches on held-out rows: the reference that a fit is to be compared with."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

__all__ = ["linear_accuracy", "linear_r2"]

_ALPHAS = np.logspace(-3, 3, 7)


def linear_r2(X, Y, folds):
    """R^2 of ridge regression on held-out rows, its ridge chosen on the others.

    Parameters
    ----------
    X : ndarray of shape (n, D)
    Y : ndarray of shape (n, k)
    folds : list of ndarray of int
        Rows to hold out, one fold after the other.

    Returns
    -------
    float
        ``1 - sum (y - prediction)^2 / sum (y - mean)^2`` over all held-out rows, the mean over the targets.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.base.linear_reference import linear_r2
    >>> x = np.arange(30.0)[:, None]
    >>> print(linear_r2(x, 2 * x, np.array_split(np.arange(30), 3)) > 0.99)
    True
    """
    errors, spread = np.zeros(Y.shape[1]), np.zeros(Y.shape[1])
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(X)), fold)
        model = make_pipeline(StandardScaler(), RidgeCV(_ALPHAS)).fit(X[rest], Y[rest])
        errors += np.sum((Y[fold] - model.predict(X[fold]).reshape(len(fold), -1)) ** 2, axis=0)
        spread += np.sum((Y[fold] - Y.mean(axis=0)) ** 2, axis=0)
    told = spread > 0
    return float(np.mean(1.0 - errors[told] / spread[told])) if told.any() else 0.0


def linear_accuracy(X, labels, folds):
    """Accuracy of logistic regression on held-out rows.

    Parameters
    ----------
    X : ndarray of shape (n, D)
    labels : ndarray of int of shape (n,)
    folds : list of ndarray of int

    Returns
    -------
    float
    """
    right = 0
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(X)), fold)
        if len(np.unique(labels[rest])) == 1:
            right += np.sum(labels[fold] == labels[rest[0]])
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)).fit(X[rest], labels[rest])
        right += np.sum(model.predict(X[fold]) == labels[fold])
    return float(right / sum(map(len, folds)))
