"""False `exact` of `NetworkIdentifier`: guards, rare units, offsets, near-duplicates and bumps."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from common import format_table
from registry import part
from skident import NetworkIdentifier
from skident.network import FeedforwardNetwork

CASES, QUICK = 500, 16
SEEDS = seed_ranges.HONESTY_EXACT[:CASES]
SECONDS = 10.0  # per fit
TOL = 1e-8  # of NetworkIdentifier
_ROWS = 5000  # of each of two spreads, on which a network is compared
_TIMES_TOL = 10.0  # tolerances beyond which an error on these is one
_ROUNDINGS = 8.0  # units in the last place of the largest output that no network can better
KINDS = (
    "plain",
    "outputs clipped",
    "outputs cut off on one side",
    "inputs clipped",
    "rare unit",
    "offset",
    "near-duplicate units",
    "distant bump",
    "slope changes beyond a value",
    "clipped and offset",
)


def _network(rng, D, kind):
    """A small network of tanh, relu or gelu units, with what its kind adds to its units."""
    activation, m, p = ("tanh", "relu", "gelu")[rng.randint(3)], rng.randint(2, 9), rng.randint(1, 3)
    W, b = 1.5 * rng.standard_normal((D, m)) / np.sqrt(D), 0.5 * rng.standard_normal(m)
    A, c = rng.standard_normal((m, p)), rng.standard_normal(p)
    if kind == "rare unit":  # active on about 1 to 10 of 1,000 rows
        b[0] = -rng.uniform(2.4, 3.1) * np.linalg.norm(W[:, 0])
    if kind == "near-duplicate units":
        gap = 10.0 ** rng.uniform(-9.0, -3.0)
        W[:, 0], b[0] = W[:, 1] + gap * rng.standard_normal(D), b[1] + gap * rng.standard_normal()
    return FeedforwardNetwork([W, A], [b, c], activation)


def _guarded(network, rng, kind, Z):
    """A function of standardized inputs: the network with what its kind does to inputs and outputs."""
    Y = network(Z)
    sd = Y.std(axis=0)
    p_low, p_high = np.sort(rng.uniform([0.0, 0.95], [0.05, 1.0]))
    low, high = (np.quantile(Y, p, axis=0) for p in (p_low, p_high))
    if kind == "outputs clipped":
        return lambda V: np.clip(network(V), low, high)
    if kind == "outputs cut off on one side":
        return (lambda V: np.maximum(network(V), low)) if rng.randint(2) else (lambda V: np.minimum(network(V), high))
    if kind == "inputs clipped":
        bound = rng.uniform(2.0, 6.0)
        return lambda V: network(np.clip(V, -bound, bound))
    if kind == "offset":
        offset = 10.0 ** rng.uniform(3.0, 15.0)
        return lambda V: network(V) + offset
    if kind == "distant bump":
        center, size = 0.5 * rng.standard_normal(Z.shape[1]), 10.0 ** rng.uniform(-4.0, 0.0)
        center[rng.randint(len(center))] = rng.choice([-1.0, 1.0]) * rng.uniform(6.0, 12.0)
        return lambda V: network(V) + size * sd * np.exp(-8.0 * np.sum((V - center) ** 2, axis=1))[:, None]
    if kind == "slope changes beyond a value":
        return lambda V: (Y_V := network(V)) - 0.5 * np.maximum(Y_V - high, 0.0)
    if kind == "clipped and offset":
        offset = 10.0 ** rng.uniform(1.0, 6.0)
        return lambda V: np.clip(network(V), low, high) + offset
    return network


def case(seed):
    """Rows, a black box, and what it is."""
    rng, kind = np.random.RandomState(seed), KINDS[seed % len(KINDS)]
    D = rng.randint(2, 7)
    center, scale = 3.0 * rng.standard_normal(D), 10.0 ** rng.uniform(-1.0, 1.0, D)
    Z = rng.standard_normal((300, D))
    network = _network(rng, D, kind)
    function = _guarded(network, rng, kind, Z)
    return center + scale * Z, lambda V: function((V - center) / scale), (kind, network.activation)


def times_allowed(found, box, X, seed, inside_range):
    """Largest error on 10,000 rows, in units of ten tolerances and the rounding of the outputs.

    Of rows inside `checked_range` only, where a deviation is too small in extent to be met by any fair sample.
    """
    rng, worst = np.random.RandomState(seed + 1_000_000), 0.0
    near = None
    for spread in (1.0, 3.0):
        V = X.mean(axis=0) + spread * X.std(axis=0) * rng.standard_normal((_ROWS, X.shape[1]))
        Y = np.reshape(box(V), (len(V), -1))
        near = Y if near is None else near
        unit = np.abs(near - near.mean(axis=0)).max(axis=0)
        allowed = _TIMES_TOL * TOL * unit + _ROUNDINGS * np.finfo(float).eps * np.abs(near).max(axis=0)
        errors = np.max(np.abs(found.predict(V).reshape(Y.shape) - Y) / allowed, axis=1)
        if inside_range:
            low, high = found.report_.checked_range
            errors = errors[np.all((low <= V) & (high >= V), axis=1)]
        worst = max(worst, float(errors.max()))
    return worst


def trial(seed):
    """One case."""
    X, box, (kind, activation) = case(seed)
    began, model = time.process_time(), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model = NetworkIdentifier(box, random_state=seed, max_seconds=SECONDS).fit(X)
        except ValueError:
            pass
    result = {"seed": seed, "kind": kind, "activation": activation, "seconds": time.process_time() - began}
    if model is None:
        return result | {"outcome": "error", "exact": False, "false_exact": False}
    times = times_allowed(model, box, X, seed, inside_range=kind == "distant bump")
    exact = bool(model.report_.exact)
    outcome = "exact" if exact else "not exact"
    return result | {"outcome": outcome, "exact": exact, "times_allowed": times, "false_exact": exact and times > 1.0}


@part("honesty", "exact", seeds=(seed_ranges.HONESTY_EXACT, seed_ranges.HONESTY_ROWS))
def run(trials, quick):
    """The cases: how many are exact, and how many of these are not."""
    seeds = SEEDS[: trials or (QUICK if quick else CASES)]
    results = [trial(seed) for seed in seeds]
    return {
        "cases": results,
        "n_cases": len(results),
        "n_exact": sum(r["exact"] for r in results),
        "n_false_exact": sum(r["false_exact"] for r in results),
    }


def tables(result):
    """Outcomes per kind."""
    rows = []
    for kind in KINDS:
        cases = [r for r in result["cases"] if r["kind"] == kind]
        if cases:
            counts = [sum(r["outcome"] == outcome for r in cases) for outcome in ("exact", "not exact", "error")]
            rows.append([kind, len(cases), *counts, sum(r["false_exact"] for r in cases)])
    table = format_table(["kind", "cases", "exact", "not exact", "error", "false exact"], rows)
    note = "Distant bumps lie outside `checked_range` and are compared inside it; all others on all rows."
    return f"{table}\n\nfalse exact: {result['n_false_exact']} of {result['n_cases']} (bar 0). {note}\n"
