"""Symmetries of a feedforward network: canonical parameters, and alignment of two networks.

The activation may allow a hidden unit with incoming weights w and bias b to become ``(factor w, factor b + turns pi)``;
the outgoing weights, and for point-symmetric activations the next layer's biases, compensate for it. Units of a layer
may also be permuted. All functions take and return lists of arrays, one per layer, units as columns: ``weights[l]``
(m_l, m_{l+1}), ``biases[l]`` (m_{l+1},). Below, ``A`` (m_l + 1, m_{l+1}) stacks weights on biases.
"""

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from .partly_linear import PartlyLinear

_SIGN_FREE = frozenset({"odd", "point", "even", "sine"})
_SCALE_FREE = frozenset({"even", "homogeneous"})
# An output unit has no outgoing weights to make up for a move, so only those moves remain that need none.
_OUTPUT_SIGN_FREE = frozenset({"even", "sine"})

_LARGEST_RTOL = 1e-6  # weights this close to the largest one tie for the sign: error of recovered weights
_PHASE_ATOL = 1e-6  # radians above -pi/2 that count as pi/2: error of a recovered bias
_ORDER_RTOL = 1e-9  # entries of a row closer than this, relative to its largest, tie in the order: rounding


def canonical(weights, biases, activations):
    """Weights and biases with the sign, scale, phase and order of `FeedforwardNetwork.canonical`."""
    return _layer_by_layer(weights, biases, activations, _standard_moves)


def align(weights, biases, activations, other_weights, other_biases):
    """Weights and biases, moved to match another network layer by layer; see `FeedforwardNetwork.align_to`."""
    targets = [np.vstack([W, b]) for W, b in zip(other_weights, other_biases)]

    def matching_moves(A, activation, layer, is_output):
        target = targets[layer][:, : A.shape[1]]  # without linear units, which are not moved
        order = np.arange(A.shape[1])
        if not is_output:
            # Rows of the cost are the target's units, so the assignment is where each of them is.
            order = linear_sum_assignment(_pair_costs(target, A, activation.symmetry))[1]
        return order, *_matching_factors(A[:, order], target, activation.symmetry, is_output)

    return _layer_by_layer(weights, biases, activations, matching_moves)


def _layer_by_layer(weights, biases, activations, choose_moves):
    """Move all layers in turn; ``choose_moves(A, activation, layer, is_output)`` returns order, factor, turns."""
    weights, biases = [W.copy() for W in weights], [b.copy() for b in biases]
    last = len(weights) - 1
    for layer, activation in enumerate(activations):
        A = np.vstack([weights[layer], biases[layer]])
        order, factor, turns = _moves(A, activation, layer, layer == last, choose_moves)
        activation = getattr(activation, "base", None) or activation
        A = A[:, order] * factor
        weights[layer], biases[layer] = A[:-1], A[-1] + np.pi * turns
        if layer < last:
            outgoing = weights[layer + 1][order]
            if activation.symmetry == "point":  # v g(z) = v (lo + hi) - v g(-z)
                biases[layer + 1] = biases[layer + 1] + sum(activation.limits) * outgoing[factor < 0].sum(axis=0)
            weights[layer + 1] = outgoing * _outgoing_factor(activation.symmetry, factor, turns)[:, None]
    return weights, biases


def _moves(A, activation, layer, is_output, choose_moves):
    """Order, factor and turns of a layer's units; linear units behind the others stay."""
    if not isinstance(activation, PartlyLinear):
        return choose_moves(A, activation, layer, is_output)
    n, m = activation.n_linear, A.shape[1]
    order, factor, turns = choose_moves(A[:, :-n], activation.base, layer, is_output)
    ends = np.arange(m - n, m), np.ones(n), np.zeros(n)
    return tuple(np.concatenate(parts) for parts in zip((order, factor, turns), ends, strict=True))


def _outgoing_factor(symmetry, factor, turns):
    """Factor of a unit's outgoing weights that compensates for ``z -> factor z + turns pi``."""
    if symmetry == "homogeneous":
        return 1.0 / factor
    if symmetry == "even":
        return 1.0 / factor**2
    return factor * np.where(turns % 2, -1.0, 1.0)


# -- standard form ---------------------------------------------------------------------------------------------------


def _standard_moves(A, activation, layer, is_output):
    symmetry = activation.symmetry
    factor = np.ones(A.shape[1])
    if symmetry in (_OUTPUT_SIGN_FREE if is_output else _SIGN_FREE):
        factor = _leading_signs(A)
    if symmetry in _SCALE_FREE and not is_output:
        factor = factor / _norms(A)
    # A target just above 0 makes the interval (-pi/2, pi/2] up to rounding.
    turns = _half_turns(_PHASE_ATOL, A[-1], factor, is_output) if symmetry == "sine" else np.zeros(A.shape[1])
    moved = np.vstack([A[:-1] * factor, A[-1] * factor + np.pi * turns])
    order = np.arange(A.shape[1]) if is_output else _stable_order(moved)
    return order, factor[order], turns[order]


def _leading_signs(A):
    """Signs (m,) that make the first of the largest incoming weights positive, or the bias if all weights are 0."""
    size = np.abs(A[:-1])
    first = np.argmax(size >= (1.0 - _LARGEST_RTOL) * size.max(axis=0), axis=0)
    leading = np.take_along_axis(A[:-1], first[None], axis=0)[0]
    return np.where(np.where(leading == 0.0, A[-1], leading) < 0.0, -1.0, 1.0)


def _norms(A):
    """Norms (m,) of the incoming weights; the bias's magnitude if these are 0; 1 if both are."""
    norms = np.linalg.norm(A[:-1], axis=0)
    norms = np.where(norms == 0.0, np.abs(A[-1]), norms)
    return np.where(norms == 0.0, 1.0, norms)


def _stable_order(A):
    """Lexicographic order of the columns in which entries equal to rounding tie and the next row decides."""
    by_value = np.sort(A, axis=1)
    tolerance = _ORDER_RTOL * np.abs(A).max(axis=1, keepdims=True)
    groups = np.cumsum(np.diff(by_value, axis=1, prepend=by_value[:, :1]) > tolerance, axis=1)
    ranks = np.empty_like(groups)
    np.put_along_axis(ranks, np.argsort(A, axis=1), groups, axis=1)
    return np.lexsort(ranks[::-1])


# -- matching --------------------------------------------------------------------------------------------------------


def _pair_costs(A, B, symmetry):
    """Squared distances (m, m) between all columns of A and of B, least over the moves of a hidden unit."""
    if symmetry in _SCALE_FREE:
        A, B = _unit_columns(A), _unit_columns(B)
    signs = (1.0, -1.0) if symmetry in _SIGN_FREE else (1.0,)
    costs = [_signed_costs(A, s * B, wrap=symmetry == "sine") for s in signs]
    return np.minimum.reduce(costs)


def _unit_columns(A):
    norms = np.linalg.norm(A, axis=0)
    return A / np.where(norms == 0.0, 1.0, norms)


def _signed_costs(A, B, wrap):
    if not wrap:
        return cdist(A.T, B.T, "sqeuclidean")
    gap = np.subtract.outer(A[-1], B[-1])
    return cdist(A[:-1].T, B[:-1].T, "sqeuclidean") + (gap - np.pi * np.rint(gap / np.pi)) ** 2


def _matching_factors(A, B, symmetry, is_output):
    """Factors and turns (m,) that take every column of A closest to the same column of B."""
    m = A.shape[1]
    scale = np.ones(m)
    if symmetry in _SCALE_FREE and not is_output:
        norms = np.linalg.norm(A, axis=0), np.linalg.norm(B, axis=0)
        scale = np.divide(norms[1], norms[0], out=scale, where=np.minimum(*norms) > 0.0)
    best_cost, best_factor, best_turns = np.full(m, np.inf), scale, np.zeros(m)
    for sign in (1.0, -1.0) if symmetry in (_OUTPUT_SIGN_FREE if is_output else _SIGN_FREE) else (1.0,):
        factor = sign * scale
        turns = _half_turns(B[-1], A[-1], factor, is_output) if symmetry == "sine" else np.zeros(m)
        cost = ((A[:-1] * factor - B[:-1]) ** 2).sum(axis=0) + (A[-1] * factor + np.pi * turns - B[-1]) ** 2
        better = cost < best_cost
        best_cost, best_factor, best_turns = (
            np.where(better, new, old) for new, old in ((cost, best_cost), (factor, best_factor), (turns, best_turns))
        )
    return best_factor, best_turns


def _half_turns(target, bias, sign, is_output):
    """Integers k (m,) for which ``sign * bias + k pi`` is closest to the target.

    For an output unit ``sin(sign z + k pi) = sin z`` must hold by itself, so k is odd if the sign is negative, and even
    otherwise.
    """
    gap = (target - sign * bias) / np.pi
    if not is_output:
        return np.rint(gap)
    odd = np.where(sign < 0.0, 1.0, 0.0)
    return 2.0 * np.rint((gap - odd) / 2.0) + odd
