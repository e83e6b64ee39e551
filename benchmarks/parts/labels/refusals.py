"""Models that are no ReLU network, or that lie: how fast, and with which reason are they refused?"""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import seed_ranges
from common import format_table
from registry import part
from skident import NetworkIdentifier

SEEDS = seed_ranges.LABELS
FIRST = 500  # seed, counted from the first of the range
LIMIT = 60.0  # max_seconds
LIES = 1e-4  # share of labels that are wrong
REASONS = {
    "random forest": "axis-parallel", "decision tree": "axis-parallel", "5 nearest neighbors": "nearest neighbors",
    "SVC, rbf": "curved", "MLPClassifier, tanh": "curved", "MLPClassifier with lies": "",
}  # fmt: skip


@part("labels", "refusals", seeds=SEEDS)
class Refusals:
    """Reason and seconds per model and data set."""

    @staticmethod
    def run(trials, quick):
        """Query the models."""
        rows = []
        for data, load in (("breast cancer", load_breast_cancer), ("iris", load_iris)):
            X, y = load(return_X_y=True)
            X = StandardScaler().fit_transform(X)
            for name in ["decision tree"] if quick else REASONS:
                rows.append(_trial(name, data, X, y))
                print(rows[-1], flush=True)
        return {"rows": rows}

    @staticmethod
    def tables(result):
        """One row per model and data set."""
        head = ["model", "data set", "outcome", "reason named", "s"]
        return format_table(
            head, [[r["name"], r["data"], r["outcome"], r["named"], r["seconds"]] for r in result["rows"]]
        )


def _labels(name, X, y, seed):
    models = {
        "random forest": RandomForestClassifier(random_state=seed),
        "decision tree": DecisionTreeClassifier(random_state=seed),
        "5 nearest neighbors": KNeighborsClassifier(5), "SVC, rbf": SVC(),
        "MLPClassifier, tanh": MLPClassifier((10,), activation="tanh", random_state=seed),
    }  # fmt: skip
    model = models.get(name, MLPClassifier((10,), random_state=seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    if name in models:
        return model.predict
    rng = np.random.RandomState(seed)

    def lying(U):
        seen = model.predict(U)
        return np.where(rng.random_sample(len(seen)) < LIES, (seen + 1) % len(model.classes_), seen)

    return lying


def _trial(name, data, X, y):
    model = _labels(name, X, y, SEEDS.start + FIRST)
    identifier = NetworkIdentifier(model, response_method="labels", random_state=0, max_seconds=LIMIT)
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            identifier.fit(X)
        report = identifier.report_
        outcome, text = "exact" if report.exact else "agrees" if report.agrees else "not exact", ""
    except ValueError as error:
        outcome, text = "refused", str(error)
    named = "yes" if REASONS[name] and REASONS[name] in text else "no" if REASONS[name] else ""
    return {"name": name, "data": data, "outcome": outcome, "named": named, "seconds": time.process_time() - began}
