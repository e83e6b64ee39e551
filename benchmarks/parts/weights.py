"""Weights of samples against repetitions, and balanced class weights on tables with 4 % positives."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import seed_ranges
from common import format_table
from registry import part
from skident import (
    HierarchicalQuadraticNet,
    HierarchicalQuadraticNetClassifier,
    PassiveNetworkIdentifier,
    QuadraticNetClassifier,
    QuadraticNetRegressor,
    SaddleEscapeAnalyzer,
    SaddleToSaddleClassifier,
    SaddleToSaddleRegressor,
    TensorReLURegressor,
)

FIRST_SEED = seed_ranges.TABLE_ESTIMATORS.start
N_SEEDS, N_ROWS, N_RARE = 10, 150, 1000
REGRESSORS = (QuadraticNetRegressor, HierarchicalQuadraticNet, SaddleToSaddleRegressor, TensorReLURegressor)
REGRESSORS += (PassiveNetworkIdentifier, SaddleEscapeAnalyzer)
CLASSIFIERS = (QuadraticNetClassifier, HierarchicalQuadraticNetClassifier, SaddleToSaddleClassifier)


def _outputs(model, X):
    name = next(n for n in ("decision_function", "predict", "transform") if hasattr(model, n))
    return getattr(model, name)(X)


def _difference(kind, seed):
    """Largest difference of outputs after weights 0, 1, 2 and after repetitions in another order."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N_ROWS, 4))
    y = (X[:, 0] + X[:, 1]) ** 2 + np.abs(X[:, 2]) + 0.2 * rng.standard_normal(N_ROWS)
    y = y if kind in REGRESSORS else np.digitize(y, [1.0, 3.0])
    w = rng.integers(0, 3, N_ROWS)
    rows = rng.permutation(np.repeat(np.arange(N_ROWS), w))
    weighted = _outputs(kind(random_state=0).fit(X, y, sample_weight=w), X)
    return float(np.abs(weighted - _outputs(kind(random_state=0).fit(X[rows], y[rows]), X)).max())


def _recalls(seed):
    """Recall, false positives and AUC on new samples, of logistic regression and of each classifier, all balanced."""
    rng = np.random.default_rng(seed)
    y = (rng.permutation(2 * N_RARE) % 25 == 0).astype(int)
    X = rng.standard_normal((2 * N_RARE, 5)) + rng.uniform(0.3, 0.8) * y[:, None] * rng.standard_normal(5)
    X[:, 0] += y * X[:, 1]
    models = {"LogisticRegression": make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced"))}
    models |= {kind.__name__: kind(class_weight="balanced", random_state=0) for kind in CLASSIFIERS}
    found = {}
    for name, model in models.items():
        model.fit(X[:N_RARE], y[:N_RARE])
        predicted, p = model.predict(X[N_RARE:]), model.predict_proba(X[N_RARE:])[:, 1]
        left = y[N_RARE:]
        found[name] = [recall_score(left, predicted), float(predicted[left == 0].mean()), roc_auc_score(left, p)]
    return found


@part("tables", "weights", seeds=seed_ranges.TABLE_ESTIMATORS)
def run(trials, quick):
    n = trials or (1 if quick else N_SEEDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = (QuadraticNetRegressor, QuadraticNetClassifier) if quick else (*REGRESSORS, *CLASSIFIERS)
        same = {k.__name__: [_difference(k, FIRST_SEED + i) for i in range(n)] for k in kinds}
        rare = [_recalls(FIRST_SEED + 500 + i) for i in range(n)]
    return {"differences": same, "rare": rare}


def tables(result):
    same = [[name, len(found), f"{max(found):.0e}"] for name, found in result["differences"].items()]
    eligible = [one for one in result["rare"] if one["LogisticRegression"][0] >= 0.5]
    rare = []
    for name in result["rare"][0]:
        recall, wrong, auc = np.median([one[name] for one in eligible], axis=0)
        enough = sum(one[name][0] >= 0.5 for one in eligible)
        rare.append([name, f"{enough} of {len(eligible)}", f"{recall:.2f}", f"{wrong:.2f}", f"{auc:.2f}"])
    header = ["balanced, 4 % positives", "recall of .5", "recall", "false positives", "AUC"]
    return format_table(["estimator", "seeds", "largest difference"], same) + "\n\n" + format_table(header, rare)
