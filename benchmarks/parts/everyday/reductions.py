"""Networks behind reductions: outputs that are a function of a network, wide inputs, and public networks if present."""

from __future__ import annotations

import warnings
from pathlib import Path
from time import process_time

import numpy as np
import torch
from scipy.ndimage import zoom
from scipy.special import expit
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier, MLPRegressor

import seed_ranges
from common import format_table
from registry import part
from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.network import FeedforwardNetwork

FIRST_SEED = seed_ranges.EVERYDAY.start
OFFSET = 12_000  # of its seeds in the range of the topic
N_CASES, N_SIGMOIDS = 10, 4
SECONDS = 100  # `max_seconds` of a case
PUBLIC = Path(__file__).parents[4] / "shared" / "data" / "public"  # files of others, which are not part of the project
SDS = 1, 5, 20, 100  # standard deviations of output weights
SIGMOIDS = (20, 16, 5), (30, 14, 4), (200, 16, 5)


def actor(Z, rng):
    low, high = -rng.uniform(0.5, 3.0, Z.shape[1]), rng.uniform(0.5, 3.0, Z.shape[1])
    return low + (high - low) * (np.tanh(Z) + 1.0) / 2.0


def clipped(Z, rng):
    return np.clip(Z, -rng.uniform(0.3, 1.5, Z.shape[1]), rng.uniform(0.3, 1.5, Z.shape[1]))


def log_probabilities(Z, rng):
    return torch.log_softmax(torch.tensor(Z), dim=1).numpy()


ROWS = [
    *[("actor", shape, name, actor) for shape in ((8, 16, 3), (8, 12, 8, 3)) for name in ("relu", "tanh")],
    *[("score", (10, 16, 1), name, lambda Z, rng: 100.0 * expit(Z)) for name in ("relu", "tanh")],
    *[("LogSoftmax of torch", (10, 16, 4), name, log_probabilities) for name in ("relu", "tanh")],
    *[("predict_log_proba", (10, 16, 4), name, None) for name in ("relu", "tanh")],
    *[("exponential", (10, 16, 1), name, lambda Z, rng: np.exp(Z)) for name in ("relu", "tanh")],
    *[
        (f"sigmoids, output weights of sd {sd}", shape, name, lambda Z, rng, sd=sd: expit(4.0 * sd * Z))
        for sd in SDS
        for shape, name in zip(SIGMOIDS, ("relu", "tanh", "tanh"), strict=True)
    ],
    *[("ReLU outputs", shape, "relu", lambda Z, rng: np.maximum(Z, 0.0)) for shape in ((8, 16, 3), (8, 10, 6, 3))],
    *[("clips", shape, "relu", clipped) for shape in ((8, 16, 3), (8, 10, 6, 3))],
    *[("plain", shape, "relu", lambda Z, rng: Z) for shape in ((300, 12, 10, 1), (1000, 20, 1), (3072, 16, 8, 1))],
]
# Share of the cases that must be exact, by the beginning of their names; those of one bar are counted together.
BARS = {
    ("actor", "score"): 0.9,
    ("LogSoftmax", "predict_log_proba"): 0.95,
    ("exponential",): 0.9,
    ("sigmoids",): 0.9,
    ("ReLU outputs",): 0.9,
    ("clips",): 0.9,
}
LIMITS = {  # queries and seconds of the slowest case, all of which must be exact
    "plain 300-12-10-1": (6 * 3753, None),
    "plain 1000-20-1": (6 * 20041, None),
    "plain 3072-16-8-1": (6 * 49313, None),
    "digits 784-16-16-1": (60_000, 5.0),
    "digits 784-64-64-1": (400_000, 60.0),
    "mnist784_8x2_1": (40_000, 5.0),
    "mnist784_32x2_1": (150_000, 20.0),
}


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
    if outputs is None:
        classifier = MLPClassifier(widths[1:-1], activation=activation, max_iter=100, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _fitted(classifier.fit(X, network(X).argmax(axis=1)).predict_log_proba, X)
    return _fitted(lambda X: outputs(network(X), np.random.default_rng(seed)), X)


def _digits(width):
    """Two hidden layers trained to predict the digit from images of 28 x 28 pixels."""
    images, y = load_digits(return_X_y=True)
    X = zoom(images.reshape(-1, 8, 8) / 16.0, (1, 3.5, 3.5), order=1).reshape(len(images), -1)
    sizes = {"hidden_layer_sizes": (width, width), "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained = MLPRegressor(**sizes, tol=1e-6, n_iter_no_change=30).fit(X, y.astype(float))
    return _fitted(FeedforwardNetwork(trained.coefs_, trained.intercepts_, "relu").__call__, X[::9])


def _public(path):
    layers = np.load(path)
    names, n = layers["activations"], range(len(layers["activations"]))
    W, b = ([layers[f"{letter}{i}"] for i in n] for letter in "Wb")
    network = FeedforwardNetwork(W, b, str(names[0]), str(names[-1]))
    return _fitted(network.__call__, np.random.default_rng(0).standard_normal((200, network.n_inputs)))


@part("everyday", "reductions", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    rows = []
    for j, (name, *case) in enumerate(ROWS):
        n = trials or (1 if quick else N_SIGMOIDS if name.startswith("sigmoids") else N_CASES)
        found = [_trial(*case, FIRST_SEED + OFFSET + 20 * j + i) for i in range(n)]
        rows.append({"case": f"{name} {'-'.join(map(str, case[0]))}, {case[1]}", "trials": found})
    for width in () if quick else (16, 64):
        rows.append({"case": f"digits 784-{width}-{width}-1", "trials": [_digits(width)]})
    for path in sorted([*PUBLIC.glob("mnist784_[83]*x2_1.npz"), *PUBLIC.glob("gnubg_prune16.npz")]):
        rows.append({"case": path.stem, "trials": [_public(path)]})
    return {"rows": rows}


def tables(result):
    lines = []
    for row in result["rows"]:
        found = [one for one in row["trials"] if one["exact"]]
        medians = [float(np.median([one[key] for one in found])) if found else None for key in ("queries", "seconds")]
        lines.append([row["case"], len(row["trials"]), len(found), *medians])
    head = ["model", "cases", "exact", "median queries", "median seconds"]
    return format_table(head, lines) + "\n\n" + format_table(["required", "bar", "measured", ""], _required(result))


def _required(result):
    """Rows of the bars."""
    lines = []
    for names, share in BARS.items():
        found = [one["exact"] for row in result["rows"] if row["case"].startswith(names) for one in row["trials"]]
        bar = f"{share:.0%} exact"
        lines.append(
            [", ".join(names), bar, f"{sum(found)} of {len(found)}", _passes(sum(found) >= share * len(found))]
        )
    for name, (queries, seconds) in LIMITS.items():
        found = [one for row in result["rows"] if row["case"].startswith(name) for one in row["trials"]]
        if not found:
            continue
        exact, most = sum(one["exact"] for one in found), max(one["queries"] or 0 for one in found)
        slowest = max(one["seconds"] for one in found)
        right = exact == len(found) and most <= queries and (seconds is None or slowest <= seconds)
        bar = f"all exact, <= {queries:,} queries" + ("" if seconds is None else f", <= {seconds:g} s")
        lines.append([name, bar, f"{exact} of {len(found)}, <= {most:,}, {slowest:.3g} s", _passes(right)])
    return lines


def _passes(right):
    return "pass" if right else "FAIL"
