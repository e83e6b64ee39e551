"""What no kink told of a layer: weights that its signs' equations tell, units whose bias one late kink does."""

from __future__ import annotations

import copy

import numpy as np

from .facets import FacetUnit
from .known_layers import KnownLayers

__all__ = ["complete", "with_hidden_weights"]

_NO_WEIGHT = 1e-6  # beside weights of norm 1, what is none


def with_hidden_weights(known, units, told):
    """Layers with weights of the last one that only the linear parts of the units behind it told, and these units.

    Parameters
    ----------
    known : KnownLayers
    units : list of FacetUnit
        Without a basis.
    told : LayerSigns

    Returns
    -------
    known : KnownLayers
    units : list of FacetUnit
        In terms of the features of these layers.
    """
    hidden = np.where(np.abs(told.hidden) > _NO_WEIGHT, told.hidden, 0.0)
    if not hidden.any():
        return known, units
    K, old = known.n_units, known
    known = KnownLayers(old.layers, old.weights + hidden, old.biases, slope=old.slope, accuracy=old.accuracy)
    # The unit is on wherever the input is: there |z| is larger, by their product and the sign.
    change = np.eye(old.n_features)
    change[K:-1, :K] = hidden * np.where(told.signs >= 0, 1.0, -1.0)
    moved = [copy.copy(unit) for unit in units]
    for unit in moved:
        unit.known, unit.rows = known, unit.rows @ change
    return known, [unit.with_basis(unit.basis) for unit in moved]


def complete(layer, linear, kinks):
    """Take up units that were represented by a linear part, from kinks of theirs: all but the bias is known.

    Parameters
    ----------
    layer : LayerUnits
        Takes up the units.
    linear : ndarray of shape (m_l, r)
        What the weights are combinations of.
    kinks : CriticalPoints

    Returns
    -------
    int
        New units.
    """
    B, before, known = layer.basis, len(layer.units), layer.known
    if len(linear) != B.shape[1] - 1:
        return 0
    Z, phi = known.evaluate(kinks.points)
    for i in np.argsort(kinks.errors):
        point = kinks.points[i]
        if len(layer.units) == before + linear.shape[1]:
            break
        gradients = known.feature_maps(Z[i][None] > 0)[0].T @ B[:, :-1]
        maps = gradients @ linear
        if np.linalg.matrix_rank(gradients, rtol=1e-9) <= linear.shape[1]:
            continue
        c = np.linalg.lstsq(maps, kinks.normals[i], rcond=1e-9)[0]
        slack = min(max(1e-6, 30.0 * kinks.errors[i]), max(1e-4, 30.0 * known.accuracy))
        if np.linalg.norm(maps @ c - kinks.normals[i]) > slack or layer.explain(point[None])[0]:
            continue
        theta = B[:, :-1] @ (linear @ c)
        theta -= (phi[i] @ theta) * B[:, -1]
        unit = FacetUnit(known, point, kinks.normals[i], B)
        unit.learn(np.eye(len(theta)), theta, point[None])
        unit.share = unit.vouched = 1.0
        layer.units.append(unit)
    return len(layer.units) - before
