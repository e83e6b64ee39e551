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
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

FIRST_SEED = seed_ranges.EVERYDAY.start
OFFSET = 12_000  # of its seeds in the range of the topic
N_CASES = 10
PUBLIC = Path(__file__).parents[4] / "shared" / "data" / "public"  # files of others, which are not part of the project


def actor(Z, rng):
    low, high = -rng.uniform(0.5, 3.0, Z.shape[1]), rng.uniform(0.5, 3.0, Z.shape[1])
    return low + (high - low) * (np.tanh(Z) + 1.0) / 2.0


def clipped(Z, rng):
    return np.clip(Z, -rng.uniform(0.3, 1.5, Z.shape[1]), rng.uniform(0.3, 1.5, Z.shape[1]))


ROWS = [
    *[("actor", shape, "relu", actor) for shape in ((8, 16, 3), (8, 12, 8, 3))],
    ("score", (10, 16, 1), "relu", lambda Z, rng: 100.0 * expit(Z)),
    *[("log-probabilities", (10, 16, 4), name, lambda Z, rng: log_softmax(Z, axis=1)) for name in ("relu", "tanh")],
    ("exponential", (10, 16, 1), "relu", lambda Z, rng: np.exp(Z)),
    *[
        (f"sigmoids, output weights of sd {sd}", shape, name, lambda Z, rng, sd=sd: expit(4.0 * sd * Z))
        for sd in (1, 5, 20, 100)
        for shape, name in (((20, 16, 5), "relu"), ((20, 16, 5), "tanh"), ((200, 16, 5), "tanh"))
    ],
    *[("ReLU outputs", shape, "relu", lambda Z, rng: np.maximum(Z, 0.0)) for shape in ((8, 16, 3), (8, 10, 6, 3))],
    *[("clips", shape, "relu", clipped) for shape in ((8, 16, 3), (8, 10, 6, 3))],
    *[("plain", shape, "relu", lambda Z, rng: Z) for shape in ((300, 12, 10, 1), (1000, 20, 1))],
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
    names = {"activation": activation, "output_activation": "identity"}
    network = make_network(widths, random_state=seed, bias_scale=0.3, **names)
    X = np.random.default_rng(seed).standard_normal((200, widths[0]))
    return _fitted(lambda X: outputs(network(X), np.random.default_rng(seed)), X)


def _public(path):
    layers = np.load(path)
    n = range(len(layers["activations"]))
    network = FeedforwardNetwork([layers[f"W{i}"] for i in n], [layers[f"b{i}"] for i in n], "relu")
    return _fitted(network.__call__, np.random.default_rng(0).standard_normal((200, network.n_inputs)))


@part("everyday", "reductions", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    n, rows = trials or (1 if quick else N_CASES), []
    for j, (name, *case) in enumerate(ROWS):
        found = [_trial(*case, FIRST_SEED + OFFSET + 100 * j + i) for i in range(n)]
        rows.append({"case": f"{name} {'-'.join(map(str, case[0]))}, {case[1]}", "trials": found})
    for path in sorted(PUBLIC.glob("mnist784_[83]*x2_1.npz")):
        rows.append({"case": path.stem, "trials": [_public(path)]})
    return {"rows": rows}


def tables(result):
    lines = []
    for row in result["rows"]:
        queries = [one["queries"] for one in row["trials"] if one["exact"]]
        lines.append([row["case"], len(row["trials"]), len(queries), int(np.median(queries)) if queries else None])
    return format_table(["model", "cases", "exact", "median queries"], lines)
