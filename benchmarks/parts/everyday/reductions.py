"""Networks behind reductions: outputs that are a function of a network, wide inputs, and public networks if present."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from scipy.special import expit, log_softmax

import seed_ranges
from common import format_table
from registry import part
from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.oracle import NotIdentified

FIRST_SEED = seed_ranges.EVERYDAY.start
OFFSET = 12_000  # of its seeds in the range of the topic
N_CASES = 10
PUBLIC = Path(__file__).parents[4] / "shared" / "data" / "public"  # files of others, which are not part of the project


def actor(Z, rng):
    low, high = -rng.uniform(0.5, 3.0, Z.shape[1]), rng.uniform(0.5, 3.0, Z.shape[1])
    return low + (high - low) * (np.tanh(Z) + 1.0) / 2.0


PLAIN = lambda Z, rng: Z  # noqa: E731
ROWS = [
    ("actor 8-16-3", (8, 16, 3), "relu", actor),
    ("actor 8-12-8-3", (8, 12, 8, 3), "relu", actor),
    ("score 10-16-1", (10, 16, 1), "relu", lambda Z, rng: 100.0 * expit(Z)),
    ("log-probabilities 10-16-4", (10, 16, 4), "relu", lambda Z, rng: log_softmax(Z, axis=1)),
    ("log-probabilities 10-16-4", (10, 16, 4), "tanh", lambda Z, rng: log_softmax(Z, axis=1)),
    ("exponential 10-16-1", (10, 16, 1), "relu", lambda Z, rng: np.exp(Z)),
    ("300-12-10-1", (300, 12, 10, 1), "relu", PLAIN),
    ("1000-20-1", (1000, 20, 1), "relu", PLAIN),
]


def _fitted(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = NetworkIdentifier(model, random_state=0).fit(X)
        except NotIdentified:
            return {"exact": False, "queries": None}
    return {"exact": bool(found.report_.exact), "queries": int(found.n_queries_)}


def _trial(widths, activation, outputs, seed):
    network = make_network(
        widths, activation=activation, output_activation="identity", random_state=seed, bias_scale=0.3
    )
    X = np.random.default_rng(seed).standard_normal((200, widths[0]))
    return _fitted(lambda X: outputs(network(X), np.random.default_rng(seed)), X)


def _public(path):
    layers = np.load(path)
    n = len(layers["activations"])

    def model(X):
        for i in range(n):
            X = X @ layers[f"W{i}"] + layers[f"b{i}"]
            X = np.maximum(X, 0.0) if i < n - 1 else X
        return X

    return _fitted(model, np.random.default_rng(0).standard_normal((200, layers["W0"].shape[0])))


@part("everyday", "reductions", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    n, rows = trials or (1 if quick else N_CASES), []
    for j, (name, *case) in enumerate(ROWS):
        found = [_trial(*case, FIRST_SEED + OFFSET + 100 * j + i) for i in range(n)]
        rows.append({"case": f"{name}, {case[1]}", "trials": found})
    for path in sorted(PUBLIC.glob("mnist784_[83]*x2_1.npz")):
        rows.append({"case": path.stem, "trials": [_public(path)]})
    return {"rows": rows}


def tables(result):
    lines = []
    for row in result["rows"]:
        queries = [one["queries"] for one in row["trials"] if one["exact"]]
        median = int(np.median(queries)) if queries else None
        lines.append([row["case"], len(row["trials"]), len(queries), median])
    return format_table(["model", "cases", "exact", "median queries"], lines)
