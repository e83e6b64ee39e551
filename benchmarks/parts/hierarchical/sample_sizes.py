"""How many samples a hierarchical target of degree 8 takes without noise, beside kernel ridge regression and xRFM."""

from __future__ import annotations

import numpy as np
from sklearn.kernel_ridge import KernelRidge

import seed_ranges
from cases.hierarchical_targets import relative_error, timed
from cases.peer_estimators import Recursive
from common import format_table
from parts.hierarchical.unknown_widths import drawn
from registry import part
from skident import HierarchicalQuadraticNet

D, WIDTHS = 20, (3, 2)
NUMBERS = {180: 6, 200: 0, 250: 1, 300: 2, 400: 3, 600: 4, 1000: 5}  # row of seeds by number of samples
TRIALS, SEEDS_PER_ROW, FIRST = 10, 20, 500
GOOD = 0.99  # R^2 on held-out samples


def _models(seed):
    """Name to estimator; xRFM if it is installed."""
    models = {
        "widths not given": HierarchicalQuadraticNet("auto", random_state=0),
        "(4, 4)": HierarchicalQuadraticNet((4, 4), random_state=0),
        "true (3, 2)": HierarchicalQuadraticNet(WIDTHS, random_state=0),
        "kernel ridge": KernelRidge(kernel="poly", degree=4, gamma=0.03, alpha=1e-2, coef0=1.0),
    }
    try:
        import xrfm  # noqa: F401
    except ImportError:
        return models
    return models | {"xRFM": Recursive(seed=seed)}


def measured(n, k):
    """The models' scores on the k-th target with n samples."""
    seed = seed_ranges.HIERARCHICAL_WIDTHS.start + FIRST + SEEDS_PER_ROW * NUMBERS[n] + k
    X, y, _, held_out, held_out_y, _ = drawn(seed, D, WIDTHS, n)
    rows = []
    for name, model in _models(seed).items():
        fitted, spent = timed(model.fit, X, y)
        score = 1.0 - relative_error(fitted, held_out, held_out_y)
        rows.append({"N": n, "seed": seed, "model": name, "score": score, "seconds": spent})
    return rows


@part("hierarchical", "sample_sizes", seeds=(seed_ranges.HIERARCHICAL_WIDTHS,))
def run(trials, quick):
    rows = []
    for n in list(NUMBERS)[-1:] if quick else NUMBERS:
        for k in range(1 if quick else trials or TRIALS):
            rows += measured(n, k)
        print({r["model"]: round(r["score"], 4) for r in rows if r["N"] == n}, f"N = {n}", flush=True)
    return {"rows": rows}


def tables(result):
    models, rows = list(dict.fromkeys(r["model"] for r in result["rows"])), []
    for n in dict.fromkeys(r["N"] for r in result["rows"]):
        cells = []
        for model in models:
            scores = [r["score"] for r in result["rows"] if r["N"] == n and r["model"] == model]
            cells.append(f"{np.median(scores):.3f} ({sum(s > GOOD for s in scores)} of {len(scores)} above {GOOD})")
        rows.append([n, *cells])
    return format_table([f"N without noise, d = {D}, {WIDTHS}", *models], rows)
