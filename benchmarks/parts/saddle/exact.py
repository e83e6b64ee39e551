"""Escape speeds of Example 1 by its formulas, extended networks, and the digits with default settings."""

from __future__ import annotations

import time

import numpy as np

import seed_ranges
from cases.trained_regressors import standardized_digits
from common import format_table
from registry import part
from skident import SaddleEscapeAnalyzer
from skident.datasets import make_alternating_circle
from skident.saddle.gradient_at_zero import gradient_at_zero, resolve_loss
from skident.saddle.localized_loss import loss_gradient

FIRST_SEED = seed_ranges.SADDLE.start
RANK_ONE = np.sqrt(2) - 1


@part("saddle", "exact", seeds=seed_ranges.SADDLE)
def run(trials, quick):
    """Example 1's two points by their formulas, what extending costs, and the digits with default steps."""
    X, y = make_alternating_circle(8)
    single = [np.array([[0.0], [1.0]]), np.ones((1, 1)), np.ones((1, 1))]
    double = [np.array([[1, 0], [0, 1], [-1, 0], [0, -1]]).T / 2, np.array([[1, -1, 1, -1]]).T / 2, -np.ones((1, 1))]
    rows = []
    for name, weights, value in (("one direction", single, RANK_ONE), ("the paper's rank-two point", double, 0.5)):
        speed = -loss_gradient(weights, X, y[:, None])[0]
        rows.append([f"Example 1, {name}", "speed off by <= 1e-12", abs(speed - value), abs(speed - value) <= 1e-12])
    digits_X, digits_y = standardized_digits()
    cases = {"Example 1": (X, y, {"loss": "gradient", "depth": 3}), "digits": (digits_X, digits_y, {"depth": 4})}
    for name, (X, y, options) in list(cases.items())[: 1 if quick else 2]:
        width = 32 if name == "Example 1" else 50
        for seed in range(FIRST_SEED, FIRST_SEED + (trials or 2)):
            start = time.process_time()
            analyzer = SaddleEscapeAnalyzer(width=width, random_state=seed, **options).fit(X, y)
            seconds = time.process_time() - start
            if name == "digits":
                speed = analyzer.escape_speed_
                rows.append([f"digits, seed {seed}", "speed >= .5525", f"{speed:.6f}", speed >= 0.5525])
                ratio = float(np.max(analyzer.rank_ratio_[1:]))
                rows.append([f"digits, seed {seed}", "rank ratios behind layer 1 <= 1e-3", ratio, ratio <= 1e-3])
                rows.append([f"digits, seed {seed}", "processor s <= 10", seconds, seconds <= 10])
            rows += _extended(name, seed, analyzer, X, y)
    return {"rows": rows}


def _extended(name, seed, analyzer, X, y):
    """Rows on three layers more: speed lost, and the second singular value of what was added over the first."""
    G, _ = gradient_at_zero(resolve_loss(analyzer.loss, y), y, fit_intercept=analyzer.fit_intercept)
    weights = analyzer.extend(3)
    lost = 1.0 + loss_gradient(weights, X, G)[0] / analyzer.escape_speed_
    added = [np.linalg.svd(W, compute_uv=False) for W in weights[analyzer.depth - 1 :]]
    ratio = max(float(s[1] / s[0]) if len(s) > 1 else 0.0 for s in added)
    title = f"{name}, seed {seed}, three layers more"
    return [[title, "share of the speed lost <= 1e-5", lost, lost <= 1e-5], [title, "added layers: s2/s1 <= 1e-12",
             ratio, ratio <= 1e-12]]  # fmt: skip


def tables(result):
    rows = [[*row[:3], "pass" if row[3] else "**FAIL**"] for row in result["rows"]]
    return format_table(["case", "bar", "measured", "met"], rows)
