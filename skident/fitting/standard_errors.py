"""What samples determine of a network's parameters: the spectrum of the Jacobian, and standard errors."""

import numpy as np
import scipy.linalg

from skident.budget import check_deadline
from skident.budget.constants import TINY
from skident.linalg import lapack
from skident.network import FeedforwardNetwork
from skident.network.calculus import flatten_parameters, forward_jets, output_sensitivities, unflatten_parameters
from skident.optim import one_blas_thread
from skident.oracle import NotIdentified

from .least_squares import weighted_problem

_FACTOR_FLOPS = 1.0  # operations of a Cholesky factor and its inverse, in units of P^3


def parameter_jacobian(network, U, n_layers=None):
    """Derivatives of all outputs at U (n, D) by all P parameters, (n m_L, P), ordered as in `NetworkLeastSquares`.

    With `n_layers` by those of the first layers alone.
    """
    inputs, jets = forward_jets(network.weights, network.biases, network.activations, U, order=1)
    sensitivities, _ = output_sensitivities(network.weights, jets)
    n, blocks = len(U), []
    for y, B in zip(inputs[:n_layers], sensitivities[:n_layers], strict=True):
        reads = np.column_stack([y, np.ones(n)])
        blocks.append((reads[:, None, :, None] * B[:, :, None, :]).reshape(n * B.shape[1], -1))
    return np.concatenate(blocks, axis=1)


def jacobian_spectrum(network, U):
    """Singular values of the parameter Jacobian at U (n, D), columns scaled to norm 1, relative to the largest.

    A combination of parameters with singular value s is known 1/s times worse than the best known one; if s is below
    the relative error of the outputs, it is undetermined. The values descend from 1. Below 1e-7 they are rounding,
    because they are roots of the eigenvalues of ``J J^T`` or ``J^T J``.
    """
    J = parameter_jacobian(network, U)
    J /= np.maximum(np.linalg.norm(J, axis=0), TINY)
    with one_blas_thread():
        squares = lapack.eigvalsh(J @ J.T if len(J) < J.shape[1] else J.T @ J)[::-1]
    return np.sqrt(np.maximum(squares, 0.0) / max(squares[0], TINY))


def standard_errors(network, U, noise):
    """Standard errors of the weights and biases of a network fitted on U (n, D), to first order in the noise.

    They are the roots of the diagonal of ``(J^T S^-2 J)^-1``, with J the parameter Jacobian and S the noise of every
    output: the covariance of the fit of `polish_network`, and the Cramer-Rao bound. `noise` is the standard deviation
    of each output (scalar or (m_L,)). Units that can be rescaled (ReLU) keep the norms of their incoming weights, as in
    `FeedforwardNetwork.canonical`. ``O(P^3)`` operations and ``24 P^2`` bytes.
    """
    network, U, noise, inner, outer = in_powers_of_two(network, U, noise)
    problem = weighted_problem(network, U, np.zeros((len(U), network.n_outputs)), 1.0 / noise)
    A, _ = problem.normal_equations(flatten_parameters(network.weights, network.biases))
    basis = whitening_basis(A, network, len(U))
    return in_original_units(np.linalg.norm(basis, axis=1), network, inner, outer)


def in_original_units(errors, network, inner, outer):
    """Standard errors (P,) of a network `in_powers_of_two` as those of its weights and biases before."""
    shapes = [W.shape for W in network.weights]
    weights, biases = ([part.copy() for part in parts] for parts in unflatten_parameters(errors, shapes))
    weights[0] = np.ldexp(weights[0], -inner[:, None])
    weights[-1], biases[-1] = np.ldexp(weights[-1], outer), np.ldexp(biases[-1], outer)
    return weights, biases


def in_powers_of_two(network, U, noise):
    """The same problem with inputs, and noise of linear outputs, of order one; the exponents of both scales.

    Otherwise squares of the derivatives could overflow or underflow. Powers of two change no digit.
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


def whitening_basis(A, network, n):
    """Changes T (P, q) of the parameters that keep norms of incoming weights, with ``T^T A T`` the identity.

    The rows of T have the norms of standard errors if A is the information matrix of the outputs at n inputs, which is
    overwritten. Only units of homogeneous activations can be rescaled, so that q is P less their number; a unit without
    incoming weights has no norm to keep. NotIdentified if the smallest eigenvalue is rounding.
    """
    P, scale = len(A), np.sqrt(np.diagonal(A))
    scale = np.where(scale > 0, scale, 1.0)
    A /= scale[:, None] * scale[None, :]
    V, turned = _reflections(network, scale)
    check_deadline(_FACTOR_FLOPS * P**3)
    inside = A - 2.0 * V @ (V.T @ A)
    inside -= 2.0 * (inside @ V) @ V.T
    factor, failed = scipy.linalg.lapack.dpotrf(inside[~turned][:, ~turned], lower=True, clean=True)
    smallest = 0.0 if failed else scipy.linalg.lapack.dpocon(factor, 1.0, uplo="L")[0]
    if not smallest > P * np.finfo(float).eps:
        raise NotIdentified(
            "standard errors",
            "rank",
            f"the outputs at these {n} inputs do not determine all {P} parameters: the smallest eigenvalue of their "
            f"information matrix, scaled to unit diagonal, is {smallest:.1e}. Units that never move on these "
            "inputs cause this; so do too few inputs.",
        )
    basis = np.zeros((P, len(factor)))
    basis[~turned] = scipy.linalg.lapack.dtrtri(factor, lower=True)[0].T
    basis -= 2.0 * V @ (V.T @ basis)
    return basis / scale[:, None]


def _reflections(network, scale):
    """Orthonormal V (P, h), and a mask (P,): ``1 - 2 V V^T`` turns each gradient of a unit's norm to one coordinate.

    The gradients of different units share no parameter, so that the product of their Householder reflections is of this
    form.
    """
    gradients = []
    for layer, (W, activation) in enumerate(zip(network.weights[:-1], network.activations[:-1], strict=True)):
        for k in np.flatnonzero(W.any(axis=0)) if activation.symmetry == "homogeneous" else ():
            kept = [np.zeros_like(V) for V in network.weights]
            kept[layer][:, k] = W[:, k]
            gradients.append(flatten_parameters(kept, [np.zeros_like(b) for b in network.biases]) / scale)
    V = np.array(gradients).reshape(-1, len(scale))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    unit, largest = np.arange(len(V)), np.argmax(np.abs(V), axis=1)
    V[unit, largest] += np.where(V[unit, largest] < 0, -1.0, 1.0)
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    return V.T, np.isin(np.arange(len(scale)), largest)
