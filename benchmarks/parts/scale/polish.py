"""Fits of all parameters from relative errors of 1e-8: to Jacobians, and to outputs without and with dense matrices."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np

from common import format_table
from parts.scale.networks import SEEDS, Row
from registry import part
from skident.fitting.design import design_points
from skident.fitting.polish import polish_network
from skident.identification.piecewise.several_outputs.jacobian_polish import polished_on_jacobians
from skident.identification.piecewise.several_outputs.shared_jacobians import Space

START = 1e-8  # relative error of a weight
ROUNDING = 1e-15  # of the outputs, over the largest
OUTPUTS = 4.0  # per parameter
MATRIX_FREE = 3000  # parameters beyond which no dense matrix is formed
FIRST, FIRST_QUICK = 940, 960  # seeds, after the first of the range
# Shapes, the second with the parameters that 784-128-64-10 has within the span of its first layer; with dense matrices?
CASES = (((64, 32, 32, 10), True), ((64, 48, 48, 10), True), ((128, 128, 64, 10), False))


@part("scale", "polish", seeds=SEEDS)
class Polish:
    """Errors, queries, seconds and memory per kind of fit."""

    @staticmethod
    def run(trials, quick):
        """One network per shape."""
        cases = [((16, 12, 8, 4), True)] if quick else CASES
        first = SEEDS.start + (FIRST_QUICK if quick else FIRST)
        return {"rows": [row for k, case in enumerate(cases) for row in _measured(*case, first + k)]}

    @staticmethod
    def tables(result):
        """One row per fit."""
        head = ["network", "parameters", "fit", "error before", "error", "queries", "s", "MB"]
        keys = ["network", "parameters", "fit", "before", "error", "queries", "seconds", "mb"]
        return format_table(head, [[row[key] for key in keys] for row in result["rows"]])


def _measured(widths, dense, seed):
    truth, _ = Row(widths).network(seed)
    rng = np.random.RandomState(seed)
    near = truth.with_parameters(
        *[[A * (1.0 + START * rng.standard_normal(A.shape)) for A in parts] for parts in (truth.weights, truth.biases)]
    )
    rows = []
    for name in ("Jacobians", "outputs", *(["outputs, dense matrices"] if dense else [])):
        box = _Counted(truth)
        tracemalloc.start()
        began = time.process_time()
        found = _to_jacobians(box, near) if name == "Jacobians" else _to_outputs(box, near, dense=name != "outputs")
        seconds, mb = time.process_time() - began, tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        measured = {"before": _error(near, truth), "error": _error(found, truth), "queries": box.n_queries}
        shape = {"network": "-".join(map(str, widths)), "parameters": truth.n_parameters, "fit": name}
        rows.append({**shape, **measured, "seconds": seconds, "mb": mb})
        print(rows[-1], flush=True)
    return rows


class _Counted:
    def __init__(self, network):
        self.network, self.n_queries = network, 0

    def __call__(self, X):
        self.n_queries += len(X)
        return self.network(X)


def _to_jacobians(box, near):
    D, size = near.n_inputs, np.abs(near(np.eye(near.n_inputs))).max()
    space = Space(box, D, np.full(near.n_outputs, ROUNDING * size), np.sqrt(D))
    return polished_on_jacobians(space, near, np.random.RandomState(0))


def _to_outputs(box, near, dense):
    n, limit = int(OUTPUTS * near.n_parameters / near.n_outputs), near.n_parameters if dense else MATRIX_FREE
    X = design_points(near.weights[0], near.biases[0], n, 1.0, np.random.RandomState(0), 0.5)
    return polish_network(near, X, box(X), max_iter=3, dense_limit=limit, factor_limit=limit)[0]


def _error(network, truth):
    X = 3.0 * np.random.RandomState(9).standard_normal((4000, truth.n_inputs))
    Y = truth(X)
    return float(np.abs(network(X) - Y).max() / Y.std(axis=0).max())
