"""Rows of networks, planted or trained on scikit-learn's digits, and how they are measured; widths are not given."""

from __future__ import annotations

import gc
import multiprocessing
import re
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import zoom
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

import seed_ranges
from common import format_table, make_identifier
from skident.network import FeedforwardNetwork
from skident.oracle import BlackBoxError, NotIdentified, OutOfBudgetError

NETWORKS = 10
SEEDS = seed_ranges.SCALE
SEEDS_PER_ROW = 20
N_INPUTS = 4000  # held-out inputs per radius
RADII = (1.0, 3.0)  # standard deviations of these
N_EPOCHS, BATCH, LEARNING_RATE = 20, 64, 1e-3
FALSE_ERROR = 1e-6  # error from which a network that is reported as exact is a wrong one
ENLARGED = 784  # inputs of networks that are trained on digits of 28 times 28 pixels instead of 8 times 8


@dataclass(frozen=True)
class Row:
    """Networks of one shape, inputs first; the bars: networks of ten, queries, seconds, added MB, and error."""

    widths: tuple[int, ...]
    trained: bool = False
    probabilities: bool = False
    sklearn: bool = False  # trained by `MLPClassifier`
    activation: str = "relu"
    gain: float = 1.0  # factor of the hidden weights of planted networks
    right: int = 10
    queries: int | None = None
    seconds: float | None = None
    mb: float | None = None
    error: float = 1e-8
    trials: int = NETWORKS
    limit: float = 300.0  # max_seconds

    @property
    def name(self):
        """Shape and kind."""
        kind = "trained on digits" if self.trained else "planted"
        if self.sklearn:
            kind = "`MLPClassifier`, trained on digits"
        kind += ", by probabilities" * self.probabilities + f", weights times {self.gain:g}" * (self.gain != 1.0)
        return f"{self.activation} " * (self.activation != "relu") + f"{'-'.join(map(str, self.widths))}, {kind}"

    def network(self, seed):
        """The network, and inputs (300, D)."""
        rng = np.random.RandomState(seed)
        if self.trained or self.sklearn:
            return (_trained_by_sklearn if self.sklearn else _trained)(self.widths, seed)
        relu = self.activation == "relu"
        weights, biases = [], []
        for i, (a, b) in enumerate(zip(self.widths[:-1], self.widths[1:], strict=True)):
            hidden = i < len(self.widths) - 2
            gain = (2.0**0.5 if relu else self.gain) if hidden else 1.0
            weights.append(rng.standard_normal((a, b)) * gain / np.sqrt(a))
            biases.append((0.1 if relu else 0.3) * rng.standard_normal(b))
        return FeedforwardNetwork(weights, biases, self.activation), rng.standard_normal((300, self.widths[0]))


_TINY = Row((12, 6, 5, 4))


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


def _trained_by_sklearn(widths, seed):
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator = MLPClassifier(widths[1:-1], max_iter=N_EPOCHS, random_state=seed).fit(X, y)
    return FeedforwardNetwork.from_sklearn(estimator), X


def _enlarged(X):
    """Digits (n, 784), interpolated to 28 times 28 pixels."""
    return zoom(X.reshape(-1, 8, 8), (1, 3.5, 3.5), order=1).reshape(len(X), -1)


def _softmax(Z):
    P = np.exp(Z - Z.max(axis=1, keepdims=True))
    return P / P.sum(axis=1, keepdims=True)


def measure(rows, first, trials):
    """Results of the rows, whose seeds begin at `first`; each network in a process of its own, because of memory."""
    return {"rows": [_measured(row, first + SEEDS_PER_ROW * i, trials) for i, row in enumerate(rows)]}


def table(result):
    """One row per kind of network."""
    head = ["networks", "parameters", "widths", "exact", "false exact", f"error <= {FALSE_ERROR:g}", "within the bar"]
    head += ["max error", "on data", "median queries", "bound", "max s", "added MB"]
    return format_table(head, [_cells(row) for row in result["rows"]])


def _measured(row, first, trials):
    results = []
    for seed in range(SEEDS.start + first, SEEDS.start + first + (trials or row.trials)):
        with multiprocessing.get_context("fork").Pool(1) as pool:
            results.append(pool.apply(trial, (row, seed)))
        print(row.name, results[-1], flush=True)
    bars = {"right": row.right, "of": row.trials, "error": row.error}
    bars |= {"queries": row.queries, "seconds": row.seconds, "mb": row.mb}
    return {"name": row.name, "widths": list(row.widths), "bars": bars, "trials": results}


def trial(row, seed):
    """Recover one network; errors, queries and processor seconds."""
    network, X = row.network(seed)
    response = {"response_method": "predict_proba"} if row.probabilities else {}
    model = (lambda U: _softmax(network(U))) if row.probabilities else network.__call__
    identifier = make_identifier(model, layer_widths="auto", random_state=0, max_seconds=row.limit, **response)
    tiny, inputs = _TINY.network(0)
    make_identifier(tiny, random_state=0).fit(inputs)  # the memory of imports is not that of the fit
    gc.collect()
    before, began = _restarted_peak(), time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            identifier.fit(X)
    except (NotIdentified, BlackBoxError, OutOfBudgetError) as error:
        return {"seed": seed, "refusal": str(error)[:200], "seconds": time.process_time() - began}
    seconds, peak = time.process_time() - began, _peak()
    F = X.mean(axis=0) + X.std(axis=0) * np.concatenate(
        [radius * np.random.RandomState(9).standard_normal((N_INPUTS, X.shape[1])) for radius in RADII]
    )
    F = np.concatenate([F, X])
    Y = network(F)
    found, largest = identifier.network_, Y[: -len(X)].std(axis=0).max()
    Z = found(F)
    if row.probabilities:  # they determine logits up to a number common to all classes
        Y, Z = (logits - logits.mean(axis=1, keepdims=True) for logits in (Y, Z))
    errors = np.abs(Z - Y).max(axis=1) / largest
    return {
        "seed": seed,
        "right": tuple(found.layer_widths) == tuple(network.layer_widths),
        "exact": bool(identifier.report_.exact),
        "agrees": bool(identifier.report_.agrees),
        "method": identifier.report_.stages[0].name if identifier.report_.stages else "",
        "widths": [int(m) for m in found.layer_widths],
        "error": float(errors[: -len(X)].max()),
        "error_on_data": float(errors[-len(X) :].max()),
        "queries": int(identifier.n_queries_),
        "seconds": seconds,
        "mb": peak - before,
    }


def _restarted_peak():
    """Resident memory in MB, from which the peak of this process is counted again (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak():
    """Peak of the resident memory of this process in MB (Linux)."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024.0


def _cells(row):
    trials, bars = row["trials"], row["bars"]
    found = [t for t in trials if "refusal" not in t]
    widths, bar = row["widths"], f"({bars['right']} of {bars.get('of', NETWORKS)})"
    n_parameters = sum((a + 1) * b for a, b in zip(widths[:-1], widths[1:], strict=True))
    within = sum(t["error"] <= bars["error"] for t in found)
    return [
        row["name"],
        f"{n_parameters:,}",
        f"{sum(t['right'] for t in found)} of {len(trials)}",
        f"{sum(t['exact'] for t in found)} of {len(trials)}",
        sum(t["exact"] and t["error"] > FALSE_ERROR for t in found),
        f"{sum(t['error'] <= FALSE_ERROR for t in found)} of {len(trials)}",
        f"{within} of {len(trials)} <= {bars['error']:g} {bar}",
        max((t["error"] for t in found), default=None),
        max((t["error_on_data"] for t in found), default=None) if "trained" in row["name"] else None,
        _with_bar(int(np.median([t["queries"] for t in found])) if found else None, bars["queries"], "{:,}"),
        f"{n_parameters // widths[-1]:,}",
        _with_bar(max(t["seconds"] for t in trials), bars["seconds"], "{:.3g}"),
        _with_bar(max((t["mb"] for t in found), default=None), bars["mb"], "{:.0f}"),
    ]


def _with_bar(value, bar, form):
    text = "" if value is None else form.format(value)
    return text if bar is None else f"{text} ({form.format(bar)})"
