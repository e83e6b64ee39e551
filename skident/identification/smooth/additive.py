"""First-layer units that only the output reads, beside two hidden layers: averages of networks of unequal depth."""

from dataclasses import dataclass, replace

import numpy as np

from skident.linalg import lapack
from skident.network import get_activation, with_skip_of_first_layer

from ..saturating.norms import fit_shapes
from .edges import NODES, edges_of

_SAME_CHANGE = 1e-6  # relative difference of a unit's outputs along two edges that is rounding far out
_MORE_EDGES = 2  # times that further edges must agree: two may, if few units of the second layer read the unit
_GOOD_PROFILE = 1e-6  # relative residual of outputs that are linear in the unit's own


@dataclass(frozen=True)
class AdditiveUnits:
    """Units whose outputs are added to those of the network: weights (D, k), biases (k,), output weights (k, P)."""

    weights: np.ndarray
    biases: np.ndarray
    output_weights: np.ndarray
    name: str

    def __call__(self, X):
        """Their part of the outputs at points (n, D)."""
        return get_activation(self.name)(X @ self.weights + self.biases) @ self.output_weights

    def beside(self, network):
        """A network with two hidden layers plus these units, whose sum passes the second layer in linear units."""
        (W1, W2, V), (b1, b2, offset) = network.weights, network.biases
        weights = [np.hstack([W1, self.weights]), np.pad(W2, ((0, len(self.biases)), (0, 0))), V]
        wider = network.with_parameters(weights, [np.append(b1, self.biases), b2, offset])
        return with_skip_of_first_layer(wider, np.pad(self.output_weights, ((len(b1), 0), (0, 0))))


def additive_units(cube, edges):
    """The `AdditiveUnits` of a cube, and the cube of the other units, without their outputs; None without any.

    Where all other units are saturated, such a unit changes the outputs alike at all of their signs.
    """
    found, others = [], []
    for i, Y in enumerate(edges.Y):
        alike = _alike(Y) and all(_alike(edges_of(cube, i)) for _ in range(_MORE_EDGES))
        profile = _profile(cube.g, Y[0]) if alike else None
        (others if profile is None else found).append((i, profile))
    if not found or not others:
        return None, cube
    index, profiles = zip(*found, strict=True)
    norms, biases, output_weights = (np.array(part) for part in zip(*profiles, strict=True))
    index, rest = list(index), [i for i, _ in others]
    weights, biases = cube.weights[:, index] * norms, cube.biases[index] * norms + biases
    units = AdditiveUnits(weights, biases, output_weights, cube.g.name)
    query = cube.query
    inner = replace(cube, query=lambda X: query(X) - units(X), weights=cube.weights[:, rest], biases=cube.biases[rest])
    return units, inner


def any_additive(cube):
    """Whether some unit may be additive, by the ends of two edges per unit."""
    return any(_alike(edges_of(cube, i, NODES[[0, -1]])) for i in range(cube.shape[1]))


def _alike(Y):
    """Whether outputs (e, n, P) along edges differ by constants."""
    Y = Y - Y.mean(axis=1, keepdims=True)
    return np.ptp(Y, axis=0).max() <= _SAME_CHANGE * np.abs(Y).max()


def _profile(g, Y):
    """Norm, bias and output weights of a unit in whose output Y (n, P) are linear; None if they are not."""
    Y = Y - Y.mean(axis=0)
    log_norm, bias = (float(x[0]) for x in fit_shapes(NODES, Y[None], np.zeros(1), g, degrees=(1,)))
    h = g(np.exp(log_norm) * NODES + bias)
    columns = np.column_stack([h, np.ones_like(h)])
    coefficients = lapack.lstsq(columns, Y, rcond=None)[0]
    good = np.linalg.norm(columns @ coefficients - Y) <= _GOOD_PROFILE * np.linalg.norm(Y)
    return (np.exp(log_norm), bias, coefficients[0]) if good else None
