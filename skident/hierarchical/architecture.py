"""What a quadratic DenseNet consists of: layers, connections, the factors of its layers; and the checks of these."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from sklearn.exceptions import ConvergenceWarning

__all__ = ["DenseNetArchitecture", "check_alphas", "check_connections", "check_widths", "warn_if_too_few"]


@dataclass(frozen=True)
class DenseNetArchitecture:
    """Inputs, hidden layers and outputs of a quadratic DenseNet.

    Attributes
    ----------
    n_features : int
        d.
    widths : tuple of int
        ``(k_2, ..., k_L)``.
    connections : tuple of tuple of int
        ``(J_2, ..., J_L)``.
    alphas : tuple of float
        ``(alpha_2, ..., alpha_L)``.
    n_outputs : int
    curvature : float or None
        c of the activation ``z + c z^2``; None is ``z^2``.

    Examples
    --------
    >>> from skident.hierarchical.architecture import DenseNetArchitecture
    >>> print(DenseNetArchitecture(16, (3, 2), ((0, 1), (0, 2)), (1.0, 0.3)).n_weights)
    134
    """

    n_features: int
    widths: tuple
    connections: tuple
    alphas: tuple
    n_outputs: int = 1
    curvature: float | None = None

    @property
    def depth(self):
        """L, the number of the last layer."""
        return len(self.widths) + 1

    @property
    def n_weights(self):
        """Number of weights ``W_{l,j}`` of the ordinary form."""
        return sum(k * self.n_inputs(layer) for layer, k in enumerate(self.widths, start=2))

    def width(self, layer):
        """Entries of ``G_l``.

        Parameters
        ----------
        layer : int
            In 0, ..., L.

        Returns
        -------
        int
        """
        return self.n_features if layer < 2 else self.widths[layer - 2]

    def n_inputs(self, layer):
        """Entries of all ``G_j``, j in ``J_l``, that a layer sees.

        Parameters
        ----------
        layer : int
            In 2, ..., L.

        Returns
        -------
        int
        """
        return sum(self.width(j) for j in self.connections[layer - 2])

    def up_to(self, depth):
        """The same without the layers above one.

        Parameters
        ----------
        depth : int
            The last layer kept, in 2, ..., L.

        Returns
        -------
        DenseNetArchitecture
        """
        kept = {name: getattr(self, name)[: depth - 1] for name in ("widths", "connections", "alphas")}
        return dataclasses.replace(self, **kept)


def check_widths(widths):
    """``(k_2, ..., k_L)`` as a tuple of positive integers.

    Parameters
    ----------
    widths : int or sequence of int

    Returns
    -------
    tuple of int

    Raises
    ------
    ValueError
        If there is none, or one is no positive integer.
    """
    found = tuple(np.atleast_1d(np.asarray(widths, dtype=object)).ravel())
    if not found or not all(isinstance(k, Integral) and not isinstance(k, bool) and k > 0 for k in found):
        raise ValueError(
            f"widths must be positive integers (k_2, ..., k_L), the units of layers 2 to L, for example (4, 2); got "
            f"{widths!r}."
        )
    return tuple(int(k) for k in found)


def check_connections(connections, n_hidden):
    """``(J_2, ..., J_L)`` as a tuple of sorted tuples.

    Parameters
    ----------
    connections : {"paper", "full", "chain"} or sequence of collections of int, or dict of these by layer
    n_hidden : int
        L - 1, the number of widths.

    Returns
    -------
    tuple of tuple of int

    Raises
    ------
    ValueError
        If there are not `n_hidden` of them, a layer lacks the one before it, or refers to itself, to a later layer or
        to none.
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
    """``(alpha_2, ..., alpha_L)`` as a tuple of positive numbers.

    Parameters
    ----------
    alphas : sequence of float or None
        None is ``0.3 ** (l - 2)``.
    n_hidden : int
        L - 1, the number of widths.

    Returns
    -------
    tuple of float

    Raises
    ------
    ValueError
        If there are not `n_hidden` of them, or one is not positive and finite.
    """
    if alphas is None:
        return tuple(0.3**i for i in range(n_hidden))
    found = tuple(np.ravel(np.asarray(alphas, dtype=object)))
    good = all(isinstance(a, Real) and not isinstance(a, bool) and 0 < a < np.inf for a in found)
    if not good or len(found) != n_hidden:
        raise ValueError(f"alphas must be {n_hidden} positive finite numbers, one a width; got {alphas!r}.")
    return tuple(float(a) for a in found)


def warn_if_too_few(n_equations, n_weights, name):
    """Warn where the weights outnumber the equations.

    Parameters
    ----------
    n_equations, n_weights : int
    name : str
        Of the estimator, whose `fit` is three calls above.

    Warns
    -----
    ConvergenceWarning
    """
    if n_equations < n_weights:
        warnings.warn(
            f"{name}: N = {n_equations} targets for P = {n_weights} weights. Recovery needs about N >= 3 P; take fewer "
            "units (widths), fewer connections, or a larger l2.",
            ConvergenceWarning,
            stacklevel=5,
        )
