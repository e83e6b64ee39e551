"""Robust Gauss-Newton steps on all parameters, from starts of which some weights are far off."""

import numpy as np
import scipy.linalg

from skident.budget import check_deadline, chunks, require_memory
from skident.budget.constants import CAUCHY, MAD
from skident.fitting.least_squares import NetworkLeastSquares
from skident.network.calculus import flatten_parameters
from skident.optim.damped_cholesky import damped_cholesky

from ...constants import WEAK_RIDGE

_FIRST = 0.3  # `CAUCHY` at first, over the largest residual
_COOLING = 0.1  # ratio of successive ones
_FEW = 2000  # parameters up to which every step has its own matrix
_RIDGE_SINGLE = 1e-6  # `WEAK_RIDGE` in single precision
_NO_EFFECT = 1e-30  # diagonal entry over the largest one of a parameter without effect
_SHARES = (1.0, 0.3, 0.05)  # of a step, tried in turn
_GAIN = 0.01  # relative decrease of the cost below which the last scale has converged
_SLOW = 0.1  # relative decrease of the cost by a step with its own matrix
_MISSING = 10.0  # scale of the residuals, in standard deviations, at which such steps end: a unit is missing
_MOST_STEPS = 14  # in all


def annealed_polish(network, U, Y, std, *, anneal):
    """The network and the scale of its residuals after minimizing ``sum log(1 + (r / s)^2)``, r over `std` (n, m_L).

    s falls to 6 robust standard deviations of r, with `anneal` from the size of the largest residual on: weights that
    few outputs depend on are recovered from what otherwise counts as outliers.
    """
    fit = _Fit(network, U, Y, std)
    s = max(fit.floor, _FIRST * np.abs(fit.residual).max()) if anneal else fit.floor
    for _ in range(_MOST_STEPS):
        gain = fit.step(s)
        if fit.is_fresh and not anneal and gain < _SLOW and fit.floor > _MISSING * CAUCHY:
            break
        if s <= fit.floor and gain < _GAIN:
            if fit.is_fresh or gain > 0.0:
                break
            fit.factor = None
        if gain < 0.5:
            fit.factor = None if fit.n_parameters <= _FEW else fit.factor
        s = max(fit.floor, _COOLING * s)
    return fit.network, fit.floor / CAUCHY


class _Fit:
    """The network, its residuals, and the factor of the last matrix."""

    def __init__(self, network, U, Y, std):
        self.network, self.U, self.Y, self.std = network, U, Y, std
        self.shapes, self.n_parameters = [W.shape for W in network.weights], network.n_parameters
        self.residual, self.factor, self.is_fresh = (network(U) - Y) / std, None, False

    @property
    def floor(self):
        """The smallest scale."""
        return CAUCHY * max(1.0, MAD * float(np.median(np.abs(self.residual))))

    def step(self, s):
        """One step for scale s; the relative decrease of the cost, 0 if no step is better."""
        before = np.sum(np.log1p((self.residual / s) ** 2))
        weight = 1.0 / np.sqrt(1.0 + (self.residual / s) ** 2)
        problem = NetworkLeastSquares(
            self.shapes, self.network.activations, self.U, self.Y, row_weights=weight / self.std
        )
        start = flatten_parameters(self.network.weights, self.network.biases)
        self.is_fresh = self.factor is None
        if self.is_fresh:
            gradient = self._factorize(problem, start)
        else:
            gradient = problem._products(start)[1]
        factor, scale = self.factor
        step = -scale * scipy.linalg.cho_solve((factor, False), scale * gradient, check_finite=False)
        for share in _SHARES:
            network = self.network.with_parameters(*problem.unflatten(start + share * step))
            residual = (network(self.U) - self.Y) / self.std
            after = np.sum(np.log1p((residual / s) ** 2))
            if after < before:
                self.network, self.residual = network, residual
                return 1.0 - after / before
        return 0.0

    def _factorize(self, problem, start):
        """Keep the factor of the scaled matrix at a start; returns the gradient."""
        if self.n_parameters <= _FEW:
            A, gradient = problem.normal_equations(start)
            ridge = WEAK_RIDGE
        else:
            A, gradient, ridge = _single_precision_matrix(problem, start), problem._products(start)[1], _RIDGE_SINGLE
        scale = 1.0 / np.sqrt(np.maximum(np.diag(A), _NO_EFFECT * np.diag(A).max()))
        A *= scale[:, None]
        A *= scale
        A.flat[:: len(A) + 1] = 1.0  # also where a parameter has no effect
        check_deadline(len(A) ** 3 / 3.0)
        self.factor = damped_cholesky(A, ridge)[0], scale
        return gradient


def _single_precision_matrix(problem, start):
    """The upper triangle of ``J^T J``, rows of J rounded to single precision: half the time, enough for a direction."""
    P = problem.n_parameters
    require_memory(2 * 8 * P**2, f"the Gauss-Newton matrix of {P} parameters")
    A = np.zeros((P, P), order="F", dtype=np.float32)
    for block in chunks(len(problem.U), 2 * 8 * P * problem.Y.shape[1]):
        check_deadline()
        reads, sensitivities, _ = problem._passes(start, block)
        for p in range(problem.Y.shape[1]):
            parts = [y[:, :, None] * B[:, p, None] for y, B in zip(reads, sensitivities, strict=True)]
            J = np.hstack([part.reshape(len(part), -1).astype(np.float32) for part in parts])
            A = scipy.linalg.blas.ssyrk(1.0, J.T, beta=1.0, c=A, overwrite_c=True)
    return A.astype(float)
