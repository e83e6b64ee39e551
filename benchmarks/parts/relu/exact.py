"""Decomposition of exact tensors, whose only error is rounding."""

from __future__ import annotations

import math
import time

import numpy as np

import seed_ranges
from cases.relu_samples import FIRST_SEED
from common import format_table
from registry import part
from skident.metrics import unit_matching_error
from skident.samples import population_tensors, units_from_tensors

CASES = [  # order, d, m, range of biases, bar
    *((1, d, d, reach, 1e-8) for d in (5, 10, 20, 30) for reach in (1.0, 4.0)),
    *((2, d, math.floor(0.99 * d * (d + 1) / 2), 1.0, 1e-6) for d in (5, 12, 20)),
]
N_TRIALS = 10


def _trial(order, d, m, reach, seed):
    rng = np.random.RandomState(seed)
    W = rng.standard_normal((d, m))
    W /= np.linalg.norm(W, axis=0)
    b, a = rng.uniform(-reach, reach, m), rng.choice([-1.0, 1.0], m) * rng.uniform(1.0, 2.0, m)
    tensors = population_tensors(W, b, a, 2 * order + 2)
    start = time.process_time()
    if order == 1:
        found = units_from_tensors(tensors, random_state=rng)
    else:
        found = units_from_tensors(tensors, 2, n_units=m, random_state=rng)
    seconds = time.process_time() - start
    error = unit_matching_error((W, b, a), (found.W, found.b, found.a))
    wrong = int(np.sum(error.signs < 0)) if order == 1 else None
    return {"weights": error.weights, "biases": error.biases, "output": error.output_weights, "wrong_signs": wrong,
            "seconds": seconds}  # fmt: skip


@part("relu", "exact", seeds=seed_ranges.RELU)
def run(trials, quick):
    n_trials, rows = trials or (2 if quick else N_TRIALS), []
    for order, d, m, reach, bar in CASES[:2] if quick else CASES:
        found = [_trial(order, d, m, reach, seed) for seed in range(FIRST_SEED, FIRST_SEED + n_trials)]
        rows.append({"order": order, "d": d, "m": m, "reach": reach, "bar": bar, "trials": found})
    return {"rows": rows}


def tables(result):
    lines = []
    for row in result["rows"]:
        t = row["trials"]
        worst = [max(x[k] for x in t) for k in ("weights", "biases", "output", "seconds")]
        signs = "open" if t[0]["wrong_signs"] is None else sum(x["wrong_signs"] for x in t)
        met = "pass" if worst[0] <= row["bar"] else "**FAIL**"
        cells = [row["order"], row["d"], row["m"], row["reach"], len(t), row["bar"]]
        lines.append([*cells, *worst[:3], signs, worst[3], met])
    header = ["order", "d", "m", "biases up to", "networks", "bar", "weights, worst", "biases", "output weights",
              "wrong signs", "seconds", "met"]  # fmt: skip
    return format_table(header, lines)
