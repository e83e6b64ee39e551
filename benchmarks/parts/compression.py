"""Compression of over-wide networks against pruning by magnitude and smaller networks trained from scratch."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier, MLPRegressor

import seed_ranges
from common import format_table, stopwatch
from registry import part
from skident.compression import compress_network
from skident.compression.smaller_network import compression_error, output_scales, rows_around
from skident.datasets import make_network
from skident.fitting.least_squares import Stopping, fit_network
from skident.fitting.random_starts import random_network
from skident.network import Architecture, FeedforwardNetwork, center_outputs

FIRST_SEED = seed_ranges.COMPRESSION.start
CASES = {  # data, hidden layers, metric, tolerances
    "planted, 64": ("planted", (64,), "outputs", (0.03, 0.1)),
    "planted, 64-32": ("planted", (64, 32), "outputs", (0.05, 0.1)),
    "diabetes, 64": ("diabetes", (64,), "outputs", (0.03, 0.1)),
    "diabetes, 64-32": ("diabetes", (64, 32), "outputs", (0.1, 0.2)),
    "digits, 64": ("digits", (64,), "labels", (0.01, 0.03)),
}
PLANTED_UNITS = 6
N_ROWS, ADAM_STEPS, ADAM_RATE = 2000, 600, 0.01
METHODS = {
    "ours": "ours",
    "magnitude": "units by magnitude",
    "magnitude_adam": "the same, Adam",
    "unstructured": "weights by magnitude",
    "unstructured_adam": "the same, Adam",
    "distilled_adam": "distilled, Adam",
    "distilled_lbfgs": "distilled, L-BFGS",
    "random_lm": "distilled, our fit",
}


def _trained(data, hidden, seed):
    """A trained network, the rows that it was trained on, other rows, and its score on these."""
    rng = np.random.RandomState(seed)
    if data == "planted":
        truth = make_network((10, PLANTED_UNITS, 1), output_activation="identity", bias_scale=0.5, random_state=seed)
        X = rng.standard_normal((1000, 10))
        y = truth(2.0 * X)[:, 0]
    else:
        X, y = (load_diabetes if data == "diabetes" else load_digits)(return_X_y=True)
        X = X / X.std() if data == "digits" else (X - X.mean(axis=0)) / X.std(axis=0)
        y = y if data == "digits" else (y - y.mean()) / y.std()
    order = rng.permutation(len(X))
    test, train = np.split(order, [len(X) // 4])
    options = {"hidden_layer_sizes": hidden, "activation": "tanh", "random_state": seed}
    if data == "digits":
        mlp = MLPClassifier(max_iter=60, **options)
    else:
        mlp = MLPRegressor(max_iter=300, alpha=1e-2 if data == "diabetes" else 1e-4, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mlp.fit(X[train], y[train])
    network = FeedforwardNetwork.from_sklearn(mlp)
    network = center_outputs(network) if data == "digits" else network
    return network, X[train], X[test], float(mlp.score(X[test], y[test]))


def _without_small_units(network, widths):
    """In every hidden layer the units with the largest product of incoming and outgoing norms."""
    weights, biases = list(network.weights), list(network.biases)
    for k, m in enumerate(widths[:-1]):
        size = np.linalg.norm(np.vstack([weights[k], biases[k]]), axis=0) * np.linalg.norm(weights[k + 1], axis=1)
        kept = np.sort(np.argsort(size)[-m:])
        weights[k], biases[k], weights[k + 1] = weights[k][:, kept], biases[k][kept], weights[k + 1][kept]
    return FeedforwardNetwork(weights, biases, network.activation, network.output_activation)


def _without_small_weights(network, n_parameters):
    """Prune the smallest weights to zero until as many parameters are left; all biases are kept."""
    n_weights = max(1, n_parameters - sum(len(b) for b in network.biases))
    magnitudes = np.sort(np.concatenate([np.abs(W).ravel() for W in network.weights]))
    masks = [np.abs(W) >= magnitudes[-n_weights] for W in network.weights]
    weights = [W * mask for W, mask in zip(network.weights, masks)]
    return FeedforwardNetwork(weights, network.biases, network.activation, network.output_activation), masks


def _adam(network, U, Y, masks=None):
    """Full-batch Adam with cosine decay; weights outside the masks stay zero."""
    import torch

    module, unit = network.to_torch(), torch.as_tensor(output_scales(Y))
    U, Y = torch.as_tensor(U), torch.as_tensor(Y)
    matrices = [p for p in module.parameters() if p.ndim == 2]
    masks = None if masks is None else [torch.as_tensor(mask.T.copy()) for mask in masks]
    optimizer = torch.optim.Adam(module.parameters(), lr=ADAM_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, ADAM_STEPS)
    for _ in range(ADAM_STEPS):
        optimizer.zero_grad()
        torch.mean(((module(U) - Y) / unit) ** 2).backward()
        optimizer.step()
        schedule.step()
        for matrix, mask in zip(matrices, masks or []):
            matrix.data *= mask
    return FeedforwardNetwork.from_torch(module)


def _distilled(network, widths, U, Y, solver, seed):
    """A smaller scikit-learn network trained on the outputs, each in units of its standard deviation."""
    unit = output_scales(Y)
    targets = Y / unit
    mlp = MLPRegressor(
        hidden_layer_sizes=widths[:-1],
        activation="tanh",
        solver=solver,
        alpha=0.0,
        max_iter=500 if solver == "lbfgs" else 100,
        learning_rate_init=5e-3,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mlp.fit(U, targets if targets.shape[1] > 1 else targets[:, 0])
    found = FeedforwardNetwork.from_sklearn(mlp)
    weights, biases = [*found.weights[:-1], found.weights[-1] * unit], [*found.biases[:-1], found.biases[-1] * unit]
    return FeedforwardNetwork(weights, biases, network.activation)


def _others(network, smaller, U, Y, seed):
    """Networks of the same size by other ways: pairs of name and function."""
    widths, rng = smaller.layer_widths, np.random.RandomState(seed)
    fewer = _without_small_units(network, widths)
    sparse, masks = _without_small_weights(network, smaller.n_parameters)
    start = random_network(network.n_inputs, Architecture.of(smaller), rng)
    yield "magnitude", lambda: fewer
    yield "magnitude_adam", lambda: _adam(fewer, U, Y)
    yield "unstructured", lambda: sparse
    yield "unstructured_adam", lambda: _adam(sparse, U, Y, masks)
    yield "distilled_adam", lambda: _distilled(network, widths, U, Y, "adam", seed)
    yield "distilled_lbfgs", lambda: _distilled(network, widths, U, Y, "lbfgs", seed)
    yield "random_lm", lambda: fit_network(start, U, Y, Stopping(max_iter=60), dense_limit=600, inner_tol=0.1)[0]


def _one_network(name, seed):
    data, hidden, metric, tolerances = CASES[name]
    network, X, held_out, score = _trained(data, hidden, seed)
    rng = np.random.RandomState(seed)
    U = np.vstack([X, rows_around(X, max(N_ROWS - len(X), len(X)), 0.7, rng)])
    Y, truth, unit = network(U), network(held_out), output_scales(network(X))
    smaller = None
    for tol in tolerances:
        with stopwatch() as clock:
            smaller, path = compress_network(network, X, tol=tol, metric=metric, start=smaller, rng=rng)
        row = {"case": name, "seed": seed, "tol": tol, "metric": metric, "score": score}
        row |= {"parameters_before": network.n_parameters, "widths": smaller.layer_widths}
        row |= {"units": sum(smaller.layer_widths[:-1]), "parameters": smaller.n_parameters}
        row |= {"held_out": path[-1]["error"], "path": path, "errors": {}, "answer_errors": {}, "seconds": {}}
        found = {"ours": (smaller, clock.seconds)}
        for method, make in _others(network, smaller, U, Y, seed):
            with stopwatch() as clock:
                other = make()
            found[method] = (other, clock.seconds)
        for method, (other, seconds) in found.items():
            row["errors"][method] = compression_error(truth, other(held_out), unit, metric)
            row["answer_errors"][method] = compression_error(truth, other(held_out), unit)
            row["seconds"][method] = seconds
        print(f"compression: {name}, seed {seed}, tol {tol}: {row['widths']}, {row['errors']['ours']:.2g}", flush=True)
        yield row


@part("compression", "compression", seeds=seed_ranges.COMPRESSION)
def run(trials=None, quick=False):
    """Three seeds a case."""
    rows = []
    for name in list(CASES)[:1] if quick else CASES:
        for t in range(1 if quick else trials or 3):
            rows += _one_network(name, FIRST_SEED + t)
    return {"rows": rows}


def tables(result):
    """Medians over seeds, one row per case and tolerance."""
    header = ["network", "parameters", "tol", "units left", "parameters left"]
    header += [*METHODS.values(), "ours, worst", "seconds"]
    rows = []
    for case, tol in dict.fromkeys((r["case"], r["tol"]) for r in result["rows"]):
        some = [r for r in result["rows"] if (r["case"], r["tol"]) == (case, tol)]
        ours = [r["errors"]["ours"] for r in some]

        def median(key, method=None, some=some):
            return float(np.median([r[key] if method is None else r[key][method] for r in some]))

        errors = [median("errors", method) for method in METHODS]
        sizes = [int(median("units")), int(median("parameters"))]
        rows.append([case, some[0]["parameters_before"], tol, *sizes, *errors, max(ours), median("seconds", "ours")])
    return format_table(header, rows)
