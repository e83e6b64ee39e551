"""Planted hierarchical targets with training and held-out samples, and relative errors of models fitted to them."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from skident.datasets import make_hierarchical_target

FIRST_SEED = seed_ranges.HIERARCHICAL.start


def planted_target(seed, n_features, widths, n_samples, **kwargs):
    target = make_hierarchical_target(n_features, widths, random_state=seed, **kwargs)
    X, held_out = target.sample(n_samples, seed), target.sample(20_000, seed + 100_000)
    return target, X, target(X), held_out, target(held_out)


def relative_error(model, held_out, held_out_y):
    return float(np.mean((model.predict(held_out) - held_out_y) ** 2) / held_out_y.var())


def timed(function, *args, **kwargs):
    """What a function gives, and its processor time."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = function(*args, **kwargs)
    return result, time.process_time() - start


def measured_networks(name, measured, n_rows, n_networks):
    """Results of ``measured(row, k)`` for the networks k of each row, printed with the name of the part."""
    results = []
    for row in range(n_rows):
        for k in range(n_networks):
            results.append(measured(row, k))
            print(f"{name}: {results[-1]}", flush=True)
    return results
