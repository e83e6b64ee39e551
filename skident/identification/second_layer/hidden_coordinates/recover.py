"""The second layer from derivatives by first-layer outputs: a tensor decomposition without random starts."""

from __future__ import annotations

import warnings

import numpy as np

from skident.linalg import jennrich, lapack, svd
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import NotIdentified

from ...constants import MENDED_RESIDUAL, NORMAL_RANK_TOL
from ...saturating.norms import EXPONENTIAL_RATES
from ..downstream import RecoveredNetwork
from .coordinates import HiddenModel, hessian_queries
from .first_layer import exact_first_layer, measured_nearby, n_gradient_points, next_width
from .profiles import fit_profiles

__all__ = ["hidden_coordinate_queries", "recover_in_hidden_coordinates"]

_READOUT_RANK_TOL = 1e-12  # of units' outputs: rounding
_FEWER_UNITS = 3  # by which the rank of gradients exceeds m_2 if errors of norms, 1e-3, hide as many null vectors
_N_HESSIANS = 6  # with one output: two mixtures of two determine directions, more of them average errors
_HESSIAN_SPREAD = 1.2  # standard deviation of pre-activations at Hessians, over the rate
_HESSIAN_REACH = 3.6  # their largest value, over the rate: tanh outputs of 0.95, so that differences stay below 1


def hidden_coordinate_queries(widths):
    """Queries for layer widths ``(m_1, m_2, m_L)`` if one pass of gradients suffices, without the first layer's."""
    hessians = _N_HESSIANS * hessian_queries(widths[1]) if widths[-1] == 1 else 0
    return 4 * widths[0] * n_gradient_points(*widths) + hessians


def recover_in_hidden_coordinates(oracle, first, activation, n_units, rng):
    """The `RecoveredNetwork` behind a first layer with ``m_1 <= D`` units; ``n_units <= m_1`` is m_2, None if unknown.

    For ``m_1 <= D`` every output ``h`` of the first layer is reached by ``x = pinv(W_1^T)(g^-1(h) - b_1)``: in h the
    model has one hidden layer. Its gradients are a tensor ``sum_k w_k (x) e_k (x) a_k`` over inputs, points and
    outputs: `jennrich` gives the directions of w_k and the profiles ``e_k = g'(w_k . h + b_k)``, whose shape gives
    norm and bias. With one output and ``m_2 < m_1``, Hessians within the span of all gradients,
    ``sum_k a_k g''(.) w_k w_k^T``, give the directions. tanh and sigmoid.
    """
    first = measured_nearby(oracle, first, activation, rng)
    widths = [n_units]
    if n_units is None:
        rank = next_width(oracle, first, activation, rng)
        if rank is None:
            raise NotIdentified("second layer", "width", "gradients show no second layer of at most m_1 units")
        widths = [*range(rank, max(0, rank - 1 - _FEWER_UNITS), -1)]
    found = exact_first_layer(oracle, first, activation, widths, rng)
    g = get_activation(activation)
    first, H = found.first, g(found.Z)
    model = HiddenModel(oracle, first, activation)
    W, b, step_residuals = _second_layer(found, model, rng)
    outputs = model.at_preactivations(found.Z)
    A = np.column_stack([g(H @ W + b), np.ones(len(H))])
    V = lapack.lstsq(A, outputs, rcond=_READOUT_RANK_TOL)[0]
    spread = max(float(np.linalg.norm(outputs - outputs.mean(axis=0))), np.finfo(float).tiny)
    residual = float(np.linalg.norm(A @ V - outputs)) / spread
    if not residual < MENDED_RESIDUAL:
        raise NotIdentified(
            "second layer",
            "residual",
            f"the second layer from hidden coordinates leaves a relative residual of {residual:.1e}: {step_residuals}",
        )
    network = FeedforwardNetwork([first.weights, W, V[:-1]], [first.biases, b, V[-1]], activation)
    return RecoveredNetwork(network, residual, step_residuals)


def _second_layer(found, model, rng):
    """Weights (m_1, m_2) and biases (m_2,) from `Gradients`, and the residuals of the steps."""
    g, n_units = get_activation(model.activation), found.n_next
    T = np.moveaxis(found.slopes, 2, 0) / np.swapaxes(g.jet(found.Z, 1)[1], 0, 1)[:, :, None]  # (m_1, n, m_L)
    span, values, _ = svd(T.reshape(len(T), -1), full_matrices=False)
    n_seen = int(np.count_nonzero(values >= NORMAL_RANK_TOL * values[0]))
    if n_seen < n_units:
        raise NotIdentified("second layer", "width", f"gradients show {n_seen} second-layer units, not {n_units}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # parallel output weights: the residual of the outputs decides
        if T.shape[2] > 1:
            factors = jennrich(T, n_units)
            U, profiles, residual = factors.U / np.linalg.norm(factors.U, axis=0), factors.V, factors.residual
        else:
            U, residual = _directions_from_hessians(model, span[:, :n_units], rng)
            profiles = lapack.lstsq(U, T[:, :, 0], rcond=None)[0].T
    norms, biases, errors = fit_profiles(g(found.Z) @ U, profiles)
    stretch = 2.0 / EXPONENTIAL_RATES[g.name]
    residuals = {"biases": found.residual, "tensor": residual, "profiles": float(errors.max())}
    return stretch * norms * U, stretch * biases, residuals


def _directions_from_hessians(model, span, rng):
    """Unit weights (m_1, m_2) from second derivatives of one output within their span (m_1, m_2), and the residual."""
    rate = EXPONENTIAL_RATES[model.activation]
    Z = rng.standard_normal((_N_HESSIANS, len(span))) * _HESSIAN_SPREAD / rate
    H = get_activation(model.activation)(np.clip(Z, -_HESSIAN_REACH / rate, _HESSIAN_REACH / rate))
    factors = jennrich(np.moveaxis(model.hessians(H, span)[:, 0], 0, 2), span.shape[1], symmetric=True)
    return span @ factors.U, factors.residual
