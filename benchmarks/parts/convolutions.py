"""Convolutions that the default call recovers as dense layers: what `structure()` recognizes, and its kernels."""

from __future__ import annotations

import numpy as np

import seed_ranges
from cases.real_models import CONVOLUTIONS, image_layers, images
from common import format_table
from registry import part
from skident import NetworkIdentifier

MODELS, QUICK = 10, 1  # per kind
FIRST_SEED = seed_ranges.REAL_MODELS.start
SECONDS = 20.0  # max_seconds of a fit


@part("real_models", "convolutions", seeds=seed_ranges.REAL_MODELS)
def run(trials, quick):
    """Recognized convolutions per kind, and errors of their kernels."""
    n = QUICK if quick else trials or MODELS
    rows = [
        {"name": name, "trials": [_trial(parts, FIRST_SEED + i) for i in range(n)]}
        for name, parts in [*CONVOLUTIONS.items()][: 3 if quick else None]
    ]
    return {"rows": rows}


def _trial(parts, seed):
    """Whether the convolution is recognized, its shape of the input unknown, and the error of its kernels."""
    shape, _, *behind = parts
    true = image_layers(*parts)(seed)[0]
    model, X = images(*parts)(seed)
    fitted = NetworkIdentifier(model, random_state=seed, max_seconds=SECONDS).fit(X)
    found = fitted.network_.structure().convolution
    expected = (shape, true.stride, true.padding, behind[0]().kernel_size if behind else 1)
    right = found is not None and _described(found) == _described_as(*expected, true.weight.shape)
    error = _kernel_error(found.kernels, true.weight.detach().numpy()) if right else None
    return {"seed": seed, "exact": bool(fitted.report_.exact), "recognized": bool(right), "error": error}


def _described(found):
    return (found.input_shape, found.stride, found.padding, found.pooling, found.kernels.shape)


def _described_as(shape, stride, padding, pooling, kernels):
    pooling = (pooling, pooling) if isinstance(pooling, int) else tuple(pooling)
    return tuple(shape), tuple(stride), tuple(padding), pooling, tuple(kernels)


def _kernel_error(found, true):
    """Largest error of an entry, in any order of the kernels, each divided by its largest entry."""
    A, B = (K.reshape(len(K), -1) for K in (found, true))
    A, B = (K / np.take_along_axis(K, np.abs(K).argmax(axis=1)[:, None], axis=1) for K in (A, B))
    errors = np.abs(A[:, None] - B).max(axis=2)
    return float(errors.min(axis=0).max())


def tables(result):
    """Recognized: numbers of kernels and channels, size, stride, padding, pooling, all right."""
    rows = []
    for row in result["rows"]:
        trials = row["trials"]
        errors = [t["error"] for t in trials if t["recognized"]]
        counts = (f"{sum(t[key] for t in trials)} of {len(trials)}" for key in ("exact", "recognized"))
        rows.append([row["name"], *counts, max(errors, default=None)])
    return format_table(["model", "exact", "recognized", "largest error of a kernel"], rows)
