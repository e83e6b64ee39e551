"""Table 2 of Fiedler et al.: errors of the entangled weights of the first and last layer."""

from __future__ import annotations

import warnings

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from common import Countdown, format_table, unit_inputs
from registry import part
from skident import EntangledWeightExtractor
from skident.datasets import make_pyramidal_network
from skident.metrics import assignment_error, recovery_rate

N_INPUTS, N_OUTPUTS = 50, 10
FIRST_SEED = seed_ranges.TABLE_2.start
COLUMNS = ((2, 1.0), (3, 0.6), (3, 0.8), (3, 1.0), (4, 0.6), (4, 0.8), (4, 1.0))  # layers, contraction
# (E_1, E_L) of Table 2, a pair a column.
PAPER = {
    100: ((0.02, 0.01), (0.01, 0.01), (0.03, 0.01), (0.02, 0.01), (0.02, 0.05), (0.03, 0.02), (0.03, 0.02)),
    120: ((0.01, 0.00), (0.02, 0.01), (0.02, 0.01), (0.02, 0.01), (0.03, 0.02), (0.03, 0.03), (0.02, 0.02)),
    140: ((0.01, 0.00), (0.02, 0.07), (0.02, 0.02), (0.02, 0.01), (0.02, 0.02), (0.04, 0.04), (0.03, 0.02)),
    160: ((0.01, 0.00), (0.02, 0.01), (0.02, 0.01), (0.02, 0.01), (0.03, 0.02), (0.03, 0.03), (0.04, 0.03)),
    180: ((0.01, 0.00), (0.02, 0.01), (0.02, 0.02), (0.02, 0.01), (0.03, 0.02), (0.03, 0.02), (0.03, 0.04)),
    200: ((0.01, 0.00), (0.02, 0.01), (0.02, 0.01), (0.02, 0.02), (0.03, 0.03), (0.03, 0.02), (0.03, 0.02)),
}
# The Jacobian at x* is read the same way whichever route the first layer takes, so it is measured once.
ROUTES = {
    "hessian": {"first_layer": "hessian", "last_layer": "hessian"},
    "saturation": {"first_layer": "saturation", "last_layer": "jacobian"},
}


def _trial(n_neurons, n_layers, contraction, seed, route):
    """(E_1, E_L, recovery) of one network; its widths without the output layer sum to n_neurons, as in the paper."""
    network = make_pyramidal_network(
        N_INPUTS, n_layers, N_OUTPUTS, n_neurons + N_OUTPUTS, contraction=contraction, random_state=seed
    )
    center = np.zeros(N_INPUTS)
    extractor = EntangledWeightExtractor(
        network, layer_widths=network.layer_widths, center=center, random_state=seed, **ROUTES[route]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        extractor.fit(unit_inputs(N_INPUTS))
    true = network.entangled_weights(center)
    layer = extractor.layer_assignment_
    return (
        assignment_error(true[0].T, extractor.components_[layer == 0]),
        assignment_error(true[-1].T, extractor.components_[layer == n_layers - 1]),
        recovery_rate(np.hstack(true).T, extractor.components_),
    )


def _row(m, layers, contraction, errors):
    """Means and worst cases of (route, trial, error) beside the paper's numbers."""
    row = {"m": m, "layers": layers, "contraction": contraction}
    row["paper"] = PAPER[m][COLUMNS.index((layers, contraction))]
    for name, table in zip(ROUTES, errors, strict=True):
        row[name] = dict(zip(("E_1", "E_L", "recovery"), table.mean(axis=0), strict=True))
        row[name] |= dict(zip(("worst_E_1", "worst_E_L"), table.max(axis=0)[:2], strict=True))
    return row


@part("entangled_weights", "table2", seeds=seed_ranges.TABLE_2)
def run(trials=None, quick=False):
    """Every row and column that time allows; processes share the cores, so nothing here is timed."""
    trials = trials or (1 if quick else 5)
    sizes = (100,) if quick else tuple(PAPER)
    columns = COLUMNS[1:2] if quick else COLUMNS
    left, rows = Countdown(480), []
    with Parallel(n_jobs=2) as parallel:
        for m in sizes:
            if left.over:
                break
            jobs = [
                (m, *column, FIRST_SEED + t, route) for column in columns for route in ROUTES for t in range(trials)
            ]
            errors = np.array(parallel(delayed(_trial)(*job) for job in jobs))
            errors = errors.reshape(len(columns), len(ROUTES), trials, 3)
            rows += [_row(m, *column, table) for column, table in zip(columns, errors, strict=True)]
            print(f"table 2: m={m} done", flush=True)
    return {"trials": trials, "complete": len(rows) == len(sizes) * len(columns), "rows": rows}


def tables(result):
    header = ["m", "L", "c", "E_1 paper", "E_1 Hessians", "E_1 saturation", "E_L paper", "E_L Alg. 5"]
    header += ["E_L Jacobian", "worst E_1 Hessians", "worst E_L Alg. 5", "recovery Hessians"]
    rows = []
    for r in result["rows"]:
        by_hessian, by_saturation = r["hessian"], r["saturation"]
        line = [r["m"], r["layers"], r["contraction"], r["paper"][0], by_hessian["E_1"], by_saturation["E_1"]]
        line += [r["paper"][1], by_hessian["E_L"], by_saturation["E_L"]]
        rows.append([*line, by_hessian["worst_E_1"], by_hessian["worst_E_L"], by_hessian["recovery"]])
    note = "" if result["complete"] else "\n\nThe time ran out before the table was complete."
    return format_table(header, rows) + f"\n\nMeans over {result['trials']} networks; the worst beside them." + note
