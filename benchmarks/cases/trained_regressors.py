"""Data of diabetes and digits, and `MLPRegressor` trained on them."""

from __future__ import annotations

import functools
import warnings

import numpy as np
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

RAW = {"learning_rate_init": 0.03, "max_iter": 1000}
SOLVERS = {"adam": {"max_iter": 300}, "adam, raw y": RAW, "lbfgs": {"max_iter": 500}, "lbfgs, raw y": {"max_iter": 500}}


def standardized_digits():
    """Digits with mean zero and standard deviation one over all pixels."""
    X, y = load_digits(return_X_y=True)
    return (X - X.mean()) / X.std(), y


@functools.cache
def regression_data(name):
    """Standardized inputs (live pixels only) and targets as the name says: standardized, as they are, or one-hot."""
    if name.startswith("diabetes"):
        X, y = load_diabetes(return_X_y=True)
        return StandardScaler().fit_transform(X), y if name.endswith("raw y") else (y - y.mean()) / y.std()
    X, digit = load_digits(return_X_y=True)
    return StandardScaler().fit_transform(X[:, X.std(axis=0) > 0.5]), np.eye(10)[digit]


def fitted(estimator, X, y):
    """Estimator fitted without convergence warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y)


def trained_regressor(name, hidden, solver, seed):
    """The fitted MLPRegressor and its inputs."""
    X, y = regression_data(name)
    options = SOLVERS[f"{solver}, raw y" if name.endswith("raw y") else solver]
    options = {"hidden_layer_sizes": hidden, "activation": "tanh", "solver": solver, "random_state": seed, **options}
    return fitted(MLPRegressor(**options), X, y), X
