"""Bits of weights from float64 outputs: torch modules, perceptrons trained on float32 data, weights off the grid."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import scale

import seed_ranges
from cases.float32_models import Case, torch_network
from common import format_table, make_identifier
from registry import part
from skident.datasets import make_network
from skident.identification import NetworkIdentifier
from skident.identification.exact_bits import round_to_format
from skident.identification.exact_bits.grid import FORMAT_DIGITS, nearest
from skident.network import FeedforwardNetwork
from skident.oracle import BlackBoxError, NotIdentified, OutOfBudgetError

NETWORKS, QUICK = 10, 1
FIRST = 10  # the ten seeds before were used while the polish by leverage was written
N_OFF_GRID = 100
PERCEPTRON_UNITS = 20
SEEDS = seed_ranges.EXACT_BITS


@dataclass(frozen=True)
class Row:
    """Models of one kind: widths and activation of torch modules, or perceptrons; how many of ten must be complete."""

    name: str
    bar: int
    widths: tuple[int, ...] = ()
    activation: str = "relu"
    format: str = "float32"
    trials: int = NETWORKS
    seconds: float = 300.0  # max_seconds of a fit

    def model(self, seed):
        """What is queried, samples of its inputs, and the true weights in double precision."""
        if not self.widths:
            return _perceptron(seed)
        module, X = torch_network(Case(self.widths, self.activation, trained=seed % 2 == 1), seed)
        module = module.to(getattr(_torch(), self.format))
        return module, X, FeedforwardNetwork.from_torch(module.double())


ROWS = [
    Row("tanh 10-16-8-3", 10, (10, 16, 8, 3), "tanh"),
    Row("tanh 17-64-64-6", 10, (17, 64, 64, 6), "tanh"),
    Row("relu 10-32-1", 10, (10, 32, 1)),
    Row("relu 20-32-16-1", 9, (20, 32, 16, 1)),
    Row("relu 64-64-32-10", 8, (64, 64, 32, 10)),
    Row("gelu 10-32-1", 10, (10, 32, 1), "gelu"),
    Row("MLPClassifier((20,)), breast cancer", 9),
    Row("relu 10-32-1, float16", 10, (10, 32, 1), format="float16"),
    Row("relu 10-32-1, bfloat16", 10, (10, 32, 1), format="bfloat16"),
    Row("tanh 10-16-8-3, bfloat16", 10, (10, 16, 8, 3), "tanh", "bfloat16"),
    Row("relu 784-128-64-10", 3, (784, 128, 64, 10), trials=3),
]


@part("exact_bits", "float64_outputs", seeds=SEEDS)
class Float64Outputs:
    """Networks of which every bit came back, per row."""

    @staticmethod
    def run(trials, quick):
        """Measure the rows."""
        rows = ROWS[:1] if quick else ROWS
        return {"rows": [_measured(row, 20 * i + FIRST, QUICK if quick else trials) for i, row in enumerate(rows)]}

    @staticmethod
    def tables(result):
        """Networks and bits per row."""
        return format_table(
            ["weights", "all bits", "bits", "certain", "wrong", "median s", "rounding, over it", "refusals"],
            [_cells(row) for row in result["rows"]],
        )


@part("exact_bits", "off_grid", seeds=SEEDS)
class OffGrid:
    """Weights of double precision, or scaled afterwards, that are called certain bits."""

    @staticmethod
    def run(trials, quick):
        """Measure the networks."""
        n = 2 if quick else trials or N_OFF_GRID
        counts = [_certain_bits(SEEDS.start + 300 + i) for i in range(n)]
        return {"networks": n, "with_bits": sum(c > 0 for c in counts if c is not None), "failed": counts.count(None)}

    @staticmethod
    def tables(result):
        """One row."""
        head = ["networks", "with bits called certain", "not identified"]
        return format_table(head, [[result["networks"], result["with_bits"], result["failed"]]])


def _torch():
    import torch

    return torch


def _perceptron(seed):
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MLPClassifier((PERCEPTRON_UNITS,), max_iter=100, random_state=seed).fit(X, y)
    return FrozenEstimator(model), X.astype(float), FeedforwardNetwork.from_sklearn(model)


def _measured(row, first, trials):
    results = []
    for seed in range(SEEDS.start + first, SEEDS.start + first + (trials or row.trials)):
        results.append(_trial(row, seed))
        print(row.name, results[-1], flush=True)
    return {"name": row.name, "bar": row.bar, "trials": results}


def _trial(row, seed):
    model, X, truth = row.model(seed)
    identifier = make_identifier(model, layer_widths="auto", random_state=0, max_seconds=row.seconds)
    began = time.process_time()
    try:
        network = _fitted(identifier, X).network_
    except (NotIdentified, BlackBoxError, OutOfBudgetError) as error:
        return {"seed": seed, "refusal": str(error)[:200], "total": truth.n_parameters}
    seconds = time.process_time() - began
    held_out = np.random.RandomState(seed).standard_normal((200, X.shape[1]))
    began = time.process_time()
    round_to_format(network, row.format, held_out, truth(held_out))
    rounding = time.process_time() - began
    bits = _fitted(identifier.set_params(weight_dtype=row.format), X).report_.bits
    found = identifier.network_
    return {
        "seed": seed,
        "total": truth.n_parameters,
        "widths": list(map(int, found.layer_widths)),
        "certain": bits.certain,
        "right": _n_right(found, truth, FORMAT_DIGITS[row.format]),
        "seconds": seconds,
        "rounding": rounding,
        "error": float(np.abs(network(held_out) - truth(held_out)).max()),
        "reasons": list(bits.reasons),
    }


def _fitted(identifier, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return identifier.fit(X)


def _n_right(found, truth, digits):
    """Parameters equal to the last bit, up to the order of units, their signs and powers of two."""
    if found.layer_widths != truth.layer_widths:
        return 0
    aligned = truth.align_to(found)
    pairs = zip([*found.weights, *found.biases], [*aligned.weights, *aligned.biases], strict=True)
    return int(sum(np.sum(a == nearest(b, digits)) for a, b in pairs))


def _cells(row):
    trials = row["trials"]
    found = [t for t in trials if "refusal" not in t]
    complete = sum(t["right"] == t["certain"] == t["total"] for t in found)
    return [
        row["name"],
        f"{complete} of {len(trials)} ({row['bar']})",
        sum(t["total"] for t in trials),
        sum(t["certain"] for t in found),
        sum(max(t["certain"] - t["right"], 0) for t in found),
        float(np.median([t["seconds"] for t in found])) if found else None,
        max(t["rounding"] / t["seconds"] for t in found) if found else None,
        len(trials) - len(found),
    ]


def _certain_bits(seed):
    """Parameters that are called certain, of a network of double precision or one that was scaled; None if refused."""
    activation = ("tanh", "relu", "gelu")[seed % 3]
    network = make_network((8, 12, 2), activation=activation, output_activation="identity", random_state=seed)
    if seed % 2:
        weights = [W.astype(np.float32).astype(float) for W in network.weights]
        biases = [b.astype(np.float32).astype(float) for b in network.biases]
        rng = np.random.RandomState(seed)
        weights[0] /= rng.uniform(0.5, 2.0, (8, 1))
        network = network.with_parameters([weights[0], 1.1 * weights[1]], [biases[0] - 0.1, 1.1 * biases[1] + 0.3])
    identifier = NetworkIdentifier(lambda X: network(X), weight_dtype="float32", random_state=0, max_seconds=60)
    try:
        return _fitted(identifier, np.random.RandomState(seed).standard_normal((100, 8))).report_.bits.certain
    except (NotIdentified, BlackBoxError, OutOfBudgetError):
        return None
