"""Length and offset of first-layer units from the shape of their steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.polynomial import chebyshev
from scipy.stats import chi2

from skident.network import get_activation
from skident.optim import BatchedNormalEquations, Ending, batched_levenberg_marquardt

__all__ = ["fit_shapes", "refine_norms", "unit_interval"]

_NODES = 24
_RANGE = 3.5
_DEGREES = (1, 2, 3, 5, 9)  # of the rest of the network as a polynomial in one unit's output
_STRETCHES = (0.0, -0.5, 0.5)  # of the starts
_BATCH = 100
_STEP = 1e-6  # of the differences
_LONGEST = np.full(2, 0.5)  # step in a and b
_ENDING = Ending(max_iter=12, target=1e-29, ftol=1e-13)  # of steps of height one
_STRAIGHT = 1e-10  # sum of squares, relative to the step's height, below which a profile is linear in the unit


def refine_norms(oracle, first, activation, *, noise=None):
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

    # A start of every unit after the other; as many at a time as fit into the processor's cache.
    unit_of = np.tile(np.arange(len(z0)), 2 * len(_STRETCHES))
    starts = np.stack(
        [np.repeat(_STRETCHES, 2 * len(z0)), np.tile([z0, 0.0 * z0], (len(_STRETCHES), 1)).ravel()], axis=1
    )
    batches = np.array_split(np.arange(len(starts)), 1 + len(starts) // _BATCH)

    def fit(degree):
        fits = [batched_levenberg_marquardt(_Shapes(s, F[unit_of[k]], g, degree), starts[k], _ENDING) for k in batches]
        x, cost = (np.concatenate([getattr(end, name) for end in fits]) for name in ("x", "cost"))
        return _best_of(*(column.reshape(-1, len(z0)) for column in (x[:, 0], x[:, 1], cost)))

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


class _Shapes:
    """A batch of problems in ``(a, b)``: what a polynomial in ``g(exp(a) s + b)`` leaves of answers F (B, n, m_L)."""

    def __init__(self, s, F, g, degree):
        self.s, self.F, self.g, self.degree = s, F, g, degree

    def take(self, index):
        return _Shapes(self.s, self.F[index], self.g, self.degree)

    def _misfit(self, a, b):
        y = unit_interval(np.exp(a)[:, None] * self.s + b[:, None], self.g)
        Q, _ = np.linalg.qr(chebyshev.chebvander(y, self.degree))
        return (self.F - Q @ (np.swapaxes(Q, 1, 2) @ self.F)).reshape(len(y), -1)

    def cost(self, x):
        return np.sum(self._misfit(*x.T) ** 2, axis=1)

    def linearise(self, x):
        """By differences of the projected misfit."""
        a, b = x.T
        r = self._misfit(a, b)
        J = np.stack([self._misfit(a + _STEP, b) - r, self._misfit(a, b + _STEP) - r], axis=1) / _STEP
        return BatchedNormalEquations(J @ np.swapaxes(J, 1, 2), (J @ r[..., None])[..., 0], longest=_LONGEST)

    def move(self, x, steps):
        return x + steps


def _best_of(a, b, cost):
    """Of every column the a, b and cost of the row of lowest cost."""
    best = np.argmin(cost, axis=0), np.arange(a.shape[1])
    return a[best], b[best], cost[best]
