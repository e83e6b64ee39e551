"""Backward feature correction: errors of the first features against alpha (Figure 9 of Allen-Zhu and Li, 2020)."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from cases.hierarchical_targets import FIRST_SEED, planted_target, timed
from common import format_table
from registry import part
from skident import HierarchicalQuadraticNet
from skident.hierarchical import backward_feature_correction
from skident.metrics import feature_recovery_error

ALPHAS = (0.3, 0.1, 0.04, 0.02, 0.01)


@part("hierarchical", "correction", seeds=(seed_ranges.HIERARCHICAL, seed_ranges.HIERARCHICAL_ROWS))
def run(trials, quick):
    rows = []
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if quick else trials or 4)):
        errors = {"after 2": [], "after 3": [], "joint": []}
        for a in ALPHAS:
            alphas = (1.0, a, a * a)
            target, X, y, held_out, _ = planted_target(seed, 12, (3, 2, 2), 5000, alphas=alphas, kappa=1.0)
            truth, net = target.features(held_out, 2), None
            for depth, name in zip((2, 3, 4), errors):
                new = HierarchicalQuadraticNet((3, 2, 2), alphas=alphas, readout="sum", n_starts=5, random_state=seed)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    net = new.fit_layers(X, y, depth=depth, start=net)
                errors[name].append(feature_recovery_error(truth, net.transform(held_out, layer=2)))
        print(f"correction: seed {seed}: {errors}", flush=True)
        rows.append({"seed": seed, "alphas": ALPHAS, "errors": errors})
    target, X, y, held_out, held_out_y = planted_target(
        FIRST_SEED, 12, (3, 2, 2), 5000, alphas=(1.0, 0.3, 0.1), kappa=1.0
    )
    net = HierarchicalQuadraticNet((3, 2, 2), alphas=(1.0, 0.3, 0.1), readout="sum", random_state=0)
    test = {"X_test": held_out, "y_test": held_out_y, "target": target}
    found, _ = timed(backward_feature_correction, net, X, y, **test)
    return {"rows": rows, "protocol": found.rows, "table": str(found).splitlines()}


def tables(result):
    header = ["seed", "slope, S_2 after <= 2", "slope, S_2 after <= 3"]
    header += [f"{name}, a = {', '.join(map(str, ALPHAS))}" for name in ("S_2 after <= 3", "S_2 after joint training")]
    rows = []
    for r in result["rows"]:
        # Slopes of the three smallest: higher orders of a show at the others.
        slopes = [np.polyfit(np.log(ALPHAS[2:]), np.log(r["errors"][n][2:]), 1)[0] for n in ("after 2", "after 3")]
        lists = [", ".join(f"{e:.0e}" for e in r["errors"][name]) for name in ("after 3", "joint")]
        rows.append([r["seed"], *slopes, *lists])
    return format_table(header, rows) + "\n\n```\n" + "\n".join(result["table"]) + "\n```"
