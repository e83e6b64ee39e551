"""Two hidden layers behind the first: directions from Hessians by its outputs, assigned to layers, then a fit."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np

from skident.fitting.least_squares import Stopping, fit_network
from skident.linalg import RankOneOptions, find_rank_one, jennrich, svd, svec, svec_outer
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import NotIdentified

from ..downstream import RecoveredNetwork
from .coordinates import hessian_queries
from .profiles import fit_profiles

__all__ = ["MIN_OUTPUTS", "recover_two_layers", "second_layer_span", "two_layers_queries"]

MIN_OUTPUTS = 3  # from which the gradient has more entries than there are directions
_SPAN_POINTS = 2.0  # gradients per dimension of the span of second-layer weights
_N_BASES = 3  # points: directions of the second layer are equal at all of them
_AWAY = 0.3  # standard deviation of base points but the first, in outputs of tanh units
_SPREAD = 0.25  # of points around a base (tuned on 40-40-30-20-10: 0.2 to 0.4 are alike)
_OVERSAMPLING = 3.0  # Hessians per dimension of their span
_LARGEST = 0.9  # output of a first-layer unit at which Hessians are taken, of its limit
# Dimensions of the span beyond the second layer's, over its width. That directions of the third layer vary within the
# spread takes further ones: too small a span misses directions (tuned on 40-40-30-20-10 and 20-16-12-8-5).
_EXCESSES = (1.3, 2.0, 1.0, 1.6)
_MOST_OF_ALL = 0.6  # share of all symmetric matrices that a span may have: in larger ones every vector is a solution
_SEARCH = RankOneOptions(tol=1e-4, max_iter=300)  # directions are uncertain by 0.05
_GRADIENT_STEP = 1e-3  # in outputs of tanh units
_SAME_COSINE = 0.9  # of directions at different points that are those of one unit: errors are mostly below 0.2
_SAME_COSINE_THIRD = 0.75  # the same of third-layer units, whose directions vary from point to point
_FIT_SPREAD = 1.6  # standard deviation of first-layer pre-activations of the fit, over the rate
_VALUES_PER_PARAMETER = 4.0  # of the fit: with fewer, it fits samples and not the network while it is far from both
_STEPS = 15  # of a fit, between checks whether it converges
_ROUNDS = ((600, 40), (np.inf, 10))  # of so many steps, by the number of parameters up to which they are fast (budget)
_GAIN = 0.9  # of the residual by every round, or the next directions are tried
_SLOW = 0.05  # residual above which a round that gains less ends a fit
_NEARLY = 3e-4  # residual from which a fit converges quadratically if no unit is redundant
_RANK_GAP = 0.2  # ratio of singular values at the rank of a tensor: the fit leaves errors of 1e-4, not zeros
_TENSOR_POINTS = 8  # beyond the width, at which the tensor has full rank
_DENSE_LIMIT = 4000  # parameters up to which normal equations are formed: fewer steps than conjugate gradients


@dataclass(frozen=True)
class _Directions:
    """Unit vectors at one point: those of one hidden layer `ones` (k, n), and those of the other `others`."""

    ones: np.ndarray
    others: np.ndarray


def two_layers_queries(n_units, n_outputs):
    """Queries of one trial, without those of the fit."""
    n_hessians = _OVERSAMPLING * (1.0 + _EXCESSES[0]) * n_units / n_outputs
    return int(_N_BASES * n_hessians * hessian_queries(n_units))


def second_layer_span(model, n_units, rng):
    """Orthonormal basis (m_1, m_2) of second-layer weights, which all gradients by first-layer outputs span."""
    m_1 = len(model.first.biases)
    if n_units >= m_1:
        return np.eye(m_1)
    Z = model.random_preactivations(_FIT_SPREAD, int(np.ceil(_SPAN_POINTS * n_units / model.n_outputs)) + 1, rng)
    slopes = get_activation(model.activation).jet(Z, 1)[1][:, None, :]
    return svd((model.gradients(Z) / slopes).reshape(-1, m_1).T, full_matrices=False)[0][:, :n_units]


def recover_two_layers(model, basis, n_trials, rng, *, tol, deadline=np.inf, progress=None):
    """The `RecoveredNetwork` of three hidden layers behind an exact first one, the second of m_2 units.

    Parameters: a `HiddenModel`; an orthonormal `basis` (m_1, m_2) of the span of second-layer weights.

    In first-layer outputs h, Hessians are sums of ``w w^T`` over second-layer weights w, and of ``v v^T`` over
    entangled third-layer weights ``v = W_2 diag(g'(z_2)) w_3``: near a point their span gives w and v, mixed. All
    outputs together assign them to layers. With the output profile rho_i of direction x_i, the gradient (m_1, m_L) is a
    combination of ``x_i rho_i^T`` over either layer alone, so that the two combinations differ by a null vector of all.
    Its signs times those of the minimum-norm combination are the layers. Directions that persist at other points are
    those of the second layer. From there, least squares in all parameters converge even if norms and biases are unknown
    and some directions are missing; then a tensor of gradients gives the width of the third layer, if that is smaller.
    Raises `NotIdentified` if no trial converges.
    """
    best, n_units = np.inf, basis.shape[1]
    for trial in range(n_trials):
        excess = _EXCESSES[trial % len(_EXCESSES)]
        dimension = min(int((1.0 + excess) * n_units), int(_MOST_OF_ALL * n_units * (n_units + 1) / 2))
        start = _start(model, basis, dimension, rng)
        if start is not None:
            network, residual = _fitted(model, basis, start, rng, tol, deadline)
            if residual < tol:
                return RecoveredNetwork(_joined(model, basis, network), residual, {"fit": residual})
            best = min(best, residual)
        if progress is not None:
            progress(trial + 1)
        if time.perf_counter() > deadline:
            break
    raise NotIdentified(
        "second layer", "residual", f"three hidden layers leave a relative residual of {best:.1e} of the outputs"
    )


def _start(model, basis, dimension, rng):
    """A network of coordinates along the basis, from directions at a few points; None if one layer has none."""
    (m_1, n_units), center = basis.shape, model.center
    found = []
    for i in range(_N_BASES):
        at = center + model.unit * _AWAY * rng.standard_normal(m_1) * (i > 0)
        found.append(_directions(model, basis, at, dimension, rng))
    second, third = _by_layer(found)
    if not len(second) or not len(third):
        return None
    W = _filled(_distinct(second, n_units, _SAME_COSINE), n_units, rng).T
    third = _distinct(third, n_units, _SAME_COSINE_THIRD)
    T = np.linalg.lstsq(W, third.T, rcond=None)[0]
    T /= np.linalg.norm(T, axis=0)
    g = get_activation(model.activation)
    b_2, b_3 = -(center @ basis) @ W, -g(np.zeros(n_units)) @ T
    weights, biases = [W, T, np.zeros((len(third), model.n_outputs))], [b_2, b_3, np.zeros(model.n_outputs)]
    return FeedforwardNetwork(weights, biases, model.activation)


def _directions(model, basis, at, dimension, rng):
    """`_Directions` from Hessians near a point (m_1,)."""
    n, m_L = basis.shape[1], model.n_outputs
    count = int(np.ceil(_OVERSAMPLING * dimension / m_L))
    points = at + model.unit * _SPREAD * rng.standard_normal((count, len(at)))
    points = model.clipped(np.vstack([at, points]), _LARGEST)
    H = svec(model.hessians(points[1:], basis)).reshape(count * m_L, -1)
    span = svd(H.T, full_matrices=False)[0][:, :dimension]
    X = find_rank_one(span, n, n_vectors=dimension, options=_SEARCH, rng=rng).vectors
    if len(X) < 2:
        return _Directions(X, X[:0])
    terms = np.linalg.lstsq(svec_outer(X).T, H.T, rcond=None)[0].reshape(len(X), count, m_L)
    profiles = np.array([svd(term, full_matrices=False)[2][0] for term in terms])
    moves = _GRADIENT_STEP * model.unit * basis.T
    gradient = (model(points[0] + moves) - model(points[0] - moves)) / (2.0 * _GRADIENT_STEP * model.unit)
    first = _is_first_kind(X, profiles, gradient)
    return _Directions(X[first], X[~first])


def _is_first_kind(X, profiles, gradient):
    """For directions X (k, n) of two layers with output profiles (k, m_L): whether they are of the one or the other."""
    M = (X[:, :, None] * profiles[:, None, :]).reshape(len(X), -1)
    left, values, right = svd(M.T, full_matrices=False)
    solution = right[:-1].T @ ((left[:, :-1].T @ gradient.ravel()) / values[:-1])
    return solution * right[-1] > 0


def _by_layer(found):
    """Directions (k, n) of the second layer at all points, those with most copies first, and those of the third."""
    second, third = [], []
    for i, here in enumerate(found):
        others = [np.vstack([there.ones, there.others]) for k, there in enumerate(found) if k != i]
        ones, rest = (np.mean([_persistence(part, other) for other in others]) for part in (here.ones, here.others))
        second.append(here.ones if ones > rest else here.others)
        third.append(here.others if ones > rest else here.ones)
    support = [np.mean([_cosines(part, other) for other in second], axis=0) for part in second]
    order = np.argsort(-np.concatenate(support), kind="stable")
    return np.concatenate(second)[order], np.concatenate(sorted(third, key=len, reverse=True))


def _cosines(X, other):
    """Largest absolute cosine of every direction (k, n) with others (0 without any)."""
    return np.abs(X @ other.T).max(axis=1, initial=0.0)


def _persistence(X, other):
    """Median absolute cosine of directions with the nearest ones at another point; 0 without any."""
    return float(np.median(_cosines(X, other))) if len(X) else 0.0


def _distinct(X, most, same_cosine):
    """The first directions (k, n) that are no copies of those before, at most so many."""
    kept = np.empty((0, X.shape[1]))
    for x in X:
        if len(kept) < most and np.abs(kept @ x).max(initial=0.0) < same_cosine:
            kept = np.vstack([kept, x])
    return kept


def _filled(X, count, rng):
    """Directions (k, n) and random ones, `count` in all."""
    return np.vstack([X, rng.standard_normal((count - len(X), X.shape[1])) / np.sqrt(X.shape[1])])


def _fitted(model, basis, start, rng, tol, deadline):
    """The start fitted to outputs, its third layer narrowed if it is too wide, and the relative residual."""
    Z = model.random_preactivations(_FIT_SPREAD, _n_samples(start, len(basis)), rng)
    C, Y = get_activation(model.activation)(Z) @ basis, model.at_preactivations(Z)
    stopping = Stopping(max_iter=_STEPS, target=0.1 * tol, patience=_STEPS, deadline=deadline)
    network, residual, narrowed = _with_readout(start, C, Y), np.inf, False
    for _ in range(next(rounds for most, rounds in _ROUNDS if most >= start.n_parameters)):
        before = residual
        network, residual = fit_network(network, C, Y, stopping, dense_limit=_DENSE_LIMIT)
        if residual < _NEARLY and not narrowed:
            narrowed, other = True, _narrowed(model, basis, network, rng)
            if other is not None:
                other, left = fit_network(_with_readout(other, C, Y), C, Y, stopping, dense_limit=_DENSE_LIMIT)
                network, residual = (other, left) if left < tol else (network, residual)
        stuck = residual > _GAIN * before and residual > _SLOW
        if residual < tol or stuck or time.perf_counter() > deadline:
            break
    return network, residual


def _n_samples(network, n_inputs):
    """Samples of a fit."""
    return int(_VALUES_PER_PARAMETER * network.n_parameters / network.n_outputs) + n_inputs


def _with_readout(network, C, Y):
    """The network with output weights from least squares on samples."""
    hidden, (W, T, _), (b_2, b_3, _) = network.activations[0], network.weights, network.biases
    H = np.column_stack([hidden(hidden(C @ W + b_2) @ T + b_3), np.ones(len(C))])
    readout = np.linalg.lstsq(H, Y, rcond=None)[0]
    return network.with_parameters([W, T, readout[:-1]], [b_2, b_3, readout[-1]])


def _narrowed(model, basis, network, rng):
    """The network without redundant units in its third layer; None if there are none, or no gap shows their number.

    Behind a second layer that is nearly known, gradients by its outputs are a tensor of rank m_3, as behind the first.
    """
    g, W, (b_2, b_3, _) = network.activations[0], network.weights[0], network.biases
    m_2, m_L = W.shape[1], model.n_outputs
    Z = model.random_preactivations(_FIT_SPREAD, m_2 + _TENSOR_POINTS, rng)
    slopes = g.jet(Z, 1)[1][:, None, :]
    z_2 = g(Z) @ basis @ W + b_2
    by_second = ((model.gradients(Z) / slopes) @ basis @ np.linalg.pinv(W).T) / g.jet(z_2, 1)[1][:, None, :]
    T = np.moveaxis(by_second, 2, 0)  # (m_2, n, m_L)
    values = svd(T.reshape(m_2, -1), compute_uv=False)
    ratios = values[1:] / np.maximum(values[:-1], np.finfo(float).tiny)
    m_3 = int(np.argmin(ratios)) + 1
    if m_3 >= len(b_3) or ratios[m_3 - 1] > _RANK_GAP:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # parallel output weights: the residual of the fit decides
        factors = jennrich(T, m_3)
    U = factors.U / np.linalg.norm(factors.U, axis=0)
    norms, biases, _ = fit_profiles(g(z_2) @ U, factors.V)
    weights = [W, norms * U / model.unit, np.zeros((m_3, m_L))]
    return FeedforwardNetwork(weights, [b_2, biases / model.unit, np.zeros(m_L)], model.activation)


def _joined(model, basis, network):
    """The first layer and a network of coordinates along the basis as one network."""
    weights = [model.first.weights, basis @ network.weights[0], *network.weights[1:]]
    return FeedforwardNetwork(weights, [model.first.biases, *network.biases], model.activation)
