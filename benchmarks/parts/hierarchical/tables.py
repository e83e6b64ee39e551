"""Cross-validated scores on digits, breast cancer and regression tables (Figure 12 of Allen-Zhu and Li, 2020)."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    make_friedman1,
    make_friedman2,
    make_regression,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import seed_ranges
from cases.hierarchical_targets import FIRST_SEED, timed
from common import format_table
from registry import part
from skident import HierarchicalQuadraticNet, HierarchicalQuadraticNetClassifier


@part("hierarchical", "tables", seeds=seed_ranges.HIERARCHICAL)
def run(trials, quick):
    """Cross-validated scores, of one fold in five if quick."""
    classes = {"digits": load_digits, "breast cancer": load_breast_cancer}
    regressions = {
        "friedman1, N=1000, noise 1": lambda: make_friedman1(1000, noise=1.0, random_state=FIRST_SEED),
        "friedman2, N=1000, noise 20": lambda: make_friedman2(1000, noise=20.0, random_state=FIRST_SEED),
        "diabetes": lambda: load_diabetes(return_X_y=True),
        "linear, N=500, d=10, noise 10": lambda: make_regression(
            500, 10, n_informative=5, noise=10.0, random_state=FIRST_SEED
        ),
    }
    rows = []
    for name, load in classes.items():
        X, y = load(return_X_y=True)
        others = {
            "ReLU perceptron": make_pipeline(
                StandardScaler(), MLPClassifier(hidden_layer_sizes=(32, 16), random_state=0)
            ),
            "kernel": make_pipeline(StandardScaler(), SVC(C=10.0)),
        }
        folds = list(StratifiedKFold(5, shuffle=True, random_state=FIRST_SEED).split(X, y))[: 1 if quick else None]
        rows.append(_scored(name, X, y, HierarchicalQuadraticNetClassifier(random_state=0), others, folds))
    for name, load in regressions.items():
        X, y = load()
        others = {"kernel": make_pipeline(StandardScaler(), KernelRidge(kernel="rbf", alpha=0.1, gamma=0.05))}
        folds = list(KFold(5, shuffle=True, random_state=FIRST_SEED).split(X, y))[: 1 if quick else None]
        rows.append(_scored(name, X, y, HierarchicalQuadraticNet(random_state=0), others, folds))
    return {"rows": rows}


def _fit_and_score(model, X, y, train, test):
    return model.fit(X[train], y[train]).score(X[test], y[test])


def _scored(name, X, y, ours, others, folds):
    row = {"table": name}
    for label, model in {"ours": ours, **others}.items():
        fits = [timed(_fit_and_score, model, X, y, a, b) for a, b in folds]
        row[label], row[f"{label} seconds"] = float(np.mean([s for s, _ in fits])), max(t for _, t in fits)
    print(f"tables: {row}", flush=True)
    return row


def tables(result):
    header = ["table", "quadratic network", "seconds per fold", "ReLU perceptron", "SVC or kernel ridge"]
    keys = ("table", "ours", "ours seconds", "ReLU perceptron", "kernel")
    return format_table(header, [[r.get(k) for k in keys] for r in result["rows"]])
