"""Units too weak to be seen far away, or hidden behind others there: as many as noisy answers ask for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.fitting.design import design_points
from skident.fitting.polish import NOISY_OUTPUTS, polish_network
from skident.fitting.pruning import removal_costs, remove_unit
from skident.network import FeedforwardNetwork, get_activation

__all__ = ["with_missing_units"]

# Random units looked at, those of them that are fitted, and how many steps far: where noise is small, and where not.
_FEW, _MANY = (1000, 4, 60), (4000, 16, 10)
_ROUNDS, _SETTLED = 3, 0.998  # of the polish, and part of the residual that a round leaves when it is the last
_LENGTHS = 0.5  # spread of the logarithm of their lengths around those of the other units
_WIDER, _SOME = 1.5, 8  # times as wide as it was, and some units more, that a network may grow before it is pruned
_NOISE_KNOWN = 1.4  # the noise's variance is this many times what short lines tell, at most
_PATIENCE = 2  # further units that may be added in vain where more than noise is left
_CLEAR = 5e-4  # noise, relative, below which a unit that is not needed is the last one that is tried
_MORE = 3.0  # times as many answers, in the end: weak units show by their number only
_REMOVALS = 4  # units that are tried before none is superfluous


def with_missing_units(oracle, network, noise, rng, *, at_most, out_of_time=lambda: False, callback=None):
    """A network of one hidden layer with the units that noisy answers ask for, no more and no fewer.

    One unit at a time is fitted to what the network leaves of ``10 P / m_L`` answers, in the end of three times as many
    where noise is large, then everything at once, as long as the sum of squares falls by more than ``k log(n m_L)``
    noise variances, k being the unit's parameters (the Bayesian information criterion, the noise read off what is
    left), or more is left than noise. That makes more units than there are, since several may stand for one; then units
    are left out for as long as that criterion does not miss them, the rest taking over what it can: a fit that is too
    wide has few local minima.

    Parameters
    ----------
    oracle : Oracle
    network : FeedforwardNetwork
        Of standardised inputs, with one hidden layer, linear output, fitted.
    noise : ndarray of shape (m_L,)
        Standard deviation of every output's error.
    rng : numpy.random.RandomState
    at_most : int
        Hidden units.
    out_of_time : callable, default=never
        Whether to stop.
    callback : callable, default=None
        ``callback(n_units)`` whenever there is one more or one less.

    Returns
    -------
    network : FeedforwardNetwork
        Fitted to these answers.
    residual : float
        See `polish_network`.

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    seen = (lambda n_units: None) if callback is None else callback
    residual = np.inf
    network, told = _grown(oracle, network, noise, rng, at_most, out_of_time, seen)
    n_tried = 1 if told.clear else _REMOVALS
    while len(told.U) and 1 < network.layer_widths[0] and not out_of_time():
        network, residual = told.settled(network)
        smaller = _smaller(network, told, n_tried, network.layer_widths[0] > at_most)
        if smaller is None:
            break
        network = smaller
        seen(network.layer_widths[0])
    return network, residual


@dataclass(frozen=True)
class _Told:
    """Inputs U (n, D), noisy answers Y (n, m_L), and the standard deviation of their noise (m_L,)."""

    U: np.ndarray
    Y: np.ndarray
    noise: np.ndarray

    @property
    def clear(self):
        """Whether the noise is too small to hide units near the centre."""
        return len(self.Y) == 0 or bool(np.all(self.noise < _CLEAR * self.Y.std(axis=0)))

    def fitted(self, network, max_iter=60):
        return polish_network(network, self.U, self.Y, noise=self.noise, max_iter=max_iter)[0]

    def settled(self, network):
        """The network polished until that gains nothing, and its residual: from afar, single rounds end early."""
        residual = np.inf
        for _ in range(_ROUNDS):
            network, left, _ = polish_network(network, self.U, self.Y, noise=self.noise)
            if left > _SETTLED * residual:
                break
            residual = left
        return network, left

    def chi2(self, network):
        return float(np.sum(((network(self.U) - self.Y) / self.noise) ** 2))

    def variance(self, network):
        """What a fitted network leaves, in variances of the noise."""
        return self.chi2(network) / max(self.Y.size - network.n_parameters, 1)

    def need(self, before, after):
        """Whether the larger network explains more than noise."""
        k = after.n_parameters - before.n_parameters
        return self.chi2(before) - self.chi2(after) > k * np.log(self.Y.size) * self.variance(after)


def _grown(oracle, network, noise, rng, at_most, out_of_time, seen):
    """The network with more units than are needed, and the answers that say so."""
    told = _Told(np.empty((0, oracle.n_inputs)), np.empty((0, network.n_outputs)), noise)
    limit, vain, times = _WIDER * min(at_most, network.layer_widths[0]) + _SOME, 0, 1.0
    while network.layer_widths[0] < limit and not out_of_time():
        told = _more_answers(oracle, network, told, rng, times)
        before = told.settled(network)[0] if told.clear else told.fitted(network)
        after = told.fitted(_with_unit(before, told, rng))
        if told.clear or not told.need(before, after):
            before, after = told.settled(before)[0], told.settled(after)[0]
        if told.clear and not told.need(before, after):
            return before, told
        vain = 0 if told.need(before, after) else vain + 1
        network = after
        seen(network.layer_widths[0])
        if vain > (0 if told.variance(after) < _NOISE_KNOWN else _PATIENCE):
            if times == _MORE:
                break
            vain, times = 0, _MORE
    return network, told


def _smaller(network, told, n_tried, too_wide):
    """The network less one unit that the criterion does not miss; None where it misses all, unless it is too wide."""
    costs, takeovers = removal_costs(network, told.U)
    tried = []
    for unit in np.argsort(costs[0])[:n_tried]:
        smaller, _ = told.settled(remove_unit(network, 0, int(unit), takeovers[0][:, unit]))
        if not told.need(smaller, network):
            return smaller
        tried.append(smaller)
    return min(tried, key=told.chi2) if too_wide else None


def _more_answers(oracle, network, told, rng, times):
    """As many answers as the network with one more unit takes, those there are among them."""
    P = network.n_parameters + network.n_inputs + network.n_outputs + 1
    n = max(int(times * NOISY_OUTPUTS * P / network.n_outputs) - len(told.U), 0)
    W, b = network.weights[0], network.biases[0]
    U, Y = oracle.query_precise(lambda n, factor: design_points(W, b, n, factor, rng), n)
    return _Told(np.concatenate([told.U, U]), np.concatenate([told.Y, Y]), told.noise)


def _with_unit(network, told, rng):
    """The network and the unit that explains most of what it leaves."""
    W, b, (n, n_fitted, n_steps) = network.weights[0], network.biases[0], _FEW if told.clear else _MANY
    U, Y = (rows[: int(NOISY_OUTPUTS * network.n_parameters / network.n_outputs)] for rows in (told.U, told.Y))
    left = _Told(U, Y - network(U), told.noise)
    g = get_activation(network.activation)
    lengths = rng.choice(np.linalg.norm(W, axis=0), n) * np.exp(_LENGTHS * rng.standard_normal(n))
    normals = rng.standard_normal((U.shape[1], n))
    normals *= lengths / np.linalg.norm(normals, axis=0)
    biases = -np.sum(normals * U[rng.randint(len(U), size=n)].T, axis=0)
    outputs = g(U @ normals + biases)
    outputs -= outputs.mean(axis=0)
    size = np.maximum(np.linalg.norm(outputs, axis=0), np.finfo(float).tiny)
    explained = np.sum((outputs.T @ ((left.Y - left.Y.mean(axis=0)) / told.noise)) ** 2, axis=1) / size**2
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
    """A network of one unit, fitted to what is left from this start by so many steps."""
    output = get_activation(names[0])(left.U @ normal + bias)
    columns = np.column_stack([output, np.ones(len(left.U))])
    readout = np.linalg.lstsq(columns, left.Y, rcond=None)[0]
    start = FeedforwardNetwork([normal[:, None], readout[:1]], [np.array([bias]), readout[1]], *names)
    return left.fitted(start, max_iter=n_steps)
