"""Test for a missing unit: false alarms of fits that lack none, and power against the size of the missing unit.

Beside it, on the same samples and with the true network and the noise known, two tests that no other one surpasses: for
a missing unit that is known up to its output weight, the test of its coefficient; for one of which only the
distribution is known, the likelihood ratio, averaged over this distribution (Neyman-Pearson).
"""

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
SIZES = (3, 6, 12, 24, 48, 96)  # errors that a missing unit adds, in noise variances over samples
N_UNITS, N_NULL = 2000, 399  # of the averaged likelihood ratio: further units, and draws of its law without one
FIRST_OF_POWER, SEEDS_PER_SIZE = 400, 100


def _rejections(seed, size):
    """Whether a further unit that adds an error of `size` is detected: by the test after a fit, and by the best ones.

    The fit has the true number of units without the further one.
    """
    X, _, network = make_relu_network(ROWS, D, M, random_state=seed)
    rng = np.random.default_rng(seed)
    clean = network(X)[:, 0]
    sigma = NOISE * clean.std()
    basis = _tangents(network, X)
    unit = _further_units(basis, X, 1, rng)
    noise = sigma * rng.standard_normal(ROWS)
    y = clean + unit[0][:, 0] * sigma * np.sqrt(size) + noise
    reg = TensorReLURegressor(n_units=M, random_state=0).fit(X, y)
    p_value = reg.missing_unit_test(X, y, n_simulations=N_SIMULATIONS).p_value
    return p_value <= LEVEL, *_best_possible(basis, X, unit[1][:, 0], (y - clean) / sigma, size, rng)


def _further_units(basis, X, number, rng):
    """Outputs (n, number) of random units, and their parts beyond the tangent space; these have norm 1."""
    w = rng.standard_normal((D, number))
    outputs = np.maximum(X @ (w / np.linalg.norm(w, axis=0)) + rng.uniform(-1, 1, number), 0.0)
    beyond = outputs - basis @ (basis.T @ outputs)
    size = np.linalg.norm(beyond, axis=0)
    return outputs / size, beyond / size


def _tangents(network, X):
    """Orthonormal basis of the derivatives of a network."""
    active = X @ network.weights[0] + network.biases[0] > 0
    Z = np.column_stack([X, np.ones(len(X))])
    U, S, _ = np.linalg.svd(np.hstack([Z, *[Z * active[:, i : i + 1] for i in range(M)]]), full_matrices=False)
    return U[:, S > 1e-9 * S[0]]


def _best_possible(basis, X, unit, errors, size, rng):
    """Whether the best tests reject, the unit known and unknown; errors are noise of variance 1, and it."""
    known = abs(unit @ errors) > norm.ppf(1 - LEVEL / 2)
    units = _further_units(basis, X, N_UNITS, rng)[1]
    draws = np.column_stack([errors, rng.standard_normal((ROWS, N_NULL))])
    ratios = np.mean(np.cosh(np.sqrt(size) * (units.T @ draws)), axis=0)
    return bool(known), bool((1 + np.sum(ratios[1:] >= ratios[0])) <= LEVEL * (1 + N_NULL))


def _rate(seeds, size):
    start, rejected = time.process_time(), []
    for seed in seeds:
        rejected.append(_rejections(seed, size))
    seconds = (time.process_time() - start) / len(rejected)
    rates = np.mean(rejected, axis=0)
    row = {"size": size, "number": len(rejected), "rejected": rates[0], "known": rates[1], "unknown": rates[2]}
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
        "error added, in noise variance / N", "fits", "p <= 0.05", "best test, unit unknown", "best test, unit known",
        "the same, computed", "s per fit and tests",
    ]  # fmt: skip
    rows = [
        [r["size"], r["number"], r["rejected"], r.get("unknown") if r["size"] else None, r.get("known"),
         _best_power(r["size"]), r["seconds"]] for r in result["rows"]
    ]  # fmt: skip
    said = f"d = {D}, {M} units, {ROWS} samples, noise {NOISE}; the floor is {M * (D + 1)} in these units."
    return f"{said}\n\n{format_table(header, rows)}"
