"""Posterior samples of a sum of squares by Hamiltonian Monte Carlo, with a variance per unit."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import torch

from .solvers import jacobian, set_trainable

__all__ = ["PosteriorChain", "posterior_modules"]

_LEAPFROG_STEPS = 8  # per iteration (budget)
_THINNING = 3  # iterations per sample: neighbors are alike, and each sample costs a pass in predictions
_FIRST_STEP = 0.1  # in units of the Gauss-Newton posterior; adapted in the first half
_FACTORS_OF_STEP = (1.08, 0.88)  # after an accepted and a rejected iteration: about two thirds are accepted
_JITTER = (0.8, 1.2)  # of the step: periodic trajectories would return to where they began
_LARGEST_INCREASE = 1e4  # of the potential, above which a trajectory has diverged
# Gamma prior of a unit's precision, in robust units; tuned on seeds 10 to 12 of make_hierarchical_target, four shapes.
_SHAPE = 0.5  # of one pseudo-weight
_RATE = 3e-3  # with 1e-4, the last layer is set to zero in some chains
_PRECISION_OF_BIASES = 1.0  # of hidden biases and offset, in robust units: hardly informative
_LEAST_NOISE = 1e-14  # of the noise variance, relative to that of the targets: rounding of degree 2^L
_RIDGE = 1e-10  # of the Gauss-Newton matrix relative to its diagonal: rounding


def posterior_modules(module, samples, rng, n_iter):
    """Parameter vectors (m, P) sampled from the posterior, from `module` on, and the chain at its end."""
    chain = PosteriorChain(module, samples, rng)
    kept = []
    for k in range(n_iter):
        if 6 * k % n_iter < 6 and 2 * k <= n_iter:  # at three times in the first half, and at its end
            chain.precondition()
        chain.step(adapt=2 * k < n_iter)
        if 2 * k >= n_iter and k % _THINNING == 0:
            kept.append(chain.params)
    return np.array(kept), chain


class PosteriorChain:
    """Hamiltonian Monte Carlo for ``y = F(x) + noise`` with weights ``N(0, 1 / t_i)`` for the unit i.

    The noise variance (prior 1 / variance) and the precisions t_i (Gamma prior) are drawn between trajectories, given
    the weights (Gibbs sampling). A unit without support gets a large precision, so that widths above the true ones
    change little. The mass matrix is that of Gauss-Newton at a state of the first half of the chain.
    """

    def __init__(self, module, samples, rng):
        set_trainable(module)
        self.module, self.samples, self.rng = module, samples, rng
        self.blocks = module.blocks()
        self.params = np.concatenate([p.detach().numpy().ravel() for _, p in self.blocks])
        self.units = _unit_numbers(self.blocks)
        self.n, self.size, self.factor = len(samples.x), _FIRST_STEP, None
        self.least = _LEAST_NOISE * float(samples.y.var())
        self.squares = self._squares()
        self.noise = max(self.squares / max(self.n - len(self.params), self.n // 3, 1), self.least)
        self.precision = np.full(len(self.params), _PRECISION_OF_BIASES)
        self._draw_precisions()

    def step(self, adapt):
        """One trajectory, accepted by the rule of Metropolis."""
        self.noise = max(self.squares / (2.0 * self.rng.gamma(self.n / 2.0)), self.least)
        self._draw_precisions()
        size = self.size * self.rng.uniform(*_JITTER)
        momentum = self.rng.standard_normal(len(self.params))
        potential, gradient = self._potential(self.params)
        start, params, value = potential + momentum @ momentum / 2.0, self.params, potential
        for _ in range(_LEAPFROG_STEPS):
            momentum = momentum - size / 2.0 * gradient
            params = params + size * self._solve(momentum, transposed=True)
            value, gradient = self._potential(params)
            if not value < potential + _LARGEST_INCREASE:
                break
            momentum = momentum - size / 2.0 * gradient
        finite = value < potential + _LARGEST_INCREASE
        accepted = finite and np.log(self.rng.uniform()) < start - value - momentum @ momentum / 2.0
        if accepted:
            self.params, self.squares = params, self._last_squares
        if adapt:
            self.size *= _FACTORS_OF_STEP[0 if accepted else 1]

    @torch.no_grad()
    def precondition(self):
        """Set the mass matrix to that of Gauss-Newton at the current parameters."""
        self.assign(self.params)
        J = jacobian(self.module, self.blocks, self.samples.x)[1][0]
        matrix = (J.T @ J).numpy() / self.noise + np.diag(self.precision)
        matrix[np.diag_indices_from(matrix)] *= 1.0 + _RIDGE
        self.factor = scipy.linalg.cholesky(matrix, lower=True)

    @torch.no_grad()
    def assign(self, params):
        """Assign a parameter vector (P,) to the module."""
        start = 0
        for _, p in self.blocks:
            p.copy_(torch.as_tensor(params[start : start + p.numel()]).reshape(p.shape))
            start += p.numel()

    def _solve(self, vector, transposed):
        """The vector times the inverse of the Cholesky factor, or of its transpose."""
        return scipy.linalg.solve_triangular(self.factor, vector, lower=True, trans=int(transposed), check_finite=False)

    @torch.no_grad()
    def _squares(self):
        """Sum of squared residuals at the current parameters."""
        self.assign(self.params)
        return float(self.samples.squared_errors(self.module).sum())

    def _potential(self, params):
        """Minus the log posterior, and its gradient in the coordinates of the mass matrix."""
        self.assign(params)
        loss = self.samples.squared_errors(self.module).sum()
        parts = torch.autograd.grad(loss, [p for _, p in self.blocks])
        gradient = np.concatenate([part.numpy().ravel() for part in parts]) / (2.0 * self.noise)
        gradient += self.precision * params
        self._last_squares = float(loss.detach())
        value = self._last_squares / (2.0 * self.noise) + float(self.precision @ params**2) / 2.0
        return (value, self._solve(gradient, transposed=False)) if np.isfinite(value) else (np.inf, gradient)

    def _draw_precisions(self):
        """Draw the precision of each unit given its weights."""
        trained = self.units >= 0
        squares = np.bincount(self.units[trained], self.params[trained] ** 2)
        counts = np.bincount(self.units[trained])
        drawn = self.rng.gamma(counts / 2.0 + _SHAPE) / (squares / 2.0 + _RATE)
        self.precision[trained] = drawn[self.units[trained]]


def _unit_numbers(blocks):
    """The number of the unit to which each parameter (P,) belongs as a weight; -1 for biases and offset."""
    numbers, total = [], 0
    for (kind, _), p in blocks:
        if kind == "weights":
            numbers.append(np.repeat(np.arange(total, total + p.shape[0]), p.shape[1]))
            total += p.shape[0]
        else:
            numbers.append(np.full(p.numel(), -1))
    return np.concatenate(numbers)
