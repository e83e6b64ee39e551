"""Two hidden layers behind the first: a fit in the coordinates of its outputs."""

import time
import warnings
from dataclasses import dataclass, replace

import numpy as np

from skident.fitting.least_squares import Stopping, fit_network
from skident.linalg import jennrich, lapack, svd
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import NotIdentified

from ...constants import MIN_OUTPUTS, TENSOR_POINTS
from ..cube import RecoveredNetwork
from .coordinates import HiddenModel
from .profiles import fit_profiles
from .two_layer_start import two_layers_start

__all__ = ["MIN_OUTPUTS", "recover_two_layers", "second_layer_span"]

_SPAN_POINTS = 2.0  # gradients per dimension of the span of second-layer weights
_FIT_SPREAD = 1.6  # standard deviation of first-layer pre-activations of the fit, over the rate
_VALUES_PER_PARAMETER = 4.0  # of the fit: with fewer, it fits samples and not the network while it is far from both
_STEPS = 15  # of a fit, between checks whether it converges
_STEPS_LARGE = 5  # `_STEPS` of large networks, whose steps take seconds
_ROUNDS = ((600, 40), (np.inf, 10))  # of so many steps, by the number of parameters up to which they are fast (budget)
_ROUND_GAIN = 0.9  # of the residual by every round, or the next directions are tried
_SLOW = 0.05  # residual above which a round that gains less ends a fit; `_NEARLY` for large networks
_NEARLY = 3e-4  # residual from which a fit converges quadratically if no unit is redundant
_RANK_GAP = 0.2  # ratio of singular values at the rank of a tensor: the fit leaves errors of 1e-4, not zeros
_RANK_GAP_LARGE = 0.02  # `_RANK_GAP` of large networks: among 64 values a ratio of 0.2 occurs by chance, and costs 20 s
_GROWTH_STARTS = 6  # random starts of a unit that is missing (budget)
_GROWTH_STEPS = 40  # steps of each, of 100 parameters
_GROWN = 0.97  # of the residual that a missing unit may leave: the others already explain most of its outputs
_DENSE_LIMIT = 4000  # parameters up to which normal equations are formed: fewer steps than conjugate gradients


def second_layer_span(model, n_units, rng):
    """Orthonormal basis (m_1, m_2) of second-layer weights, which all gradients by first-layer outputs span."""
    m_1 = len(model.first.biases)
    if n_units >= m_1:
        return np.eye(m_1)
    Z = model.random_preactivations(_FIT_SPREAD, int(np.ceil(_SPAN_POINTS * n_units / model.n_outputs)) + 1, rng)
    slopes = get_activation(model.activation).jet(Z, 1)[1][:, None, :]
    return svd((model.gradients(Z) / slopes).reshape(-1, m_1).T, full_matrices=False)[0][:, :n_units]


def recover_two_layers(model, basis, n_trials, rng, *, tol, deadline=np.inf, progress=None):
    """The `RecoveredNetwork` of three hidden layers behind a first one, the second of m_2 units.

    Parameters: a `HiddenModel`; an orthonormal `basis` (m_1, m_2) of the span of second-layer weights. If that is
    square, gradients do not give the first layer's biases, and these are fitted too.

    From a `two_layers_start`, least squares in all parameters converge even if some directions are missing; then a
    tensor of gradients gives the width of the third layer, if that is smaller. Large networks are fitted until they
    converge quadratically, which the polish does with fewer steps.
    Raises `NotIdentified` if no trial converges.
    """
    best = np.inf
    for trial in range(n_trials):
        start = two_layers_start(model, basis, trial, rng)
        if start is not None:
            good = tol if start.n_parameters <= _DENSE_LIMIT else max(tol, _NEARLY)
            fit, residual = _fitted(model, basis, start, rng, good, deadline)
            if residual < good:
                return RecoveredNetwork(_joined(fit.model, basis, fit.network), residual)
            best = min(best, residual)
        if progress is not None:
            progress(trial + 1)
        if time.perf_counter() > deadline:
            break
    raise NotIdentified(
        "second layer", "residual", f"three hidden layers leave a relative residual of {best:.1e} of the outputs"
    )


@dataclass(frozen=True)
class _Fit:
    """A network behind the first layer of a model, and the samples of its fit: pre-activations Z (n, m_1), outputs."""

    model: HiddenModel
    network: FeedforwardNetwork
    Z: np.ndarray
    Y: np.ndarray

    def inputs(self, basis):
        """First-layer outputs along the basis (n, m_2)."""
        return get_activation(self.model.activation)(self.Z) @ basis

    def with_readout(self, basis):
        """With output weights from least squares."""
        g, (W, T, _), (b_2, b_3, _) = self.network.activations[0], self.network.weights, self.network.biases
        H = np.column_stack([g(g(self.inputs(basis) @ W + b_2) @ T + b_3), np.ones(len(self.Z))])
        readout = lapack.lstsq(H, self.Y, rcond=None)[0]
        return replace(self, network=self.network.with_parameters([W, T, readout[:-1]], [b_2, b_3, readout[-1]]))

    def continued(self, basis, stopping):
        """The fit after further steps, and its relative residual."""
        if basis.shape[0] > basis.shape[1]:
            network, residual = fit_network(
                self.network, self.inputs(basis), self.Y, stopping, dense_limit=_DENSE_LIMIT
            )
            return replace(self, network=network), residual
        first, inner, m = self.model.first, self.network, len(basis)
        weights, biases = [np.eye(m), basis @ inner.weights[0], *inner.weights[1:]], [np.zeros(m), *inner.biases]
        network = FeedforwardNetwork(weights, biases, self.model.activation)
        network, residual = fit_network(network, self.Z, self.Y, stopping, dense_limit=_DENSE_LIMIT, scaled_first=True)
        scales, shifts = np.diag(network.weights[0]), network.biases[0]
        first = replace(first, weights=first.weights * scales, biases=first.biases * scales + shifts)
        inner = inner.with_parameters([basis.T @ network.weights[1], *network.weights[2:]], network.biases[1:])
        return _Fit(replace(self.model, first=first), inner, self.Z * scales + shifts, self.Y), residual


def _fitted(model, basis, start, rng, tol, deadline):
    """The `_Fit` from a start, its third layer narrowed if it is too wide, and the relative residual."""
    Z = model.random_preactivations(_FIT_SPREAD, _n_samples(start, len(basis)), rng)
    small = start.n_parameters <= _DENSE_LIMIT
    steps, slow, gap = (_STEPS, _SLOW, _RANK_GAP) if small else (_STEPS_LARGE, _NEARLY, _RANK_GAP_LARGE)
    stopping = Stopping(max_iter=steps, target=0.1 * tol, patience=steps, deadline=deadline)
    fit, residual, narrowed = _Fit(model, start, Z, model.at_preactivations(Z)).with_readout(basis), np.inf, False
    for _ in range(next(rounds for most, rounds in _ROUNDS if most >= start.n_parameters)):
        before = residual
        fit, residual = fit.continued(basis, stopping)
        if residual < _NEARLY and not narrowed:
            narrowed, network = True, _narrowed(fit.model, basis, fit.network, gap, rng)
            if network is not None:
                other, left = replace(fit, network=network).with_readout(basis).continued(basis, stopping)
                fit, residual = (other, left) if left < tol else (fit, residual)
        if not small and residual > _NEARLY:
            fit = _grown(fit, basis, deadline, rng)
        stuck = residual > _ROUND_GAIN * before and residual > slow
        if residual < tol or stuck or time.perf_counter() > deadline:
            break
    return fit, residual


def _grown(fit, basis, deadline, rng):
    """The `_Fit` with the unit of the third layer that explains most of the residual; unchanged with m_2 units."""
    g, (W, T, A), (b_2, b_3, shift) = fit.network.activations[0], fit.network.weights, fit.network.biases
    C, best, least = fit.inputs(basis), None, _GROWN
    if T.shape[1] >= basis.shape[1]:
        return fit
    H, left = g(C @ W + b_2), fit.Y - fit.network(C)
    for _ in range(_GROWTH_STARTS):
        w = rng.standard_normal((len(T), 1)) / np.sqrt(len(T))
        columns = np.column_stack([g(H @ w), np.ones(len(H))])
        readout = lapack.lstsq(columns, left, rcond=None)[0]
        unit = FeedforwardNetwork([w, readout[:-1]], [np.zeros(1), readout[-1]], fit.model.activation)
        unit, residual = fit_network(unit, H, left, Stopping(max_iter=_GROWTH_STEPS, deadline=deadline))
        if residual < least:
            best, least = unit, residual
    if best is None:
        return fit
    (w, a), (b, d) = best.weights, best.biases
    weights, biases = [W, np.hstack([T, w]), np.vstack([A, a])], [b_2, np.concatenate([b_3, b]), shift + d]
    return replace(fit, network=FeedforwardNetwork(weights, biases, fit.model.activation))


def _n_samples(network, n_inputs):
    """Samples of a fit."""
    return int(_VALUES_PER_PARAMETER * network.n_parameters / network.n_outputs) + n_inputs


def _narrowed(model, basis, network, gap, rng):
    """The network without redundant units in its third layer; None if there are none, or no gap shows their number.

    Behind a second layer that is nearly known, gradients by its outputs are a tensor of rank m_3, as behind the first.
    """
    g, W, (b_2, b_3, _) = network.activations[0], network.weights[0], network.biases
    m_2, m_L = W.shape[1], model.n_outputs
    Z = model.random_preactivations(_FIT_SPREAD, m_2 + TENSOR_POINTS, rng)
    slopes = g.jet(Z, 1)[1][:, None, :]
    z_2 = g(Z) @ basis @ W + b_2
    by_second = ((model.gradients(Z) / slopes) @ basis @ lapack.pinv(W).T) / g.jet(z_2, 1)[1][:, None, :]
    T = np.moveaxis(by_second, 2, 0)  # (m_2, n, m_L)
    values = svd(T.reshape(m_2, -1), compute_uv=False)
    ratios = values[1:] / np.maximum(values[:-1], np.finfo(float).tiny)
    m_3 = int(np.argmin(ratios)) + 1
    if m_3 >= len(b_3) or ratios[m_3 - 1] > gap:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # parallel output weights: the residual of the fit decides
        factors = jennrich(T, m_3)
    U = factors.U / np.linalg.norm(factors.U, axis=0)
    norms, biases, _ = fit_profiles(g(z_2) @ U, factors.V)
    weights = [W, norms * U / model.unit, np.zeros((m_3, m_L))]
    return FeedforwardNetwork(weights, [b_2, biases / model.unit, np.zeros(m_L)], model.activation)


def _joined(model, basis, network):
    """The first layer and a network of coordinates along the basis as one network."""
    weights = [model.first.weights, basis @ network.weights[0], *network.weights[1:]]
    return FeedforwardNetwork(weights, [model.first.biases, *network.biases], model.activation)
