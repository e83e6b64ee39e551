"""Audits of classifiers through `predict_proba` against their weights, with two and three classes."""

from __future__ import annotations

import copy
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from skl2onnx import to_onnx
from sklearn.neural_network import MLPClassifier

import seed_ranges
from common import format_table
from registry import part
from skident.audit import verify_same
from skident.network import FeedforwardNetwork

FIRST_SEED = seed_ranges.EVERYDAY.start
OFFSET = 2_000  # of this part's seeds
TRIALS, QUICK_TRIALS = 40, 8


def trained(seed):
    """A classifier, and a copy with its largest outgoing weight changed by 1 %."""
    rng, n_classes = np.random.RandomState(seed), 2 + seed % 2
    X = rng.standard_normal((300, 4))
    y = np.digitize(X[:, 0] + X[:, 1] * X[:, 2], [0.0] if n_classes == 2 else [-0.5, 0.5])
    activation, width = ("relu", "tanh")[seed // 2 % 2], rng.randint(4, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MLPClassifier((width,), activation=activation, max_iter=200, random_state=seed).fit(X, y)
    other = copy.deepcopy(model)
    other.coefs_[1].flat[np.argmax(np.abs(other.coefs_[1]))] *= 1.01
    return model, other, X


def logits(model):
    """Its network as a float32 torch module."""
    return FeedforwardNetwork.from_sklearn(model).to_torch(torch.float32)


def by_torch(model):
    """Probabilities in float32."""
    module = logits(model)

    def outputs(X):
        Z = module(torch.as_tensor(X, dtype=torch.float32))
        return (torch.sigmoid(Z) if Z.shape[1] == 1 else torch.softmax(Z, dim=1)).detach().numpy()

    return outputs


def by_onnx(model, folder, name):
    """A file with labels and probabilities."""
    path = folder / f"{name}.onnx"
    onnx.save(to_onnx(model, np.zeros((1, 4), np.float32), options={"zipmap": False}), path)
    return path


def audits(model, other, folder):
    """Black box, reference and whether they are the same."""
    yield "predict_proba", model.predict_proba, model, True
    yield "predict_proba, changed", other.predict_proba, model, False
    yield "predict_proba, torch logits", model.predict_proba, logits(model).double(), True
    yield "torch", by_torch(model), model, True
    yield "torch, changed", by_torch(other), logits(model), False
    yield "ONNX", by_onnx(model, folder, "same"), model, True
    yield "ONNX, changed", by_onnx(other, folder, "changed"), model, False
    yield "forgotten softmax", lambda X: logits(model).double()(torch.as_tensor(X)).detach().numpy(), model, False


def trial(seed):
    """One audit; kinds in turn, and two and three classes."""
    model, other, X = trained(seed)
    with tempfile.TemporaryDirectory() as folder:
        name, box, reference, same = list(audits(model, other, Path(folder)))[seed // 4 % 8]
        report = verify_same(box, reference, X, random_state=seed)
    return {
        "case": name,
        "classes": len(model.classes_),
        "result": str(report).partition(":")[0],
        "wrong": report.same is not same,
    }


@part("everyday", "probability_audits", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    """All audits."""
    n = (QUICK_TRIALS if quick else TRIALS) if trials is None else trials
    return {"rows": [trial(FIRST_SEED + OFFSET + i) for i in range(n)]}


def tables(result):
    """Results by case."""
    groups = {}
    for row in result["rows"]:
        groups.setdefault((row["case"], row["classes"]), []).append(row)
    rows = [
        [case, classes, len(some), ", ".join(sorted({r["result"] for r in some})), sum(r["wrong"] for r in some)]
        for (case, classes), some in sorted(groups.items())
    ]
    return format_table(["black box", "classes", "audits", "result", "wrong"], rows)
