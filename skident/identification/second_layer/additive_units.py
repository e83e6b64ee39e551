"""First-layer units that only the output reads, beside two hidden layers: averages of networks of unequal depth."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.network import FeedforwardNetwork, get_activation, partly_linear

from ..query_points import query_block
from .exact_directions import exact_directions
from .single_layer import profile_of_unit, profile_points

__all__ = ["AdditiveUnits", "WithoutUnits", "find_additive_units", "joined_with_units"]

_SAME_CHANGE = 1e-9  # relative spread of a unit's change of the output over places: rounding far out
_PLACES = 24  # along a unit's hyperplane, of which those with different signs of the other units are queried
_MIN_PATTERNS = 3  # of signs: two may have equal changes if few units of the second layer read the unit
_MAX_PATTERNS = 5  # of signs, whose profiles are queried (budget)
_STEPS = 6  # of Gauss-Newton from a start good to 1e-6: the third one reaches rounding


@dataclass(frozen=True)
class AdditiveUnits:
    """Units whose outputs are added to those of the network: weights (D, k), biases (k,), output weights (k, m_L)."""

    weights: np.ndarray
    biases: np.ndarray
    output_weights: np.ndarray
    activation: str

    def __call__(self, U):
        """Their part of the outputs, at standardized inputs (n, D)."""
        return get_activation(self.activation)(U @ self.weights + self.biases) @ self.output_weights


def find_additive_units(oracle, first, name, rng):
    """The `AdditiveUnits` of a `FirstLayer`, and the layer of the others, with exact directions.

    Where all other units are saturated, such a unit changes the outputs by as much in every one of their sign patterns.
    """
    first = exact_directions(oracle, first, get_activation(name), rng)
    found, others = [], []
    for unit in range(len(first.biases)):
        X = _with_different_signs(first, profile_points(oracle, first, unit, rng, _PLACES))
        profile = _profile(oracle, first, unit, X, name) if len(X) >= _MIN_PATTERNS else None
        (others if profile is None else found).append((unit, profile))
    rest = [unit for unit, _ in others]
    first = replace(first, weights=first.weights[:, rest], biases=first.biases[rest], points=first.points[rest])
    if not found:
        return None, first
    weights, biases, output_weights = zip(*(profile for _, profile in found), strict=True)
    return AdditiveUnits(np.column_stack(weights), np.array(biases), np.array(output_weights), name), first


def _with_different_signs(first, X):
    """Profiles (k, 33, D) of those at which the other units have different signs."""
    signs = np.sign(X[:, 0] @ first.weights + first.biases)
    return X[np.sort(np.unique(signs, axis=0, return_index=True)[1])[:_MAX_PATTERNS]]


def _profile(oracle, first, unit, X, name):
    """Weights, bias and output weights of an additive unit from profiles X (k, 33, D); None for another one."""
    Y, w, b = query_block(oracle, X), first.weights[:, unit], first.biases[unit]
    change = Y[:, -1] - Y[:, 0]
    if not np.ptp(change, axis=0).max() <= _SAME_CHANGE * np.abs(change).max():
        return None
    z = X @ w + b
    profile = profile_of_unit(z, Y, name)
    if profile is None:
        return None
    factor, shift, output_weights = _fitted(z, Y, *profile, get_activation(name))
    return factor * w, factor * b + shift, output_weights


def _fitted(z, Y, factor, shift, V, g):
    """Gauss-Newton steps of ``Y = offset of the place + g(factor z + shift) V^T``, for z (k, n) and Y (k, n, m_L)."""
    (k, n), m_L = z.shape, Y.shape[-1]
    offsets = np.repeat(np.eye(k), n, axis=0)
    for _ in range(_STEPS):
        h, slope = g.jet(factor * z + shift, 1)
        linear = np.kron(np.column_stack([h.ravel(), offsets]), np.eye(m_L))
        curved = np.column_stack([np.kron(part.ravel(), V) for part in (slope * z, slope)])
        step = np.linalg.lstsq(np.column_stack([curved, linear]), Y.ravel(), rcond=None)[0]
        # The model is linear in V and the offsets, which are solved for; the curved part is a correction.
        factor, shift, V = factor + step[0], shift + step[1], step[2 : 2 + m_L]
    return factor, shift, V


class WithoutUnits:
    """An oracle less the outputs of additive units; all else is the oracle's."""

    def __init__(self, oracle, units):
        self._oracle, self._units = oracle, units

    def __call__(self, U):
        return self._oracle(U) - self._units(U)

    def __getattr__(self, name):
        return getattr(self._oracle, name)


def joined_with_units(network, units):
    """A network with two hidden layers plus additive units: their sum passes the second layer in linear units."""
    (W1, W2, V), (b1, b2, offset) = network.weights, network.biases
    (D, k), m_2 = units.weights.shape, len(b2)
    read, sizes, written = np.linalg.svd(units.output_weights, full_matrices=False)
    n = len(sizes)
    weights = [
        np.hstack([W1, units.weights, np.zeros((D, n))]),
        np.block([[W2, np.zeros((len(b1), n))], [np.zeros((k, m_2)), read * sizes], [np.zeros((n, m_2 + n))]]),
        np.vstack([V, written]),
    ]
    biases = [np.concatenate([b1, units.biases, np.zeros(n)]), np.append(b2, np.zeros(n)), offset]
    hidden, output = network.activations[0], network.activations[-1]
    return FeedforwardNetwork(weights, biases, partly_linear(hidden, n), output)
