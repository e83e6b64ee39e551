"""Whether the layout of X and y in memory changes a bit of an estimator."""

from __future__ import annotations

import warnings

import numpy as np
import pandas

import seed_ranges
import skident
from common import format_table
from registry import part
from skident.datasets import make_network

FIRST_SEED = seed_ranges.EVERYDAY.start
OFFSET = 10_000  # of its seeds in the range of the topic
N_ROWS = 100
LAYOUTS = {
    "F order": np.asfortranarray,
    "DataFrame": lambda A: (
        pandas.DataFrame(A, columns=list("abcde")[: A.shape[1]]) if A.ndim == 2 else pandas.Series(A)
    ),
    "list": lambda A: A.tolist(),
}
# Arguments that make a fit short, and what the targets are.
ESTIMATORS = {
    "NetworkIdentifier": ({}, "rows"),
    "EntangledWeightExtractor": ({"layer_widths": (3, 2)}, "rows"),
    "NetworkCompletion": ({"max_iter": 20}, "rows"),
    "NetworkCompressor": ({"tol": 0.3, "max_iter": 5}, "rows"),
    "NetworkVerifier": ({"max_queries": 40}, "rows"),
    "PassiveNetworkIdentifier": ({"layer_widths": (2, 2), "n_starts": 1}, "rows"),
    "TensorReLURegressor": ({"n_units": 2, "n_candidates": 1}, "numbers"),
    "HierarchicalQuadraticNet": ({"widths": (2,), "max_iter": 5}, "rows"),
    "HierarchicalQuadraticNetClassifier": ({"widths": (2,), "max_iter": 5}, "labels"),
    "QuadraticNetRegressor": ({}, "rows"),
    "QuadraticNetClassifier": ({}, "labels"),
    "SaddleEscapeAnalyzer": ({"n_starts": 2, "max_iter": 20}, "rows"),
    "SaddleToSaddleRegressor": ({"width": 10, "max_iter": 50}, "rows"),
    "SaddleToSaddleClassifier": ({"width": 10, "max_iter": 50}, "labels"),
}


def _made(name, network, seed):
    options = {**ESTIMATORS[name][0], "random_state": seed}
    if name in ("NetworkIdentifier", "EntangledWeightExtractor"):
        options["estimator"] = lambda Z: network(np.asarray(Z))
    elif name == "NetworkCompressor":
        options["estimator"] = network
    elif name == "NetworkVerifier":
        options |= {"estimator": lambda Z: network(1.01 * np.asarray(Z)), "network": network}
    return getattr(skident, name)(**options)


def _bits(estimator, X, y):
    """Outputs at X of the fitted estimator, as bytes."""
    estimator.fit(X, y)
    if hasattr(estimator, "differences_"):
        return estimator.report_.excesses.tobytes()
    if hasattr(estimator, "escape_direction_"):
        return b"".join(np.asarray(W).tobytes() for W in estimator.escape_direction_)
    return np.asarray((getattr(estimator, "predict", None) or estimator.transform)(X)).tobytes()


@part("everyday", "layouts", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    """Every estimator with every layout; `trials` is the number of samples."""
    n = (1 if quick else 3) if trials is None else trials
    same = {name: dict.fromkeys(LAYOUTS, 0) for name in ESTIMATORS}
    for seed in range(FIRST_SEED + OFFSET, FIRST_SEED + OFFSET + n):
        rng, network = (
            np.random.RandomState(seed),
            make_network((5, 3, 2), output_activation="identity", random_state=seed),
        )
        X = rng.standard_normal((N_ROWS, 5)) @ rng.standard_normal((5, 5))
        Y = network(X) + 0.01 * rng.standard_normal((N_ROWS, 2))
        labels = np.digitize(Y[:, 0], np.quantile(Y[:, 0], [0.3, 0.6]))
        targets = {"rows": Y, "numbers": Y[:, 0].copy(), "labels": labels}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, (_, kind) in ESTIMATORS.items():
                expected = _bits(_made(name, network, seed), X, targets[kind])
                for layout, laid in LAYOUTS.items():
                    given = laid(X), laid(targets[kind])
                    same[name][layout] += _bits(_made(name, network, seed), *given) == expected
    return {"layouts": {"samples": n, "same": same}}


def tables(result):
    """Markdown."""
    found = result["layouts"]
    rows = [[name, *(f"{n} of {found['samples']}" for n in same.values())] for name, same in found["same"].items()]
    return "Same bits as from an array in C order:\n\n" + format_table(["estimator", *LAYOUTS], rows)
