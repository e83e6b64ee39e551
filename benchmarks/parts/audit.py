"""Audits of changed and unchanged networks: detection, location of the changes, queries, false alarms."""

from __future__ import annotations

import time

import numpy as np

import seed_ranges
from cases.changed_networks import (
    as_it_is,
    in_another_order,
    one_weight,
    random_network,
    removed_unit,
    rounded_weights,
    single_precision,
)
from cases.hidden_changes import affects_no_output
from common import format_table
from registry import part
from skident.audit import verify_same

N_ROWS = 300


CHANGED = {  # what the black box is, trials
    "one weight changed by 1e-6": (one_weight, 100),
    "1 % of the weights in float16": (rounded_weights, 20),
    "one unit removed": (removed_unit, 20),
}
UNCHANGED = {
    "as it is": (as_it_is, 400),
    "units in another order": (in_another_order, 300),
    "float32": (single_precision, 300),
}


def trial(change, seed):
    """One audit."""
    network, rng = random_network(seed)
    box, changed = change(network, rng)
    X, start = rng.standard_normal((N_ROWS, network.n_inputs)), time.process_time()
    report = verify_same(box, network, X, random_state=seed)
    named = {(d.layer, d.row, d.unit) for d in report.differences}
    found = report.same is (not changed)
    unseen = [
        (layer, unit) in report.unseen_units if row is None else bool(np.isinf(report.visible[layer][row, unit]))
        for layer, row, unit in changed
    ]
    return {
        "found": bool(found),
        "unseen": bool(not found and unseen and all(unseen)),
        "nowhere": bool(changed and not found and _nowhere(network, box, changed, X)),
        "located": bool(found and named == changed and not report.instead),
        "queries": report.n_queries * network.n_outputs / network.n_parameters,
        "within 2 P": bool(report.n_queries <= N_ROWS + max(24, 2 * network.n_parameters / network.n_outputs + 1)),
        "seconds": time.process_time() - start,
    }


def _nowhere(network, box, changed, X):
    """Whether a change of a ReLU network provably affects no output in the range of X."""
    return network.activation == "relu" and affects_no_output(network, box, changed, X.min(axis=0), X.max(axis=0))


class Audits:
    """Cases of one kind, as `run_parts` takes them; every case has a thousand seeds of its own."""

    def __init__(self, cases, first_seed):
        self.cases, self.first_seed = cases, first_seed

    def run(self, trials, quick):
        """All cases."""
        rows = []
        for number, (name, (change, n)) in enumerate(self.cases.items()):
            first, n = self.first_seed + 1000 * number, (2 if quick else n if trials is None else trials)
            found = [trial(change, seed) for seed in range(first, first + n)]
            columns = {key: [t[key] for t in found] for key in found[0]}
            counts = {key: int(sum(columns[key])) for key in ("found", "unseen", "nowhere", "located", "within 2 P")}
            row = {"case": name, "trials": n, **counts, "median queries": float(np.median(columns["queries"]))}
            seconds = {"median seconds": float(np.median(columns["seconds"])), "max seconds": max(columns["seconds"])}
            rows.append(row | seconds)
        return {"rows": rows}

    def tables(self, result):
        """One row per case."""
        header = [
            "black box",
            "correct",
            "wrong, but listed as unseen",
            "wrong, provably no effect on outputs",
            "exactly the changes located",
            "within 2 P / m_L queries",
        ]
        header += ["queries x m_L / P, median", "median seconds", "maximum"]
        of = lambda r, key: f"{r[key]} of {r['trials']}"  # noqa: E731
        rows = [
            [r["case"], of(r, "found"), r["unseen"], r.get("nowhere", 0), of(r, "located"), of(r, "within 2 P")]
            + [r["median queries"], r["median seconds"], r["max seconds"]]
            for r in result["rows"]
        ]
        return format_table(header, rows)


for name, cases in {
    "changed": Audits(CHANGED, seed_ranges.AUDIT.start),
    "unchanged": Audits(UNCHANGED, seed_ranges.AUDIT.start + 5000),
}.items():
    part("audit", name, seeds=seed_ranges.AUDIT)(cases)
