"""Length and offset of first-layer units from the shape of their steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.polynomial import chebyshev
from scipy.stats import chi2

from skident.network import get_activation

__all__ = ["fit_shapes", "refine_lengths", "unit_interval"]

_NODES = 24
_RANGE = 3.5
_DEGREES = (1, 2, 3, 5, 9)  # of the rest of the network as a polynomial in one unit's output
_STRETCHES = (0.0, -0.5, 0.5)  # of the starts
_BATCH = 100
_STRAIGHT = 1e-10  # sum of squares, relative to the step's height, below which a profile is linear in the unit


def refine_lengths(oracle, first, activation, *, noise=None):
    """Length and offset of every first-layer unit from its whole profile.

    Parameters
    ----------
    oracle : Oracle
    first : FirstLayer
    activation : str or Activation
        The true first-layer activation g.
    noise : float or ndarray of shape (m_L,), default=None
        Standard deviation of the noise in every output, absolute.

    Returns
    -------
    FirstLayer
        The same directions; lengths and biases such that the answers along the unit's normal are a polynomial in
        ``g(a s + z)`` of lowest misfit. 24 queries a unit.

    Notes
    -----
    With all other units saturated the rest of the network is a smooth function of this unit's output alone, so a
    polynomial of degree 9 in it leaves two unknowns, found by variable projection (Gauss-Newton from six starts, all
    units at once). Exact to rounding where the layers above are gentle, to some per cent where they are steep. With
    noise the lowest degree is taken that leaves no more than noise.
    """
    lengths = np.linalg.norm(first.weights, axis=0)
    normals = first.weights / lengths
    s = np.linspace(-_RANGE, _RANGE, _NODES)
    U = first.points[:, None] + (s[None, :] / lengths[:, None])[:, :, None] * normals.T[:, None]
    F = oracle(U.reshape(-1, oracle.n_inputs)).reshape(len(lengths), _NODES, -1)
    z0 = np.sum(first.weights * first.points.T, axis=0) + first.biases
    stretch, shift = fit_shapes(s, F, z0, activation, noise=noise)
    weights = first.weights * np.exp(stretch)
    return replace(first, weights=weights, biases=shift - np.sum(weights * first.points.T, axis=0))


def unit_interval(z, g):
    """Output of an activation on [-1, 1], whatever its limits.

    Parameters
    ----------
    z : ndarray
    g : Activation
        With limits.

    Returns
    -------
    ndarray
    """
    low, high = g.limits
    return (g(z) - low) * (2.0 / (high - low)) - 1.0


def fit_shapes(s, F, z0, activation, *, noise=None, degrees=_DEGREES):
    """``a`` and ``b`` such that answers are a polynomial in ``g(exp(a) s + b)``, of the lowest misfit.

    Parameters
    ----------
    s : ndarray of shape (n,)
        Positions, about in units of the pre-activation.
    F : ndarray of shape (t, n, m_L)
        Answers there, for t units.
    z0 : ndarray of shape (t,)
        A guess of b.
    activation : str or Activation
    noise : float or ndarray of shape (m_L,), default=None
    degrees : sequence of int
        Without noise the first one, where it leaves nothing, or else the last one; with noise, the first that leaves
        noise only.

    Returns
    -------
    a, b : ndarray of shape (t,)
    """
    g = get_activation(activation)
    F = F if noise is None else F / noise
    F = F - F.mean(axis=1, keepdims=True)
    height = np.maximum(np.abs(F).max(axis=(1, 2)), np.finfo(float).tiny)
    F = F / height[:, None, None]

    def misfit(log_stretch, shift, degree):
        y = unit_interval(np.exp(log_stretch)[..., None] * s + shift[..., None], g)
        Q, _ = np.linalg.qr(chebyshev.chebvander(y, degree))
        return (F - Q @ (np.swapaxes(Q, -1, -2) @ F)).reshape(*shift.shape, -1)

    # A row has one start a unit; as many rows at a time as fit into the processor's cache.
    stretches = np.repeat(_STRETCHES, 2)[:, None] + 0.0 * z0
    shifts = np.array([z0, 0.0 * z0] * len(_STRETCHES))
    batches = np.array_split(np.arange(len(shifts)), min(len(shifts), 1 + shifts.size // _BATCH))

    def fit(degree):
        fits = [_fit_two(lambda a, z: misfit(a, z, degree), stretches[k], shifts[k]) for k in batches]
        return _best_of(*map(np.concatenate, zip(*fits)))

    if noise is None:
        # Where a straight line does, one linear layer lies above, and then the offset is determined too.
        line, bent = fit(degrees[0]), fit(degrees[-1])
        return np.where(line[2] < _STRAIGHT, line, bent)[:2]
    return _lowest_degree(fit, degrees, F.shape[1:], 1.0 / height)


def _lowest_degree(fit, degrees, shape, noise):
    """Stretch and shift of the lowest degree whose misfit is noise, or no more than that of the highest degree."""
    fits = [fit(degree) for degree in degrees]
    freedom = [max(1, (shape[0] - d - 1) * shape[1] - 2) for d in degrees]
    variances = np.array([cost / f for (*_, cost), f in zip(fits, freedom)])
    usual = np.array([chi2.isf(1e-2, f) / f for f in freedom])[:, None]
    good = variances <= usual * np.maximum(noise**2, 1.2 * variances[-1])
    good[-1] = True
    chosen = np.argmax(good, axis=0), np.arange(len(noise))
    return np.array([f[0] for f in fits])[chosen], np.array([f[1] for f in fits])[chosen]


def _fit_two(misfit, a, b, n_iter=12, h=1e-6):
    """Batched damped Gauss-Newton in two unknowns a problem, by differences of the projected misfit."""
    r = misfit(a, b)
    cost, damping = np.sum(r**2, axis=-1), np.full(a.shape, 1e-3)
    for _ in range(n_iter):
        J = np.stack([(misfit(a + h, b) - r) / h, (misfit(a, b + h) - r) / h], axis=-2)
        A = J @ np.swapaxes(J, -1, -2)
        A[..., [0, 1], [0, 1]] *= (1.0 + damping)[..., None]
        A[..., [0, 1], [0, 1]] += np.finfo(float).tiny
        step = -np.linalg.solve(A, (J @ r[..., None]))[..., 0]
        step = np.clip(step, -0.5, 0.5)
        trial = misfit(a + step[..., 0], b + step[..., 1])
        new = np.sum(trial**2, axis=-1)
        better = new < cost
        a, b = np.where(better, a + step[..., 0], a), np.where(better, b + step[..., 1], b)
        r, cost = np.where(better[..., None], trial, r), np.where(better, new, cost)
        damping = np.where(better, damping / 10.0, damping * 10.0)
    return a, b, cost


def _best_of(a, b, cost):
    """Of every column the a, b and cost of the row of lowest cost."""
    best = np.argmin(cost, axis=0), np.arange(a.shape[1])
    return a[best], b[best], cost[best]
