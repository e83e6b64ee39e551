"""First-layer units that only the output reads, beside two hidden layers: averages of networks of unequal depth."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.network import get_activation, with_skip_of_first_layer
from skident.optim import BatchedSeparableProblem, Ending, batched_levenberg_marquardt, fit_coefficients

from ..query_points import query_block
from .exact_directions import exact_directions
from .single_layer import profile_of_unit, profile_points

__all__ = ["AdditiveUnits", "WithoutUnits", "find_additive_units", "joined_with_units"]

_SAME_CHANGE = 1e-9  # relative spread of a unit's change of the output over places: rounding far out
_SIMILAR_CHANGE = 1e-4  # `_SAME_CHANGE` for directions that are not exact
_PLANE_PLACES = 24  # along a unit's hyperplane, of which those with different signs of the other units are queried
_MIN_PATTERNS = 3  # of signs: two may have equal changes if few units of the second layer read the unit
_MAX_PATTERNS = 5  # of signs, whose profiles are queried (budget)
_STEPS = 10  # of the fit of a profile, from a start good to 1e-6 (budget)


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
    candidates = [unit for unit in range(len(first.biases)) if _equal_changes(oracle, first, unit, rng)]
    if not candidates:
        return None, first
    first = exact_directions(oracle, first, get_activation(name), rng)
    found, others = [], []
    for unit in range(len(first.biases)):
        X = _at_different_signs(oracle, first, unit, rng) if unit in candidates else ()
        profile = _profile(oracle, first, unit, X, name) if len(X) >= _MIN_PATTERNS else None
        (others if profile is None else found).append((unit, profile))
    rest = [unit for unit, _ in others]
    first = replace(first, weights=first.weights[:, rest], biases=first.biases[rest], points=first.points[rest])
    if not found:
        return None, first
    weights, biases, output_weights = zip(*(profile for _, profile in found), strict=True)
    return AdditiveUnits(np.column_stack(weights), np.array(biases), np.array(output_weights), name), first


def _equal_changes(oracle, first, unit, rng):
    """Whether the ends of a unit's profiles, which need no exact directions, differ by as much at all places."""
    X = _at_different_signs(oracle, first, unit, rng)
    if len(X) < _MIN_PATTERNS:
        return False
    low, high = np.moveaxis(query_block(oracle, X[:, [0, -1]]), 1, 0)
    change = high - low
    return np.ptp(change, axis=0).max() <= _SIMILAR_CHANGE * np.abs(change).max()


def _at_different_signs(oracle, first, unit, rng):
    """Profiles (k, 33, D) of a unit where the other units have different signs."""
    X = profile_points(oracle, first, unit, rng, _PLANE_PLACES)
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
    factor, shift, output_weights = _fitted(z, Y, *profile[:2], get_activation(name))
    return factor * w, factor * b + shift, output_weights


def _fitted(z, Y, factor, bias, g):
    """Factor, bias and V of ``Y = offset of the place + g(factor z + bias) V``, for z (k, n) and Y (k, n, m_L)."""
    (k, n), m_L = z.shape, Y.shape[-1]
    offsets = np.repeat(np.eye(k), n, axis=0)

    def columns(x):
        outputs = g(x[:, :1] * z.ravel() + x[:, 1:])
        return np.concatenate([outputs[..., None], np.broadcast_to(offsets, (len(x), *offsets.shape))], axis=2)

    problem = BatchedSeparableProblem(columns, Y.reshape(-1, m_L))
    x = batched_levenberg_marquardt(problem, np.array([[factor, bias]]), Ending(max_iter=_STEPS)).x
    return *x[0], fit_coefficients(columns(x), Y.reshape(-1, m_L)).coefficients[0, 0]


class WithoutUnits:
    """An oracle less the outputs of additive units; budget, reach and accuracy are the oracle's."""

    def __init__(self, oracle, units):
        self._oracle, self._units = oracle, units

    def __call__(self, U):
        return self._oracle(U) - self._units(U)

    def __getattr__(self, name):
        if name.startswith("query"):  # of the oracle, with the units
            raise AttributeError(f"{type(self).__name__!r} is called; it has no {name!r}", name=name, obj=self)
        return getattr(self._oracle, name)


def joined_with_units(network, units):
    """A network with two hidden layers plus additive units, whose sum passes the second layer in linear units."""
    (W1, W2, V), (b1, b2, offset) = network.weights, network.biases
    weights = [np.hstack([W1, units.weights]), np.pad(W2, ((0, len(units.biases)), (0, 0))), V]
    wider = network.with_parameters(weights, [np.append(b1, units.biases), b2, offset])
    return with_skip_of_first_layer(wider, np.pad(units.output_weights, ((len(b1), 0), (0, 0))))
