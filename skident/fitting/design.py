"""Query design: inputs at which the hidden units of a network are not saturated."""

from __future__ import annotations

import numpy as np

from skident.budget import require_memory

__all__ = ["design_points", "points_for_deep_units"]

_ACTIVE_RANGE = 2.5  # |pre-activation| up to which a unit is not saturated: tanh' there is 0.03
_SATURATED_SHARE = 0.05  # of the Gauss points; a unit that is active at fewer gets points of its own
_EXTRA_POINTS = 1.5  # per parameter of such a unit, D + 2 with its output weight
_CENTER_RCOND = 1e-2  # of the weights: directions that the units hardly depend on stay at 0
_SPREADS = (0.5, 1.0, 2.0, 4.0, 8.0)  # of candidates, in typical pre-activations of the first layer
_CANDIDATES = 20  # per point wanted, for every spread (budget)
_COPIES = 4  # arrays of all points that are made at a time
_TIE_BREAK = 1e-3  # largest random term in the order of candidates, in pre-activations: equal ones are drawn at random


def design_points(weights, biases, n_samples, spread, rng, near=0.5):
    """At least `n_samples` inputs (n, D) at which first-layer units, weights (D, m) and biases (m,), are active.

    The Gaussian part is centered where the pre-activations are smallest; `spread` is the standard deviation of a
    typical pre-activation. A fraction `near` of the samples is moved along the normal of one unit, units in turn, to a
    pre-activation uniform in [-2.5, 2.5]: this reaches units whose hyperplane is far from the center. Unless `near` is
    0, a unit that is saturated on nearly all of the Gaussian part gets ``1.5 (D + 2)`` samples more, because each
    determines no more than one of its D + 1 parameters. MemoryLimitError if the samples do not fit.
    """
    D, m = weights.shape
    require_memory(_COPIES * 8 * D * n_samples, f"{n_samples} samples of {D} inputs")
    norms = np.linalg.norm(weights, axis=0)
    sigma = spread / np.median(norms)
    units = np.arange(int(near * n_samples)) % m
    # All units may be saturated on the data; at this center as few as possible are.
    center = -np.linalg.lstsq(weights.T, biases, rcond=_CENTER_RCOND)[0]
    gaussian = center + rng.standard_normal((n_samples - len(units), D)) * sigma
    if len(units):
        active = np.mean(np.abs(gaussian @ weights + biases) < _ACTIVE_RANGE, axis=0)
        saturated = np.flatnonzero(active < _SATURATED_SHARE)
        units = np.concatenate([units, np.repeat(saturated, int(_EXTRA_POINTS * (D + 2)))])
    U = center + rng.standard_normal((len(units), D)) * sigma
    W = weights[:, units].T
    move = rng.uniform(-_ACTIVE_RANGE, _ACTIVE_RANGE, len(units)) - np.sum(U * W, axis=1) - biases[units]
    return np.concatenate([U + (move / norms[units] ** 2)[:, None] * W, gaussian])


def points_for_deep_units(network, n_samples, rng):
    """At most `n_samples` inputs (n, D) at which units behind the first hidden layer are active.

    For every unit as many candidates of five spreads are chosen, at random among those where its pre-activation is at
    most 2.5, or else those where it is smallest. MemoryLimitError if the candidates do not fit.
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
    per_unit = n_samples // depths.shape[1]
    order = [np.argsort(np.maximum(z, _ACTIVE_RANGE) + rng.uniform(0.0, _TIE_BREAK, len(z))) for z in depths.T]
    return U[np.unique(np.concatenate([chosen[:per_unit] for chosen in order]))]
