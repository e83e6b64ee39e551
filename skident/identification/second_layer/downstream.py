"""What all ways to recover a second layer share: the network downstream of an exact first layer, and the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import erfinv

from skident.linalg import lapack
from skident.network import FeedforwardNetwork, get_activation, with_skip_of_first_layer
from skident.oracle import Accuracy, NotIdentified

from ..constants import MENDED_RESIDUAL
from .kernel.charts import ErfChart, TanhChart
from .kernel.curves import fit_curve, taylor_term
from .kernel.patch import SATURATED, reach_patch

__all__ = ["Downstream", "PowerSums", "RecoveredNetwork", "network_from_curves", "preactivations_of"]

_MAX_CORRECTION = 2.0  # of a bias: pre-activations as known go this far beyond saturation
# Output weights of curves are kept while their residual is below this plus twice that of weights fitted to outputs:
# the latter are less accurate where units are nearly dependent.
_SMALL_RESIDUAL = 1e-5
_QUERIES_PER_COLUMN = 3  # outputs per unknown of an output layer that reads both hidden layers
_READOUT_RANK_TOL = 1e-10  # of units' outputs: the coefficients' errors, 1e-6 to 1e-4, are amplified no further


def preactivations_of(activation, outputs):
    """Pre-activations at which units ("tanh" or "erf") have given outputs."""
    return np.arctanh(outputs) if activation == "tanh" else erfinv(outputs)


@dataclass(frozen=True)
class Downstream:
    """A black box of two hidden layers and linear output, its first layer exact up to corrections of the biases.

    `query` maps points (n, D) to outputs (n, m_L); `weights` (D, m_1), `biases` (m_1,); `activation` is tanh or erf.
    `center_outputs` (m_1,) are None if the corrections are unknown. `farthest` bounds the distance of queries from the
    origin, and `deadline` the time of steps, on the clock of `time.perf_counter`. `accuracy` is that of the outputs,
    None if they are exact; `representable` maps points to the nearest ones that the black box represents exactly.
    """

    query: Callable
    weights: np.ndarray
    biases: np.ndarray
    activation: str
    center_outputs: np.ndarray | None
    n_outputs: int
    rng: np.random.RandomState
    farthest: float = 3e4
    deadline: float = np.inf
    accuracy: Accuracy | None = None
    representable: Callable = np.asarray

    @property
    def shape(self):
        """``(D, m_1)``."""
        return self.weights.shape

    @property
    def margin(self):
        """Least ``|z|`` of a saturated unit, whatever its correction."""
        return SATURATED[self.activation] + _MAX_CORRECTION

    def check_deadline(self):
        """Raise `NotIdentified` if the time of this method is over."""
        if time.perf_counter() > self.deadline:
            raise NotIdentified("second layer", "budget", "its share of max_seconds is over", final=True)

    def preactivations(self, X):
        """First-layer pre-activations (..., m_1) as known, at points (..., D)."""
        return X @ self.weights + self.biases

    def correction(self, unit):
        """The bias correction of a unit; None if it is unknown."""
        return None if self.center_outputs is None else preactivations_of(self.activation, self.center_outputs[unit])

    def chart(self, units):
        """Hidden coordinates of free units (k,)."""
        return TanhChart() if self.center_outputs is None else ErfChart(self.center_outputs[units])

    def patch(self, free, n_points):
        """A patch with free units (k,): see `reach_patch`."""
        options = {"margin": self.margin, "farthest": self.farthest}
        return reach_patch(self.weights, self.biases, free, n_points, self.rng, **options)

    def rescaled(self, units, factors):
        """The same with the pre-activations of some units multiplied by factors."""
        weights, biases = self.weights.copy(), self.biases.copy()
        weights[:, units] *= factors
        biases[units] *= factors
        return replace(self, weights=weights, biases=biases)


@dataclass(frozen=True)
class RecoveredNetwork:
    """A network of two hidden layers, its relative residual on the queries, and the residuals of the steps (a dict)."""

    network: FeedforwardNetwork
    residual: float
    step_residuals: dict


@dataclass(frozen=True)
class PowerSums:
    """Taylor coefficients as sums of powers of W2, at n points: what determines norms and biases of the second layer.

    `W2` (m_1, m_2) up to a norm per unit, `corrections` (m_1,) of first-layer biases, first-layer `outputs` (n, m_1),
    `coefficients` (n, m_L, m_2) of the powers of `order`, network outputs `values` (n, m_L).
    """

    W2: np.ndarray
    corrections: np.ndarray
    outputs: np.ndarray
    coefficients: np.ndarray
    values: np.ndarray
    order: int


def network_from_curves(downstream, sums, step_residuals):
    """The network, with norms, biases and output weights of second-layer units from `fit_curve`.

    Raises NotIdentified if the network does not explain the outputs at the points.
    """
    g, term = get_activation(downstream.activation), taylor_term(downstream.activation, sums.order)
    X, C = sums.outputs @ sums.W2, sums.coefficients
    curves = [fit_curve(X[:, k], C[:, :, k], sums.order, term) for k in range(X.shape[1])]
    norms, biases = np.array([c.norm for c in curves]), np.array([c.bias for c in curves])
    output_weights = np.array([c.output_weights for c in curves])
    output_weights, offset, residual = _output_layer(g(X * norms + biases), output_weights, sums.values)
    step_residuals = {**step_residuals, "curves": max(c.residual for c in curves)}
    first = downstream.weights, downstream.biases + sums.corrections
    if not residual < MENDED_RESIDUAL and len(sums.W2) > 1:
        found = network_with_skip(downstream, first, (sums.W2 * norms, biases))
        if found.residual < MENDED_RESIDUAL:
            return replace(found, step_residuals=step_residuals)
    if not residual < MENDED_RESIDUAL:
        raise NotIdentified(
            "second layer",
            "residual",
            f"the second layer recovered on patches leaves a relative residual of {residual:.1e}: {step_residuals}",
        )
    weights = [first[0], sums.W2 * norms, output_weights]
    all_biases = [first[1], biases, offset]
    return RecoveredNetwork(FeedforwardNetwork(weights, all_biases, downstream.activation), residual, step_residuals)


def network_with_skip(downstream, first, second):
    """The network whose outputs read both hidden layers, given weights and biases of these, by least squares.

    Powers of the first layer's outputs do not show what is linear in these.
    """
    g, (D, m_1) = get_activation(downstream.activation), downstream.shape
    X = downstream.rng.standard_normal((_QUERIES_PER_COLUMN * (m_1 + len(second[1]) + 1), D))
    H, Y = g(X @ first[0] + first[1]), downstream.query(X)
    columns = np.column_stack([H, g(H @ second[0] + second[1]), np.ones(len(H))])
    fitted = lapack.lstsq(columns, Y, rcond=_READOUT_RANK_TOL)[0]
    left = np.linalg.norm(Y - columns @ fitted) / max(float(np.linalg.norm(Y - Y.mean(axis=0))), np.finfo(float).tiny)
    weights, biases = [first[0], second[0], fitted[m_1:-1]], [first[1], second[1], fitted[-1]]
    network = FeedforwardNetwork(weights, biases, downstream.activation)
    return RecoveredNetwork(with_skip_of_first_layer(network, fitted[:m_1]), float(left), {})


def _output_layer(G, V, Y):
    """Output weights, offset and relative residual: weights V of curves, or fitted to outputs Y if clearly better."""
    spread = max(float(np.linalg.norm(Y - Y.mean(axis=0))), np.finfo(float).tiny)
    difference = Y - G @ V
    of_curves = np.linalg.norm(difference - difference.mean(axis=0)) / spread
    fitted = lapack.lstsq(np.column_stack([G, np.ones(len(G))]), Y, rcond=_READOUT_RANK_TOL)[0]
    of_fit = np.linalg.norm(Y - G @ fitted[:-1] - fitted[-1]) / spread
    if of_curves < 2.0 * of_fit + _SMALL_RESIDUAL:
        return V, difference.mean(axis=0), float(of_curves)
    return fitted[:-1], fitted[-1], float(of_fit)
