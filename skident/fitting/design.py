"""Inputs at which the units of a network move."""

from __future__ import annotations

import numpy as np

from skident.budget import require_memory

__all__ = ["design_points", "points_for_deep_units"]

_SPREADS = (0.5, 1.0, 2.0, 4.0, 8.0)  # of candidates, in typical pre-activations of the first layer
_CANDIDATES = 20  # for every point wanted, of every spread
_COPIES = 4  # arrays of all points that are made at a time
_MOVING = 2.5  # pre-activation up to which a unit moves


def design_points(weights, biases, n_samples, spread, rng, near=0.5):
    """Inputs at which first-layer units move.

    Parameters
    ----------
    weights : ndarray of shape (D, m_1)
    biases : ndarray of shape (m_1,)
    n_samples : int
    spread : float
        Standard deviation of a typical unit's pre-activation under the Gaussian part, whose mean is where the
        pre-activations are smallest.
    rng : numpy.random.RandomState
    near : float, default=0.5
        Fraction of the samples moved along one unit's normal, units in turn, to a pre-activation uniform in
        [-2.5, 2.5]: units whose hyperplane is far from the centre are seen too. Unless it is 0, a unit that is
        saturated on nearly all of the Gaussian part gets ``1.5 (D + 2)`` samples more of its own, since one sample
        tells no more than one number about its D + 1 parameters.

    Returns
    -------
    ndarray of shape (n, D)
        ``n >= n_samples``.

    Raises
    ------
    MemoryLimitError
        If so many do not fit (`skident.budget`).
    """
    D, m = weights.shape
    require_memory(_COPIES * 8 * D * n_samples, f"{n_samples} samples of {D} inputs")
    norms = np.linalg.norm(weights, axis=0)
    sigma = spread / np.median(norms)
    units = np.arange(int(near * n_samples)) % m
    # Where the data lie all units may be saturated; here as many as can be are not.
    middle = -np.linalg.lstsq(weights.T, biases, rcond=1e-2)[0]
    far = middle + rng.standard_normal((n_samples - len(units), D)) * sigma
    if len(units):
        visible = np.mean(np.abs(far @ weights + biases) < 2.5, axis=0)
        units = np.concatenate([units, np.repeat(np.flatnonzero(visible < 0.05), int(1.5 * (D + 2)))])
    U = middle + rng.standard_normal((len(units), D)) * sigma
    W = weights[:, units].T
    move = rng.uniform(-2.5, 2.5, len(units)) - np.sum(U * W, axis=1) - biases[units]
    return np.concatenate([U + (move / norms[units] ** 2)[:, None] * W, far])


def points_for_deep_units(network, n_samples, rng):
    """Inputs at which units behind the first layer move, also such as are saturated nearly everywhere.

    Parameters
    ----------
    network : FeedforwardNetwork
        With more than one hidden layer.
    n_samples : int
    rng : numpy.random.RandomState

    Returns
    -------
    ndarray of shape (n, D)
        ``n <= n_samples``: of candidates of five spreads as many for every unit, at random among those where its
        pre-activation is at most 2.5, or else those where it is smallest.

    Raises
    ------
    MemoryLimitError
        If the candidates do not fit (`skident.budget`).
    """
    W, b, n_candidates = network.weights[0], network.biases[0], len(_SPREADS) * _CANDIDATES * n_samples
    require_memory(
        2 * 8 * (len(W) + sum(network.layer_widths)) * n_candidates, f"{n_candidates} samples to choose from"
    )
    U = np.concatenate([design_points(W, b, _CANDIDATES * n_samples, spread, rng) for spread in _SPREADS])
    depths, H = [], U
    for W, b, activation in zip(network.weights[:-1], network.biases[:-1], network.activations[:-1], strict=True):
        Z = H @ W + b
        depths, H = [*depths, np.abs(Z)], activation(Z)
    depths = np.hstack(depths[1:])
    each = n_samples // depths.shape[1]
    chosen = [np.argsort(np.maximum(z, _MOVING) + rng.uniform(0.0, 1e-3, len(z)))[:each] for z in depths.T]
    return U[np.unique(np.concatenate(chosen))]
