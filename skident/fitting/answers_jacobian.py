"""What answers at given inputs determine of a network: the spectrum of their Jacobian by all parameters."""

from __future__ import annotations

import numpy as np

from skident.network.calculus import forward_jets, output_sensitivities
from skident.optim import one_blas_thread

__all__ = ["answers_jacobian", "spectrum_of_answers"]


def answers_jacobian(network, U):
    """Derivatives of all answers by all parameters.

    Parameters
    ----------
    network : FeedforwardNetwork
    U : ndarray of shape (n, D)

    Returns
    -------
    ndarray of shape (n m_L, P)
        Parameters ordered as `NetworkLeastSquares` has them.
    """
    inputs, jets = forward_jets(network.weights, network.biases, network.activations, U, order=1)
    sensitivities, _ = output_sensitivities(network.weights, jets)
    n, blocks = len(U), []
    for y, B in zip(inputs, sensitivities, strict=True):
        reads = np.column_stack([y, np.ones(n)])
        blocks.append((reads[:, None, :, None] * B[:, :, None, :]).reshape(n * B.shape[1], -1))
    return np.concatenate(blocks, axis=1)


def spectrum_of_answers(network, U):
    """Singular values of the Jacobian by all parameters, its columns scaled to length one, beside the largest.

    A combination of parameters whose singular value is s is known 1/s times worse than the best known one: where s is
    below the accuracy of the answers, it is open.

    Parameters
    ----------
    network : FeedforwardNetwork
    U : ndarray of shape (n, D)

    Returns
    -------
    ndarray of shape (min(n m_L, P),)
        Descending from 1; below 1e-7 they are rounding, since they are roots of eigenvalues of ``J J^T`` or ``J^T J``.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.datasets import make_network
    >>> from skident.fitting.answers_jacobian import spectrum_of_answers
    >>> U = np.random.default_rng(0).standard_normal((200, 4))
    >>> print(int(np.sum(spectrum_of_answers(make_network((4, 3, 2), random_state=0), U) > 1e-6)))
    23
    """
    J = answers_jacobian(network, U)
    J /= np.maximum(np.linalg.norm(J, axis=0), np.finfo(float).tiny)
    with one_blas_thread():
        squares = np.linalg.eigvalsh(J @ J.T if len(J) < J.shape[1] else J.T @ J)[::-1]
    return np.sqrt(np.maximum(squares, 0.0) / max(squares[0], np.finfo(float).tiny))
