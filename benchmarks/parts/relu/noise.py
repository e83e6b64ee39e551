"""Noise of 5 and 30 %, unknown number of units: errors against the floor, and tests for a missing unit."""

from __future__ import annotations

import time
import warnings

import numpy as np

import seed_ranges
from cases.relu_samples import floor, relative_error
from common import format_table
from registry import part
from skident import TensorReLURegressor
from skident.datasets import make_relu_network

NOISES = (0.05, 0.3)
BAR, LEVEL, N_SIMULATIONS = 1.5, 0.05, 39
N_HELD_OUT, SEEDS_PER_ROW = 20_000, 20
SHAPES = [  # inputs, d, m, samples, networks
    ("Gaussian", 10, 8, 10_000, 10),
    ("Gaussian", 5, 10, 10_000, 10),
    ("Gaussian", 8, 16, 10_000, 10),
    ("Gaussian", 6, 12, 10_000, 10),
    ("Gaussian", 30, 30, 10_000, 10),
    ("lognormal", 8, 6, 10_000, 10),
    ("correlated", 8, 6, 10_000, 10),
]
MORE_ROWS = {(30, 30, 0.3): 30_000}  # (d, m, noise): with 10,000, ten per parameter, fits end in other minima


def _inputs(kind, n, d, rng):
    """Inputs (n, d) of mean 0 and variance 1; correlations ``0.8^|i - j|``."""
    Z = rng.standard_normal((n, d))
    if kind == "lognormal":
        return (np.exp(Z) - np.exp(0.5)) / np.sqrt(np.exp(2.0) - np.exp(1.0))
    if kind == "correlated":
        return Z @ np.linalg.cholesky(0.8 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))).T
    return Z


def _tangents(network, X):
    """Derivatives (n, P) of the outputs with respect to all weights, biases and the intercept."""
    active = X @ network.weights[0] + network.biases[0] > 0
    Z = np.column_stack([X, np.ones(len(X))])
    blocks = [Z * active[:, i : i + 1] * a for i, a in enumerate(network.weights[1][:, 0])]
    return np.hstack([*blocks, np.ones((len(X), 1))])


def _from_truth(network, X, errors, held_out, variance):
    """Relative error to which least squares from the true network come, to first order."""
    step = np.linalg.lstsq(_tangents(network, X), errors, rcond=1e-12)[0]
    return float(np.mean((_tangents(network, held_out) @ step) ** 2) / variance)


def _trial(kind, d, m, n, noise, seed):
    network, rng = make_relu_network(1, d, m, random_state=seed)[2], np.random.default_rng(seed)
    X, held_out = _inputs(kind, n, d, rng), _inputs(kind, N_HELD_OUT, d, rng)
    values, target = network(X)[:, 0], network(held_out)[:, 0]
    errors = noise * values.std() * rng.standard_normal(n)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.process_time()
        reg = TensorReLURegressor(random_state=0).fit(X, values + errors)
        seconds = time.process_time() - start
    right, p_value = reg.n_units_ == m, None
    if not right:
        p_value = reg.missing_unit_test(X, values + errors, n_simulations=N_SIMULATIONS).p_value
    return {
        "seed": seed,
        "ratio": relative_error(reg.predict(held_out), target) / floor(d, m, n, noise),
        "from_truth": _from_truth(network, X, errors, held_out, target.var()) / floor(d, m, n, noise),
        "n_units": reg.n_units_,
        "p_value": p_value,
        "seconds": seconds,
        "warnings": [str(w.message)[:80] for w in caught],
    }


@part("relu", "noise", seeds=seed_ranges.RELU_NOISE)
def run(trials, quick):
    rows = []
    for r, (kind, d, m, n, number) in enumerate(SHAPES[:1] if quick else SHAPES):
        for s, noise in enumerate(NOISES):
            rows_here = MORE_ROWS.get((d, m, noise), n)
            first = seed_ranges.RELU_NOISE.start + SEEDS_PER_ROW * (2 * r + s)
            seeds = range(first, first + (1 if quick else min(trials or number, number)))
            row = {"inputs": kind, "d": d, "m": m, "n": rows_here, "noise": noise}
            rows.append(row | {"trials": [_trial(kind, d, m, rows_here, noise, seed) for seed in seeds]})
            print(_row(rows[-1]), flush=True)
    return {"rows": rows}


def _row(row):
    trials = row["trials"]
    ratios, n = np.array([t["ratio"] for t in trials]), len(trials)
    right = sum(t["n_units"] == row["m"] for t in trials)
    said = sum(t["n_units"] < row["m"] and t["p_value"] <= LEVEL for t in trials)
    return [
        row["inputs"], f"({row['d']}, {row['m']})", row["n"], row["noise"], f"{np.sum(ratios <= BAR)} of {n}",
        float(np.median(ratios)), float(ratios.max()), float(max(t["from_truth"] for t in trials)),
        f"{right} of {n}", said, sum(t["n_units"] > row["m"] for t in trials), max(t["seconds"] for t in trials),
    ]  # fmt: skip


def tables(result):
    header = [
        "inputs", "(d, m)", "rows", "noise", f"within {BAR} floors", "error / floor, median", "max",
        "from the truth, max", "m right", "fewer, p <= 0.05", "more", "s, max",
    ]  # fmt: skip
    return format_table(header, [_row(row) for row in result["rows"]])
