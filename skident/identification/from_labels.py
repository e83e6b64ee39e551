"""Identification from labels alone: logits of the boundary become a network in raw inputs, with its report."""

import numpy as np

from skident.base.progress import StageLog
from skident.base.undetected import undetected_share
from skident.linalg import lapack
from skident.linalg.sign_vectors import UndecidedSignsError, solve_signs
from skident.network import FeedforwardNetwork, leaky_relu
from skident.oracle import NotIdentified, OutOfBudgetError, probabilities_from_logits

from .constants import NORMAL_RANK_TOL
from .piecewise.boundary.checks import contradicting_labels
from .piecewise.boundary.engine import identify_logits
from .piecewise.boundary.labels import Labels
from .report import IdentificationReport

_SIGN_TOL = 1e-7  # of the linear parts of logits, over their size, that signs of units must explain
_SLOPE_TOL = 1e-8  # of the linear parts over those of ReLU, beyond which units are leaky (rounding)
_MIN_CHECKED = 100  # boundary points at which labels must agree before the network is exact
_N_COMPARED = 1000  # inputs at which the network gives the labels of the logits: a check of the conversion
_STAGE = "decision boundary"
_REASONS = ("one hidden ReLU layer", "two hidden ReLU layers")


def network_from_labels(model, X, center, scale, budget, rng, input_range=None, verbose=0):
    """Network, classes (K,) and report of a model (n, D) -> (n,) labels with one or two hidden ReLU layers."""
    labels = Labels(model, center, scale, budget, input_range)
    log = StageLog(verbose, "NetworkIdentifier")
    with log.stage(_STAGE, labels) as entry:
        labels.probe((X - center) / scale, rng)
        found = _identified(labels, rng, log)
        entry["residual"] = found.residual
    if (n := found.logits.coef.shape[1]) < len(labels.classes):
        raise NotIdentified(
            "boundary", "classes", f"only {n} of {len(labels.classes)} classes were recovered: the others are rare. "
            "Pass X with samples of all classes.",
        )  # fmt: skip
    classes = np.array(labels.classes)
    order = np.argsort(classes)
    network, signs_known = _network(found.logits, order, center, scale)
    U = labels.draw(_N_COMPARED, rng, (0.5, 4.0))
    seen = np.argmax(probabilities_from_logits(network(center + scale * U)), axis=1)
    same = np.mean(order[seen] == found.logits.predict(U))
    signs_known = signs_known and bool(same >= 1 - 1 / _N_COMPARED)
    contradicting = contradicting_labels(labels, found.logits)
    undetermined = _in_raw_inputs(found, center, scale)[:, :, order]
    return network, classes[order], _report(found, undetermined, labels, log, signs_known, contradicting)


def _identified(labels, rng, log):
    """The logits; if the budget ends, its error says how many units were recovered before."""
    try:
        return identify_logits(labels, rng, log.say)
    except OutOfBudgetError as error:
        if labels.n_units:
            error.progress = f"after {labels.n_units} units and {labels.n_queries} queries, before the fit was complete"
        raise


def _signs(A, T, H):
    """Signs (m,) and negative slope with ``T = factor * (A * signs) @ H``; None if unknown.

    T (K, D) are linear parts, A (K, m) coefficients of |z|, and ``factor = (1 + slope) / (1 - slope)``: a leaky ReLU
    is ``((1 + slope) z + (1 - slope) |z|) / 2``.
    """
    M = (A[:, None, :] * H.T[None]).reshape(-1, A.shape[1])
    size = max(np.abs(M).max(initial=0.0), np.abs(T).max(initial=0.0), 1e-300)
    M, r = M / size, T.ravel() / size
    if lapack.matrix_rank(M, tol=NORMAL_RANK_TOL) == A.shape[1]:
        signs = np.sign(lapack.lstsq(M, r, rcond=None)[0])
        v = M @ signs
        factor = max((v @ r) / (v @ v), 1.0)
        factor = factor if factor > 1.0 + _SLOPE_TOL else 1.0
        return (signs, (factor - 1) / (factor + 1)) if np.abs(factor * v - r).max() < _SIGN_TOL * factor else None
    try:
        found = solve_signs(M, r, _SIGN_TOL)
    except UndecidedSignsError:
        return None
    return (found[0], 0.0) if len(found) == 1 else None


def _network(logits, order, center, scale):
    """The network of raw inputs, and whether its signs are determined; else two linear units per class stand in."""
    coef = logits.coef[:, order]
    coef = coef[:, 1:] - coef[:, :1] if len(order) == 2 else coef - coef.mean(axis=1, keepdims=True)
    if logits.first is None:
        layers, known, slope = _last_layers(logits.hyperplanes, coef)
        (W, b), *rest = layers
    else:
        rest, known, slope = _last_layers(logits.hyperplanes, coef, leaky=False)
        W, b = logits.first[:, :-1].T, logits.first[:, -1]
        if np.any(linear := logits.linear):  # z = relu(z) - relu(-z)
            W, b = np.hstack([W, -W[:, linear]]), np.append(b, -b[linear])
            V, c = rest[0]
            rest[0], known = (np.vstack([V, -V[linear]]), c), False
    W = W / scale[:, None]
    layers = [(W, b - center @ W), *rest]
    activation = leaky_relu(slope) if slope else "relu"
    return FeedforwardNetwork([W for W, _ in layers], [b for _, b in layers], activation), known


def _last_layers(H, coef, leaky=True):
    """Last layers with logits ``(|z|, x, 1) @ coef``, whether the units' signs are known, and their negative slope."""
    m = len(H)
    A, T = coef[:m].T, coef[m:].T
    if m == 0:
        return [(T[:, :-1].T, T[:, -1])], True, 0.0
    found = _signs(A, T[:, :-1], H[:, :-1])
    if found is not None and found[1] and not leaky:  # the first layer was identified as ReLU
        found = None
    if found is None:
        V, bias = np.vstack([2 * A.T, np.eye(len(T)), -np.eye(len(T))]), np.zeros(len(T))
        planes = T - A @ H
        hidden, slope = np.vstack([H, planes, -planes]), 0.0
    else:
        signs, slope = found
        hidden, V = signs[:, None] * H, 2 * A.T / (1 - slope)
        bias = T[:, -1] - (1 + slope) / (1 - slope) * (A * signs) @ H[:, -1]
    return [(hidden[:, :-1].T, hidden[:, -1]), (V, bias)], found is not None, slope


def _in_raw_inputs(found, center, scale):
    """Null vectors (k, F, K) for the features (|z|, x, 1) in raw inputs x, or behind a first layer its activations."""
    N, D = found.open_coef.copy(), len(center)
    if found.logits.first is None:
        N[:, -D - 1 : -1] /= scale[:, None]
        N[:, -1] -= np.einsum("d,kdc->kc", center, N[:, -D - 1 : -1])
    return N


def _report(found, undetermined, labels, log, signs_known, contradicting):
    """Report: labels at the boundary decide `exact`; `undetermined` is a basis of what they do not determine.

    A single one of all queried labels that the network contradicts away from its boundary is enough for "not exact".
    """
    agrees = found.wrong == 0 and found.checked >= _MIN_CHECKED and contradicting[0] == 0
    all_pairs = set(found.pairs) >= found.pairs_seen
    exact = agrees and all_pairs and not len(found.open_coef) and signs_known
    error = found.residual if agrees else np.inf
    return IdentificationReport(
        exact=bool(exact), agrees=bool(agrees), relative_max_error=float(error), checked=found.checked,
        undetected_share=undetected_share(found.checked if agrees else 0),
        boundary_errors=found.wrong, contradicting_labels=contradicting[0],
        compared_labels=contradicting[1], class_pairs=found.pairs, undetermined=undetermined,
        signs_determined=signs_known, noise=0.0, route="labels", attempts=1,
        reason=_REASONS[found.logits.first is not None],
        n_queries=labels.n_queries, stages=log.stages, plan=["labels"], activation=None, bits=None,
        tried=[("labels", "exact" if exact else "agrees" if agrees else "not exact")],
    )  # fmt: skip
