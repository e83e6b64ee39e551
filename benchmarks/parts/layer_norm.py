"""How far LayerNorm is from being identified: its quadratic form from outputs, and the ReLU network behind it."""

from __future__ import annotations

import itertools
import time
from unittest import mock

import numpy as np
import torch

import seed_ranges
from common import format_table
from registry import part
from skident import NetworkIdentifier

MODELS, QUICK = 10, 1
D, UNITS = 6, 12
PLACES, RADII, POINTS = 40, (1.0, 0.5, 0.25), 400  # where outputs are fitted, in standard deviations, and how many
SECONDS = 20.0


def _model(seed, affine):
    """Linear, LayerNorm, ReLU, linear, as a function; and its normalized quadratic form (D + 1, D + 1)."""
    torch.manual_seed(seed)
    first, norm, last = torch.nn.Linear(D, UNITS), torch.nn.LayerNorm(UNITS), torch.nn.Linear(UNITS, 1)
    if affine:
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
        torch.nn.init.uniform_(norm.bias, -0.5, 0.5)
    module = torch.nn.Sequential(first, norm, torch.nn.ReLU(), last).double().requires_grad_(False)
    A = np.column_stack([first.weight.numpy(), first.bias.numpy()])
    A -= A.mean(axis=0)
    Q = A.T @ A / UNITS
    Q[-1, -1] += norm.eps
    return (lambda X: module(torch.as_tensor(X)).numpy()[:, 0]), Q / np.trace(Q[:D, :D])


def _with_ones(X):
    return np.column_stack([X, np.ones(len(X))])


def _form_near(function, center, radius, rng):
    """How clear they are, quadratic form and constant: (f - c)^2 Q = M in a region, linear in Q, c Q and M - c^2 Q."""
    U = rng.standard_normal((POINTS, D)) / np.sqrt(D)
    Z, y = _with_ones(U), function(center + radius * U)
    mean, spread = y.mean(), y.std()
    y = (y - mean)[:, None] / spread
    pairs = list(itertools.combinations_with_replacement(range(D + 1), 2))
    P = np.column_stack([Z[:, i] * Z[:, j] for i, j in pairs])
    design = np.hstack([y**2 * P, y * P, P])
    scale = np.linalg.norm(design, axis=0)
    sizes, right = np.linalg.svd(design / scale, full_matrices=False)[1:]
    q, c = (right[-1] / scale)[: 2 * len(pairs)].reshape(2, -1)
    Q = np.zeros((D + 1, D + 1))
    for value, (i, j) in zip(q, pairs, strict=True):
        Q[i, j] += value / 2
        Q[j, i] += value / 2
    T = np.eye(D + 1)
    T[:D] = np.column_stack([np.eye(D), -center])[:, : D + 1] / radius
    Q = T.T @ Q @ T
    return sizes[-1] / sizes[-2], Q / np.trace(Q[:D, :D]), mean - spread * (q @ c) / (2.0 * q @ q)


def _behind(function, Q, constant, seed):
    """The ReLU network ``(f - c) sqrt(Q)`` by the default call: exact, and error of f at three standard deviations."""
    root = lambda X: np.sqrt(np.maximum(np.einsum("ni,ij,nj->n", _with_ones(X), Q, _with_ones(X)), 0.0))  # noqa: E731
    X = np.random.RandomState(seed).standard_normal((POINTS, D))
    model = lambda X: (function(X) - constant) * root(X)  # noqa: E731
    try:
        with mock.patch("time.perf_counter", time.process_time):
            found = NetworkIdentifier(model, activation="relu", random_state=0, max_seconds=SECONDS).fit(X)
    except ValueError:
        return False, None
    rows = 3.0 * np.random.RandomState(seed + 1).standard_normal((1000, D))
    truth = function(rows)
    return found.report_.exact, float(np.abs(found.predict(rows) / root(rows) + constant - truth).max() / truth.std())


def _trial(seed, affine):
    function, truth = _model(seed, affine)
    rng = np.random.RandomState(seed)
    fits = [
        _form_near(function, center, radius, rng) for center in rng.standard_normal((PLACES, D)) for radius in RADII
    ]
    _, Q, constant = min(fits, key=lambda fit: fit[0])
    error = float(np.abs(Q - truth).max() / np.abs(truth).max())
    exact, behind = (False, None) if affine else _behind(function, Q, constant, seed)
    return {"seed": seed, "form_error": error, "exact": bool(exact), "error": behind}


@part("real_models", "layer_norm", seeds=seed_ranges.REAL_MODELS)
class LayerNorm:
    """Linear, LayerNorm, ReLU, linear: the form from one region, then the ReLU network if the norm has no bias."""

    @staticmethod
    def run(trials, quick):
        """Ten models, without and with weights and biases of the norm."""
        first, n = seed_ranges.REAL_MODELS.start + 700, QUICK if quick else trials or MODELS
        return {
            "rows": [
                {"affine": affine, "trials": [_trial(first + i, affine) for i in range(n)]} for affine in (False, True)
            ]
        }

    @staticmethod
    def tables(result):
        """Errors of the quadratic form, and of the outputs."""
        rows = []
        for row in result["rows"]:
            trials = row["trials"]
            errors = [t["error"] for t in trials if t["error"] is not None]
            exact = "not tried" if row["affine"] else f"{sum(t['exact'] for t in trials)} of {len(trials)}"
            forms = [t["form_error"] for t in trials]
            name = "weights and biases" if row["affine"] else "none"
            rows.append([name, float(np.median(forms)), max(forms), exact, max(errors, default=None)])
        header = ["parameters of the norm", "form error, median", "largest", "network exact", "largest output error"]
        return format_table(header, rows)
