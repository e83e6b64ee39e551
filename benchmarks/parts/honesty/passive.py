"""False `exact` of `PassiveNetworkIdentifier`: clips, rare units, offsets, near-duplicates."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from common import format_table
from registry import part
from skident import PassiveNetworkIdentifier
from skident.datasets import make_network
from skident.metrics import parameter_error
from skident.network import FeedforwardNetwork

SEEDS = seed_ranges.HONESTY_EXACT[1000:1500]
KINDS = ("clipped", "rare unit", "offset", "near-duplicate", "few samples")
ACTIVATIONS = ("tanh", "sigmoid", "softplus", "gelu", "relu")
CASES, FRESH = 250, 20_000
# An error on new samples, or of a parameter, relative to their sizes, that is no rounding of a claim to 1e-8.
WRONG_OUTPUT, WRONG_PARAMETER = 1e-6, 1e-3


def planted(kind, activation, seed):
    """A function, its network, the samples of X and their targets."""
    rng = np.random.default_rng(seed + 1_000_000)
    D, m = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    truth = make_network(
        (D, m, 1), bias_scale=0.3, activation=activation, output_activation="identity", random_state=seed
    )
    per_parameter = rng.uniform(1.3, 3.0) if kind == "few samples" else 10
    X = rng.standard_normal((int(per_parameter * (truth.n_parameters + D + 2)), D))
    if kind == "rare unit":
        truth = _with_rare_unit(truth, X, int(rng.integers(1, 10)), rng)
    if kind == "near-duplicate":
        truth = _with_duplicate(truth, 10.0 ** rng.uniform(-7, -2), rng)
    function = truth
    if kind == "clipped":
        high = np.sort(truth(X)[:, 0])[-int(rng.integers(2, max(3, len(X) // 20)))]
        low = -np.inf if rng.random() < 0.5 else np.sort(truth(X)[:, 0])[int(rng.integers(1, 4))]
        function = lambda A: np.clip(truth(A), low, high)  # noqa: E731
    Y = function(X)[:, 0] + (10.0 ** rng.uniform(3, 15) if kind == "offset" else 0.0)
    return function, truth, X, Y, rng


def _with_rare_unit(network, X, n_active, rng):
    """With a steep unit whose activation boundary has so many samples on its far side."""
    w = rng.standard_normal(X.shape[1])
    w /= np.linalg.norm(w)
    along = np.sort(X @ w)
    bias = -(along[-n_active - 1] + along[-n_active]) / 2
    W = np.column_stack([network.weights[0], 3 * w])
    return FeedforwardNetwork(
        [W, np.vstack([network.weights[1], [[1.0]]])],
        [np.append(network.biases[0], 3 * bias), network.biases[1]],
        network.activation,
        "identity",
    )


def _with_duplicate(network, distance, rng):
    """With its first unit once more, a little turned."""
    W = network.weights[0]
    turned = W[:, :1] + distance * rng.standard_normal((len(W), 1))
    return FeedforwardNetwork(
        [np.hstack([W, turned]), np.vstack([network.weights[1], [[0.7]]])],
        [np.append(network.biases[0], network.biases[0][0] + distance), network.biases[1]],
        network.activation,
        "identity",
    )


def _case(index):
    kind, activation = KINDS[index % 5], ACTIVATIONS[index // 5 % 5]
    seed, given = SEEDS[index], bool(index // 25 % 2)
    function, truth, X, y, rng = planted(kind, activation, seed)
    identifier = PassiveNetworkIdentifier(
        truth.layer_widths if given else "auto", activation=activation, n_starts=8, max_work=5e9, max_seconds=None,
        random_state=seed,
    )  # fmt: skip
    start, raised = time.process_time(), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            identifier.fit(X, y)
        except ValueError as error:  # a table with more parameters than targets, or an offset that hides y
            raised = str(error)
    case = {"kind": kind, "activation": activation, "given": given, "seconds": time.process_time() - start}
    if raised is not None:
        return {**case, "exact": False, "false_exact": False, "raised": raised}
    held_out = rng.standard_normal((FRESH, X.shape[1]))
    values, offset = function(held_out)[:, 0], np.median(y) if kind == "offset" else 0.0
    found = identifier.predict(held_out) - (offset - np.median(function(X)) if kind == "offset" else 0.0)
    error = float(np.abs(found - values).max() / values.std())
    same = identifier.layer_widths_ == truth.layer_widths
    parameters = _parameter_error(truth, identifier.network_, kind) if same else np.inf
    wrong = error > WRONG_OUTPUT or (same and parameters > WRONG_PARAMETER)
    exact = bool(identifier.report_.exact)
    return {**case, "exact": exact, "error": error, "parameters": parameters, "false_exact": exact and wrong,
            "raised": None}  # fmt: skip


def _parameter_error(truth, found, kind):
    """Of all parameters; with an offset, of the first layer's, since the output's bias contains the offset."""
    if kind != "offset":
        return float(parameter_error(truth, found))
    aligned = truth.align_to(found)
    return float(np.abs(aligned.weights[0] - found.weights[0]).max() / np.abs(found.weights[0]).max())


@part("honesty", "passive", seeds=(seed_ranges.HONESTY_EXACT, seed_ranges.HONESTY_ROWS))
def run(trials, quick):
    """Every kind of case in turn."""
    rows = []
    for i in range(10 if quick else trials or CASES):
        rows.append(_case(i))
        print(i, rows[-1], flush=True)
    return {"rows": rows}


def tables(result):
    """A line per kind."""
    lines = []
    for kind in KINDS:
        some = [row for row in result["rows"] if row["kind"] == kind]
        counts = [sum(bool(row[key]) for row in some) for key in ("exact", "false_exact", "raised")]
        lines.append([kind, len(some), *counts, sum(row["seconds"] for row in some)])
    header = ["samples", "cases", "called exact", "falsely", "refused with an error", "s"]
    return format_table(header, lines)
