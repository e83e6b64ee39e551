"""Fits of one hidden ReLU layer without signs: queries, their errors, and which units are significant.

``f(u) = a + g . u + sum_i c_i relu(w_i . u + b_i)`` with any orientation of the units and a linear part g, as a network
with linear units.
"""

import numpy as np
import scipy.linalg

from skident.budget import check_deadline
from skident.budget.constants import RIDGE, TINY, UNIFORM
from skident.fitting.design import rows_near_and_far
from skident.fitting.errors_of_fit import FitSample
from skident.fitting.least_squares import NetworkLeastSquares
from skident.fitting.linear_units import with_linear_units
from skident.fitting.rounding import rounding_std
from skident.linalg import lapack
from skident.network import Architecture, FeedforwardNetwork, change_outputs
from skident.network.calculus import flatten_parameters

from ...constants import LEAST_ABSOLUTE
from ..kernel.robust_fit import fit_outputs
from .units import ReLUUnits


def output_std(oracle, network, U, Y):
    """Standard deviations (n, m_L) of the errors of outputs Y of a model close to `network`, at inputs U."""
    accuracy = oracle.accuracy
    own = change_outputs(network, oracle.output_center, oracle.output_scale)
    eps = oracle.precision.computed_eps
    std = rounding_std(own, U, center=oracle.center, scale=oracle.scale, eps=eps) / oracle.output_scale
    if accuracy.kind == "float32":
        return std + TINY
    if accuracy.grows:
        rounding = UNIFORM * accuracy.eps * np.abs(Y + oracle.output_center / oracle.output_scale)
        return np.hypot(std, rounding) + TINY
    return np.hypot(std, accuracy.std)


def query_rows(oracle, network, n, rng):
    """`FitSample` near and far from the center, and near the hyperplanes of a network's first layer."""
    U = oracle.representable(oracle.clip_to_range(rows_near_and_far(network, n, rng)))
    Y = oracle(U)
    return FitSample(U, Y, output_std(oracle, network, U, Y))


def n_units_of(network):
    """Number of hidden units of a network beside its linear ones."""
    return network.layer_widths[0] - network.n_outputs


def with_linear_part(units, rows):
    """The network of the units with p linear ones, by robust linear least squares; median residual over the spread."""
    (D, m), p = units.weights.shape, rows.outputs.shape[1]
    coef, residual = fit_outputs(
        unsigned_features(units, rows.inputs),
        rows.outputs,
        rows.std.max(axis=1),
        explained=1.0,
        n_rounds=LEAST_ABSOLUTE,
        floor=np.median,
    )
    outgoing = coef[D + 1 :]
    # c |z| / 2 = c relu(z) - c z / 2
    linear = coef[1 : D + 1] - 0.5 * units.weights @ outgoing
    constant = coef[0] - 0.5 * units.biases @ outgoing
    activation = with_linear_units(Architecture((m, p), "relu")).activation
    weights = [np.hstack([units.weights, linear]), np.vstack([outgoing, np.eye(p)])]
    network = FeedforwardNetwork(weights, [np.concatenate([units.biases, np.zeros(p)]), constant], activation)
    spread = np.abs(rows.outputs - np.median(rows.outputs, axis=0)).max(axis=1) / rows.std.max(axis=1)
    return network, float(np.median(residual) / max(np.median(spread), TINY))


def unsigned_features(units, U):
    """Constant, inputs and ``|z| / 2`` (n, 1 + D + m) of units: outputs are linear in these, whatever their signs."""
    return np.column_stack([np.ones(len(U)), U, 0.5 * np.abs(U @ units.weights + units.biases)])


def units_of(network, n_linear=None):
    """The `ReLUUnits` of a network with linear units at its end, one per output by default, with normals of norm 1."""
    m = n_units_of(network) if n_linear is None else network.layer_widths[0] - n_linear
    W, b, outgoing = network.weights[0][:, :m], network.biases[0][:m], network.weights[1][:m]
    norms = np.maximum(np.linalg.norm(W, axis=0), TINY)
    return ReLUUnits(W / norms, b / norms, outgoing * norms[:, None], np.zeros(m))


def significant(fit, rows, limit):
    """Mask (m,) of the units that remain after one insignificant unit after another is removed, the worst first.

    A unit is tested by its ``|w_i| c_i``, which no rescaling changes, beside the errors of all other parameters. To
    first order, the fit without it is the fit under the condition that this is 0.
    """
    network, m = fit.network, n_units_of(fit.network)
    W, c = network.weights
    norms, each = np.linalg.norm(W, axis=0)[:m], np.arange(m)
    best = np.argmax(np.abs(c[:m]), axis=1)
    by_inner, by_outer = np.zeros((m, *W.shape)), np.zeros((m, *c.shape))
    by_inner[each, :, each] = (c[each, best] / norms)[:, None] * W[:, :m].T
    by_outer[each, each, best] = norms
    sizes, V = c[each, best] * norms, Covariance(fit, rows).of((by_inner, by_outer))
    kept = np.ones(m, dtype=bool)
    while kept.sum() > 1:
        check_deadline()
        t = np.where(kept, np.abs(sizes) / np.sqrt(np.maximum(np.diag(V), TINY)), np.inf)
        i = int(np.argmin(t))
        if t[i] > limit:
            break
        kept[i] = False
        sizes, V = sizes - V[:, i] * sizes[i] / V[i, i], V - np.outer(V[:, i], V[i]) / V[i, i]
    return kept


class Covariance:
    """Variances of linear functions of all weights and biases of a fit, to first order in the outputs' errors."""

    def __init__(self, fit, rows):
        network = fit.network
        self.shapes = [W.shape for W in network.weights]
        freedom = rows.outputs.size - network.n_parameters
        weight = np.sqrt(max(freedom, 1) / rows.outputs.size) / (rows.std * fit.scale)
        problem = NetworkLeastSquares(self.shapes, network.activations, rows.inputs, rows.outputs, row_weights=weight)
        A, _ = problem.normal_equations(flatten_parameters(network.weights, network.biases))
        self._size = np.maximum(np.sqrt(np.diag(A)), TINY)
        A /= self._size[:, None] * self._size
        A.flat[:: len(A) + 1] += RIDGE * len(A)
        check_deadline(len(A) ** 3 / 3.0)
        self._factor = lapack.scipy_cholesky(A, lower=True, overwrite_a=True, check_finite=False)

    def of(self, gradients):
        """Covariance (k, k) of functions with gradients, pairs of (k, D, m) and (k, m, p), by the weights."""
        k = len(gradients[0])
        biases = [np.zeros((k, 1, s[1])) for s in self.shapes]
        parts = [np.concatenate([g, b], axis=1).reshape(k, -1) for g, b in zip(gradients, biases, strict=True)]
        K = np.concatenate(parts, axis=1) / self._size
        half = scipy.linalg.solve_triangular(self._factor, K.T, lower=True, check_finite=False)
        return half.T @ half
