"""Whether `max_seconds=20` holds for 20 models while two other processes are busy."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings

import numpy as np
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.neural_network import MLPClassifier

import seed_ranges
from cases.random_networks import random_network
from common import busy, format_table, make_identifier, run_module
from registry import part

LIMIT, QUICK_LIMIT = 20.0, 3.0
FIRST_SEED = seed_ranges.HONESTY_BUDGETS.start
N_BUSY = 2
_HUNG = 4.0  # times the limit after which a fit is ended from outside


def bar(limit):
    """Seconds that a fit may take."""
    return 1.3 * limit + 2.0


def _plain(activation, *widths, **options):
    def case(seed):
        model = random_network(activation, widths, seed)
        return lambda X: model(X), np.random.default_rng(seed).standard_normal((200, widths[0])), options

    return case


def _module(seed):
    import torch

    layers = random_network("relu", (20, 64, 64, 5), seed).to_torch()
    return layers.to(torch.float64), np.random.default_rng(seed).standard_normal((200, 20)), {}


def _single(seed):
    model = random_network("tanh", (20, 16, 16, 3), seed)
    box = lambda X: model(X.astype(np.float32)).astype(np.float32)  # noqa: E731
    return box, np.random.default_rng(seed).standard_normal((200, 20)), {}


def _noisy(seed):
    model, rng = random_network("tanh", (10, 12, 2), seed), np.random.default_rng(seed)
    return lambda X: model(X) + 1e-3 * rng.standard_normal((len(X), 2)), rng.standard_normal((200, 10)), {}


def _slow(seed):
    model = random_network("relu", (30, 40, 20, 3), seed)

    def box(X):
        time.sleep(1e-3)
        return model(X)

    return box, np.random.default_rng(seed).standard_normal((200, 30)), {}


def _classifier(activation, hidden):
    def case(seed):
        X, y = load_digits(return_X_y=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = MLPClassifier(hidden, activation=activation, max_iter=30, random_state=seed).fit(X / 16.0, y)
        return model.predict_proba, X / 16.0, {"response_method": "predict_proba"}

    return case


def _trees(kind, **options):
    def case(seed):
        X, y = load_diabetes(return_X_y=True)
        return kind(random_state=seed, **options).fit(X, y).predict, X, {}

    return case


CASES = {
    "tanh 10-8-1": _plain("tanh", 10, 8, 1),
    "tanh 20-16-16-5": _plain("tanh", 20, 16, 16, 5),
    "tanh 12-10-8-6-2": _plain("tanh", 12, 10, 8, 6, 2),
    "tanh 784-64-32-10": _plain("tanh", 784, 64, 32, 10),
    "relu 50-100-1": _plain("relu", 50, 100, 1),
    "relu 16-16-16-16-4": _plain("relu", 16, 16, 16, 16, 4),
    "relu 784-64-32-10": _plain("relu", 784, 64, 32, 10),
    "relu 20-64-64-5, torch module": _module,
    "leaky relu 20-32-32-3": _plain("leaky_relu", 20, 32, 32, 3),
    "gelu 10-30-2": _plain("gelu", 10, 30, 2),
    "silu 10-12-8-2, widths given": _plain("silu", 10, 12, 8, 2, layer_widths=(12, 8, 2)),
    "softplus 40-60-1": _plain("softplus", 40, 60, 1),
    "hard tanh 10-30-2": _plain("hard_tanh", 10, 30, 2),
    "classifier of digits, relu 64-32": _classifier("relu", (64, 32)),
    "classifier of digits, tanh 32": _classifier("tanh", (32,)),
    "random forest, 300 trees": _trees(RandomForestRegressor, n_estimators=300),
    "gradient boosting, 300 trees": _trees(GradientBoostingRegressor, n_estimators=300),
    "float32, tanh 20-16-16-3": _single,
    "noise 1e-3, tanh 10-12-2": _noisy,
    "1 ms per call, relu 30-40-20-3": _slow,
}


def fit_one(name, seed, limit):
    """Seconds of one fit and how it ended."""
    box, X, options = CASES[name](seed)
    identifier = make_identifier(box, max_seconds=limit, random_state=0, **options)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            outcome = "exact" if identifier.fit(X).report_.exact else "not exact"
        except ValueError:
            outcome = "refused"
    return {"seconds": time.perf_counter() - began, "outcome": outcome}


@part("honesty", "budgets", seeds=seed_ranges.HONESTY_BUDGETS)
def run(trials, quick):
    """Every model once, each in a process of its own; `trials` limits their number."""
    limit, rows = QUICK_LIMIT if quick else LIMIT, []
    with busy(N_BUSY):
        for i, name in enumerate(list(CASES)[: (4 if quick else None) if trials is None else trials]):
            try:
                arguments = (name, FIRST_SEED + i, limit)
                done = run_module("parts.honesty.budgets", *arguments, timeout=_HUNG * bar(limit) + 120.0)
                rows.append({"model": name, **json.loads(done.stdout.splitlines()[-1])})
            except subprocess.TimeoutExpired:
                rows.append({"model": name, "seconds": float("inf"), "outcome": "hung"})
    late = [row["model"] for row in rows if row["seconds"] > bar(limit)]
    return {"budgets": {"limit": limit, "bar": bar(limit), "busy": N_BUSY, "late": late, "rows": rows}}


def tables(result):
    """Markdown."""
    part = result["budgets"]
    rows = [[row["model"], f"{row['seconds']:.1f}", row["outcome"]] for row in part["rows"]]
    head = (
        f"`max_seconds={part['limit']:g}` with {part['busy']} busy processes beside, bar {part['bar']:g} s: "
        f"{len(rows) - len(part['late'])} of {len(rows)} in time"
    )
    return head + "\n\n" + format_table(["model", "seconds of wall time", "outcome"], rows)


if __name__ == "__main__":
    print(json.dumps(fit_one(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
