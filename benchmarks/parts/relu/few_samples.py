"""Few samples with noise: d = 10, five units, against ten starts of MLPRegressor with the best penalty and k given."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

import seed_ranges
from common import format_table
from registry import part
from skident import TensorReLURegressor

D, K, TEACHERS, STARTS, N_HELD_OUT = 10, 5, 10, 10, 4000
OFFSET = 900  # within the range of seeds
CELLS = [(n, noise, scale) for n in (120, 250, 500) for noise in (0.1, 0.3) for scale in (1.0, 0.3)]
ALPHAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # for weights and outputs of scale 1


def planted(seed, n, noise, scale):
    """Samples with noise, held-out inputs, their values, and the variance of these."""
    rng = np.random.default_rng(seed)
    W, b = scale * rng.standard_normal((D, K)), rng.uniform(-1.0, 1.0, K)
    a = scale * rng.choice([-1.0, 1.0], K) * rng.uniform(0.5, 1.5, K)
    X, held_out = rng.standard_normal((n, D)), rng.standard_normal((N_HELD_OUT, D))
    values, target = (np.maximum(Z @ W + b, 0.0) @ a for Z in (X, held_out))
    return X, values + noise * target.std() * rng.standard_normal(n), held_out, target


def _perceptron(X, y, held_out, target, alpha):
    """Error of the start with the least penalized loss on the samples."""
    fits = []
    for seed in range(STARTS):
        mlp = MLPRegressor(hidden_layer_sizes=(K,), solver="lbfgs", alpha=alpha, max_iter=400, random_state=seed)
        mlp.fit(X, y)
        penalty = alpha * sum(np.sum(w**2) for w in mlp.coefs_) / len(X)
        loss, error = np.mean((mlp.predict(X) - y) ** 2) + penalty, np.mean((mlp.predict(held_out) - target) ** 2)
        fits.append((loss, error / target.var()))
    return float(min(fits)[1])


def _trial(seed, n, noise, scale):
    X, y, held_out, target = planted(seed, n, noise, scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        start = time.process_time()
        reg = TensorReLURegressor(random_state=0).fit(X, y)
        seconds = time.process_time() - start
        references = [_perceptron(X, y, held_out, target, alpha * (scale if scale == 1.0 else 0.1)) for alpha in ALPHAS]
    error = float(np.mean((reg.predict(held_out) - target) ** 2) / target.var())
    return {"error": error, "n_units": reg.n_units_, "seconds": seconds, "references": references}


@part("relu", "few_samples", seeds=seed_ranges.RELU_FIDELITY)
def run(trials, quick):
    rows = []
    for n, noise, scale in CELLS[:1] if quick else CELLS:
        seeds = range(seed_ranges.RELU_FIDELITY.start + OFFSET, seed_ranges.RELU_FIDELITY.stop)
        count = trials or (1 if quick else TEACHERS)
        row = {"n": n, "noise": noise, "scale": scale}
        rows.append(row | {"trials": [_trial(seed, n, noise, scale) for seed in seeds[:count]]})
        print(_row(rows[-1]), flush=True)
    return {"rows": rows}


def _row(row):
    ours = float(np.median([t["error"] for t in row["trials"]]))
    reference = float(np.min(np.median([t["references"] for t in row["trials"]], axis=0)))
    units = float(np.median([t["n_units"] for t in row["trials"]]))
    seconds = max(t["seconds"] for t in row["trials"])
    return [row["n"], row["noise"], row["scale"], ours, reference, ours / reference, units, seconds]


def tables(result):
    header = ["samples", "noise", "scale", "error, median", "MLPRegressor", "ratio", "units, median", "s, max"]
    return format_table(header, [_row(row) for row in result["rows"]])
