"""Signs of units whose weighted directions add up to zero, which no outputs determine, and of units of other networks.

If ``sum_i a_i w_i = 0`` over some units, all of them flipped give the same function (Claim 4.8 of Awasthi et al. 2021).
A false claim calls the network exact with its signs (samples), or its weights determined (queries).
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np

import seed_ranges
from common import format_table
from registry import part
from skident import NetworkIdentifier, TensorReLURegressor
from skident.metrics import unit_matching_error
from skident.network import FeedforwardNetwork

D, ROWS, X_ROWS, N_CASES = 6, 5000, 200, 60
# Units that cancel, further units, equal output weights; with 4 + 3 and more units, directions are dependent anyway.
KINDS = list(itertools.product((3, 4, 5, 6), (0, 1, 3), (True, False)))
FIRST_SEED = seed_ranges.RELU_FIDELITY.start


def planted(cancel, size, further, equal, rng):
    """A network whose first `size` units cancel, or one of independent weights."""
    m = size + further
    a = np.ones(m) if equal else rng.choice([-1.0, 1.0], m) * rng.uniform(0.5, 2.0, m)
    W = rng.standard_normal((D, m))
    if cancel:
        W[:, size - 1] = -(W[:, : size - 1] @ a[: size - 1]) / a[size - 1]
    return FeedforwardNetwork([W, a[:, None]], [rng.uniform(-1.0, 1.0, m), np.zeros(1)], "relu")


def _signs_right(network, found):
    same = found.layer_widths == network.layer_widths
    return bool(same and np.all(unit_matching_error(network, found).signs == 1))


def _trial(cancel, kind, seed):
    rng = np.random.default_rng(seed)
    network = planted(cancel, *kind, rng)
    X = rng.standard_normal((ROWS, D))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reg = TensorReLURegressor(random_state=0).fit(X, network(X)[:, 0])
        model = NetworkIdentifier(lambda X: network(X), activation="relu", random_state=0).fit(X[:X_ROWS])
    own = network.weights[0] / np.linalg.norm(network.weights[0], axis=0)
    free = np.abs(reg.network_.weights[0].T @ own).argmax(axis=1) < kind[0]
    claimed = reg.signs_margin_[free].max(initial=0.0) if cancel else reg.signs_margin_.min(initial=1.0)
    samples = bool(reg.exact_ or (cancel and claimed > 0.5))
    return {
        "samples": samples,
        "margin": float(claimed),
        "samples_right": _signs_right(network, reg.network_),
        "samples_error": float(np.abs(reg.predict(X) - network(X)[:, 0]).max()),
        "queries": bool(model.report_.determined),
        "queries_exact": bool(model.report_.exact),
        "queries_right": _signs_right(network, model.network_),
    }


@part("relu", "signs", seeds=seed_ranges.RELU_FIDELITY)
def run(trials, quick):
    n, rows = trials or (2 if quick else N_CASES), []
    for j, cancel in enumerate((True, False)):
        found = [_trial(cancel, KINDS[i % len(KINDS)], FIRST_SEED + 100 * j + i) for i in range(n)]
        rows.append({"cancel": cancel, "trials": found})
    return {"rows": rows}


def tables(result):
    lines = []
    for row in result["rows"]:
        t = row["trials"]
        count = {key: sum(one[key] for one in t) for key in ("samples", "queries", "queries_exact")}
        right = [sum(one[key] and one[f"{key}_right"] for one in t) for key in ("samples", "queries")]
        case = "3 to 6 units whose weights cancel" if row["cancel"] else "independent weights"
        exact = sum(one["samples_error"] < 1e-9 for one in t)
        lines.append(
            [case, len(t), count["samples"], right[0], exact, count["queries"], right[1], count["queries_exact"]]
        )
    header = ["networks", "cases", "samples: signs claimed", "and right", "function to 1e-9", "queries: claimed",
              "and right", "function exact"]  # fmt: skip
    return format_table(header, lines)
