"""Planted targets and their data, for the tests of this folder."""

import warnings
from contextlib import contextmanager

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skident.datasets import make_hierarchical_target


@contextmanager
def ignored_convergence():
    """Ignore convergence warnings; in other processes they are no errors anyway."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def planted(n_features, widths, n_samples, seed, **kwargs):
    """Target, training and test samples."""
    target = make_hierarchical_target(n_features, widths, random_state=seed, **kwargs)
    X, X_test = target.sample(n_samples, seed), target.sample(5000, seed + 1)
    return target, X, target(X), X_test, target(X_test)


def relative_mse(net, X, y):
    return np.mean((net.predict(X) - y) ** 2) / y.var()
