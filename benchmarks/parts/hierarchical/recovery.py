"""Recovery of planted hierarchical targets: errors, seconds, and kernel ridge regression for comparison."""

from __future__ import annotations

import numpy as np
from sklearn.kernel_ridge import KernelRidge

import seed_ranges
from cases.hierarchical_targets import FIRST_SEED, planted_target, relative_error, timed
from common import format_table
from registry import part
from skident import HierarchicalQuadraticNet
from skident.metrics import feature_recovery_error

CASES = {  # d, widths, widths of the learner, N, trials, bar, seconds
    "L=3, d=8": (8, (3, 2), (3, 2), 2000, 5, 1e-8, 10),
    "L=3, d=16": (16, (3, 2), (3, 2), 3000, 5, 1e-8, 10),
    "L=3, d=30": (30, (4, 2), (4, 2), 5000, 5, 1e-8, 10),
    "L=4, d=16, one unit more": (16, (3, 2, 2), (4, 3, 3), 5000, 10, 1e-6, 20),
}


def _best_kernel(X, y, held_out, held_out_y):
    """Lowest error of kernel ridge regression, tuned on the test rows."""
    X, y = X[:2000], y[:2000]
    errors = []
    for gamma in (0.003, 0.01, 0.03, 0.1):
        for alpha in (1e-4, 1e-2, 1.0):
            for kernel in ({"kernel": "rbf"}, {"kernel": "poly", "degree": 4}, {"kernel": "poly", "degree": 8}):
                model = KernelRidge(gamma=gamma, alpha=alpha, coef0=1.0, **kernel).fit(X, y)
                errors.append(relative_error(model, held_out[:5000], held_out_y[:5000]))
    return min(errors)


@part("hierarchical", "recovery", seeds=(seed_ranges.HIERARCHICAL, seed_ranges.HIERARCHICAL_ROWS))
def run(trials, quick):
    rows = []
    for name, (d, widths, learner, n, number, bar, seconds) in CASES.items():
        for seed in range(FIRST_SEED, FIRST_SEED + (1 if quick else trials or number)):
            target, X, y, held_out, held_out_y = planted_target(seed, d, widths, n)
            net, spent = timed(HierarchicalQuadraticNet(learner, random_state=seed).fit, X, y)
            row = {
                "case": name,
                "N": n,
                "seed": seed,
                "error": relative_error(net, held_out, held_out_y),
                "seconds": spent,
            }
            row |= {"bar": bar, "seconds_bar": seconds, "starts": len(net.restart_losses_)}
            features = target.features(held_out, 2), net.transform(held_out, layer=2)
            row["feature_error"] = feature_recovery_error(*features)
            if "d=16" in name and seed == FIRST_SEED and not quick:
                row["kernel"] = _best_kernel(X, y, held_out, held_out_y)
            print(f"recovery: {name}, seed {seed}: {row['error']:.1e}, {spent:.1f} s", flush=True)
            rows.append(row)
    return {"rows": rows}


def tables(result):
    header = ["target", "N", "bar", "worst error", "median error", "worst S_2 error", "below the bar"]
    header += ["maximum seconds", "kernel ridge, best"]
    rows = []
    for name in dict.fromkeys(r["case"] for r in result["rows"]):
        some = [r for r in result["rows"] if r["case"] == name]
        errors, kernels = [r["error"] for r in some], [r["kernel"] for r in some if "kernel" in r]
        good = sum(r["error"] <= r["bar"] and r["seconds"] <= r["seconds_bar"] for r in some)
        row = [name, some[0]["N"], some[0]["bar"], max(errors), float(np.median(errors))]
        row += [max(r["feature_error"] for r in some), f"{good} of {len(some)}", max(r["seconds"] for r in some)]
        rows.append([*row, min(kernels) if kernels else None])
    return format_table(header, rows)
