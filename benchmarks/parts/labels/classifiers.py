"""Planted ReLU classifiers and perceptrons of scikit-learn, identified from labels alone; widths are not given."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

import seed_ranges
from common import format_table
from registry import part
from skident import NetworkIdentifier
from skident.oracle import BlackBoxError, NotIdentified, OutOfBudgetError

SEEDS = seed_ranges.LABELS
PER_ROW = 20  # seeds
N_INPUTS = 20_000  # held-out inputs per radius
RADII = (1.0, 3.0)  # standard deviations of these
N_NEAR = 1000  # segments across the boundary, both ends within NEAR of it
NEAR = 1e-6  # in standard deviations
CLAIMED = 1e-8  # distance from the boundary at which an exact network has the model's labels, relative to 1 + |x|
MAX_ERROR = 1e-10  # of hyperplanes
DATA = {"breast cancer": load_breast_cancer, "wine": load_wine, "iris": load_iris, "digits": load_digits}


@dataclass(frozen=True)
class Row:
    """Classifiers with D inputs (planted) or of a data set.

    Bars: networks of ten, queries per (m + 1)(D + 1), queries, processor seconds.
    """

    widths: tuple[int, ...]
    inputs: int | str
    right: int = 10
    ratio: float | None = None
    queries: int | None = None
    seconds: float | None = None
    trials: int = 2
    limit: float = 600.0  # max_seconds: wall time, of a machine that other processes may share

    @property
    def name(self):
        """Shape or data set."""
        shape = "-".join(map(str, self.widths))
        return f"planted {self.inputs}-{shape}" if isinstance(self.inputs, int) else f"{self.inputs}, ({shape})"

    def model(self, seed):
        """Labels of inputs, samples X, and hyperplanes (m, D + 1) of the first layer."""
        return _planted(self.inputs, self.widths, seed) if isinstance(self.inputs, int) else _trained(self, seed)


ROWS = [
    Row((8,), 10, ratio=200, trials=10),
    Row((8,), 20, ratio=130, trials=10),
    Row((8,), 40, ratio=130, trials=10),
    Row((20,), 30, right=9, ratio=130, trials=10),
    Row((16,), 64, right=9, ratio=200),
    Row((32,), 64, right=8, ratio=200, trials=2),
    Row((10,), "breast cancer", trials=3),
    Row((20,), "breast cancer", trials=3),
    Row((10,), "wine", right=9, trials=3),
    Row((10,), "iris", right=9, trials=3),
    Row((100,), "breast cancer", right=9, queries=400_000, seconds=60, trials=1),
    Row((10,), "digits", right=8, trials=1),
    Row((8, 6), 10, queries=120_000, seconds=10, trials=10),
    Row((16, 8), "breast cancer", right=9, queries=450_000, seconds=10, trials=3),
    Row((12, 8), 20, right=9, queries=220_000, seconds=10, trials=5),
    Row((16, 8), 64, right=9, queries=400_000, seconds=10, trials=2),
    Row((20,), "digits", right=6, trials=1),
    Row((10, 6), "wine", right=8, trials=3),
    Row((10, 6), "iris", right=5, trials=2),
    Row((32,), 784, queries=5_000_000, seconds=600, trials=1, limit=2000.0),
]


@part("labels", "classifiers", seeds=SEEDS)
class Classifiers:
    """Networks recovered per row, with errors, queries and seconds."""

    @staticmethod
    def run(trials, quick):
        """Measure the rows."""
        if quick:
            return {"rows": [_measured(Row((3,), 5), 900, 1)]}
        return {"rows": [_measured(row, PER_ROW * i, trials) for i, row in enumerate(ROWS)]}

    @staticmethod
    def tables(result):
        """One row per kind of classifier."""
        head = [
            "classifier",
            "recovered",
            "exact",
            "false exact",
            "undetermined",
            "max error",
            "labels",
            "at the boundary",
        ]
        return format_table(
            [*head, "median queries", "per (m + 1)(D + 1)", "max s"], [_cells(row) for row in result["rows"]]
        )


def _planted(D, widths, seed):
    rng = np.random.default_rng(seed)
    layers, n = [], D
    for m in widths:
        layers.append((rng.standard_normal((n, m)) * np.sqrt(2 / n), 0.5 * rng.standard_normal(m)))
        n = m
    v = rng.standard_normal(n)

    def logit(X):
        for W, b in layers:
            X = np.maximum(X @ W + b, 0)
        return X @ v

    X = rng.standard_normal((2000, D))
    threshold = np.median(logit(X))
    W, b = layers[0]
    return lambda U: (logit(U) > threshold).astype(int), X[:200], np.column_stack([W.T, b])


def _trained(row, seed):
    X, y = DATA[row.inputs](return_X_y=True)
    X = StandardScaler().fit_transform(X)
    X = X[:, X.std(axis=0) > 0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MLPClassifier(row.widths, random_state=seed).fit(X, y)
    return model.predict, X, np.column_stack([model.coefs_[0].T, model.intercepts_[0]])


def _measured(row, first, trials):
    results = []
    for seed in range(SEEDS.start + first, SEEDS.start + first + (trials or row.trials)):
        results.append(_trial(row, seed))
        print(row.name, results[-1], flush=True)
    bars = {"right": row.right, "ratio": row.ratio, "queries": row.queries, "seconds": row.seconds}
    return {"name": row.name, "bars": bars, "trials": results}


def _trial(row, seed):
    model, X, planes = row.model(seed)
    identifier = NetworkIdentifier(model, response_method="labels", random_state=0, max_seconds=row.limit)
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            identifier.fit(X)
    except (NotIdentified, BlackBoxError, OutOfBudgetError, ValueError) as error:
        return {"seed": seed, "refusal": str(error)[:200], "seconds": time.process_time() - began}
    seconds = time.process_time() - began
    network, queries = identifier.network_, int(identifier.n_queries_)
    error = plane_error(np.column_stack([network.weights[0].T, network.biases[0]]), planes)
    rng = np.random.default_rng(seed)
    F = X.mean(axis=0) + X.std(axis=0) * np.concatenate(
        [radius * rng.standard_normal((N_INPUTS, X.shape[1])) for radius in RADII]
    )
    same = float(np.mean(identifier.predict(F) == model(F)))
    B, away = _beside_boundary(model, X, rng)
    near = float(np.mean(identifier.predict(B) == model(B)))
    clear = float(np.mean(identifier.predict(away) == model(away)))
    exact = bool(identifier.report_.exact)
    right = error <= MAX_ERROR and same == near == 1.0
    size = (len(planes) + 1) * planes.shape[1]
    return {
        "seed": seed, "right": right, "exact": exact,
        "false_exact": exact and not (error < 1e-6 and same == clear == 1.0),
        "error": error, "labels": same, "near": near, "clear": clear,
        "queries": queries, "ratio": queries / size,
        "undetermined": len(identifier.report_.undetermined), "seconds": seconds,
    }  # fmt: skip


def _beside_boundary(model, X, rng):
    """Inputs within NEAR standard deviations of the boundary, on both sides, and such inputs at least CLAIMED from it.

    Random segments are bisected. An end may lie within rounding of the boundary, where labels are uncertain.
    """
    center, scale = X.mean(axis=0), X.std(axis=0)
    ends = center + scale * rng.uniform(*RADII, (40 * N_NEAR, 1)) * rng.standard_normal((40 * N_NEAR, X.shape[1]))
    P, Q = ends[::2], ends[1::2]
    below = model(P)
    differ = np.flatnonzero(below != model(Q))[:N_NEAR]
    P, Q, below = P[differ], Q[differ], below[differ]
    U = (Q - P) / np.linalg.norm((Q - P) / scale, axis=1)[:, None]
    while len(P) and np.max(np.linalg.norm((Q - P) / scale, axis=1)) > NEAR:
        middle = (P + Q) / 2
        same = (model(middle) == below)[:, None]
        P, Q = np.where(same, middle, P), np.where(same, Q, middle)
    step = CLAIMED * (1 + np.linalg.norm((P - center) / scale, axis=1))[:, None] * U
    return np.vstack([P, Q]), np.vstack([P - step, Q + step])


def plane_error(found, true):
    """Largest distance of a true hyperplane to the nearest recovered one, unit normals."""
    found, true = (H / np.linalg.norm(H[:, :-1], axis=1)[:, None] for H in (found, true))
    return float(max(min(np.abs(found - w).max(axis=1).min(), np.abs(found + w).max(axis=1).min()) for w in true))


def _cells(row):
    trials, bars = row["trials"], row["bars"]
    found = [t for t in trials if "refusal" not in t]
    return [
        row["name"],
        f"{sum(t['right'] for t in found)} of {len(trials)} ({bars['right']} of 10)",
        f"{sum(t['exact'] for t in found)} of {len(trials)}",
        sum(t["false_exact"] for t in found),
        max((t["undetermined"] for t in found), default=None),
        max((t["error"] for t in found), default=None),
        *[f"{min(t.get(k, np.nan) for t in found):.5f}" if found else "" for k in ("labels", "near")],
        _with_bar(int(np.median([t["queries"] for t in found])) if found else None, bars["queries"]),
        _with_bar(round(float(np.median([t["ratio"] for t in found]))) if found else None, bars["ratio"]),
        _with_bar(float(f"{max(t['seconds'] for t in trials):.3g}"), bars.get("seconds")),
    ]


def _with_bar(value, bar):
    text = "" if value is None else f"{value:,}"
    return text if bar is None else f"{text} ({bar:,})"
