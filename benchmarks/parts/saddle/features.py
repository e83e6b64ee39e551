"""Escape directions as features, against principal components and partial least squares on five tables."""

from __future__ import annotations

import tempfile
import time

import numpy as np
from sklearn.cross_decomposition import PLSRegression
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine, make_friedman1
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import seed_ranges
from common import format_table
from registry import part
from skident import SaddleEscapeAnalyzer

FIRST_SEED = seed_ranges.SADDLE_FEATURES.start
TABLES = {
    "breast cancer": (lambda: load_breast_cancer(return_X_y=True), True),
    "wine": (lambda: load_wine(return_X_y=True), True),
    "digits": (lambda: load_digits(return_X_y=True), True),
    "diabetes": (lambda: load_diabetes(return_X_y=True), False),
    "friedman1": (lambda: make_friedman1(500, noise=1.0, random_state=FIRST_SEED), False),
}
PENALTIES = np.logspace(-2, 2, 5)  # of ridge, and one over those of logistic regression


class PartialLeastSquares(PLSRegression):
    """Scores of partial least squares, of labels through their indicators: as many columns, linear, that saw y."""

    def fit(self, X, y):
        """On indicators where y holds labels."""
        return super().fit(X, y if y.dtype.kind == "f" else (y[:, None] == np.unique(y)).astype(float))

    def fit_transform(self, X, y):
        """Of X alone."""
        return self.fit(X, y).transform(X)


def _models(k, seed):
    """What makes k columns, by name, and all columns beside them."""
    return {
        "escapes": SaddleEscapeAnalyzer(
            depth=3, width=16, n_starts=2, max_iter=60, n_components=k, dtype="float32", random_state=seed
        ),
        "PCA": PCA(k, random_state=seed),
        "PLS": PartialLeastSquares(k),
        "all columns": "passthrough",
    }


def _scores(features, classes, X, y, seed):
    """Held-out scores of three folds: columns and penalty from the other rows, the penalty by inner folds of these."""
    Folds = StratifiedKFold if classes else KFold
    last, penalty = (LogisticRegression(max_iter=1000), "last__C") if classes else (Ridge(), "last__alpha")
    steps = {"scale": StandardScaler(), "features": features, "rescale": StandardScaler(), "last": last}
    scores = []
    with tempfile.TemporaryDirectory() as memory:  # every columns' fit serves all penalties
        for a, b in Folds(3, shuffle=True, random_state=seed).split(X, y):
            inner = Folds(3, shuffle=True, random_state=seed)
            search = GridSearchCV(Pipeline(list(steps.items()), memory=memory), {penalty: PENALTIES}, cv=inner)
            search.fit(X[a], y[a])
            scores.append(search.score(X[b], y[b]))
    return scores


@part("saddle", "features", seeds=seed_ranges.SADDLE_FEATURES)
def run(trials=None, quick=False):
    """Shuffled folds of a table, 2 and 8 features, a linear model on top."""
    rows = []
    for name, (load, classes) in list(TABLES.items())[1 if quick else 0 : 2 if quick else None]:
        X, y = load()
        for trial in range(1 if quick else trials or 3):
            seed = FIRST_SEED + 1 + trial
            for k in (2,) if quick else (2, 8):
                row = {"table": name, "features": k, "seed": seed}
                for key, features in _models(k, seed).items():
                    start = time.process_time()
                    row[key] = _scores(features, classes, X, y, seed)
                    row[f"{key} seconds"] = time.process_time() - start
                rows.append(row)
                print(row, flush=True)
    return {"rows": rows}


def tables(result):
    """A row a table and number of features, means over all folds."""
    names = ("escapes", "PCA", "PLS", "all columns")
    header = ["table", "features", "escape directions", "principal components", "partial least squares", "all columns"]
    header += ["escapes - PCA", "ahead of PCA, folds", "of PLS", "escapes: processor s per trial"]
    rows = []
    for name, k in dict.fromkeys((r["table"], r["features"]) for r in result["rows"]):
        some = [r for r in result["rows"] if (r["table"], r["features"]) == (name, k)]
        scores = {key: np.concatenate([r[key] for r in some]) for key in names}
        gap = scores["escapes"] - scores["PCA"]
        ahead = [f"{np.sum(scores['escapes'] > scores[key])} of {len(gap)}" for key in ("PCA", "PLS")]
        seconds = float(np.mean([r["escapes seconds"] for r in some]))
        rows.append([name, k, *[f"{np.mean(s):.3f}" for s in scores.values()], f"{gap.mean():+.3f}", *ahead, seconds])
    return format_table(header, rows)
