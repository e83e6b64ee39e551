"""Probabilities: float32 behind one hidden layer, and linear classifiers with few decimals, by errors of logits."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.special import softmax

import seed_ranges
from common import format_table
from registry import part
from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.network import center_outputs
from skident.oracle import logits_from_probabilities, precision_of

FIRST_SEED = seed_ranges.EVERYDAY.start
OFFSET = 13_000  # of its seeds in the range of the topic
N_CASES = 10
LARGEST = 16.0  # standard deviation of logits
USABLE = 0.2  # bound of the error of a logit, up to which least squares uses it
ROWS = [("float32", (10, 16, K), name) for K in (1, 3) for name in ("relu", "tanh")]
ROWS += [(f"{decimals} decimals", (8, K), decimals) for decimals in (2, 3, 4) for K in (2, 4)]


def _fitted(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NetworkIdentifier(model, response_method="predict_proba", max_seconds=100, random_state=0).fit(X)


def _single(widths, name, seed):
    """The largest error of a logit over its bound, for logits in float32 of standard deviation 1 to 16."""
    rng = np.random.default_rng(seed)
    network = make_network(widths, activation=name, output_activation="identity", random_state=seed, bias_scale=0.3)
    X = rng.standard_normal((200, widths[0]))
    size = rng.uniform(1.0, LARGEST) / network(X).std(axis=0).mean()

    def true(X):
        return size * network(X)

    def model(X):
        Z = true(X.astype(np.float32)).astype(np.float32)
        Z = np.hstack([np.zeros_like(Z), Z]) if widths[-1] == 1 else Z
        P = softmax(Z, axis=1).astype(np.float32)
        return P[:, 1] if widths[-1] == 1 else P

    found, T = _fitted(model, X), rng.standard_normal((1000, widths[0])).astype(np.float32).astype(float)
    P = model(T).astype(float).reshape(len(T), -1)
    error = logits_from_probabilities(P, precision_of(P))[1]
    Z = true(T) if widths[-1] == 1 else true(T) - true(T).mean(axis=1, keepdims=True)
    gap = np.abs(center_outputs(found.network_)(T) - Z if widths[-1] > 1 else found.network_(T) - Z).max(axis=1)
    return found, float(np.max(gap[np.isfinite(error)] / error[np.isfinite(error)]))


def _linear(widths, decimals, seed):
    """The error of the weights over that of least squares on all usable ones of as many queries."""
    rng = np.random.default_rng(seed)
    W, X = rng.standard_normal(widths), rng.standard_normal((200, widths[0]))
    true = W[:, 1:] - W[:, :1] if widths[1] == 2 else W - W.mean(axis=1, keepdims=True)
    found = _fitted(lambda X: softmax(X @ W, axis=1).round(decimals), X)
    U = rng.standard_normal((found.n_queries_, widths[0]))
    P = softmax(U @ W, axis=1).round(decimals)
    Z, error = logits_from_probabilities(P, precision_of(P))
    kept = error < USABLE
    least = np.linalg.lstsq(
        np.column_stack([U, np.ones(len(U))])[kept] / error[kept, None], Z[kept] / error[kept, None]
    )
    return found, float(np.linalg.norm(found.network_.weights[0] - true) / np.linalg.norm(least[0][:-1] - true))


@part("everyday", "logits", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    n, rows = trials or (1 if quick else N_CASES), []
    for j, (name, widths, option) in enumerate(ROWS):
        measure, found = _single if name == "float32" else _linear, []
        for seed in range(FIRST_SEED + OFFSET + 20 * j, FIRST_SEED + OFFSET + 20 * j + n):
            try:
                one, ratio = measure(widths, option, seed)
                found.append({"agrees": bool(one.report_.agrees), "ratio": ratio})
            except ValueError:  # not identified, or not within the budget
                found.append({"agrees": False, "ratio": None})
        rows.append({"case": f"{name} {'-'.join(map(str, widths))}, {option}", "trials": found})
    return {"rows": rows}


def tables(result):
    lines = []
    for row in result["rows"]:
        ratios = [one["ratio"] for one in row["trials"] if one["agrees"]]
        lines.append([row["case"], len(row["trials"]), len(ratios), max(ratios, default=None)])
    return format_table(["model", "cases", "agree", "largest error over the bound, or over least squares"], lines)
