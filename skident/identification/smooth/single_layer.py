"""One hidden layer from noisy outputs: biases and weight norms from profiles where every other unit is saturated."""

from __future__ import annotations

import numpy as np

from skident.linalg import lapack
from skident.network import get_activation

from ..query_points import query_block
from .cube import rays_of_one_unit, saturated
from .exact_directions import exact_directions

__all__ = ["profile_of_unit", "profile_points", "with_biases_from_profiles"]

_RANGE = 8.0  # pre-activations of a profile: biases measured far out are wrong by up to about 3
_NODES = 33  # per profile: some eight where the unit is not saturated
_PROFILES = 4  # profiles per unit, along its hyperplane
_RANGE_FACTOR = 2.0  # times range and saturation that all other units have: norms may be wrong by that factor
_MAX_DISTANCE = 1e4  # of profiles: binary rounding grows with it
_STEEP = 0.95  # largest output of the unit at the nodes that count
_MIN_NODES = 4  # that count: fewer do not determine a bias and a norm
_FACTOR = 2.0  # largest change of a norm that is no failure
_HALF_RANGES = {"tanh": 1.0, "sigmoid": 0.5}  # of outputs; pre-activations are those of tanh over it


def with_biases_from_profiles(oracle, first, network, rng):
    """The network with directions to the accuracy of the noise, and biases, norms and output weights from profiles.

    `network` has one hidden layer and a linear output; its first layer is the `FirstLayer` as recovered. Far out a
    direction's error is a large one of the bias, and vertices hardly distinguish the output weights of units that are
    nearly parallel. Where all other units are saturated, the outputs give the unit's own output, up to a constant, and
    that its pre-activation. Units whose profile is not a sigmoid stay as they were.
    """
    name = network.activation
    if name not in _HALF_RANGES:
        return network
    first = exact_directions(oracle, first, get_activation(name), rng)
    weights, biases, V = first.weights.copy(), first.biases.copy(), network.weights[1].copy()
    blocks = [profile_points(oracle, first, unit, rng) for unit in range(len(biases))]
    if not all(len(X) for X in blocks):
        return network
    outputs = [query_block(oracle, X) for X in blocks]
    for unit, (X, Y) in enumerate(zip(blocks, outputs, strict=True)):
        corrected = profile_of_unit(X @ first.weights[:, unit] + biases[unit], Y, name)
        if corrected is not None:
            factor, shift, V[unit] = corrected
            weights[:, unit], biases[unit] = factor * weights[:, unit], factor * biases[unit] + shift
    like = network.with_parameters([weights, V], [biases, np.zeros(V.shape[1])])
    X, Y = (np.concatenate([part.reshape(-1, part.shape[-1]) for part in parts]) for parts in (blocks, outputs))
    offset = np.median(Y - like(X), axis=0)
    return like.with_parameters(like.weights, [biases, offset])


def profile_points(oracle, first, unit, rng, n_places=_PROFILES):
    """Points (k, 33, D) across the hyperplane of a unit, at up to n places where all others are saturated."""
    margin = _RANGE_FACTOR * (_RANGE + saturated("tanh", oracle.accuracy.relative_error))
    options = {"margin": margin, "farthest": min(_MAX_DISTANCE, 0.5 * oracle.reach)}
    base, rays, starts = rays_of_one_unit(first.weights, first.biases, unit, n_places, rng, **options)
    w = first.weights[:, unit]
    across = np.linspace(-_RANGE, _RANGE, _NODES)[:, None] * (w / (w @ w))
    X = (base + starts[:, None] * rays)[:, None] + across
    return oracle.representable(X.reshape(-1, len(w))).reshape(X.shape)


def profile_of_unit(z, Y, name):
    """Factor and offset of a unit's pre-activations z (k, 33), and its output weights; None if the profile fails."""
    half_range = _HALF_RANGES[name]
    low, high = Y[:, 0], Y[:, -1]
    change = 0.5 * (high - low).mean(axis=0)
    if not np.any(change):
        return None
    output = (Y - 0.5 * (high + low)[:, None]) @ change / (change @ change)  # as that of tanh
    steep = np.abs(output) < _STEEP
    if np.count_nonzero(steep) < _MIN_NODES:
        return None
    weight = 1.0 - output[steep] ** 2
    A = np.column_stack([z[steep], np.ones(np.count_nonzero(steep))])
    true = np.arctanh(output[steep]) / half_range
    factor, shift = lapack.lstsq(A * weight[:, None], true * weight, rcond=None)[0]
    return (factor, shift, change / half_range) if 1.0 / _FACTOR < factor < _FACTOR else None
