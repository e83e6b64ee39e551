"""Half precision, decimals and noise: widths, and errors against the Cramer-Rao bound of the queries made."""

from __future__ import annotations

import numpy as np

import seed_ranges
from cases.float32_models import Callable32, Case, in_float64, torch_network
from common import format_table
from registry import part
from skident.fitting.standard_errors import parameter_jacobian

from .fits import held_out_inputs, measured_fit

NETWORKS, QUICK = 10, 1
BAR, MAX_RATIO = 8, 5.0
SECONDS = 300.0  # of wall time per fit, on a machine that may be shared
OUTPUTS = ("float16", "bfloat16", "2 decimals", "4 decimals", "noise 1e-3", "noise 1e-2")
WIDTHS, ACTIVATIONS = (10, 32, 1), ("relu", "tanh")
FIRST = seed_ranges.PRECISION.start + 600
UNIFORM = 12.0**-0.5  # standard deviation of rounding over the spacing
SPACING = {"float16": 2.0**-10, "bfloat16": 2.0**-7}  # relative
CHUNK = 20_000  # rows of a Jacobian at a time


class Recorded(Callable32):
    """A callable that keeps the inputs of its queries in `inputs`."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.inputs = []

    def __call__(self, X):
        """Outputs (n, m_L) at inputs (n, D)."""
        self.inputs.append(np.array(X, dtype=np.float32))
        return super().__call__(X)


def error_std(outputs, Y, scale):
    """Standard deviation (n, m_L) of the errors of outputs Y in a format."""
    if outputs in SPACING:
        return UNIFORM * SPACING[outputs] * 2.0 ** np.floor(np.log2(np.maximum(np.abs(Y), 1e-30)))
    kind, value = outputs.split() if outputs.startswith("noise") else reversed(outputs.split())
    return np.full(Y.shape, float(value) * scale if kind == "noise" else UNIFORM * 10.0 ** -int(value))


def cramer_rao(truth, X, F, std):
    """Root mean square error on inputs F (k, D) of the best unbiased estimate from queries X (n, D), over the spread.

    `std` (n, 1) is the standard deviation of the outputs' errors.

    The information matrix is inverted on the parameters that the outputs determine: a scale per ReLU unit is free.
    """
    information = np.zeros((truth.n_parameters,) * 2)
    for start in range(0, len(X), CHUNK):
        rows = slice(start, start + CHUNK)
        J = parameter_jacobian(truth, X[rows].astype(float)) / std[rows]
        information += J.T @ J
    size = 1.0 / np.sqrt(np.maximum(np.diag(information), 1e-300))
    values, vectors = np.linalg.eigh(information * size * size[:, None])
    kept = values > 1e-11 * values[-1]
    J = parameter_jacobian(truth, F) * size
    return float(np.sqrt(np.mean(np.sum((J @ vectors[:, kept]) ** 2 / values[kept], axis=1))) / truth(F).std())


def trial(activation, outputs, seed, widths=WIDTHS):
    """One network, every other one trained, with its Cramer-Rao bound and the ratio of its error to that."""
    case = Case(widths, activation, seed % 2 == 1, outputs)
    network, X = torch_network(case, seed)
    truth = in_float64(network, activation)
    model = Recorded(network, outputs, scale=truth(X).std(), seed=seed)
    result = {"seed": seed} | measured_fit(model, X, truth, seconds=SECONDS)
    if result["error"] is not None:
        rows = np.concatenate(model.inputs)
        bound = cramer_rao(truth, rows, held_out_inputs(X), error_std(outputs, truth(rows.astype(float)), model.scale))
        result |= {"bound": bound, "ratio": result["rms"] / bound}
    print(case.name, result, flush=True)
    return result


@part("precision", "coarse", seeds=seed_ranges.PRECISION)
def run(trials, quick):
    """Every activation and format."""
    n, rows = QUICK if quick else trials or NETWORKS, []
    kinds = [(activation, outputs) for activation in ACTIVATIONS for outputs in OUTPUTS]
    for i, (activation, outputs) in enumerate(kinds[:1] if quick else kinds):
        done = [trial(activation, outputs, FIRST + 20 * i + k) for k in range(n)]
        rows.append({"activation": activation, "outputs": outputs, "trials": done})
    return {"rows": rows}


def tables(result):
    """Successes and ratios to the Cramer-Rao bound; bars in parentheses."""
    rows = []
    for row in result["rows"]:
        found = [t for t in row["trials"] if t["error"] is not None]
        good = [t for t in found if t["right"] and t["ratio"] <= MAX_RATIO]
        known = sum(t["with_stderr"] for t in found)
        rows.append(
            [
                f"{row['activation']}, {row['outputs']}",
                f"{sum(t['right'] for t in found)} of {len(row['trials'])} ({BAR})",
                f"{len(good)} of {len(row['trials'])} ({BAR})",
                float(np.median([t["ratio"] for t in found])) if found else None,
                float(np.median([t["error"] for t in found])) if found else None,
                float(np.median([t["seconds"] for t in row["trials"]])),
                f"{int(np.median([t['queries'] for t in row['trials']])):,}",
                sum(t["covered"] for t in found) / known if known else None,
            ]
        )
    header = [
        "outputs",
        "widths",
        "error at most 5 x bound",
        "median ratio",
        "median error",
        "s",
        "queries",
        "coverage",
    ]
    return format_table(header, rows)
