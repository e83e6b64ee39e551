"""Audits of models that differ from their reference on 1 % of the rows of X or more, on one row, or for single rows."""

from __future__ import annotations

import numpy as np

import seed_ranges
from common import format_table
from registry import part
from skident.audit import verify_same
from skident.datasets import make_network

FIRST_SEED = seed_ranges.EVERYDAY.start
OFFSET = 3_000  # of this part's seeds
TRIALS, QUICK_TRIALS = 60, 6
SIZE = 0.3  # of a deviation of the outputs


def slab(X, rng):
    """Rows between two parallel planes, 1 to 3 % of X."""
    u = rng.standard_normal(X.shape[1])
    order, n = np.sort(X @ u), int(np.ceil(rng.uniform(0.01, 0.03) * len(X)))
    first = rng.integers(len(X) - n)
    low, high = order[first], order[first + n - 1]
    return lambda Z: (Z @ u >= low) & (Z @ u <= high)


def ball(X, rng):
    """Rows around one of them, 1 % of X."""
    center = X[rng.integers(len(X))]
    radius = np.sort(np.linalg.norm(X - center, axis=1))[int(np.ceil(0.01 * len(X)))]
    return lambda Z: np.linalg.norm(Z - center, axis=1) <= radius


def some_rows(X, rng):
    """1 % of the rows of X, anywhere."""
    rows = X[rng.permutation(len(X))[: int(np.ceil(0.01 * len(X)))]]
    return lambda Z: np.any(np.all(Z[:, None] == rows, axis=2), axis=1)


def one_row(X, rng):
    """One row of X."""
    row = X[rng.integers(len(X))]
    return lambda Z: np.all(row == Z, axis=1)


def calls_with_one_row(X, rng):
    """Any row that is queried alone."""
    return lambda Z: np.full(len(Z), len(Z) == 1)


def one_input(X, rng):
    """Rows in which one input is among its largest 1 %."""
    column = rng.integers(X.shape[1])
    limit = np.sort(X[:, column])[-int(np.ceil(0.01 * len(X)))]
    return lambda Z: Z[:, column] >= limit


WHERE = (slab, ball, some_rows, one_row, calls_with_one_row, one_input)


def trial(seed):
    """One audit: where the model differs, the number of rows of X, and the result."""
    rng, where = np.random.default_rng(seed), WHERE[seed % len(WHERE)]
    D, n = int(rng.integers(3, 20)), int(rng.choice([100, 300, 1000, 3000]))
    sizes, activation = (D, int(rng.integers(4, 30)), 1), ("relu", "tanh")[seed // 6 % 2]
    network = make_network(sizes, activation=activation, output_activation="identity", random_state=seed)
    X = rng.standard_normal((n, D))
    differs, size = where(X, rng), SIZE * network(X).std()
    report = verify_same(lambda Z: network(Z) + size * differs(Z)[:, None], network, X, random_state=seed)
    return {"where": where.__name__.replace("_", " "), "rows": n, "result": str(report).partition(":")[0]}


@part("everyday", "local_differences", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    """All audits."""
    n = (QUICK_TRIALS if quick else TRIALS) if trials is None else trials
    return {"rows": [trial(FIRST_SEED + OFFSET + i) for i in range(n)]}


def tables(result):
    """Results by kind of difference."""
    groups = {}
    for row in result["rows"]:
        groups.setdefault(row["where"], []).append(row["result"])
    counts = [[k, len(g), g.count("different"), g.count("undecided"), g.count("the same")] for k, g in groups.items()]
    return format_table(["differs", "audits", "different", "undecided", "the same"], counts)
