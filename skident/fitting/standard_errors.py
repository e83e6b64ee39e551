"""Standard errors of weights and shifts fitted to noisy answers."""

from __future__ import annotations

import numpy as np

from skident.budget import check_deadline
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from .least_squares import weighted_problem

__all__ = ["standard_errors"]

_EIGH = 9.0  # operations of eigenvectors, in units of P^3 (Golub and Van Loan, section 8.3)


def standard_errors(network, U, noise=None, *, Y=None, max_parameters=3000):
    """Standard errors of weights and shifts fitted to noisy answers, to first order in the noise.

    Square roots of the diagonal of ``(J^T S^-2 J)^-1``, where J holds the derivatives of all answers by all
    parameters and S the noise of every answer: the covariance of the least-squares fit of `polish_network` with
    the same `noise`, and the Cramer-Rao bound.

    Parameters
    ----------
    network : FeedforwardNetwork
        The fitted network. Where hidden units may be rescaled (relu), the errors are those of the network whose units
        keep the norms of their incoming weights, such as `FeedforwardNetwork.canonical` gives it.
    U : ndarray of shape (n, D)
        The inputs it was fitted on.
    noise : float or ndarray of shape (m_L,), default=None
        Standard deviation of the noise in every output. None: from the residuals at Y, ``n - P / m_L`` degrees of
        freedom an output.
    Y : ndarray of shape (n, m_L), default=None
        The answers it was fitted to; needed where `noise` is None.
    max_parameters : int, default=3000
        The matrix is formed and inverted: ``O(P^3)`` operations, ``24 P^2`` bytes.

    Returns
    -------
    weights, biases : list of ndarray
        Shaped like the network's.

    Raises
    ------
    ValueError
        If there are more than `max_parameters` parameters; if neither `noise` nor Y is given; if the residuals leave
        no degree of freedom; if the answers do not determine all parameters (a unit that is saturated or at rest on all
        of U; too few inputs).
    OutOfBudgetError
        If the time or the memory of this computation does not suffice (`skident.budget`).

    Examples
    --------
    >>> import numpy as np
    >>> from skident.datasets import make_network
    >>> from skident.fitting.standard_errors import standard_errors
    >>> network = make_network((4, 3, 2), random_state=0)
    >>> U = np.random.default_rng(0).standard_normal((200, 4))
    >>> weights, biases = standard_errors(network, U, 1e-3)
    >>> print(weights[0].shape, bool(weights[0].max() < 0.01))
    (4, 3) True
    """
    P, n = network.n_parameters, len(U)
    if P > max_parameters:
        raise ValueError(
            f"standard errors of {P} parameters need the inverse of a {P} x {P} matrix; raise "
            f"max_parameters={max_parameters} if the memory allows."
        )
    if noise is None:
        noise = _residual_noise(network, U, Y)
    network, U, noise, inner, outer = _in_powers_of_two(network, U, noise)
    problem = weighted_problem(network, U, np.zeros((n, network.n_outputs)), 1.0 / noise)
    A, _ = problem.normal_equations(problem.flatten(network.weights, network.biases))
    scale = np.sqrt(np.diagonal(A))
    scale = np.where(scale > 0, scale, 1.0)
    A /= scale[:, None] * scale[None, :]
    free = _without_rescaling(network, problem, scale)
    check_deadline(_EIGH * P**3)
    values, vectors = np.linalg.eigh(free.T @ A @ free if free is not None else A)
    if not values[0] > P * np.finfo(float).eps:
        raise NotIdentified(
            "standard errors",
            "rank",
            f"the answers at these {n} inputs do not determine all {P} parameters: the smallest eigenvalue of their "
            f"information matrix, scaled to unit diagonal, is {values[0]:.1e}. Units that never move on these inputs "
            "do that; so do too few inputs.",
        )
    vectors = vectors if free is None else free @ vectors
    errors = np.sqrt(np.sum(vectors**2 / values, axis=1)) / scale
    weights, biases = ([part.copy() for part in parts] for parts in problem.unflatten(errors))
    weights[0] = np.ldexp(weights[0], -inner[:, None])
    weights[-1], biases[-1] = np.ldexp(weights[-1], outer), np.ldexp(biases[-1], outer)
    return weights, biases


def _in_powers_of_two(network, U, noise):
    """The same problem with inputs, and noise of linear outputs, of order one; the exponents of both units.

    Squares of the derivatives would overflow or vanish else; powers of two leave all digits.
    """
    inner = np.frexp(np.abs(U).max(axis=0))[1]
    noise = np.broadcast_to(np.asarray(noise, dtype=float), network.n_outputs)
    linear = network.output_activation == "identity"
    outer = np.frexp(noise)[1] if linear else np.zeros(network.n_outputs, dtype=int)
    weights, biases = [W.copy() for W in network.weights], [b.copy() for b in network.biases]
    weights[0] = np.ldexp(weights[0], inner[:, None])
    weights[-1], biases[-1] = np.ldexp(weights[-1], -outer), np.ldexp(biases[-1], -outer)
    scaled = FeedforwardNetwork(weights, biases, network.activation, network.output_activation)
    return scaled, np.ldexp(U, -inner), np.ldexp(noise, -outer), inner, outer


def _without_rescaling(network, problem, scale):
    """Orthonormal basis (P, q) of the moves of scaled parameters that keep norms of incoming weights, or None for all.

    Only those of units that may be rescaled; a unit without incoming weights has none to keep.
    """
    rows = []
    for layer, (W, activation) in enumerate(zip(network.weights[:-1], network.activations[:-1], strict=True)):
        for k in range(W.shape[1] if activation.symmetry == "homogeneous" else 0):
            kept = [np.zeros_like(V) for V in network.weights]
            kept[layer][:, k] = W[:, k]
            rows.append(problem.flatten(kept, [np.zeros_like(b) for b in network.biases]) / scale)
    if not rows:
        return None
    return np.linalg.qr(np.array(rows).T, mode="complete")[0][:, len(rows) :]


def _residual_noise(network, U, Y):
    """Noise of every output from the residuals of a fit, (m_L,)."""
    if Y is None:
        raise ValueError("noise=None: the noise is then read off the residuals, which needs the answers Y.")
    freedom = len(U) - network.n_parameters / network.n_outputs
    if freedom <= 0:
        raise ValueError(
            f"{len(U)} inputs with {network.n_outputs} answers each leave no degree of freedom beside "
            f"{network.n_parameters} parameters, so the residuals do not tell the noise; give noise or more inputs."
        )
    variance = np.sum((network(U) - Y) ** 2, axis=0) / freedom
    # Exact answers have no residual at all; they still have rounding.
    return np.sqrt(np.maximum(variance, (np.finfo(float).eps * np.abs(Y).max(axis=0)) ** 2 + np.finfo(float).tiny))
