"""Bits of weights from float32 outputs alone: how many networks, and what share of bits against queries."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from cases.float32_models import Case, torch_network
from common import format_table, make_identifier
from registry import part
from skident.identification.exact_bits.single_precision import BLOCK, bits_from_outputs
from skident.identification.exact_bits.torch_outputs import emulate_torch
from skident.network import FeedforwardNetwork
from skident.oracle import BlackBoxError, NotIdentified, OutOfBudgetError

NETWORKS = 10
NEW_OUTPUTS = 100_000
CURVE_BLOCKS = (6, 12, 25, 49, 98)  # queries of one fit, in blocks of 8,192
CURVE_NETWORKS = 3
SEEDS = seed_ranges.EXACT_BITS
FIRST = 500  # of the seeds; twenty a row


@dataclass(frozen=True)
class Row:
    """Models by widths and activation; how many of ten must be complete."""

    widths: tuple[int, ...]
    activation: str
    bar: int | None
    seconds: float = 600.0

    @property
    def name(self):
        """Activation and widths."""
        return f"{self.activation} {'-'.join(map(str, self.widths))}"


ROWS = [Row((10, 16, 1), "tanh", 8), Row((8, 24, 1), "tanh", 6), Row((10, 12, 1), "relu", 5)]
CURVES = [Row((10, 16, 1), "tanh", None), Row((8, 24, 1), "tanh", None), Row((10, 8, 6, 1), "tanh", None)]


class Model:
    """A torch network in float32 that counts queries."""

    def __init__(self, row, seed):
        self.module, self.X = torch_network(Case(row.widths, row.activation, trained=seed % 2 == 1), seed)
        self.truth = FeedforwardNetwork.from_torch(self.module.double())
        self.module.float()
        self.n_queries = 0

    def __call__(self, X):
        """Outputs in float32."""
        import torch

        self.n_queries += len(X)
        with torch.no_grad():
            return self.module(torch.from_numpy(np.asarray(X, dtype=np.float32))).numpy()

    def n_right(self, network):
        """Parameters equal to the last bit, up to the order of units and their signs."""
        if network.layer_widths != self.truth.layer_widths:
            return 0
        aligned = self.truth.align_to(network)
        pairs = zip([*network.weights, *network.biases], [*aligned.weights, *aligned.biases], strict=True)
        return int(sum(np.sum(a == b) for a, b in pairs))


@part("exact_bits", "float32_outputs", seeds=SEEDS)
class Float32Outputs:
    """Networks of which every bit came back from float32 outputs alone, per row."""

    @staticmethod
    def run(trials, quick):
        """Measure the rows."""
        n = 1 if quick else trials or NETWORKS
        return {"rows": [measured(row, i, n) for i, row in enumerate(ROWS[:1] if quick else ROWS)]}

    @staticmethod
    def tables(result):
        """Networks and bits per row."""
        head = ["weights", "all bits", "certain but wrong", "median queries", "median s", "max s", "new outputs differ"]
        return format_table(head, [_cells(row) for row in result["rows"]])


@part("exact_bits", "float32_curve", seeds=SEEDS)
class Float32Curve:
    """Share of bits that one fit finds, against its queries."""

    @staticmethod
    def run(trials, quick):
        """Measure the curves."""
        blocks, n = (CURVE_BLOCKS[:1], 1) if quick else (CURVE_BLOCKS, trials or CURVE_NETWORKS)
        return {"rows": [curve(row, i, n, blocks) for i, row in enumerate(CURVES[:1] if quick else CURVES)]}

    @staticmethod
    def tables(result):
        """Share of bits per row and number of queries, mean over networks."""
        head = ["weights", *(f"{n * BLOCK:,} queries" for n in result["rows"][0]["blocks"])]
        return format_table(head, [[row["name"], *map(_mean, np.transpose(row["shares"]))] for row in result["rows"]])


def _mean(shares):
    return f"{np.mean(shares):.3f}"


def measured(row, i, n):
    """Networks of a row."""
    first, results = SEEDS.start + FIRST + 20 * i, []
    for seed in range(first, first + n):
        results.append(_trial(row, seed))
        print(row.name, results[-1], flush=True)
    return {"name": row.name, "bar": row.bar, "trials": results}


def _trial(row, seed):
    model = Model(row, seed)
    options = {"layer_widths": "auto", "random_state": 0, "weight_dtype": "float32", "emulate": "torch"}
    identifier = make_identifier(model, max_seconds=row.seconds, **options)
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            identifier.fit(model.X)
    except (NotIdentified, BlackBoxError, OutOfBudgetError) as error:
        return {"seed": seed, "refusal": str(error)[:200], "total": model.truth.n_parameters}
    seconds, n_queries, bits = time.process_time() - began, model.n_queries, identifier.report_.bits
    new = model.X.mean(axis=0) + np.random.RandomState(seed).standard_normal((NEW_OUTPUTS, row.widths[0]))
    differ = float(np.mean(emulate_torch(identifier.network_, new) != _in_blocks(model, new)))
    return {
        "seed": seed,
        "total": bits.total,
        "certain": bits.certain,
        "right": model.n_right(identifier.network_),
        "queries": n_queries,
        "seconds": seconds,
        "differ": differ,
        "reasons": list(bits.reasons),
    }


def _in_blocks(model, X):
    return np.concatenate([model(X[first : first + BLOCK]) for first in range(0, len(X), BLOCK)]).astype(float)


def curve(row, i, n, blocks):
    """Shares of right bits (n, len(blocks)) of one fit."""
    first, shares = SEEDS.start + FIRST + 100 + 20 * i, []
    for seed in range(first, first + n):
        model = Model(row, seed)
        identifier = make_identifier(model, layer_widths="auto", random_state=0, max_seconds=row.seconds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            network = identifier.fit(model.X).network_
        shares.append([_share(model, network, b * BLOCK, seed) for b in blocks])
        print(row.name, seed, shares[-1], flush=True)
    return {"name": row.name, "blocks": list(blocks), "shares": shares}


def _share(model, network, n_queries, seed):
    if network.layer_widths != model.truth.layer_widths:
        return 0.0
    rng = np.random.RandomState(seed)
    found = bits_from_outputs(
        network, lambda X: _in_blocks(model, X), lambda X: X, emulate_torch, rng, n_queries=n_queries
    )
    return model.n_right(found.network) / model.truth.n_parameters


def _cells(row):
    found = [t for t in row["trials"] if "refusal" not in t]
    complete = sum(t["right"] == t["certain"] == t["total"] for t in found)
    seconds = [t["seconds"] for t in found]
    return [
        row["name"],
        f"{complete} of {len(row['trials'])} ({row['bar']})",
        sum(max(t["certain"] - t["right"], 0) for t in found),
        f"{np.median([t['queries'] for t in found]):,.0f}",
        float(np.median(seconds)),
        float(max(seconds)),
        sum(t["certain"] == t["total"] and t["differ"] > 0 for t in found),
    ]
