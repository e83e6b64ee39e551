"""What the hierarchical estimators check before they fit, and the texts of their errors and warnings."""

from __future__ import annotations

import warnings
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

__all__ = ["check_alphas", "check_connections", "check_widths", "exploding_layer", "n_parameters", "warn_if_too_few"]


def check_widths(widths):
    """``(k_2, ..., k_L)`` as a tuple of positive integers.

    Raises
    ------
    ValueError
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
    """``(alpha_2, ..., alpha_L)``; None is ``0.3 ** (l - 2)``.

    Raises
    ------
    ValueError
    """
    if alphas is None:
        return tuple(0.3**i for i in range(n_hidden))
    found = tuple(np.ravel(np.asarray(alphas, dtype=object)))
    good = all(isinstance(a, Real) and not isinstance(a, bool) and 0 < a < np.inf for a in found)
    if not good or len(found) != n_hidden:
        raise ValueError(f"alphas must be {n_hidden} positive finite numbers, one a width; got {alphas!r}.")
    return tuple(float(a) for a in found)


def n_parameters(n_features, widths, connections):
    """Number of weights ``W_{l,j}`` of the ordinary form."""
    sizes = [n_features, n_features, *widths]
    return sum(k * sum(sizes[j] for j in J) for k, J in zip(widths, connections))


def warn_if_too_few(n_equations, n_weights, name):
    """Warn where the weights outnumber the equations."""
    if n_equations < n_weights:
        warnings.warn(
            f"{name}: N = {n_equations} targets for P = {n_weights} weights. Recovery needs about N >= 3 P; take fewer "
            "units (widths), fewer connections, or a larger l2.",
            ConvergenceWarning,
            stacklevel=4,
        )


def exploding_layer(module, x):
    """The first layer whose features are not finite, or the one with the largest; None where nothing is large.

    Parameters
    ----------
    module : QuadraticDenseNet
    x : Tensor (n, d)
    """

    with torch.no_grad():
        S, _, _ = module.hidden(x)
    for layer, features in S.items():
        if not bool(torch.isfinite(features).all()):
            return layer
    return max(S, key=lambda layer: float(S[layer].abs().max()))
