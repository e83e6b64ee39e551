"""Whether `max_seconds` holds for ten models whose identification takes far more than five seconds."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

import seed_ranges
from cases.random_networks import random_relu_network
from common import format_table, make_identifier
from registry import part
from skident import EntangledWeightExtractor
from skident.datasets import make_network

LIMIT, BAR = 5.0, 7.0
FIRST_SEED = seed_ranges.BUDGETS.start


class _Timed:
    """A black box that keeps the seconds of its longest call."""

    def __init__(self, function):
        self.function, self.longest = function, 0.0

    def __call__(self, X):
        start = time.perf_counter()
        outputs = self.function(X)
        self.longest = max(self.longest, time.perf_counter() - start)
        return outputs


def _tanh(D, widths, seed, shift=0.5):
    return make_network(
        (D, *widths), activation="tanh", output_activation="identity", bias_scale=shift, random_state=seed
    )


def _diabetes(hidden, seed):
    X, y = load_diabetes(return_X_y=True)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return (
            MLPRegressor(hidden_layer_sizes=hidden, activation="tanh", solver="lbfgs", max_iter=300, random_state=seed)
            .fit(X, y)
            .predict
        )


def _slow(network, seconds):
    def outputs(X):
        time.sleep(seconds * len(X))
        return network(X)

    return outputs


def _max_pooling(seed):
    A = np.random.default_rng(seed).standard_normal((6, 4))
    return lambda X: (X @ A).max(axis=1)


def cases(seed):
    """Name, black box, number of inputs and options."""
    tanh = {"activation": "tanh"}
    relu = {"activation": "relu"}
    near = EntangledWeightExtractor(first_layer="hessian")
    return [
        ("diabetes (16, 16), lbfgs", _diabetes((16, 16), seed), 10, {"layer_widths": (16, 16, 1), **tanh}),
        ("diabetes (32, 32), auto", _diabetes((32, 32), seed), 10, {"layer_widths": "auto", **tanh}),
        (
            "20: (18, 14, 11, 8, 1)",
            _tanh(20, (18, 14, 11, 8, 1), seed),
            20,
            {"layer_widths": (18, 14, 11, 8, 1), **tanh},
        ),
        ("17: (64, 64, 6)", _tanh(17, (64, 64, 6), seed), 17, {"layer_widths": (64, 64, 6), **tanh}),
        ("100: (90, 50, 10)", _tanh(100, (90, 50, 10), seed), 100, {"layer_widths": (90, 50, 10), **tanh}),
        (
            "50: (30, 10) by Hessians",
            _tanh(50, (30, 10), seed, 0.05),
            50,
            {"layer_widths": (30, 10), "extractor": near, **tanh},
        ),
        ("1 ms a row", _slow(_tanh(10, (8, 5, 1), seed), 1e-3), 10, {"layer_widths": "auto", **tanh}),
        ("relu 10: (100, 1)", random_relu_network((10, 100, 1), seed), 10, relu),
        ("relu 10: (50, 25, 1)", random_relu_network((10, 50, 25, 1), seed), 10, relu),
        ("max pooling", _max_pooling(seed), 6, relu),
    ]


def _measured(box, D, options, seed):
    timed, X = _Timed(box), np.random.default_rng(seed).standard_normal((300, D))
    wall, processor = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            identifier = make_identifier(lambda A: timed(A), max_seconds=LIMIT, random_state=seed, **options).fit(X)
            ended = "exact" if identifier.report_.exact else "a warning"
        except ValueError:
            ended = "an error"
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    return {"ended": ended, "seconds": wall, "processor": processor, "longest call": timed.longest}


@part("identification", "budgets", seeds=seed_ranges.BUDGETS)
def run(trials, quick):
    """Every case once, or the first two."""
    rows = []
    for name, box, D, options in cases(FIRST_SEED)[: 2 if quick else None]:
        row = {"case": name, **_measured(box, D, options, FIRST_SEED)}
        row["met"] = row["seconds"] <= BAR + row["longest call"]
        rows.append(row)
        print("   ", row, flush=True)
    return {"rows": rows}


def tables(result):
    """One table."""
    header = ["case", "ended in", "seconds", "processor seconds", "longest call", f"<= {BAR:g} s and a call"]
    keys = ("case", "ended", "seconds", "processor", "longest call", "met")
    return format_table(header, [[row[key] for key in keys] for row in result["rows"]])
