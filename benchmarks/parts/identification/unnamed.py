"""Units whose activation has no name: networks recovered with a table of it; units with slow tails, refused by name."""

from __future__ import annotations

import time

import numpy as np
from scipy.special import erf

import seed_ranges
from common import format_table
from registry import part
from skident import NetworkIdentifier
from skident.metrics import relative_max_error
from skident.oracle import NotIdentified

TOL = 1e-9
ACTIVATIONS = {
    "x Phi(1.3 x) + 0.1 x exp(-x^2)": lambda z: 0.5 * z * (1 + erf(1.3 * z / 2**0.5)) + 0.1 * z * np.exp(-z * z),
    "softplus(x) + 0.3 exp(-x^2 / 2)": lambda z: np.logaddexp(0.0, z) + 0.3 * np.exp(-0.5 * z * z),
    "mean of GELU and softplus": lambda z: 0.25 * z * (1 + erf(z / 2**0.5)) + 0.5 * np.logaddexp(0.0, z),
    "softsign": lambda z: z / (1 + np.abs(z)),
}
SHAPES = ((8, 16, 2), (10, 32, 1))
N_NETWORKS = 10


def network_of(g, shape, seed):
    """A random network of an activation, and samples."""
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal(pair) / np.sqrt(pair[0]) for pair in zip(shape, shape[1:])]
    biases = [0.5 * rng.standard_normal(m) for m in shape[1:]]

    def outputs(X):
        return g(X @ weights[0] + biases[0]) @ weights[1] + biases[1]

    return outputs, rng.standard_normal((500, shape[0]))


def _trial(name, shape, seed):
    outputs, X = network_of(ACTIVATIONS[name], shape, seed)
    began, record = time.process_time(), {"refused": "", "error": None, "exact": False, "queries": None}
    try:
        model = NetworkIdentifier(outputs, random_state=0, max_seconds=120).fit(X)
    except NotIdentified as error:
        record["refused"] = "slow tails" if "slow tails" in str(error) else str(error)[:200]
    else:
        U = np.random.default_rng(seed + 10 * N_NETWORKS * len(SHAPES)).standard_normal((3000, shape[0]))
        U = np.concatenate([U, 100.0 * U])
        record |= {"error": relative_max_error(outputs(U), model.network_(U)), "exact": bool(model.report_.exact)}
        record["queries"] = model.n_queries_
    return record | {"seconds": time.process_time() - began}


@part("identification", "unnamed", seeds=seed_ranges.UNNAMED)
def run(trials, quick):
    n, rows, seed = trials or (1 if quick else N_NETWORKS), [], seed_ranges.UNNAMED.start
    for name in ACTIVATIONS:
        for shape in SHAPES:
            found = [_trial(name, shape, seed + i) for i in range(n)]
            rows.append({"activation": name, "shape": list(shape), "trials": found})
            seed += N_NETWORKS
    return {"rows": rows}


def tables(result):
    lines = []
    for row in result["rows"]:
        t = row["trials"]
        errors, queries = ([one[key] for one in t if one[key] is not None] for key in ("error", "queries"))
        false = sum(one["exact"] and one["error"] > TOL for one in t)
        seconds = f"{np.median([one['seconds'] for one in t]):.1f}"
        worst, median = (f"{max(errors):.0e}", f"{int(np.median(queries)):,}") if errors else ("", "")
        counts = [sum(error <= TOL for error in errors), false, sum(one["refused"] == "slow tails" for one in t)]
        lines.append([row["activation"], "-".join(map(str, row["shape"])), len(t), *counts, worst, median, seconds])
    header = ["activation", "widths", "networks", "recovered to 1e-9", "false exact", "refused: slow tails",
              "largest error", "median queries", "seconds"]  # fmt: skip
    return format_table(header, lines)
