"""Audits of float32 binary classifiers by torch and onnxruntime, half of them with one weight changed by 1 %.

An unchanged classifier must be the same, a changed one different. If no probability of X is farther than 1e-3 from 0
and 1, or if the change moves none by 1e-7, undecided is right, too: float32 probabilities do not resolve it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from scipy.special import expit

import seed_ranges
from common import format_table
from registry import part
from skident.audit import verify_same
from skident.network import FeedforwardNetwork

FIRST_SEED = seed_ranges.EVERYDAY.start
OFFSET = 1_000  # of this part's seeds
TRIALS, QUICK_TRIALS = 120, 4
N_ROWS, CHANGE = 500, 1.01
RESOLVED = 1e-7  # change of a probability that float32 resolves
UNCERTAIN = 1e-3  # distance from 0 and 1


def classifier(rng, activation):
    """Logits of a float32 network as torch initializes it, of standard deviation 1 to 16, and rows of X."""
    D, m = rng.integers(3, 12), rng.integers(4, 24)
    X, bound = rng.standard_normal((N_ROWS, D)), (D**-0.5, m**-0.5)
    weights = [bound[0] * rng.uniform(-1, 1, (D, m)), bound[1] * rng.uniform(-1, 1, (m, 1))]
    biases = [bound[0] * rng.uniform(-1, 1, m), bound[1] * rng.uniform(-1, 1, 1)]
    scale = 2.0 ** rng.uniform(0, 4) / FeedforwardNetwork(weights, biases, activation)(X).std()
    arrays = [[weights[0], scale * weights[1]], [biases[0], scale * biases[1]]]
    return FeedforwardNetwork(*([a.astype(np.float32) for a in part] for part in arrays), activation), X


def by_torch(network, folder):
    """Its probabilities (n, 1)."""
    module = network.to_torch(torch.float32)
    return lambda X: torch.sigmoid(module(torch.as_tensor(X, dtype=torch.float32))).detach().numpy()


def by_onnxruntime(network, folder):
    """A file that gives the same."""
    path = folder / "classifier.onnx"
    FeedforwardNetwork(network.weights, network.biases, network.activation, "sigmoid").to_onnx(path, dtype="float32")
    return path


def trial(seed):
    """One audit: runtime, activation, whether changed, result, and whether it is wrong."""
    rng, activation = np.random.default_rng(seed), ("relu", "tanh")[seed % 2]
    runtime, changed = (by_torch, by_onnxruntime)[seed // 2 % 2], bool(seed // 4 % 2)
    known, X = classifier(rng, activation)
    weights = [np.array(W) for W in known.weights]
    layer = rng.integers(2)
    place = tuple(rng.integers(weights[layer].shape))
    weights[layer][place] = np.float32(weights[layer][place] * (CHANGE if changed else 1.0))
    box = known.with_parameters(weights, known.biases)
    before, after = expit(known(X)), expit(box(X))
    undecided = np.abs(after - before).max() < RESOLVED if changed else np.minimum(before, 1 - before).max() < UNCERTAIN
    with tempfile.TemporaryDirectory() as folder:
        report = verify_same(runtime(box, Path(folder)), known, X, response_method="predict_proba", random_state=seed)
    wrong = report.same is not (not changed) and not (report.same is None and undecided)
    case = {"runtime": runtime.__name__.removeprefix("by_"), "activation": activation, "changed": changed}
    return {"seed": seed, **case, "result": str(report).partition(":")[0], "wrong": bool(wrong)}


@part("everyday", "float32_audits", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    """All audits."""
    n = (QUICK_TRIALS if quick else TRIALS) if trials is None else trials
    return {"rows": [trial(FIRST_SEED + OFFSET + i) for i in range(n)]}


def tables(result):
    """Results by runtime and activation."""
    groups = {}
    for row in result["rows"]:
        groups.setdefault((row["runtime"], row["activation"], "changed" if row["changed"] else "unchanged"), []).append(
            row
        )
    results = ("the same", "different", "undecided")
    counts = [
        [*k, *([r["result"] for r in g].count(v) for v in results), sum(r["wrong"] for r in g)]
        for k, g in groups.items()
    ]
    return format_table(["runtime", "activation", "weight", *results, "wrong"], sorted(counts))
