"""Two hidden ReLU layers with several outputs: planted, or trained on scikit-learn's digits; widths are not given."""

from __future__ import annotations

import resource
import time
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from scipy.ndimage import zoom
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from common import format_table, make_identifier
from registry import part
from skident.network import FeedforwardNetwork
from skident.oracle import BlackBoxError, NotIdentified, OutOfBudgetError

NETWORKS, QUICK = 10, 1
SEEDS = seed_ranges.SCALE
N_INPUTS = 4000  # held-out inputs per radius
RADII = (1.0, 3.0)  # standard deviations of these
N_EPOCHS, BATCH, LEARNING_RATE = 20, 64, 1e-3


@dataclass(frozen=True)
class Row:
    """Networks of one shape, inputs first; the bars: networks of ten, queries, seconds, MB, and error."""

    widths: tuple[int, ...]
    trained: bool = False
    probabilities: bool = False
    right: int = 10
    queries: int | None = None
    seconds: float | None = None
    error: float = 1e-8
    trials: int = NETWORKS
    limit: float = 300.0  # max_seconds

    @property
    def name(self):
        """Shape and kind."""
        kind = ("trained on digits" if self.trained else "planted") + ", by probabilities" * self.probabilities
        return f"{'-'.join(map(str, self.widths))}, {kind}"

    def network(self, seed):
        """The network, and inputs (300, D)."""
        rng = np.random.RandomState(seed)
        if self.trained:
            return _trained(self.widths, seed)
        weights, biases = [], []
        for i, (a, b) in enumerate(zip(self.widths[:-1], self.widths[1:], strict=True)):
            gain = 2.0 if i < len(self.widths) - 2 else 1.0
            weights.append(rng.standard_normal((a, b)) * np.sqrt(gain / a))
            biases.append(0.1 * rng.standard_normal(b))
        return FeedforwardNetwork(weights, biases, "relu"), rng.standard_normal((300, self.widths[0]))


ROWS = [
    Row((784, 64, 32, 10), queries=60_000, seconds=5.0),
    Row((784, 128, 64, 10), queries=60_000, seconds=5.0),
    Row((784, 256, 128, 10), queries=130_000, seconds=15.0),
    Row((64, 32, 32, 10), trained=True, seconds=10.0),
    Row((784, 64, 32, 10), probabilities=True, queries=60_000, seconds=5.0),
    Row((64, 32, 32, 10), trained=True, probabilities=True, seconds=10.0),
    Row((64, 50, 30, 10), trained=True, probabilities=True, seconds=10.0),
    Row((784, 128, 64, 10), trained=True, queries=60_000, seconds=5.0, trials=5),
    Row((20, 30, 30, 10), queries=20_000, seconds=3.0),
    Row((64, 100, 100, 10), queries=90_000, seconds=15.0, trials=2),
]
ENLARGED = 784  # inputs of networks that are trained on digits of 28 times 28 pixels instead of 8 times 8


@part("scale", "relu", seeds=SEEDS)
class ReLU:
    """Networks recovered per row, with queries, seconds and memory."""

    @staticmethod
    def run(trials, quick):
        """Measure the rows."""
        if quick:
            return {"rows": [_measured(Row((64, 32, 16, 10)), 900, QUICK)]}
        return {"rows": [_measured(row, 20 * i, trials) for i, row in enumerate(ROWS)]}

    @staticmethod
    def tables(result):
        """One row per kind of network."""
        head = ["networks", "parameters", "widths", "exact", "error <= 1e-8", "max error", "median queries", "bound"]
        return format_table([*head, "max s", "peak MB"], [_cells(row) for row in result["rows"]])


def _trained(widths, seed):
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    if widths[0] == ENLARGED:
        X = _enlarged(X)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = []
        for a, b in zip(widths[:-1], widths[1:], strict=True):
            layers += [torch.nn.Linear(a, b, dtype=torch.float64), torch.nn.ReLU()]
        network = torch.nn.Sequential(*layers[:-1])
        optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
        x, t = torch.tensor(X), torch.tensor(y)
        for _ in range(N_EPOCHS):
            for rows in torch.randperm(len(x)).split(BATCH):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(network(x[rows]), t[rows]).backward()
                optimizer.step()
    return FeedforwardNetwork.from_torch(network), X


def _enlarged(X):
    """Digits (n, 784), interpolated to 28 times 28 pixels."""
    return zoom(X.reshape(-1, 8, 8), (1, 3.5, 3.5), order=1).reshape(len(X), -1)


def _softmax(Z):
    P = np.exp(Z - Z.max(axis=1, keepdims=True))
    return P / P.sum(axis=1, keepdims=True)


def _measured(row, first, trials):
    results = []
    for seed in range(SEEDS.start + first, SEEDS.start + first + (trials or row.trials)):
        results.append(_trial(row, seed))
        print(row.name, results[-1], flush=True)
    bars = {"right": row.right, "queries": row.queries, "seconds": row.seconds, "error": row.error}
    return {"name": row.name, "widths": list(row.widths), "bars": bars, "trials": results}


def _trial(row, seed):
    network, X = row.network(seed)
    response = {"response_method": "predict_proba"} if row.probabilities else {}
    model = (lambda U: _softmax(network(U))) if row.probabilities else network.__call__
    identifier = make_identifier(model, layer_widths="auto", random_state=0, max_seconds=row.limit, **response)
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            identifier.fit(X)
    except (NotIdentified, BlackBoxError, OutOfBudgetError) as error:
        return {"seed": seed, "refusal": str(error)[:200], "seconds": time.process_time() - began}
    seconds = time.process_time() - began
    F = X.mean(axis=0) + X.std(axis=0) * np.concatenate(
        [radius * np.random.RandomState(9).standard_normal((N_INPUTS, X.shape[1])) for radius in RADII]
    )
    Y = network(F)
    found, largest = identifier.network_, Y.std(axis=0).max()
    Z = found(F)
    if row.probabilities:  # they determine logits up to a number common to all classes
        Y, Z = (logits - logits.mean(axis=1, keepdims=True) for logits in (Y, Z))
    return {
        "seed": seed,
        "right": tuple(found.layer_widths) == tuple(network.layer_widths),
        "exact": bool(identifier.report_.exact),
        "agrees": bool(identifier.report_.agrees),
        "method": identifier.report_.stages[0]["name"] if identifier.report_.stages else "",
        "error": float(np.abs(Z - Y).max() / largest),
        "queries": int(identifier.n_queries_),
        "seconds": seconds,
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
    }


def _cells(row):
    trials, bars = row["trials"], row["bars"]
    found = [t for t in trials if "refusal" not in t]
    widths = row["widths"]
    n_parameters = sum((a + 1) * b for a, b in zip(widths[:-1], widths[1:], strict=True))
    return [
        row["name"],
        f"{n_parameters:,}",
        f"{sum(t['right'] for t in found)} of {len(trials)} ({bars['right']})",
        f"{sum(t['exact'] for t in found)} of {len(trials)}",
        f"{sum(t['error'] <= bars['error'] for t in found)} of {len(trials)} ({bars['right']})",
        max((t["error"] for t in found), default=None),
        _with_bar(int(np.median([t["queries"] for t in found])) if found else None, bars["queries"], "{:,}"),
        f"{n_parameters // widths[-1]:,}",
        _with_bar(max(t["seconds"] for t in trials), bars["seconds"], "{:.3g}"),
        max((t["mb"] for t in found), default=None),
    ]


def _with_bar(value, bar, form):
    text = "" if value is None else form.format(value)
    return text if bar is None else f"{text} ({form.format(bar)})"
