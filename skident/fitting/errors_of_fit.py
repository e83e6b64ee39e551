"""Standard errors of a fitted network from the residuals of the very outputs that it was fitted to."""

from dataclasses import dataclass

import numpy as np

from skident.budget import check_deadline, chunk_bytes, require_memory
from skident.budget.constants import CAUCHY, MAD, TINY

from .standard_errors import in_original_units, in_powers_of_two, parameter_jacobian, whitening_basis

_MAX_LEVERAGE = 0.9  # of an output on its own fit: beyond, its residual says nothing of its error
_SKETCHED = 256  # random combinations of parameters from which leverages are computed: to 9 % each, on average
_FLOPS_PER_ENTRY = 3.0  # operations per output and squared parameter: products with the Jacobian, and of the scores
_ARRAYS = 3  # of the size of a block of the Jacobian at a time (memory)
_SAME_ROUNDING = 250.0  # independent outputs per parameter that float32 gives at most: measured on 10-16-1 and 10-32-1
_NOT_WHITE = 1.15  # variance of a fit to float32 outputs over that of independent errors: measured on 20 of 10-16-1


@dataclass(frozen=True)
class FitSample:
    """What a network was fitted to.

    Attributes
    ----------
    inputs : ndarray of shape (n, D)
    outputs : ndarray of shape (n, m_L)
    std : ndarray of shape (n, m_L), (n, 1), (m_L,) or scalar
        Standard deviations of the outputs' errors up to a common factor: residuals were divided by them.
    """

    inputs: np.ndarray
    outputs: np.ndarray
    std: np.ndarray


def standard_errors_of_fit(network, sample, *, rounded=False):
    """Standard errors of the weights and biases of a network fitted to a `FitSample`, from its residuals.

    Parameters
    ----------
    network : FeedforwardNetwork
        The fit; if units can be rescaled (ReLU), the norms of their incoming weights are kept.
    sample : FitSample
    rounded : bool
        Whether the errors are the rounding of the network's own arithmetic, which is not independent of the inputs.

    Returns
    -------
    weights, biases : lists of ndarray

    Raises
    ------
    NotIdentified
        If the outputs do not determine all parameters.

    Notes
    -----
    The sandwich ``A^-1 B A^-1`` with ``A = J^T W J`` and ``B`` the sum of the squared scores of the rows, each residual
    divided by the root of 1 minus its leverage (MacKinnon and White's HC2, with the outputs of a row as a cluster;
    leverages of more than 256 parameters from a random projection). It
    needs no model of the errors: they may grow with the distance, and differ from output to output. For parameters that
    few rows determine it is imprecise: variances are at least those of errors as large as `FitSample.std` states.

    Rounding errors of the hidden layers repeat wherever the same numbers are added: with float32, more than about
    250 outputs per parameter determine the parameters no better. Variances are ``1.15 + n m_L / (250 P)`` times larger.
    """
    P = network.n_parameters
    std = np.broadcast_to(sample.std, sample.outputs.shape)
    typical = np.maximum(np.median(std, axis=0), TINY)
    scaled, U, _, inner, outer = in_powers_of_two(network, sample.inputs, typical)
    unit = np.ldexp(std, -outer)
    residual = (scaled(U) - np.ldexp(sample.outputs, -outer)) / unit
    weight = 1.0 / (unit * _robust_divisor(residual))
    spread, weighted = _whitened(scaled, U, weight), residual * weight * unit
    common = np.sum(weighted**2) / max(weighted.size - spread.shape[1], 1)
    scores, inverse = _squared_scores(scaled, U, weight, weighted, spread), spread @ spread.T
    variance = np.maximum(np.sum((inverse @ scores) * inverse, axis=1), common * np.diagonal(inverse))
    if rounded:
        variance *= _NOT_WHITE + sample.outputs.size / (_SAME_ROUNDING * P)
    return in_original_units(np.sqrt(np.maximum(variance, 0.0)), network, inner, outer)


def _robust_divisor(residual):
    """Roots of the Cauchy weights by which a robust fit divides residuals (n, m_L)."""
    scale = max(MAD * float(np.median(np.abs(residual))), TINY)
    return np.hypot(1.0, residual / (CAUCHY * scale))


def _jacobians(network, U, weight):
    """Blocks of rows, and their Jacobians (k, m_L, P), times the weights (n, m_L)."""
    P, m = network.n_parameters, network.n_outputs
    k = max(1, chunk_bytes() // (8 * _ARRAYS * P * m))
    for first in range(0, len(U), k):
        rows = slice(first, first + k)
        J = parameter_jacobian(network, U[rows])
        check_deadline(_FLOPS_PER_ENTRY / 2.0 * len(J) * P**2)
        yield rows, J.reshape(-1, m, P) * weight[rows, :, None]


def _whitened(network, U, weight):
    """`whitening_basis` T (P, q) of the weighted Jacobian J: ``T^T J^T J T`` is the identity."""
    P = network.n_parameters
    require_memory(_ARRAYS * 8 * P**2, f"the standard errors of {P} parameters")
    A = np.zeros((P, P))
    for _, J in _jacobians(network, U, weight):
        J = J.reshape(-1, P)
        A += J.T @ J
    return whitening_basis(A, network, len(U))


def _squared_scores(network, U, weight, residual, basis):
    """Sum over the rows of the squared scores (P, P), for weighted residuals (n, m_L) and a basis that whitens them."""
    total, sketch = np.zeros((network.n_parameters,) * 2), _sketch(basis)
    for rows, J in _jacobians(network, U, weight):
        leverage = np.minimum(np.sum((J @ sketch) ** 2, axis=2), _MAX_LEVERAGE)
        scores = np.einsum("npk,np->nk", J, residual[rows] / np.sqrt(1.0 - leverage))
        total += scores.T @ scores
    return total


def _sketch(basis):
    """The basis (P, q), or its product with a random (q, k) that keeps squared norms of rows to 9 % on average.

    With it, leverages cost k products per entry of a Jacobian instead of q (Drineas, Magdon-Ismail, Mahoney and
    Woodruff, 2012).
    """
    q = basis.shape[1]
    if q <= _SKETCHED:
        return basis
    return basis @ np.random.RandomState(0).standard_normal((q, _SKETCHED)) / np.sqrt(_SKETCHED)
