"""Units of one hidden layer that noise hides at large inputs: as many as the outputs support."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import FEW_ROUNDS, PATIENCE
from skident.fitting.design import design_points
from skident.fitting.errors_of_fit import FitSample
from skident.fitting.polish import NOISY_OUTPUTS, polish_network
from skident.fitting.pruning import removal_costs, remove_unit
from skident.linalg import lapack
from skident.network import FeedforwardNetwork, get_activation

from .constants import NORM_SPREAD

__all__ = ["with_missing_units"]

# Random candidate units, those of them that are fitted, and steps of these fits (budget): for small and large noise.
_SEARCH_CLEAR = (1000, 4, 60)  # small noise: few candidates are near, and their fits must converge
_SEARCH_NOISY = (4000, 16, 10)  # large noise: the best candidate is uncertain
_CONVERGED = 0.998  # share of the residual after a polish, from which another one gains nothing
_WIDER = 1.5  # width up to which a network may grow before it is pruned, relative to its first width
_EXTRA_UNITS = 8  # units beyond that
_NOISE_FACTOR = 1.4  # residual variance over that of the measured noise, up to which noise explains it
_CLEAR = 5e-4  # noise relative to the outputs below which a single redundant unit ends the growth
_MORE_SAMPLES = 3.0  # factor of the samples in the end: weak units are significant in many samples only
_REMOVALS = 4  # units whose removal is tried before none is redundant


def with_missing_units(oracle, network, noise, rng, *, at_most, out_of_time=lambda: False, callback=None):
    """A fitted network with one hidden layer and as many units as noisy outputs support, its residual and `FitSample`.

    One unit at a time is fitted to the residuals at ``10 P / m_L`` samples (in the end three times as many if the noise
    is large), then everything at once, while the sum of squares falls by more than ``k log(n m_L)`` noise variances
    (Bayesian information criterion, k parameters per unit) or more than noise is left. Several units may stand for one;
    redundant ones are then removed by the same criterion, the others taking over: a fit that is too wide has few local
    minima. `noise` (m_L,) is the standard deviation of every output's error; `at_most` bounds the hidden units.
    """
    report = (lambda n_units: None) if callback is None else callback
    residual = np.inf
    network, samples = _grown(oracle, network, noise, rng, at_most, out_of_time, report)
    n_tried = 1 if samples.clear else _REMOVALS
    while len(samples.U) and 1 < network.layer_widths[0] and not out_of_time():
        network, residual = samples.converged(network)
        smaller = _smaller(network, samples, n_tried, network.layer_widths[0] > at_most)
        if smaller is None:
            break
        network = smaller
        report(network.layer_widths[0])
    return network, residual, FitSample(samples.U, samples.Y, noise) if np.isfinite(residual) else None


@dataclass(frozen=True)
class _Samples:
    """Inputs U (n, D), noisy outputs Y (n, m_L), and the standard deviation of their noise (m_L,)."""

    U: np.ndarray
    Y: np.ndarray
    noise: np.ndarray

    @property
    def clear(self):
        """Whether the noise is too small to hide units near the center."""
        return len(self.Y) == 0 or bool(np.all(self.noise < _CLEAR * self.Y.std(axis=0)))

    def fitted(self, network, max_iter=60):
        return polish_network(network, self.U, self.Y, noise=self.noise, max_iter=max_iter)[0]

    def converged(self, network):
        """The network polished until that gains nothing, and its residual: single polishes end early."""
        residual = np.inf
        for _ in range(FEW_ROUNDS):
            network, left, _ = polish_network(network, self.U, self.Y, noise=self.noise)
            if left > _CONVERGED * residual:
                break
            residual = left
        return network, left

    def chi2(self, network):
        return float(np.sum(((network(self.U) - self.Y) / self.noise) ** 2))

    def variance(self, network):
        """Residual variance of a fitted network, in units of the noise variance."""
        return self.chi2(network) / max(self.Y.size - network.n_parameters, 1)

    def is_needed(self, before, after):
        """Whether the larger network explains more than noise."""
        k = after.n_parameters - before.n_parameters
        return self.chi2(before) - self.chi2(after) > k * np.log(self.Y.size) * self.variance(after)


def _grown(oracle, network, noise, rng, at_most, out_of_time, report):
    """The network with more units than needed, and the samples that show it."""
    samples = _Samples(np.empty((0, oracle.n_inputs)), np.empty((0, network.n_outputs)), noise)
    limit, vain, times = _WIDER * min(at_most, network.layer_widths[0]) + _EXTRA_UNITS, 0, 1.0
    while network.layer_widths[0] < limit and not out_of_time():
        samples = _more_samples(oracle, network, samples, rng, times)
        before = samples.converged(network)[0] if samples.clear else samples.fitted(network)
        after = samples.fitted(_with_unit(before, samples, rng))
        if samples.clear or not samples.is_needed(before, after):
            before, after = samples.converged(before)[0], samples.converged(after)[0]
        if samples.clear and not samples.is_needed(before, after):
            return before, samples
        vain = 0 if samples.is_needed(before, after) else vain + 1
        network = after
        report(network.layer_widths[0])
        if vain > (0 if samples.variance(after) < _NOISE_FACTOR else PATIENCE):
            if times == _MORE_SAMPLES:
                break
            vain, times = 0, _MORE_SAMPLES
    return network, samples


def _smaller(network, samples, n_tried, too_wide):
    """The network without one redundant unit; None if all are needed, unless the network is too wide."""
    costs, takeovers = removal_costs(network, samples.U)
    tried = []
    for unit in np.argsort(costs[0])[:n_tried]:
        smaller, _ = samples.converged(remove_unit(network, 0, int(unit), takeovers[0][:, unit]))
        if not samples.is_needed(smaller, network):
            return smaller
        tried.append(smaller)
    return min(tried, key=samples.chi2) if too_wide else None


def _more_samples(oracle, network, samples, rng, times):
    """As many samples as the network with one more unit needs, including the present ones."""
    P = network.n_parameters + network.n_inputs + network.n_outputs + 1
    n = max(int(times * NOISY_OUTPUTS * P / network.n_outputs) - len(samples.U), 0)
    W, b = network.weights[0], network.biases[0]
    U, Y = oracle.query_precise(lambda n, factor: design_points(W, b, n, factor, rng), n)
    return _Samples(np.concatenate([samples.U, U]), np.concatenate([samples.Y, Y]), samples.noise)


def _with_unit(network, samples, rng):
    """The network with the unit that explains most of its residuals."""
    W, b, (n, n_fitted, n_steps) = (
        network.weights[0],
        network.biases[0],
        _SEARCH_CLEAR if samples.clear else _SEARCH_NOISY,
    )
    U, Y = (rows[: int(NOISY_OUTPUTS * network.n_parameters / network.n_outputs)] for rows in (samples.U, samples.Y))
    left = _Samples(U, Y - network(U), samples.noise)
    g = get_activation(network.activation)
    norms = rng.choice(np.linalg.norm(W, axis=0), n) * np.exp(NORM_SPREAD * rng.standard_normal(n))
    normals = rng.standard_normal((U.shape[1], n))
    normals *= norms / np.linalg.norm(normals, axis=0)
    biases = -np.sum(normals * U[rng.randint(len(U), size=n)].T, axis=0)
    outputs = g(U @ normals + biases)
    outputs -= outputs.mean(axis=0)
    size = np.maximum(np.linalg.norm(outputs, axis=0), np.finfo(float).tiny)
    explained = np.sum((outputs.T @ ((left.Y - left.Y.mean(axis=0)) / samples.noise)) ** 2, axis=1) / size**2
    names = network.activation, network.output_activation
    best = np.argsort(-explained)[:n_fitted]
    units = [_fitted_unit(left, normals[:, k], biases[k], names, n_steps) for k in best]
    unit = min(units, key=left.chi2)
    return FeedforwardNetwork(
        [np.column_stack([W, unit.weights[0]]), np.concatenate([network.weights[1], unit.weights[1]])],
        [np.concatenate([b, unit.biases[0]]), network.biases[1] + unit.biases[1]],
        *names,
    )


def _fitted_unit(left, normal, bias, names, n_steps):
    """A network of one unit, fitted to the residuals from this start by so many steps."""
    output = get_activation(names[0])(left.U @ normal + bias)
    columns = np.column_stack([output, np.ones(len(left.U))])
    readout = lapack.lstsq(columns, left.Y, rcond=None)[0]
    start = FeedforwardNetwork([normal[:, None], readout[:1]], [np.array([bias]), readout[1]], *names)
    return left.fitted(start, max_iter=n_steps)
