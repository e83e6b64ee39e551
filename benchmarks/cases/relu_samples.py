"""Samples of planted ReLU networks, and the measured fit of one of them."""

from __future__ import annotations

import time
import warnings

import numpy as np

import seed_ranges
from skident import TensorReLURegressor
from skident.datasets import make_relu_network
from skident.metrics import unit_matching_error

FIRST_SEED = seed_ranges.RELU.start
N_HELD_OUT = 5000


def planted(d, m, n, noise, seed):
    """Training samples, held-out inputs, their clean targets, the network."""
    X, y, network = make_relu_network(n, d, m, noise=noise, random_state=seed)
    held_out = np.random.RandomState(seed + 10**6).standard_normal((N_HELD_OUT, d))
    return X, y, held_out, network(held_out)[:, 0], network


def floor(d, m, n, noise):
    """What least squares from the true network leaves, relative to the variance of f."""
    return noise**2 * m * (d + 1) / n


def relative_error(predicted, target):
    return float(np.mean((predicted - target) ** 2) / np.var(target))


def _right_signs(reg, network):
    """Share of the units that are active on the right side; None where their number is another."""
    if reg.n_units_ != network.layer_widths[0]:
        return None
    return float(np.mean(unit_matching_error(network, reg.network_).signs == 1))


def fit_and_measure(data, **options):
    """Errors on held-out inputs and of the units of the tensor estimate, processor seconds, warnings."""
    X, y, held_out, target, network = data
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.process_time()
        reg = TensorReLURegressor(random_state=0, **options).fit(X, y)
        seconds = time.process_time() - start
    same_size = reg.tensor_estimate_ is not None and reg.tensor_estimate_.layer_widths == network.layer_widths
    return {
        "error": relative_error(reg.predict(held_out), target),
        "tensor_weights": float(unit_matching_error(network, reg.tensor_estimate_).weights) if same_size else None,
        "n_units": reg.n_units_,
        "signs": _right_signs(reg, network),
        "seconds": seconds,
        "warnings": [str(w.message)[:80] for w in caught],
    }
