"""Escape directions as features beside principal components, as many, on five tables."""

from __future__ import annotations

import time

import _seeds
import numpy as np
from _common import format_table
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine, make_friedman1
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skident import SaddleEscapeAnalyzer

FIRST_SEED = _seeds.SADDLE_FEATURES.start
TABLES = {
    "breast cancer": (lambda: load_breast_cancer(return_X_y=True), True),
    "wine": (lambda: load_wine(return_X_y=True), True),
    "digits": (lambda: load_digits(return_X_y=True), True),
    "diabetes": (lambda: load_diabetes(return_X_y=True), False),
    "friedman1": (lambda: make_friedman1(500, noise=1.0, random_state=FIRST_SEED), False),
}


def run(trials=None, quick=False):
    """Three shuffled folds of a table, 2 and 8 features, a linear model on top."""
    rows = []
    for name, (load, classes) in list(TABLES.items())[1 if quick else 0 : 2 if quick else None]:
        X, y = load()
        last = LogisticRegression(max_iter=1000) if classes else RidgeCV(np.logspace(-3, 3, 13))
        for trial in range(1 if quick else trials or 1):
            seed = FIRST_SEED + 1 + trial
            folds = list(KFold(3, shuffle=True, random_state=seed).split(X))
            for k in (2,) if quick else (2, 8):
                escapes = SaddleEscapeAnalyzer(
                    depth=3, width=16, n_restarts=2, max_iter=60, n_components=k, dtype="float32", random_state=seed
                )
                models = {"escapes": escapes, "PCA": PCA(k, random_state=seed), "all columns": "passthrough"}
                row = {"table": name, "features": k, "seed": seed}
                for key, features in models.items():
                    start = time.process_time()
                    model = make_pipeline(StandardScaler(), features, StandardScaler(), last)
                    row[key] = float(np.mean([model.fit(X[a], y[a]).score(X[b], y[b]) for a, b in folds]))
                    row[f"{key} seconds"] = time.process_time() - start
                rows.append(row)
                print(row, flush=True)
    return {"rows": rows}


def tables(result):
    """A row a table and number of features, means over trials."""
    header = ["table", "features", "escape directions", "principal components", "all columns", "escapes: seconds"]
    rows = []
    for name, k in dict.fromkeys((r["table"], r["features"]) for r in result["rows"]):
        some = [r for r in result["rows"] if (r["table"], r["features"]) == (name, k)]
        means = {key: float(np.mean([r[key] for r in some])) for key in ("escapes", "PCA", "all columns")}
        seconds = float(np.mean([r["escapes seconds"] for r in some]))
        rows.append([name, k, *[f"{mean:.3f}" for mean in means.values()], seconds])
    return format_table(header, rows)
