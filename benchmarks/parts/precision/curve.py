"""Error against queries: fits to more and more outputs, beside the Cramer-Rao bound of the same queries."""

from __future__ import annotations

import numpy as np

import seed_ranges
from cases.float32_models import Callable32, Case, in_float64, torch_network
from common import format_table
from registry import part
from skident.fitting.robust_polish import robust_polish
from skident.network import FeedforwardNetwork

from .coarse import cramer_rao, error_std
from .fits import held_out_inputs

SHAPES = (
    ("relu", (10, 32, 1)),
    ("tanh", (10, 32, 1)),
    ("relu", (10, 16, 8, 1)),
    ("tanh", (10, 16, 8, 1)),
)
CASES = [
    (activation, widths, outputs)
    for activation, widths in SHAPES
    for outputs in ("float32", "float16", "bfloat16", "4 decimals", "2 decimals", "noise 1e-2")
]
PER_PARAMETER = (3, 10, 30, 100, 300)  # queries over parameters
SEED = seed_ranges.PRECISION.start + 900
START_ERROR = 1e-4  # relative change of the true parameters from which every fit starts: within its basin


def points(activation, widths, outputs, seed):
    """Errors and bounds of fits to 3 to 300 queries per parameter, started beside the true parameters."""
    network, X = torch_network(Case(widths, activation, True, outputs), seed)
    truth = in_float64(network, activation)
    model = Callable32(network, outputs, scale=truth(X).std(), seed=seed)
    rng, F, found = np.random.RandomState(seed), held_out_inputs(X), []
    near = [
        [part * (1.0 + START_ERROR * rng.standard_normal(part.shape)) for part in parts]
        for parts in (truth.weights, truth.biases)
    ]
    start = FeedforwardNetwork(*near, activation, "identity")
    for n in PER_PARAMETER:
        U = np.float32(rng.standard_normal((n * truth.n_parameters, widths[0]))).astype(float)
        Y = np.asarray(model(U), dtype=float)
        std = _measured_std(truth, U, Y) if outputs == "float32" else error_std(outputs, Y, model.scale)
        fit = robust_polish(start, U, Y, std)
        rms = float(np.sqrt(np.mean((fit.network(F) - truth(F)) ** 2)) / truth(F).std())
        bound = cramer_rao(truth, U, F, std)
        found.append({"queries": len(U), "rms": rms, "bound": bound})
    return found


def _measured_std(truth, U, Y):
    """Standard deviation (n, 1) of all errors: sums of float32 numbers round more than the outputs do."""
    return np.full((len(U), 1), np.sqrt(np.mean((Y - truth(U)) ** 2)))


@part("precision", "curve", seeds=seed_ranges.PRECISION)
def run(trials, quick):
    """Every case at every number of queries."""
    rows = []
    for activation, widths, outputs in CASES[:1] if quick else CASES:
        name = f"{activation} {'-'.join(map(str, widths))}, {outputs}"
        rows.append({"name": name, "points": points(activation, widths, outputs, SEED)})
        print(rows[-1], flush=True)
    return {"rows": rows}


def tables(result):
    """Error over bound at every number of queries, and both at the largest."""
    header = ["outputs", *(f"{n} per parameter" for n in PER_PARAMETER), "last error", "last bound"]
    rows = []
    for row in result["rows"]:
        last = row["points"][-1]
        rows.append([row["name"], *(p["rms"] / p["bound"] for p in row["points"]), last["rms"], last["bound"]])
    return format_table(header, rows)
