"""Layers that were recovered from one set of critical points, as the search that follows facets holds them."""

from dataclasses import dataclass

import numpy as np

from ...units.unit import Unit

_N_FAR_POINTS = 4000  # at which linear units are active
_FAR_RADII = (1.0, 3.0, 6.0, 12.0)  # standard deviations of these: as far out as outputs validate linear units


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

    def as_units(self, points):
        """The `Unit`s of the layer, with critical points (n, D) of which its units know their members."""
        coef, found = np.vstack([self.weights, self.biases]).T, []
        for row, unit in zip(coef, self.units, strict=True):
            known = np.append(unit.mask, True)
            found.append(Unit(row * known, np.eye(len(row))[:, ~known], None))
            found[-1].starts = list(points[unit.members])
        return found


def as_relu_layers(recovered, rng):
    """Weights and biases of all layers but the last, and those of the last: arguments of `read_out`."""
    last = recovered[-1]
    n_inputs = last.prefix.n_inputs
    X = rng.choice(_FAR_RADII, (_N_FAR_POINTS, 1)) * rng.standard_normal((_N_FAR_POINTS, n_inputs))
    layers, lift = last.prefix.as_relu_layers(X)
    return layers, last.weights, last.biases - lift @ last.weights
