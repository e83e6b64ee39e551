"""Ordinary tables, whose inputs are not Gaussian, against Ridge."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, make_friedman1
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_validate

import seed_ranges
from cases.relu_samples import FIRST_SEED
from common import format_table
from registry import part
from skident import TensorReLURegressor

TABLES = {
    "diabetes": lambda: load_diabetes(return_X_y=True),
    "breast cancer, labels as numbers": lambda: load_breast_cancer(return_X_y=True),
    "friedman1, 1000 rows, noise 1": lambda: make_friedman1(1000, noise=1.0, random_state=FIRST_SEED),
}
SLACK = 0.02


def _row(load):
    X, y = load()
    start = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = cross_validate(TensorReLURegressor(random_state=0), X, y, cv=5, return_estimator=True)
    seconds = time.process_time() - start
    return {
        "ours": ours["test_score"],
        "ridge": cross_validate(Ridge(), X, y, cv=5)["test_score"],
        "units": [e.n_units_ for e in ours["estimator"]],
        "seconds": seconds / 5,
        "warned": sum("not Gaussian" in str(w.message) for w in caught),
        "other_warnings": sorted({str(w.message)[:80] for w in caught if "not Gaussian" not in str(w.message)}),
    }


@part("relu", "tables", seeds=seed_ranges.RELU)
def run(trials, quick):
    return {"rows": {name: _row(load) for name, load in (list(TABLES.items())[:1] if quick else TABLES.items())}}


def tables(result):
    lines = []
    for name, row in result["rows"].items():
        ours, ridge = float(np.mean(row["ours"])), float(np.mean(row["ridge"]))
        units = ", ".join(map(str, row["units"]))
        warned = f"{row['warned']} of 5" + (f"; {'; '.join(row['other_warnings'])}" if row["other_warnings"] else "")
        met = "pass" if ours >= ridge - SLACK else "**FAIL**"
        lines.append([name, f"{ours:.3f}", f"{ridge:.3f}", units, warned, row["seconds"], met])
    header = ["table", "R^2, five folds", "Ridge", "units", "warned of non-Gaussian inputs", "seconds per fold",
              "within 0.02 of Ridge"]  # fmt: skip
    return format_table(header, lines)
