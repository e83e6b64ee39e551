"""Two hidden ReLU layers and ten outputs that are rounded to single precision: which sizes are recovered?"""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from common import format_table, make_identifier
from parts.scale.networks import N_INPUTS, SEEDS, SEEDS_PER_ROW, Row
from registry import part
from skident.oracle import BlackBoxError, NotIdentified, OutOfBudgetError

ROWS = [
    Row((20, 12, 10, 10)),
    Row((32, 16, 16, 10)),
    Row((64, 32, 32, 10)),
    Row((64, 32, 32, 10), trained=True),
    Row((784, 64, 32, 10)),
]
TRIALS = 2
LIMIT = 200.0  # max_seconds
FIRST, FIRST_QUICK = 800, 930  # seeds, after the first of the range


@part("scale", "single_precision", seeds=SEEDS)
class SinglePrecision:
    """Networks recovered per row, with errors, queries and seconds."""

    @staticmethod
    def run(trials, quick):
        """Measure the rows, or one small network."""
        if quick:
            return {"rows": [_measured(Row((12, 6, 5, 4)), SEEDS.start + FIRST_QUICK, 1)]}
        firsts = SEEDS.start + FIRST + SEEDS_PER_ROW * np.arange(len(ROWS))
        return {"rows": [_measured(row, int(a), trials or TRIALS) for row, a in zip(ROWS, firsts, strict=True)]}

    @staticmethod
    def tables(result):
        """One row per kind of network."""
        head = ["networks", "recovered", "widths", "exact", "max error", "max error / noise", "queries", "max s"]
        return format_table(head, [_cells(row) for row in result["rows"]])


def _measured(row, first, trials):
    results = []
    for seed in range(first, first + trials):
        results.append(trial(row, seed))
        print(row.name, results[-1], flush=True)
    return {"name": row.name, "trials": results}


def trial(row, seed):
    """Recover one network; error on inputs from N(0, I), over the outputs' deviation, queries, processor seconds."""
    network, X = row.network(seed)
    identifier = make_identifier(
        lambda U: network(U).astype(np.float32), layer_widths="auto", random_state=0, max_seconds=LIMIT
    )
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            identifier.fit(X)
    except (NotIdentified, BlackBoxError, OutOfBudgetError) as error:
        return {"seed": seed, "refusal": str(error)[:300], "seconds": time.process_time() - began}
    seconds = time.process_time() - began
    F = X.mean(axis=0) + X.std(axis=0) * np.random.RandomState(9).standard_normal((N_INPUTS, X.shape[1]))
    Y, found, report = network(F), identifier.network_, identifier.report_
    return {
        "seed": seed,
        "right": tuple(found.layer_widths) == tuple(network.layer_widths),
        "exact": bool(report.exact),
        "agrees": bool(report.agrees),
        "widths": [int(m) for m in found.layer_widths],
        "error": float(np.abs(found(F) - Y).max() / Y.std(axis=0).max()),
        "noise": float(report.noise),
        "queries": int(identifier.n_queries_),
        "seconds": seconds,
    }


def _cells(row):
    trials = row["trials"]
    found = [t for t in trials if "refusal" not in t]
    return [
        row["name"],
        f"{sum(t['agrees'] for t in found)} of {len(trials)}",
        f"{sum(t['right'] for t in found)} of {len(trials)}",
        sum(t["exact"] for t in found),
        max((t["error"] for t in found), default=None),
        max((t["error"] / max(t["noise"], 1e-16) for t in found), default=None),
        f"{max(t['queries'] for t in found):,}" if found else "",
        f"{max(t['seconds'] for t in trials):.3g}",
    ]
