"""Posterior samples of sums of squares by Hamiltonian Monte Carlo, several chains at once."""

import numpy as np
import scipy.linalg

from skident.budget.constants import FEW_ROUNDINGS, RIDGE_OF_PRODUCTS

_LEAPFROG_STEPS = 8  # per iteration (budget)
_THINNING = 6  # iterations per sample: neighbors are alike, and each sample costs a pass in predictions
_FIRST_STEP = 0.1  # in units of the Gauss-Newton posterior; adapted in the warm-up
_FACTORS_OF_STEP = (1.08, 0.88)  # after an accepted and a rejected iteration: about two thirds are accepted
_JITTER = (0.8, 1.2)  # of the step: periodic trajectories would return to where they began
_LARGEST_INCREASE = 1e4  # of the potential, above which a trajectory has diverged
_WARM_UP = 0.4  # fraction of the iterations that are not kept
_PRECONDITIONED = 3  # times in the warm-up that the mass matrix is computed, and once at its end (budget)
# Annealing: the least noise variance, relative to that of the targets, falls from the first to the second value.
_HIGHEST_NOISE = 0.5  # the lower layers are fitted before the upper ones
_LOWEST_NOISE = 1e-2  # then the noise is drawn; with less, chains stay in other minima
_ANNEALED = 0.75  # fraction of the warm-up; the chain then has the rest to settle
# Gamma prior of the precision of a unit's weights on one connection, in robust units.
_SHAPE = 0.5  # of one pseudo-weight
_RATE = 3e-3  # with 1e-4, the last layer is set to zero in some chains


class PosteriorChains:
    """Hamiltonian Monte Carlo for ``y = F(x) + noise`` with Gaussian weights, C chains (C, P) on the same samples.

    The weights of a unit on one connection are ``N(0, 1 / t)`` with their own precision t, and so are the biases of a
    layer: a unit without support gets large precisions, so that widths above the true ones change little, and biases of
    centered targets vanish. The noise variance (prior 1 / variance) and the precisions (Gamma prior) are drawn between
    trajectories, given the weights (Gibbs sampling). At first, the noise is held above a bound that falls (simulated
    annealing): chains from least squares stay in other minima. The mass matrix is that of Gauss-Newton at a state of
    the warm-up. `used` (C, n) are the weights of the samples of each chain, else zero.
    """

    def __init__(self, net, y, used, params, rng):
        self.net, self.y, self.used, self.rng = net, y, used, rng
        self.params, self.n, self.variance = params.copy(), used.sum(axis=1), float(y.var())
        self.groups, self.member = _groups(net)
        self.least, self.bound = FEW_ROUNDINGS * self.variance, _HIGHEST_NOISE * self.variance
        self.size = np.full(len(params), _FIRST_STEP)
        with np.errstate(over="ignore", invalid="ignore"):
            self.squares = net.loss_and_gradient(self.params, y, used)[0]
        self._draw()

    def run(self, n_iter):
        """Samples (m, C, P) after the warm-up of `n_iter` iterations."""
        kept, warm = [], int(_WARM_UP * n_iter)
        times = {k * warm // _PRECONDITIONED for k in range(_PRECONDITIONED + 1)}
        for k in range(n_iter):
            progress = k / (_ANNEALED * warm)
            falling = _HIGHEST_NOISE * (_LOWEST_NOISE / _HIGHEST_NOISE) ** progress
            self.bound = falling * self.variance if progress < 1.0 else 0.0
            if k in times:
                self._precondition()
            self._step(adapt=k < warm)
            if k >= warm and (k - warm) % _THINNING == 0:
                kept.append(self.params.copy())
        return np.array(kept)

    def _draw(self):
        """Draw noise variances and precisions given the weights."""
        self.noise = np.maximum(self.squares / (2.0 * self.rng.gamma(self.n / 2.0)), max(self.least, self.bound))
        rates = self.params**2 @ self.member / 2.0 + _RATE
        drawn = self.rng.gamma(self.member.sum(axis=0) / 2.0 + _SHAPE, size=rates.shape) / rates
        self.precision = drawn[:, self.groups]
        self.precision[:, self.groups < 0] = 0.0  # the offset

    def _precondition(self):
        """Set the mass matrices to those of Gauss-Newton at the current states."""
        roots, inverses, names = [], [], list(self.net.places)
        for params, used, noise, precision in zip(self.params, self.used, self.noise, self.precision):
            matrix = self.net.normal_equations(params, np.zeros((used.size, 1)), np.sqrt(used), names)[0] / noise
            diagonal = matrix.diagonal() + precision
            np.fill_diagonal(matrix, (1.0 + RIDGE_OF_PRODUCTS) * diagonal)
            root = scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
            roots.append(root)
            inverses.append(scipy.linalg.cho_solve((root, True), np.eye(len(root)), check_finite=False))
        self.roots, self.inverses = np.array(roots), np.array(inverses)

    def _potential(self, params):
        """Squared errors, minus the log posterior, and its gradient, of each chain."""
        squares, gradient = self.net.loss_and_gradient(params, self.y, self.used)
        value = squares / (2.0 * self.noise) + (self.precision * params**2).sum(axis=1) / 2.0
        return squares, value, gradient / self.noise[:, None] + self.precision * params

    def _step(self, adapt):
        """One trajectory of each chain, accepted by the rule of Metropolis."""
        self._draw()
        size = (self.size * self.rng.uniform(*_JITTER, len(self.size)))[:, None]
        momentum = self._times(self.roots, self.rng.standard_normal(self.params.shape))
        with np.errstate(over="ignore", invalid="ignore"):
            _, potential, gradient = self._potential(self.params)
            energy = potential + (momentum * self._times(self.inverses, momentum)).sum(axis=1) / 2.0
            params, momentum = self.params, momentum - size / 2.0 * gradient
            alive = np.ones(len(params), dtype=bool)
            for k in range(_LEAPFROG_STEPS):
                params = params + size * self._times(self.inverses, momentum)
                squares, value, gradient = self._potential(params)
                alive &= value < potential + _LARGEST_INCREASE
                params, gradient = (
                    np.where(alive[:, None], params, self.params),
                    np.where(alive[:, None], gradient, 0.0),
                )
                momentum = momentum - size * (1.0 if k < _LEAPFROG_STEPS - 1 else 0.5) * gradient
            change = energy - value - (momentum * self._times(self.inverses, momentum)).sum(axis=1) / 2.0
            accepted = alive & (np.log(self.rng.uniform(size=len(alive))) < change)
        self.params = np.where(accepted[:, None], params, self.params)
        self.squares = np.where(accepted, squares, self.squares)
        if adapt:
            self.size *= np.where(accepted, *_FACTORS_OF_STEP)

    @staticmethod
    def _times(matrices, vectors):
        """The products of matrices (C, P, P) and vectors (C, P)."""
        return (matrices @ vectors[:, :, None])[:, :, 0]


def _groups(net):
    """The group of parameters (P,) with one precision, -1 for none, and membership (P, number of groups)."""
    groups, total = np.full(net.size, -1), 0
    for (kind, layer), place in net.places.items():
        if kind == "biases":
            groups[place], total = total, total + 1
        elif kind == "weights":
            k, sizes = net.widths[layer - 2], net.sizes[layer - 2]
            connection = np.repeat(np.arange(len(sizes)), sizes)
            groups[place] = (total + np.arange(k)[:, None] * len(sizes) + connection).ravel()
            total += k * len(sizes)
    return groups, (groups[:, None] == np.arange(total)).astype(float)
