"""scikit-learn's MLPRegressor on the same samples, the best of ten starts, and boosting."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

import seed_ranges
from cases.relu_samples import FIRST_SEED, fit_and_measure, planted, relative_error
from common import format_table
from registry import part

CASES = ((5, 5, 10**4, 0.0), (10, 10, 10**4, 0.0), (20, 10, 10**4, 0.0), (20, 10, 10**4, 0.1))
N_STARTS = 10
SOLVERS = {
    "lbfgs": {"solver": "lbfgs", "max_iter": 1000, "max_fun": 10**5},
    "adam": {"solver": "adam", "max_iter": 200},
}


def _mlp(data, m, solver, n_starts):
    """The start with the smallest loss on the rows, as somebody would choose who does not know the truth."""
    X, y, held_out, target, _ = data
    start, fits = time.process_time(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for seed in range(n_starts):
            mlp = MLPRegressor(hidden_layer_sizes=(m,), alpha=0.0, tol=1e-10, random_state=seed, **SOLVERS[solver])
            mlp.fit(X, y)
            fits.append((np.mean((mlp.predict(X) - y) ** 2), relative_error(mlp.predict(held_out), target)))
    return {"error": min(fits)[1], "seconds": time.process_time() - start, "all": [e for _, e in fits]}


def _boosting(data):
    X, y, held_out, target, _ = data
    start = time.process_time()
    model = HistGradientBoostingRegressor(random_state=0, max_iter=500).fit(X, y)
    return {"error": relative_error(model.predict(held_out), target), "seconds": time.process_time() - start}


@part("relu", "baselines", seeds=(seed_ranges.RELU, seed_ranges.RELU_ROWS))
def run(trials, quick):
    n_trials, n_starts = trials or (1 if quick else 3), 2 if quick else N_STARTS
    rows = []
    for d, m, n, noise in CASES[:1] if quick else CASES:
        for seed in range(FIRST_SEED, FIRST_SEED + n_trials):
            data = planted(d, m, n, noise, seed)
            row = {"case": [d, m, n, noise], "ours": fit_and_measure(data, n_units=m)}
            row |= {solver: _mlp(data, m, solver, n_starts) for solver in SOLVERS}
            rows.append(row | {"boosting": _boosting(data)})
    return {"rows": rows, "n_starts": n_starts}


def tables(result):
    names = {"ours": "TensorReLURegressor", "lbfgs": "MLPRegressor, lbfgs", "adam": "MLPRegressor, adam",
             "boosting": "boosting"}  # fmt: skip
    cases = {tuple(row["case"]): None for row in result["rows"]}
    lines = []
    for case in cases:
        mine = [row for row in result["rows"] if tuple(row["case"]) == case]
        cells = [
            f"{np.median([r[k]['error'] for r in mine]):.1e} in {np.median([r[k]['seconds'] for r in mine]):.1f} s"
            for k in names
        ]
        lines.append([f"d={case[0]} m={case[1]} n={case[2]} noise {case[3]:g}", *cells])
    title = "Relative MSE on held-out inputs and processor seconds, medians; MLPRegressor: best of"
    return f"{title} {result['n_starts']} starts.\n\n{format_table(['', *names.values()], lines)}"
