"""Units of small jumps that rounding hides far out, from the residuals of the others near the center."""

from __future__ import annotations

import numpy as np

from skident.budget.constants import FINE_RANK_TOL, FTOL, STEPS
from skident.fitting.linear_units import with_linear_units
from skident.fitting.standard_errors import parameter_jacobian
from skident.linalg import lapack, svd
from skident.network import Architecture, FeedforwardNetwork
from skident.optim import DenseJacobian, levenberg_marquardt

__all__ = ["with_missing_units"]

_N_CANDIDATES = 1000  # random units (budget): in ten dimensions, one of them has a cosine of 0.8 with any other unit
_N_FITTED = 10  # candidates that are fitted (budget)
_NORM_SPREAD = 0.3  # standard deviation of the logarithm of candidates' norms around those of the other units


def with_missing_units(network, activation, U, Y, rng):
    """Networks with one of the units that explain most of the residuals at U (n, D) if all parameters follow.

    The network is a polished one with linear units at its end, see `with_linear_units`, of this `Activation`. To first
    order, the other parameters take over what lies in the span of the Jacobian; the rest of the residuals shows the
    unit. Some random units are fitted to it, the best of many; that of the lowest residual comes first.
    """
    tangent = _Tangent(network, U, Y)
    candidates = _candidates(network.weights[0][:, : -network.n_outputs], U, rng)
    scores = tangent.explained(activation(U @ candidates[:-1] + candidates[-1]))
    best = np.argsort(-scores, kind="stable")[:_N_FITTED]
    units = sorted((tangent.fitted_unit(activation, candidates[:, k]) for k in best), key=lambda fit: fit.cost)
    return [_joined(network, activation, fit.x, tangent.outgoing) for fit in units]


def _joined(network, activation, x, outgoing):
    """The network with a unit x (D + 2,) before its linear ones."""
    p = network.n_outputs
    W, b = network.weights[0][:, :-p], network.biases[0][:-p]
    A, linear = network.weights[1][:-p], network.weights[0][:, -p:]
    mixed = with_linear_units(Architecture((W.shape[1] + 1, p), activation, "identity")).activation
    weights = [np.column_stack([W, x[:-2], linear]), np.vstack([A, x[-1] * outgoing, network.weights[1][-p:]])]
    biases = [np.concatenate([b, x[-2:-1], network.biases[0][-p:]]), network.biases[1]]
    return FeedforwardNetwork(weights, biases, mixed, "identity")


def _candidates(W, U, rng):
    """Weights and biases (D + 1, n) of random units, whose hyperplanes pass through points of U (k, D)."""
    norms = rng.choice(np.linalg.norm(W, axis=0), _N_CANDIDATES) * np.exp(
        _NORM_SPREAD * rng.standard_normal(_N_CANDIDATES)
    )
    normals = rng.standard_normal((len(W), _N_CANDIDATES))
    normals *= norms / np.linalg.norm(normals, axis=0)
    near = 0.5 * U[rng.randint(len(U), size=_N_CANDIDATES)].T
    return np.vstack([normals, -np.sum(normals * near, axis=0)])


class _Tangent:
    """Residuals of a network outside the span of its Jacobian, for units with one direction of outgoing weights."""

    def __init__(self, network, U, Y):
        self.U, self.scale = U, Y.std(axis=0)
        J = parameter_jacobian(network, U).reshape(len(U), Y.shape[1], -1) / self.scale[:, None]
        J = J.reshape(Y.size, -1)
        Q, R, _ = lapack.scipy_qr(J, mode="economic", pivoting=True, check_finite=False)
        diagonal = np.abs(np.diag(R))
        self.Q = Q[:, diagonal > FINE_RANK_TOL * diagonal[0]]
        self.left = self.project(((Y - network(U)) / self.scale).ravel())
        direction = svd(self.left.reshape(Y.shape), full_matrices=False)[2][0]
        self.direction, self.outgoing = direction, direction * self.scale

    def project(self, C):
        """Columns (n m_L, k) outside the span of the Jacobian."""
        return C - self.Q @ (self.Q.T @ C)

    def columns(self, outputs):
        """Effects (n m_L, k) of units with outputs (n, k), outside the span."""
        return self.project((outputs[:, None] * self.direction[:, None]).reshape(-1, outputs.shape[1]))

    def explained(self, outputs):
        """Sums of squares (k,) that units with outputs (n, k) explain."""
        C = self.columns(outputs)
        size = np.maximum(np.sum(C**2, axis=0), np.finfo(float).tiny)
        return (self.left @ C) ** 2 / size

    def fitted_unit(self, activation, candidate):
        """A unit fitted from a candidate (D + 1,): weights, bias and outgoing weight (D + 2,), as least squares end."""
        C = self.columns(activation(self.U @ candidate[:-1] + candidate[-1])[:, None])[:, 0]
        start = np.append(candidate, (C @ self.left) / max(C @ C, np.finfo(float).tiny))

        def jet(x):
            return activation.jet(self.U @ x[:-2] + x[-2], 1)

        def residual(x):
            return x[-1] * self.columns(jet(x)[0][:, None])[:, 0] - self.left

        def linearize(x):
            value, slope = jet(x)
            columns = np.column_stack([x[-1] * slope[:, None] * self.U, x[-1] * slope, value])
            return DenseJacobian(self.columns(columns), residual(x))

        def cost(x):
            return float(np.sum(residual(x) ** 2))

        return levenberg_marquardt(cost, linearize, start, max_iter=STEPS, ftol=FTOL)
