"""Layers that were recovered from one set of critical points, as the search that follows facets holds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import TINY
from skident.linalg import lapack

from ...constants import RADII
from ..deep.facet_unit import FacetUnit
from ..deep.known_layers import KnownLayers
from ..deep.layer_units import LayerUnits

__all__ = ["RecoveredLayer", "as_layer_units", "as_relu_layers"]

_N_POINTS = 400  # at which pre-activations are compared
_N_FAR_POINTS = 4000  # at which linear units are active
_FAR_RADII = (1.0, 3.0, 6.0, 12.0)  # standard deviations of these: as far out as outputs validate linear units
_NORMAL_ERROR = 1e-10  # of the normals of known units


@dataclass
class RecoveredLayer:
    """Units of one layer, the `KnownPrefix` before it, and what is known of the layer from the next one.

    `weights` (m, K) and `biases` (K,) have their signs, `linear` (m, r) stands for units that are always active. The
    last layer has weights and biases of either sign.
    """

    prefix: object
    units: list
    weights: np.ndarray
    biases: np.ndarray
    linear: np.ndarray


def as_layer_units(recovered, critical, rng):
    """Hyperplanes (K, D + 1) of the first layer, and a dictionary of `LayerUnits` by depth, from `RecoveredLayer`s."""
    first = recovered[0]
    planes = np.vstack([first.weights, first.biases]).T
    planes = planes / np.linalg.norm(planes[:, :-1], axis=1, keepdims=True)
    layers, (W, b), found, inputs = [], (planes[:, :-1].T, planes[:, -1]), {}, np.ones(len(first.weights))
    for depth, (before, after) in enumerate(zip(recovered[:-1], recovered[1:], strict=True), start=1):
        known = KnownLayers(layers, W, b)
        linear = before.linear / inputs[:, None] if before.linear.shape[1] else None
        layer = LayerUnits(known, signs=np.ones(len(b)), linear=linear)
        factors = _factors(known, before, rng)
        inputs = np.append(factors, np.ones(before.linear.shape[1]))
        layer.units = [_facet_unit(known, layer.basis, inputs, after, unit, critical) for unit in after.units]
        found[depth] = layer
        layers = [*layers, layer.signed_layer()]
        W, b, _ = layer.weights()
        signs = np.sign(_factors(KnownLayers(layers, W, b), after, rng))
        W, b = W * signs, b * signs
    return planes, found


def as_relu_layers(recovered, rng):
    """Weights and biases of all layers but the last, those of the last, and -1 where a weight of it is undetermined.

    The arguments of `read_out`; the last ones (m, K) are None if all weights are known.
    """
    last = recovered[-1]
    n_inputs = last.prefix.n_inputs
    X = rng.choice(_FAR_RADII, (_N_FAR_POINTS, 1)) * rng.standard_normal((_N_FAR_POINTS, n_inputs))
    layers, lift = last.prefix.as_relu_layers(X)
    unknown = ~np.array([unit.mask for unit in last.units]).T
    return layers, last.weights, last.biases - lift @ last.weights, -unknown.astype(int) if unknown.any() else None


def _factors(known, layer, rng):
    """Ratios (K,) of the pre-activations of `KnownLayers` to those of a `RecoveredLayer`."""
    X = rng.choice(RADII, (_N_POINTS, 1)) * rng.standard_normal((_N_POINTS, known.n_inputs))
    Z = layer.prefix.outputs(X) @ layer.weights + layer.biases
    return np.median(known.evaluate(X)[0][:, known.first :] / np.where(Z == 0.0, TINY, Z), axis=0)


def _facet_unit(known, basis, scale, layer, unit, critical):
    """The `FacetUnit` of a `Unit` of a layer: its known weights, and one critical point."""
    A = layer.prefix.outputs_and_gradients(critical.points[unit.members])[1]
    gradients = np.einsum("nmd,m->nd", A, unit.w * unit.mask)
    best = int(np.argmax(np.linalg.norm(gradients, axis=1)))
    size = np.linalg.norm(gradients[best])
    point = critical.points[unit.members[best]]
    found = FacetUnit(known, point, gradients[best] / size, basis, _NORMAL_ERROR)
    rows = np.append(np.flatnonzero(unit.mask), len(unit.w))
    targets = np.append(unit.w / scale, unit.b) / size
    others = critical.points[unit.members]
    found.add_equations(lapack.pinv(basis)[rows], targets[rows], others)
    found.hit_rate, found.confirmed = unit.share, True
    return found
