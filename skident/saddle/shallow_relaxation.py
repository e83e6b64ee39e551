"""Upper bounds of a sum of ReLU terms on parts of the unit sphere, by a semidefinite relaxation."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from skident.budget.constants import SUM_ROUNDING

_MAX_STEPS = 150  # of L-BFGS per temperature (budget)
_TEMPERATURES = (1e-2, 1e-3)  # of the smoothed eigenvalue, relative to the target: the bound is accurate to the last
_LEAST_CURVATURE = -1.0  # log of rho |x|: below, a term's bound is above the sum of both of its sides
_MOST_CURVATURE = 9.0  # log of rho |x|: 1 / rho is then negligible beside the speed
_LEAST_TARGET = 1e-6  # of the sum of all terms' sizes: speeds below are not resolved


@dataclass(frozen=True)
class Bounded:
    """A region of the sphere with its bound.

    Attributes
    ----------
    upper : float
        Of the sum in the region.
    signs : ndarray of shape (n,)
        Of ``w . x_j`` in the region; 0 if either.
    branch : int or None
        The sample whose sign relaxes the bound most; None if all are given.
    candidate : tuple of float and ndarray of shape (D,)
        Value of the sum at the relaxation's w, anywhere on the sphere, and w.
    """

    upper: float
    signs: np.ndarray
    branch: int | None
    candidate: tuple


class Relaxation:
    """Bounds of ``sum_j g_j relu(w . x_j)`` on the unit sphere, in the regions of given signs.

    Parameters
    ----------
    X : ndarray of shape (n, D)
        Of norm at most one, none zero.
    g : ndarray of shape (n,)
    """

    def __init__(self, X, g):
        self.X, self.g, self.norms = X, g, np.linalg.norm(X, axis=1)
        self.size = float(np.abs(g) @ self.norms)
        self.flip = np.diag(np.r_[1.0, -np.ones(X.shape[1])])  # zero at (1, w) on the sphere

    def bound(self, signs, target):
        """The bound of a region; minimized no further once it is below the target."""
        program = _Program(self, signs)
        y, best = program.start(), (np.inf, None)
        for temperature in _TEMPERATURES:
            smooth = temperature * max(target, _LEAST_TARGET * self.size)
            solved = minimize(
                lambda y, smooth=smooth: program.smoothed(y, smooth)[:2],
                y,
                jac=True,
                method="L-BFGS-B",
                bounds=program.limits(),
                options={"maxiter": _MAX_STEPS},
            )
            y = solved.x
            _, _, upper, moments = program.smoothed(y, smooth)
            best = min(best, (upper, moments), key=lambda pair: pair[0])
            if best[0] <= target:
                break
        return Bounded(best[0], signs, program.branch(best[1]), self._candidate(best[1]))

    def _candidate(self, moments):
        """The better of the relaxation's mean and principal directions, both ways."""
        leading = np.linalg.eigh(moments[1:, 1:])[1][:, -1]
        mean = moments[0, 1:] / max(np.linalg.norm(moments[0, 1:]), np.finfo(float).tiny)
        W = np.column_stack([mean, leading, -leading])
        values = self.g @ np.maximum(self.X @ W, 0.0)
        return float(values.max()), W[:, values.argmax()]


class _Program:
    """The dual of one region's relaxation in y = (t, log rho, sigma, kappa, mu, nu).

    t belongs to the sphere, rho (p,) to samples of either sign with ``g > 0``, sigma and kappa (q,) to those with
    ``g < 0``, mu (f,) to the given signs and nu (f (f - 1) / 2,) to their products.
    """

    def __init__(self, relaxation, signs):
        X, g = relaxation.X, relaxation.g
        self.flip, self.signs = relaxation.flip, signs
        self.free = np.flatnonzero((g > 0) & (signs == 0))
        given, negative = np.flatnonzero((g > 0) & (signs != 0)), g < 0
        active = given[signs[given] > 0]
        self.gains, self.convex = g[self.free], X[self.free]
        self.losses, self.concave = -g[negative], X[negative]
        self.reach = relaxation.norms[negative]
        self.walls = X[given] * signs[given, None]
        self.pairs = np.triu_indices(len(given), 1)
        self.linear = self.gains @ self.convex / 2 + g[active] @ X[active]
        self.log_scale = -np.log(relaxation.norms[self.free])
        self.rounding = SUM_ROUNDING * relaxation.size

    def _split(self, y):
        ends = np.cumsum([1, len(self.gains), len(self.losses), len(self.losses), len(self.walls)])
        return np.split(y, ends)

    def start(self):
        """Curvatures for inputs of a random direction, and halves of sigma and kappa."""
        rho = self.log_scale + np.log(self.convex.shape[1]) / 2
        n_multipliers = len(self.walls) + len(self.pairs[0])
        return np.concatenate([[0.0], rho, np.full(2 * len(self.losses), 0.5), np.zeros(n_multipliers)])

    def limits(self):
        """Bounds of y for the solver."""
        curvatures = [(low + _LEAST_CURVATURE, low + _MOST_CURVATURE) for low in self.log_scale]
        n_multipliers = len(self.walls) + len(self.pairs[0])
        return [(None, None), *curvatures, *[(0.0, 1.0)] * (2 * len(self.losses)), *[(0.0, None)] * n_multipliers]

    def _matrix(self, y):
        """The form whose value at (1, w) bounds the sum, up to the constant; and rho."""
        (t,), log_rho, sigma, kappa, mu, nu = self._split(y)
        rho = np.exp(log_rho)
        form = (self.convex * (self.gains * rho / 4)[:, None]).T @ self.convex
        form -= (self.concave * (self.losses * kappa / (2 * self.reach))[:, None]).T @ self.concave
        if len(nu):
            products = np.zeros((len(mu), len(mu)))
            products[self.pairs] = nu / 2
            form = form + self.walls.T @ (products + products.T) @ self.walls
        linear = self.linear - (self.losses * (sigma + kappa * (0.5 - sigma))) @ self.concave + mu @ self.walls
        matrix = t * self.flip
        matrix[0, 1:] += linear / 2
        matrix[1:, 0] += linear / 2
        matrix[1:, 1:] += form
        return matrix, rho

    def smoothed(self, y, temperature):
        """The smoothed bound, its gradient, the bound, and the moments (D + 1, D + 1) of (1, w) that it rests on."""
        matrix, rho = self._matrix(y)
        values, vectors = np.linalg.eigh(matrix)
        shares = np.exp((values - values[-1]) / temperature)
        total, constant = shares.sum(), (self.gains / rho).sum() / 4
        moments = 2.0 * (vectors * (shares / total)) @ vectors.T
        mean, second = moments[0, 1:], moments[1:, 1:]
        squares = np.einsum("ij,jk,ik->i", self.convex, second, self.convex)
        sigma, kappa = self._split(y)[2:4]
        height = self.concave @ mean
        spread = np.einsum("ij,jk,ik->i", self.concave, second, self.concave)
        gradient = np.concatenate([
            [np.sum(self.flip * moments)],
            self.gains * (rho * squares - 1.0 / rho) / 4,
            -self.losses * (1.0 - kappa) * height,
            -self.losses * ((0.5 - sigma) * height + spread / (2 * self.reach)),
            self.walls @ mean,
            (self.walls @ second @ self.walls.T)[self.pairs],
        ])  # fmt: skip
        upper = 2.0 * values[-1] + constant
        rounding = self.rounding + SUM_ROUNDING * (np.abs(values).max() + constant)
        return upper + 2.0 * temperature * np.log(total), gradient, upper + rounding, moments

    def branch(self, moments):
        """The sample of either sign whose term the relaxation overstates most."""
        if not len(self.free):
            return None
        second = np.einsum("ij,jk,ik->i", self.convex, moments[1:, 1:], self.convex)
        slack = np.sqrt(np.maximum(second, 0.0)) - np.abs(self.convex @ moments[0, 1:])
        return int(self.free[np.argmax(self.gains * slack)])
