"""One fit to a model with rounded outputs, and how the recovered network compares with the weights in float64."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from cases.float32_models import probabilities
from common import make_identifier
from skident.network import FeedforwardNetwork
from skident.oracle import BlackBoxError, NotIdentified, OutOfBudgetError

N_INPUTS = 2000  # held-out inputs on which errors are measured
N_ACTIVITY = 20_000  # inputs on which the activity of units is counted
RARE = 1e-3  # share of inputs at which a unit must be active, or inactive, to count
NORMAL = 1.96  # standard errors that contain 95 % of normal deviations


def fit_default(black_box, X, seconds):
    """The default call; the fitted identifier or None, its processor seconds, and the message of a refusal."""
    identifier = make_identifier(black_box, layer_widths="auto", random_state=0, max_seconds=seconds)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            identifier.fit(X)
        except (NotIdentified, BlackBoxError, OutOfBudgetError) as error:
            return None, time.process_time() - began, str(error)[:200]
    return identifier, time.process_time() - began, ""


def measured_fit(black_box, X, truth, *, softmax=False, seconds=120.0):
    """Success, error, queries, seconds and coverage of one fit, as a dictionary."""
    identifier, cpu, refusal = fit_default(black_box, X, seconds)
    counted = getattr(black_box, "n_rows", None if identifier is None else identifier.n_queries_)
    result = {"seconds": cpu, "queries": counted}
    if identifier is None:
        return result | {"refusal": refusal, "right": False, "error": None, "exact": False, "agrees": False}
    F = held_out_inputs(X)
    Y, found = probabilities(truth(F)) if softmax else truth(F), identifier.predict(F).reshape(len(F), -1)
    unit = 1.0 if softmax else Y.std(axis=0)
    truth = _with_determined_logits(truth) if softmax else truth
    report, widths = identifier.report_, tuple(int(m) for m in identifier.layer_widths_)
    return result | {
        "widths": list(widths),
        "right": has_right_widths(truth, widths, F),
        "activation": identifier.network_.activation,
        "error": float(np.max(np.abs(found - Y) / unit)),
        "rms": float(np.max(np.sqrt(np.mean((found - Y) ** 2, axis=0)) / unit)),
        "exact": bool(report.exact),
        "agrees": bool(report.agrees),
        "noise": float(report.noise),
        **coverage(identifier, truth),
    }


def held_out_inputs(X):
    """Inputs (n, D) in float32 numbers around the samples X."""
    F = X.mean(axis=0) + X.std(axis=0) * np.random.RandomState(9).standard_normal((N_INPUTS, X.shape[1]))
    return F.astype(np.float32).astype(float)


def has_right_widths(truth, widths, F):
    """Whether the widths are the true ones, less at most the ReLU units that hardly any input activates, or all do."""
    true = tuple(int(m) for m in truth.layer_widths)
    if widths == true or truth.activation != "relu" or len(widths) != len(true):
        return widths == true
    H = F.mean(axis=0) + F.std(axis=0) * np.random.RandomState(8).standard_normal((N_ACTIVITY, F.shape[1]))
    for W, b, found in zip(truth.weights[:-1], truth.biases[:-1], widths, strict=False):
        Z = H @ W + b
        active, H = np.mean(Z > 0, axis=0), np.maximum(Z, 0.0)
        if not np.sum((active > RARE) & (active < 1.0 - RARE)) <= found <= W.shape[1]:
            return False
    return True


def _with_determined_logits(network):
    """The network with logits of mean 0 over the classes, or the difference of two: probabilities determine no more."""
    W, b = (
        part[..., 1:] - part[..., :1] if len(network.biases[-1]) == 2 else part - part.mean(axis=-1, keepdims=True)
        for part in (network.weights[-1], network.biases[-1])
    )
    return FeedforwardNetwork([*network.weights[:-1], W], [*network.biases[:-1], b], network.activation)


def _with_norms_of(network, truth):
    """The true network with ReLU units rescaled to the norms of the other one's incoming weights, as `stderr_` has."""
    weights, biases = [W.copy() for W in truth.weights], [b.copy() for b in truth.biases]
    if truth.activation != "relu":
        return truth
    for k, W in enumerate(network.weights[:-1]):
        factors = np.linalg.norm(W, axis=0) / np.linalg.norm(weights[k], axis=0)
        weights[k] *= factors
        biases[k] *= factors
        weights[k + 1] /= factors[:, None]
    return truth.with_parameters(weights, biases)


def coverage(identifier, truth):
    """How many parameters have a standard error, and how many of them lie within 1.96 of it; nothing if unmatched."""
    network = identifier.network_
    if identifier.stderr_ is None or tuple(network.layer_widths) != tuple(truth.layer_widths):
        return {"covered": 0, "with_stderr": 0}
    aligned = _with_norms_of(network, truth.align_to(network))
    found, true = ([*net.weights, *net.biases] for net in (network, aligned))
    errors = np.concatenate([(a - b).ravel() for a, b in zip(found, true, strict=True)])
    stderr = np.concatenate([s.ravel() for part in identifier.stderr_ for s in part])
    known = np.isfinite(stderr)
    return {"covered": int(np.sum(np.abs(errors[known]) <= NORMAL * stderr[known])), "with_stderr": int(known.sum())}
