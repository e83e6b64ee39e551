"""Layers, connections and layer weights alpha_l of a quadratic DenseNet, with the checks of these parameters."""

import dataclasses
import warnings
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from sklearn.exceptions import ConvergenceWarning


@dataclass(frozen=True)
class DenseNetArchitecture:
    """Inputs, hidden layers and outputs of a quadratic DenseNet."""

    n_features: int  # d
    widths: tuple  # (k_2, ..., k_L)
    connections: tuple  # (J_2, ..., J_L), tuples of int
    alphas: tuple  # (alpha_2, ..., alpha_L)
    n_outputs: int = 1
    curvature: float | None = None  # c of the activation z + c z^2; None is z^2

    @property
    def depth(self):
        """L, the number of the last layer."""
        return len(self.widths) + 1

    @property
    def n_weights(self):
        """Number of weights ``W_{l,j}`` of the ordinary form."""
        return sum(k * self.n_inputs(layer) for layer, k in enumerate(self.widths, start=2))

    def width(self, layer):
        """Number of entries of ``G_l``, l in 0, ..., L."""
        return self.n_features if layer < 2 else self.widths[layer - 2]

    def n_inputs(self, layer):
        """Number of inputs of layer l: entries of all ``G_j``, j in ``J_l``."""
        return sum(self.width(j) for j in self.connections[layer - 2])

    def up_to(self, depth):
        """The same architecture without the layers above `depth`."""
        kept = {name: getattr(self, name)[: depth - 1] for name in ("widths", "connections", "alphas")}
        return dataclasses.replace(self, **kept)


def check_widths(widths):
    """``(k_2, ..., k_L)`` as a tuple of positive integers."""
    values = tuple(np.atleast_1d(np.asarray(widths, dtype=object)).ravel())
    if not values or not all(isinstance(k, Integral) and not isinstance(k, bool) and k > 0 for k in values):
        raise ValueError(
            f"widths must be positive integers (k_2, ..., k_L), the units of layers 2 to L, for example (4, 2); got "
            f"{widths!r}."
        )
    return tuple(int(k) for k in values)


def check_connections(connections, n_hidden):
    """``(J_2, ..., J_L)`` as a tuple of sorted tuples, one per hidden layer, each with the previous layer.

    `connections` is "paper", "full", "chain", a sequence of collections of int, or a dict of these by layer.
    """
    layers = range(2, n_hidden + 2)
    if isinstance(connections, str):
        graphs = {
            "paper": lambda layer: (0, 1) if layer == 2 else (*range(layer - 2), layer - 1),
            "full": lambda layer: tuple(range(layer)),
            "chain": lambda layer: (layer - 1,),
        }
        if connections not in graphs:
            raise ValueError(f"connections must be 'paper', 'full', 'chain' or (J_2, ..., J_L); got {connections!r}.")
        return tuple(graphs[connections](layer) for layer in layers)
    if isinstance(connections, dict):
        if sorted(connections) != list(layers):
            raise ValueError(f"connections must have the keys {list(layers)}, one a width; got {list(connections)}.")
        connections = [connections[layer] for layer in layers]
    if len(connections) != n_hidden:
        raise ValueError(
            f"connections lists {len(connections)} layers, but widths has {n_hidden}: both begin with layer 2. Give "
            f"(J_2, ..., J_{n_hidden + 1})."
        )
    return tuple(_check_one(J, layer) for J, layer in zip(connections, layers))


def _check_one(J, layer):
    """``J_l``, sorted."""
    J = tuple(J) if np.iterable(J) and not isinstance(J, str) else (J,)
    if not all(isinstance(j, Integral) and not isinstance(j, bool) and 0 <= j < layer for j in J):
        raise ValueError(
            f"connections of layer {layer} must be indices in 0, ..., {layer - 1} (0 is x, 1 is x^2 - E x^2, j is "
            f"layer j); got {J!r}."
        )
    if layer - 1 not in J:
        raise ValueError(
            f"connections of layer {layer} are {J!r}, without the previous layer {layer - 1}: add {layer - 1} to them."
        )
    return tuple(sorted({int(j) for j in J}))


def check_alphas(alphas, n_hidden):
    """``(alpha_2, ..., alpha_L)`` as a tuple of positive numbers; None is ``0.3 ** (l - 2)``."""
    if alphas is None:
        return tuple(0.3**i for i in range(n_hidden))
    values = tuple(np.ravel(np.asarray(alphas, dtype=object)))
    valid = all(isinstance(a, Real) and not isinstance(a, bool) and 0 < a < np.inf for a in values)
    if not valid or len(values) != n_hidden:
        raise ValueError(f"alphas must be {n_hidden} positive finite numbers, one a width; got {alphas!r}.")
    return tuple(float(a) for a in values)


def warn_if_too_few(n_equations, n_weights, name):
    """Warn if the weights outnumber the equations."""
    if n_equations < n_weights:
        warnings.warn(
            f"{name}: N = {n_equations} targets for P = {n_weights} weights. Recovery needs about N >= 3 P; take fewer "
            "units (widths), fewer connections, or a larger l2.",
            ConvergenceWarning,
            stacklevel=5,
        )
