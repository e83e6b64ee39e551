"""Tensors of orders beyond two: more units than pairs of inputs from samples, and exact tensors of orders 8 and 10."""

from __future__ import annotations

import time
import warnings

import numpy as np
from scipy.optimize import linear_sum_assignment

import seed_ranges
from cases.relu_samples import planted, relative_error
from common import format_table
from registry import part
from skident import TensorReLURegressor
from skident.linalg import n_symmetric_entries
from skident.metrics import unit_matching_error
from skident.samples import population_tensors, units_from_tensors

SIZES = ((2, 4), (3, 8), (4, 12), (5, 16))
ROWS, BAR, COSINE = 40_000, 1e-6, 1e-10
TENSORS = [
    (order, d, share) for order, ds in ((3, (2, 3, 4, 5)), (4, (2, 3, 4))) for d in ds for share in (0.5, 0.7, 0.9)
]
N_TRIALS = 10
FIRST_OF_TENSORS, FIRST_OF_NETWORKS = (seed_ranges.RELU_FIDELITY.start + i for i in (500, 800))
SEEDS_PER_ROW = 10


def _network(d, m, n_units, seed):
    X, y, new, target, network = planted(d, m, ROWS, 0.0, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        reg = TensorReLURegressor(n_units=n_units, random_state=0).fit(X, y)
    seconds, parameters = time.process_time() - start, None
    if reg.n_units_ == m:
        error = unit_matching_error(network, reg.network_)
        wrong = np.any(error.signs < 0)
        parameters = 1.0 if wrong else float(max(error.weights, error.biases, error.output_weights))
    predictions = float(np.sqrt(relative_error(reg.predict(new), target)))
    return {"predictions": predictions, "parameters": parameters, "exact": bool(reg.exact_), "seconds": seconds}


def _tensors(order, d, m, seed):
    rng = np.random.RandomState(seed)
    W = rng.standard_normal((d, m))
    W /= np.linalg.norm(W, axis=0)
    b, a = rng.uniform(-1.0, 1.0, m), rng.choice([-1.0, 1.0], m) * rng.uniform(1.0, 2.0, m)
    tensors, cosines = population_tensors(W, b, a, 2 * order + 2), []
    for method in ("joint", "literal"):
        found = units_from_tensors(tensors, order, n_units=m, method=method, random_state=rng)
        products = np.abs(found.W.T @ W)
        all_found = found.W.shape[1] == m
        cosines.append(1.0 - products[linear_sum_assignment(-products)].min() if all_found else 1.0)
    return [float(one) for one in cosines]


@part("relu", "orders", seeds=seed_ranges.RELU_FIDELITY)
def run(trials, quick):
    n = trials or (1 if quick else N_TRIALS)
    networks, tensors = [], []
    for i, (d, m) in enumerate(SIZES[:2] if quick else SIZES):
        seeds = range(FIRST_OF_NETWORKS + SEEDS_PER_ROW * i, FIRST_OF_NETWORKS + SEEDS_PER_ROW * i + n)
        for given in (True, False):
            found = [_network(d, m, m if given else None, seed) for seed in seeds]
            networks.append({"d": d, "m": m, "given": given, "trials": found})
    for i, (order, d, share) in enumerate(TENSORS[:3] if quick else TENSORS):
        m = int(share * n_symmetric_entries(d, order))
        start = FIRST_OF_TENSORS + SEEDS_PER_ROW * i
        found = [_tensors(order, d, m, seed) for seed in range(start, start + n)]
        tensors.append({"order": order, "d": d, "m": m, "share": share, "trials": found})
    return {"networks": networks, "tensors": tensors}


def tables(result):
    lines = []
    for row in result["networks"]:
        t = row["trials"]
        right = [sum(one[key] is not None and one[key] < BAR for one in t) for key in ("predictions", "parameters")]
        cells = [f"{row['d']}, {row['m']}", "given" if row["given"] else "counted"]
        worst = float(np.median([one["predictions"] for one in t]))
        seconds = float(np.median([one["seconds"] for one in t]))
        lines.append([*cells, len(t), *right, sum(one["exact"] for one in t), worst, seconds])
    header = ["inputs, units", "number of units", "networks", "predictions to 1e-6", "parameters to 1e-6", "exact",
              "relative error of predictions, median", "seconds, median"]  # fmt: skip
    networks = format_table(header, lines)
    lines = []
    for row in result["tensors"]:
        worst = np.max(row["trials"], axis=0)
        met = "pass" if worst.max() <= COSINE else "**FAIL**"
        lines.append([row["order"], row["d"], row["m"], row["share"], len(row["trials"]), *map(float, worst), met])
    header = ["l", "d", "m", "share of the bound", "tensors", "1 - cosine, joint", "1 - cosine, literal", "met"]
    return networks + "\n\n" + format_table(header, lines)
