"""Inputs at which the units of a network move."""

from __future__ import annotations

import numpy as np

__all__ = ["design_points"]


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
    """
    D, m = weights.shape
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
