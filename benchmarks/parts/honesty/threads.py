"""Ten typical fits with the default threads and with `OMP_NUM_THREADS=1`, on an idle and a busy machine."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import scale

import seed_ranges
import skident
from cases.random_networks import random_network
from common import busy, format_table, run_module
from registry import part

REPEATS = {"idle": 2, "busy": 1}  # of which the fastest counts
BARS = {"idle": 1.1, "busy": 1.3}
FIRST_SEED = seed_ranges.HONESTY_BUDGETS.start
_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def _tanh(seed):
    X, y = map(scale, load_diabetes(return_X_y=True))
    mlp = MLPRegressor(
        hidden_layer_sizes=(8,), activation="tanh", solver="lbfgs", alpha=1.0, max_iter=999, random_state=seed
    ).fit(X, y)
    return skident.NetworkIdentifier(mlp.predict, random_state=0), (X,)


def _two_tanh_layers(seed):
    model = random_network("tanh", (10, 28, 28, 1), seed)
    return skident.NetworkIdentifier(lambda X: model(X), layer_widths=(28, 28, 1), random_state=0), (_rows(10, seed),)


def _relu(seed):
    model = random_network("relu", (20, 50, 25, 1), seed)
    return skident.NetworkIdentifier(lambda X: model(X), random_state=0), (_rows(20, seed),)


def _softplus(seed):
    model = random_network("softplus", (20, 30, 1), seed)
    return skident.NetworkIdentifier(lambda X: model(X), random_state=0), (_rows(20, seed),)


def _classifier(seed):
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X)
    model = MLPClassifier(hidden_layer_sizes=(50,), alpha=1.0, max_iter=200, random_state=seed).fit(X, y)
    return skident.NetworkIdentifier(FrozenEstimator(model), random_state=0), (X,)


def _relu_samples(seed):
    X = _rows(8, seed, 20_000)
    y = random_network("relu", (8, 6, 1), seed)(X)[:, 0]
    return skident.TensorReLURegressor(random_state=0), (X, y + 0.1 * y.std() * _rows(1, seed + 1, 20_000)[:, 0])


def _passive(seed):
    X = _rows(5, seed, 1000)
    y = random_network("tanh", (5, 8, 1), seed)(X)[:, 0]
    return skident.PassiveNetworkIdentifier((8, 1), random_state=0), (X, y)


def _quadratic(seed):
    X = _rows(20, seed, 1000)
    return skident.QuadraticNetRegressor(random_state=0), (X, X[:, 0] ** 2 - X[:, 1] * X[:, 2])


def _saddle(seed):
    X, y = load_diabetes(return_X_y=True)
    return skident.SaddleToSaddleRegressor(3, 30, max_iter=1000, random_state=seed), (X, y)


def _hierarchical(seed):
    X = _rows(10, seed, 1000)
    y = (X[:, 0] ** 2 + X[:, 1] * X[:, 2]) ** 2
    return skident.HierarchicalQuadraticNet(widths=(4, 2), random_state=seed), (X, y)


def _rows(n_inputs, seed, n=300):
    return np.random.default_rng(seed).standard_normal((n, n_inputs))


CASES = {
    "NetworkIdentifier, tanh 10-8-1": _tanh,
    "NetworkIdentifier, tanh 10-28-28-1": _two_tanh_layers,
    "NetworkIdentifier, relu 20-50-25-1": _relu,
    "NetworkIdentifier, softplus 20-30-1": _softplus,
    "NetworkIdentifier, classifier 30-50-1": _classifier,
    "TensorReLURegressor, 20 000 rows": _relu_samples,
    "PassiveNetworkIdentifier, tanh 5-8-1": _passive,
    "QuadraticNetRegressor, 1000 rows": _quadratic,
    "SaddleToSaddleRegressor, diabetes": _saddle,
    "HierarchicalQuadraticNet, 1000 rows": _hierarchical,
}


def fit_one(name):
    """Seconds and processor seconds of one fit, after a short one that loads what it needs."""
    estimator, data = CASES[name](FIRST_SEED)
    wall, processor = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            estimator.fit(*data)
        except ValueError as error:
            print(f"{name}: {error}", file=sys.stderr)
    return {"seconds": time.perf_counter() - wall, "processor seconds": time.process_time() - processor}


def _fastest(name, one, repeats):
    environment = {key: value for key, value in os.environ.items() if key not in _VARIABLES}
    environment |= dict.fromkeys(_VARIABLES, "1") if one else {}
    return [
        json.loads(run_module("parts.honesty.threads", name, variables=environment).stdout)["seconds"]
        for _ in range(repeats)
    ]


@part("honesty", "threads", seeds=seed_ranges.HONESTY_BUDGETS)
def run(trials, quick):
    """All fits, both settings in turn; `trials` is the number of repeats."""
    rows = []
    for machine, n_busy in (("idle", 0), ("busy", 2)):
        repeats = 1 if quick else trials or REPEATS[machine]
        with busy(n_busy):
            for name in list(CASES)[: 2 if quick else None]:
                pairs = [(_fastest(name, False, 1)[0], _fastest(name, True, 1)[0]) for _ in range(repeats)]
                default, one = (min(seconds) for seconds in zip(*pairs, strict=True))
                rows.append({"fit": name, "machine": machine, "default": default, "one": one, "ratio": default / one})
    return {"rows": rows, "bars": BARS}


def tables(result):
    """Seconds and their ratio, fit by fit; and the largest ratio."""
    rows = [[r["fit"], r["machine"], r["default"], r["one"], r["ratio"]] for r in result["rows"]]
    table = format_table(["fit", "machine", "seconds, default threads", "one thread", "ratio"], rows)
    lines = []
    for machine, bar in result["bars"].items():
        of = [r for r in result["rows"] if r["machine"] == machine]
        total = sum(r["default"] for r in of) / sum(r["one"] for r in of)
        within = sum(r["ratio"] <= bar for r in of)
        lines.append(f"{machine}: all fits together {total:.2f}, {within} of {len(of)} fits within {bar:g}.")
    return table + "\n\n" + " ".join(lines)


if __name__ == "__main__":
    print(json.dumps(fit_one(sys.argv[1])))
