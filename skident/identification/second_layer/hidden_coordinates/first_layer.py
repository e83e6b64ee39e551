"""The first layer made exact for hidden coordinates: nearby profiles, then gradients of several outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.budget.constants import FAR_SATURATED
from skident.linalg import lapack
from skident.network import get_activation
from skident.oracle import NotIdentified

from ...constants import POINTS_PER_UNIT, TENSOR_POINTS
from ...saturating.biases import biases_from_gradients, gradient_step, null_dimension, preactivation_gradients
from ...saturating.first_layer import FirstLayer
from ...saturating.norms import EXPONENTIAL_RATES, refine_norms

__all__ = ["Gradients", "exact_first_layer", "measured_nearby", "n_gradient_points", "next_width"]

_PLACES = 3  # profiles per unit: one in 16 is flat, and the median ignores one of three
_SPREAD = 1.6  # standard deviation of pre-activations at gradients, over the rate: units bend, few saturate
_SPARE_COLUMNS = 6  # null vectors per group of units, at least
_SPARE_SHARE = 8  # or one per so many second-layer units
_POINTS_PER_COLUMN = 3.15  # equations of a group: three unknowns per column, 5 % more
_MORE_POINTS = 10  # in addition, for small layers
_PASSES = 4  # budget: one or two suffice, each starts from better norms and biases
_USABLE = 1e-2  # residual of the null spaces from which the linearized equations converge
_EXACT = 1e-3  # `_USABLE` for biases to about 1e-6: the polish mends them
_PASS_GAIN = 0.5  # factor by which a pass must lower the residual: what is left else is the error of the gradients


@dataclass(frozen=True)
class Gradients:
    """The exact first layer; pre-activations Z (n, m_1), derivatives by them (n, m_L, m_1), residual and m_2."""

    first: FirstLayer
    Z: np.ndarray
    slopes: np.ndarray
    residual: float
    n_next: int


def measured_nearby(oracle, first, activation, rng):
    """The first layer with norms and biases from profiles at which all other units are barely saturated.

    On circles of radius 1e5 an error of 1e-8 in a direction moves the hyperplane by 1e-3. With all weights known,
    ``m_1 <= D`` and x = pinv(W^T)(z - b), the other units can be saturated close to the center.
    """
    m, g = len(first.biases), get_activation(activation)
    far, inverse, found = FAR_SATURATED / EXPONENTIAL_RATES[activation], lapack.pinv(first.weights), []
    for _ in range(_PLACES):
        corners = far * rng.choice([-1.0, 1.0], size=(m, m))
        np.fill_diagonal(corners, 0.0)
        found.append(refine_norms(oracle, replace(first, points=(corners - first.biases) @ inverse), g))
    norms = np.median([part.norms for part in found] + 2 * [first.norms], axis=0)
    biases = np.median([part.biases for part in found], axis=0)
    return replace(first, weights=first.directions * norms, biases=biases)


def group_size(m_1, m_2, m_L):
    """First-layer units whose gradients, over all outputs, have spare columns beyond the width of the second layer."""
    return min(m_1, -(-(m_2 + max(_SPARE_COLUMNS, m_2 // _SPARE_SHARE)) // m_L))


def n_gradient_points(m_1, m_2, m_L):
    """Points at which gradients are queried, ``4 m_1`` queries each."""
    if m_2 < m_1:
        return max(int(np.ceil(POINTS_PER_UNIT * m_1 / m_L)) + _MORE_POINTS, m_2 + TENSOR_POINTS)
    return int(_POINTS_PER_COLUMN * group_size(m_1, m_2, m_L) * m_L) + _MORE_POINTS


def next_width(oracle, first, activation, rng):
    """The width of the second layer, at most m_1, by the rank of one group's gradients; None if no gap is visible."""
    m_1, m_L = len(first.biases), oracle.n_outputs
    units = np.arange(group_size(m_1, m_1, m_L))
    n = n_gradient_points(m_1, m_1, m_L)
    Z = _SPREAD / EXPONENTIAL_RATES[activation] * rng.standard_normal((n, m_1))
    G = preactivation_gradients(oracle, first.weights, first.biases, Z, gradient_step(oracle.accuracy), units)
    columns = np.swapaxes(G, 1, 2).reshape(n, -1)
    null = null_dimension(columns, np.repeat(Z[:, units], m_L, axis=1), EXPONENTIAL_RATES[activation])
    return None if null is None else columns.shape[1] - null


def exact_first_layer(oracle, first, activation, widths, rng):
    """`Gradients` at the exact first layer, given possible widths of the second one, in descending order.

    With one hidden layer behind, ``d f_p / d z_i / g'(z_i) = sum_k V_ik A_kp e_k(z)``. Its columns (i, p) over all
    points have rank m_2, so that more than m_2 columns have null vectors even if ``m_2 = m_1``. Raises `NotIdentified`
    if no null space of one of these dimensions fits.
    """
    m_1, m_L = len(first.biases), oracle.n_outputs
    n = n_gradient_points(m_1, widths[0], m_L)
    Z = _SPREAD / EXPONENTIAL_RATES[activation] * rng.standard_normal((n, m_1))
    before = np.inf
    for _ in range(_PASSES):
        G = preactivation_gradients(oracle, first.weights, first.biases, Z, gradient_step(oracle.accuracy))
        found = [_corrections(G, Z, get_activation(activation), width) for width in widths]
        k = int(np.argmin([residual for _, _, residual in found]))
        biases, scales, residual = found[k]
        if residual < _USABLE:
            exact = replace(first, weights=first.weights * scales, biases=first.biases * scales + biases)
            best = Gradients(exact, scales * Z + biases, G / scales, residual, widths[k])
            if residual < _EXACT or residual > _PASS_GAIN * before:
                return best
            first, before = exact, residual
        else:
            first = measured_nearby(oracle, first, activation, rng)
    if residual < _USABLE:
        return best
    raise NotIdentified(
        "second layer",
        "residual",
        f"gradients of {m_L} outputs do not lie in spaces of dimension {widths[0]} for any first-layer biases "
        f"(residual {residual:.1e}): the second layer has another width",
    )


def _corrections(G, Z, g, n_next):
    """Biases and scales (m_1,) of pre-activations Z with which gradients G (n, m_L, m_1) have rank m_2; residual."""
    n, m_L, m = G.shape
    if n_next < m:
        found = biases_from_gradients(G.reshape(-1, m), np.repeat(Z, m_L, axis=0), g, n_null=m - n_next)
        return found.biases, found.scales, found.residual
    size, biases, scales, worst = group_size(m, n_next, m_L), np.zeros(m), np.ones(m), 0.0
    for start in [*range(0, m - size, size), m - size]:
        units = np.arange(start, start + size)
        columns = np.swapaxes(G[:, :, units], 1, 2).reshape(n, -1)
        wide = np.repeat(Z[:, units], m_L, axis=1)
        if columns.shape[1] <= n_next:
            return biases, scales, np.inf
        found = biases_from_gradients(columns, wide, g, n_null=columns.shape[1] - n_next)
        biases[units] = np.median(found.biases.reshape(-1, m_L), axis=1)
        scales[units] = np.median(found.scales.reshape(-1, m_L), axis=1)
        worst = max(worst, found.residual)
    return biases, scales, worst
