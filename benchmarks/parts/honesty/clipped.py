"""Clipped outputs: are network and clip identified, and is a wrong one called exact?"""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

import seed_ranges
from common import format_table
from registry import part
from skident import NetworkIdentifier

CASES, QUICK = 40, 4
FIRST_SEED = seed_ranges.HONESTY_CLIPPED.start
SECONDS = 60.0  # per fit
BAR = 30  # of 40 identified with the clip as output activation
_ROWS = 5000  # of each of two spreads, on which a network is compared
_KINDS = ("1 % to 99 %", "5 % to 95 %", "min to max", "below 97 %", "above 3 %")
_SOURCES = ("diabetes", "trained", "initialized")


def case(seed, activation):
    """Rows, a black box with clipped outputs, its bounds, and what it is."""
    rng = np.random.RandomState(seed)
    D, m, source, kind = rng.randint(3, 11), rng.randint(4, 13), seed % 3, (seed // 3) % len(_KINDS)
    if source == 0:
        X, y = load_diabetes(return_X_y=True)
        X, y = ((part - part.mean(axis=0)) / part.std(axis=0) for part in (X[:, rng.permutation(10)[:D]], y))
    else:
        X = rng.standard_normal((400, D))
        y = 3.0 * np.sin(X @ rng.standard_normal(D) / np.sqrt(D)) + X[:, 0] * X[:, 1] + 1.0
    mlp = MLPRegressor(
        hidden_layer_sizes=(m,), activation=activation, random_state=seed, max_iter=(150, 60, 1)[source],
        solver=("adam", "lbfgs", "adam")[source],
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        outputs = mlp.fit(X, y).predict(X)
    low, high = (
        np.quantile(outputs, [0.01, 0.99]),
        np.quantile(outputs, [0.05, 0.95]),
        (outputs.min(), outputs.max()),
        (-np.inf, np.quantile(outputs, 0.97)),
        (np.quantile(outputs, 0.03), np.inf),
    )[kind]
    described = {"activation": activation, "source": _SOURCES[source], "clip": _KINDS[kind], "D": D, "units": m}
    return X, lambda V: np.clip(mlp.predict(V), low, high), (low, high), described


def errors_on(found, box, X, seed):
    """Largest error near the data and three standard deviations out, relative to the deviation of the outputs."""
    rng = np.random.RandomState(seed + 1_000_000)
    rows = [X.mean(axis=0) + s * X.std(axis=0) * rng.standard_normal((_ROWS, X.shape[1])) for s in (1.0, 3.0)]
    outputs = [box(V) for V in rows]
    unit = np.abs(outputs[0] - outputs[0].mean()).max()
    return [float(np.abs(found.predict(V) - Y).max() / unit) for V, Y in zip(rows, outputs, strict=True)]


def trial(seed, activation):
    """One case: what was identified, and how it compares with the black box."""
    X, box, bounds, described = case(seed, activation)
    began, model = time.process_time(), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model = NetworkIdentifier(box, random_state=seed, max_seconds=SECONDS).fit(X)
            said = ""
        except ValueError as error:
            said = str(error)[:100]
    seconds = time.process_time() - began
    if model is None:
        return described | {"outcome": "error", "error": said, "seconds": seconds, "false_exact": False}
    errors, network = errors_on(model, box, X, seed), model.network_
    clip_found = network.output_range is not None and np.array_equal(np.ravel(network.output_range), bounds)
    right = max(errors) < 1e-7
    outcome = (
        "identified"
        if model.report_.exact and clip_found and right
        else "exact"
        if model.report_.exact
        else "not exact"
    )
    return described | {
        "outcome": outcome,
        "widths": list(network.layer_widths),
        "output": network.output_activation,
        "errors": errors,
        "queries": model.n_queries_,
        "seconds": seconds,
        "false_exact": bool(model.report_.exact and not right),
    }


@part("honesty", "clipped", seeds=seed_ranges.HONESTY_CLIPPED)
def run(trials, quick):
    """Forty cases, half of them tanh and half ReLU networks."""
    n = trials or (QUICK if quick else CASES)
    results = [trial(FIRST_SEED + i // 2, ("tanh", "relu")[i % 2]) for i in range(n)]
    return {
        "cases": results,
        "n_cases": n,
        "n_identified": sum(r["outcome"] == "identified" for r in results),
        "n_false_exact": sum(r["false_exact"] for r in results),
    }


def tables(result):
    """Outcomes per activation and kind of clip."""
    rows = []
    for activation in ("tanh", "relu"):
        for kind in _KINDS:
            cases = [r for r in result["cases"] if (r["activation"], r["clip"]) == (activation, kind)]
            if cases:
                seconds = [r["seconds"] for r in cases]
                rows.append(
                    [
                        activation,
                        kind,
                        f"{sum(r['outcome'] == 'identified' for r in cases)} of {len(cases)}",
                        sum(r["false_exact"] for r in cases),
                        f"{np.median(seconds):.1f}",
                    ]
                )
    header = ["activation", "clip", "identified", "false exact", "median processor seconds"]
    total = f"{result['n_identified']} of {result['n_cases']} identified with the clip as output activation"
    return (
        format_table(header, rows) + f"\n\n{total} (bar {BAR} of 40); false exact: {result['n_false_exact']} (bar 0).\n"
    )
