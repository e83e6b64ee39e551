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
from cases.planted_causes import CAUSES, DESCRIBED_BY_ERRORS, same
from common import format_table
from registry import part
from skident.audit import verify_same
from skident.oracle import BlackBoxError

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


class Causes:
    """Audits of pairs that differ by one ordinary cause, and of pairs that are the same."""

    def run(self, trials, quick):
        """All causes, ten pairs each."""
        rows, n = [], 1 if quick else trials or 10
        for number, (name, draw) in enumerate({**CAUSES, "no cause": same}.items()):
            trials_of = [self.trial(draw, seed_ranges.AUDIT.start + 9000 + 20 * number + k) for k in range(n)]
            columns = {key: [t[key] for t in trials_of] for key in trials_of[0]}
            counts = {key: int(sum(columns[key])) for key in ("first", "right", "named")}
            row = {"cause": name.replace("_", " "), "trials": n, **counts}
            rows.append(row | {"median seconds": float(np.median(columns["seconds"]))})
        return {"rows": rows}

    @staticmethod
    def trial(draw, seed):
        """One audit: whether the cause is named first, whether its numbers are right, whether any cause is named."""
        pair, start = draw(np.random.default_rng(seed)), time.process_time()
        try:
            causes = verify_same(pair.box, pair.reference, pair.X, random_state=seed, **pair.options).causes
        except BlackBoxError as error:  # of models whose outputs change from call to call
            first = pair.kind in DESCRIBED_BY_ERRORS and DESCRIBED_BY_ERRORS[pair.kind] in str(error)
            return {"first": first, "right": first, "named": first, "seconds": time.process_time() - start}
        first = bool(causes) and causes[0].kind == pair.kind
        right = first and pair.is_explained_by(causes[0])
        return {"first": first, "right": right, "named": bool(causes), "seconds": time.process_time() - start}

    def tables(self, result):
        """One row per cause."""
        of = lambda r, key: f"{r[key]} of {r['trials']}"  # noqa: E731
        rows = [
            [r["cause"], of(r, "first"), of(r, "right"), of(r, "named"), r["median seconds"]] for r in result["rows"]
        ]
        total = {key: sum(r[key] for r in result["rows"][:-1]) for key in ("first", "right", "named", "trials")}
        rows.append(["sum of the causes", *(of(total, key) for key in ("first", "right", "named")), None])
        return format_table(
            ["cause", "named first", "with the right numbers", "any cause named", "median seconds"], rows
        )


part("audit", "causes", seeds=seed_ranges.AUDIT)(Causes())
for name, cases in {
    "changed": Audits(CHANGED, seed_ranges.AUDIT.start),
    "unchanged": Audits(UNCHANGED, seed_ranges.AUDIT.start + 5000),
}.items():
    part("audit", name, seeds=seed_ranges.AUDIT)(cases)
