"""Test for a missing unit: false alarms of fits that lack none, and power against the size of the missing unit."""

from __future__ import annotations

import time
import warnings

import numpy as np
from scipy.stats import ncx2, norm

import seed_ranges
from common import format_table
from registry import part
from skident import TensorReLURegressor
from skident.datasets import make_relu_network

D, M, ROWS, NOISE = 4, 3, 400, 0.3
LEVEL, N_SIMULATIONS = 0.05, 39
N_FITS, N_POWER = 400, 50
SIZES = (3, 15, 30, 3 * M * (D + 1), 90)  # errors that a missing unit adds, in noise variances over samples
FIRST_OF_POWER, SEEDS_PER_SIZE = 400, 100


def _p_value(seed, size):
    """P-value of a fit with the true number of units to samples in which one further unit adds an error of `size`."""
    X, _, network = make_relu_network(ROWS, D, M, random_state=seed)
    rng = np.random.default_rng(seed)
    clean = network(X)[:, 0]
    sigma = NOISE * clean.std()
    if size:
        clean = clean + _further_unit(network, X, rng) * sigma * np.sqrt(size)
    y = clean + sigma * rng.standard_normal(ROWS)
    reg = TensorReLURegressor(n_units=M, random_state=0).fit(X, y)
    return reg.missing_unit_test(X, y, n_simulations=N_SIMULATIONS).p_value


def _further_unit(network, X, rng):
    """Outputs (n,) of a random unit; their part beyond the tangent space of the network has norm 1."""
    w = rng.standard_normal(D)
    outputs = np.maximum(X @ w / np.linalg.norm(w) + rng.uniform(-1, 1), 0.0)
    active = X @ network.weights[0] + network.biases[0] > 0
    Z = np.column_stack([X, np.ones(len(X))])
    tangents = np.hstack([Z, *[Z * active[:, i : i + 1] for i in range(M)]])
    beyond = outputs - tangents @ np.linalg.lstsq(tangents, outputs, rcond=1e-12)[0]
    return outputs / np.linalg.norm(beyond)


def _rate(seeds, size):
    start, p_values = time.process_time(), []
    for seed in seeds:
        p_values.append(_p_value(seed, size))
    seconds = (time.process_time() - start) / len(p_values)
    row = {"size": size, "number": len(p_values), "rejected": float(np.mean(np.array(p_values) <= LEVEL))}
    print(row, f"{seconds:.2f} s", flush=True)
    return row | {"seconds": seconds}


@part("relu", "missing_unit", seeds=seed_ranges.RELU_MISSING_UNIT)
def run(trials, quick):
    first = seed_ranges.RELU_MISSING_UNIT.start
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "a further unit would pay" is what is measured
        rows = [_rate(range(first, first + (3 if quick else N_FITS)), 0)]
        for k, size in enumerate(SIZES[-1:] if quick else SIZES):
            start = first + FIRST_OF_POWER + SEEDS_PER_SIZE * k
            rows.append(_rate(range(start, start + (2 if quick else trials or N_POWER)), size))
    return {"rows": rows}


def _best_power(size):
    """Power of the most powerful two-sided test if the missing unit were known up to its output weight."""
    return float(ncx2.sf(norm.ppf(1 - LEVEL / 2) ** 2, 1, size)) if size else LEVEL


def tables(result):
    header = [
        "error added, in noise variance / N",
        "fits",
        "p <= 0.05",
        "best possible, unit known",
        "s per fit and test",
    ]
    rows = [[r["size"], r["number"], r["rejected"], _best_power(r["size"]), r["seconds"]] for r in result["rows"]]
    said = (
        f"d = {D}, {M} units, {ROWS} samples, noise {NOISE}; P = {M * (D + 1)}, so three floors are {3 * M * (D + 1)}."
    )
    return f"{said}\n\n{format_table(header, rows)}"
