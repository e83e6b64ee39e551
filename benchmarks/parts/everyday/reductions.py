"""Networks behind reductions: outputs that are a function of a network, wide inputs, and public networks if present."""

from __future__ import annotations

import warnings
from pathlib import Path
from time import process_time

import numpy as np
from scipy.special import expit, log_softmax

import seed_ranges
from common import format_table
from registry import part
from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.network import FeedforwardNetwork

FIRST_SEED = seed_ranges.EVERYDAY.start
OFFSET = 12_000  # of its seeds in the range of the topic
N_CASES = 10
SECONDS = 100  # `max_seconds` of a case
PUBLIC = Path(__file__).parents[4] / "shared" / "data" / "public"  # files of others, which are not part of the project
SDS = 1, 5, 20, 100  # standard deviations of output weights
SIGMOIDS = (20, 16, 5), (30, 14, 4), (200, 16, 5)


def actor(Z, rng):
    low, high = -rng.uniform(0.5, 3.0, Z.shape[1]), rng.uniform(0.5, 3.0, Z.shape[1])
    return low + (high - low) * (np.tanh(Z) + 1.0) / 2.0


def clipped(Z, rng):
    return np.clip(Z, -rng.uniform(0.3, 1.5, Z.shape[1]), rng.uniform(0.3, 1.5, Z.shape[1]))


ROWS = [
    *[("actor", shape, name, actor) for shape in ((8, 16, 3), (8, 12, 8, 3)) for name in ("relu", "tanh")],
    ("score", (10, 16, 1), "relu", lambda Z, rng: 100.0 * expit(Z)),
    *[("log-probabilities", (10, 16, 4), name, lambda Z, rng: log_softmax(Z, axis=1)) for name in ("relu", "tanh")],
    ("exponential", (10, 16, 1), "relu", lambda Z, rng: np.exp(Z)),
    *[
        (f"sigmoids, output weights of sd {sd}", shape, name, lambda Z, rng, sd=sd: expit(4.0 * sd * Z))
        for sd in SDS
        for shape, name in zip(SIGMOIDS, ("relu", "tanh", "tanh"), strict=True)
    ],
    *[("ReLU outputs", shape, "relu", lambda Z, rng: np.maximum(Z, 0.0)) for shape in ((8, 16, 3), (8, 10, 6, 3))],
    *[("clips", shape, "relu", clipped) for shape in ((8, 16, 3), (8, 10, 6, 3))],
    *[("plain", shape, "relu", lambda Z, rng: Z) for shape in ((300, 12, 10, 1), (1000, 20, 1), (3072, 16, 8, 1))],
]


def _fitted(model, X):
    began, found = process_time(), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = NetworkIdentifier(model, max_seconds=SECONDS, random_state=0).fit(X)
        except ValueError:  # not identified, or not within the budget
            pass
    exact, queries = (False, None) if found is None else (bool(found.report_.exact), int(found.n_queries_))
    return {"exact": exact, "queries": queries, "seconds": process_time() - began}


def _trial(widths, activation, outputs, seed):
    names = {"activation": activation, "output_activation": "identity"}
    network = make_network(widths, random_state=seed, bias_scale=0.3, **names)
    X = np.random.default_rng(seed).standard_normal((200, widths[0]))
    return _fitted(lambda X: outputs(network(X), np.random.default_rng(seed)), X)


def _public(path):
    layers = np.load(path)
    names, n = layers["activations"], range(len(layers["activations"]))
    W, b = ([layers[f"{letter}{i}"] for i in n] for letter in "Wb")
    network = FeedforwardNetwork(W, b, str(names[0]), str(names[-1]))
    return _fitted(network.__call__, np.random.default_rng(0).standard_normal((200, network.n_inputs)))


@part("everyday", "reductions", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    n, rows = trials or (1 if quick else N_CASES), []
    for j, (name, *case) in enumerate(ROWS):
        found = [_trial(*case, FIRST_SEED + OFFSET + 20 * j + i) for i in range(n)]
        rows.append({"case": f"{name} {'-'.join(map(str, case[0]))}, {case[1]}", "trials": found})
    for path in sorted([*PUBLIC.glob("mnist784_[83]*x2_1.npz"), *PUBLIC.glob("gnubg_prune16.npz")]):
        rows.append({"case": path.stem, "trials": [_public(path)]})
    return {"rows": rows}


def tables(result):
    lines = []
    for row in result["rows"]:
        found = [one for one in row["trials"] if one["exact"]]
        medians = [float(np.median([one[key] for one in found])) if found else None for key in ("queries", "seconds")]
        lines.append([row["case"], len(row["trials"]), len(found), *medians])
    return format_table(["model", "cases", "exact", "median queries", "median seconds"], lines)
