"""Polish of a network whose first layer is narrower than the input: within the span of its weights, then outside."""

from __future__ import annotations

import numpy as np

from skident.linalg import lapack
from skident.oracle import OutOfBudgetError

from .design import design_points
from .errors_of_fit import FitSample
from .polish import polish_from_oracle

__all__ = ["polish_within_span", "spans_few_inputs"]

_NARROW = 0.5  # units of the first layer over inputs, from which the span saves less than half of the parameters
_MANY_PARAMETERS = 12_000  # up to which the fit in all inputs factorizes a matrix, and takes seconds
_POINTS = 1.2  # outputs per direction outside of the span over units of the first layer: well conditioned
_MORE_POINTS = 2  # beside these
_STEP = 10.0  # outside of the span, in units of the inputs: units hardly change, and rounding is divided by it
_ROUNDS = 6  # of steps outside of the span (budget)
_ACCURACY = 1e-13  # of the weights, in units of the inputs: a change by a step times that of the weights is left over


def spans_few_inputs(oracle, network, noise):
    """Whether `polish_within_span` applies: many parameters, a narrow first layer, all inputs allowed, no noise."""
    narrow = network.layer_widths[0] <= _NARROW * network.n_inputs
    return narrow and network.n_parameters > _MANY_PARAMETERS and noise is None and not oracle.restricted


def polish_within_span(oracle, network, rng, log, *, thorough=False):
    """`polish_from_oracle` with inputs in the span of the first layer's weights, and their parts outside of it.

    Outputs do not depend on inputs orthogonal to the span of the true weights: within the span (r dimensions), a
    network has ``(D - r) m_1`` parameters less. The weights' parts outside of the span, errors of the start, follow
    from steps orthogonal to it, about ``1.2 m_1 / m_L`` for each of the D - r directions, in one round or more.
    """
    basis = lapack.qr(network.weights[0])[0]
    inner = network.with_parameters([basis.T @ network.weights[0], *network.weights[1:]], network.biases)
    inner, residual, sample = polish_from_oracle(_WithinSpan(oracle, basis), inner, rng, log, thorough=thorough)
    network = network.with_parameters([basis @ inner.weights[0], *inner.weights[1:]], inner.biases)
    if sample is not None:
        sample = FitSample(sample.inputs @ basis.T, sample.outputs, sample.std)
    try:
        with log.stage("polish (outside of the span)", oracle):
            network = _with_parts_outside(oracle, network, basis, rng)
    except OutOfBudgetError as error:
        oracle.exhausted = str(error)
    return network, residual, sample


class _WithinSpan:
    """An oracle in the coordinates of an orthonormal basis (D, r) of a space of inputs."""

    def __init__(self, oracle, basis):
        self._oracle, self._basis, self.n_inputs = oracle, basis, basis.shape[1]

    def __getattr__(self, name):
        return getattr(self._oracle, name)

    def query_precise(self, draw, n):
        """As that of an oracle whose inputs are all allowed and whose outputs are all precise."""
        C = draw(n, 1.0)
        return C, self._oracle(C @ self._basis.T)

    @property
    def exhausted(self):
        """Why queries ended, as that of the oracle."""
        return self._oracle.exhausted

    @exhausted.setter
    def exhausted(self, reason):
        self._oracle.exhausted = reason


def _with_parts_outside(oracle, network, basis, rng):
    """The network with first weights ``W + N E``, N (D, D - r) orthogonal to the basis, as outputs require.

    From a point c, a step s along a column of N changes the pre-activations by s times a row of E: the outputs change
    by ``s B E^T`` with their derivatives B by the first layer, up to a part of about ``s |E|``: a chord method.
    """
    m, p = network.layer_widths[0], network.n_outputs
    W, b = network.weights[0], network.biases[0]
    n_points = int(np.ceil(_POINTS * m / p)) + _MORE_POINTS
    inner = basis.T @ W
    points = design_points(inner, b, n_points, 1.0, rng, 0.0) @ basis.T
    behind = network.with_parameters([np.eye(m), *network.weights[1:]], [np.zeros(m), *network.biases[1:]])
    B = behind.jacobian(points @ W + b).reshape(-1, m)
    others, first = lapack.null_space(basis.T), None
    for _ in range(_ROUNDS):
        moved = (points[:, None, :] + _STEP * others.T).reshape(-1, len(W))
        left = (oracle(moved) - network(moved)).reshape(n_points, -1, p)  # (n, D - r, p)
        E = lapack.lstsq(B, np.swapaxes(left, 1, 2).reshape(len(B), -1), rcond=None)[0] / _STEP  # (m, D - r)
        network = network.with_parameters([network.weights[0] + others @ E.T, *network.weights[1:]], network.biases)
        change = float(np.abs(E).max(initial=0.0))
        first = change if first is None else first
        if change * first * _STEP < _ACCURACY:
            break
    return network
