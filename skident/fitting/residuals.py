"""Whether what a fit leaves of the answers is noise: no function of the inputs may explain residuals."""

from __future__ import annotations

import numpy as np
from scipy import stats

from .batched_fits import BatchedNetworkFits, Rows, network_of

__all__ = ["FEWEST_LEFT", "NO_NOISE", "lack_of_fit"]

NO_NOISE = 1e-3  # chance that residuals of the right network have of being called a misfit

_SHARES = (0.1, 1 / 3)  # of the degrees of freedom that are left: functions tried
_MOST = 500
_LEAST = 5  # functions, below which nothing is told
FEWEST_LEFT = int(_LEAST / _SHARES[0])  # degrees of freedom
_SCALES = np.array([0.5, 1.0, 2.0, 4.0])  # of their weights, for what has unit variance
_NUMBERS = 2**21  # of a matrix


def lack_of_fit(architecture, rows, x, rng):
    """How likely noise alone would follow functions of the inputs as closely as the residuals of a fit do.

    Parameters
    ----------
    architecture : Architecture
    rows : Rows
        Whitened.
    x : ndarray of shape (P,)
        Parameters fitted to the rows.
    rng : numpy.random.RandomState
        Draws functions.

    Returns
    -------
    float
        A p-value; 1 where there are too few rows to tell. Below 0.001 it is no noise.

    Notes
    -----
    The functions are random ``tanh(w^T h + b) c^T`` of the inputs and of what every hidden layer reads and says, in
    units of their deviations: a tenth and a third as many as there are degrees of freedom (500 at most). The smallest
    p-value is multiplied by their number. V is an orthonormal basis of functions, orthogonal to the derivatives of the
    network. For noise that is independent from row to row, whatever its distribution and variance there (unless few
    rows hold most of it), ``|V^T r|^2`` less the contributions of single rows has mean 0 and variance
    ``2 sum_{i != j} (v_i^T v_j)^2`` with ``v_i = V_i^T r_i``, residuals being divided by the root of what the fit
    leaves of noise in them (HC2, MacKinnon and White, 1985). The p-value is that of a chi-squared variable with as many
    degrees of freedom as there are functions.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.fitting.batched_fits import Rows
    >>> from skident.network import Architecture
    >>> from skident.fitting.residuals import lack_of_fit
    >>> rng = np.random.RandomState(0)
    >>> U, noise = rng.standard_normal((200, 2)), rng.standard_normal((200, 1))
    >>> line = np.zeros(3)
    >>> print(lack_of_fit(Architecture((1,)), Rows(U, noise), line, rng) > 0.001)
    True
    >>> print(lack_of_fit(Architecture((1,)), Rows(U, noise + U[:, :1] ** 2), line, rng) > 0.001)
    False
    """
    rows = _some(rows, len(x), rng)
    Q, residuals = _beside_the_fit(architecture, rows, x)
    left = len(residuals) - Q.shape[1]
    if int(_SHARES[0] * left) < _LEAST:
        return 1.0
    sizes = [min(int(share * left), _MOST) for share in _SHARES]
    network = network_of(x, rows.n_inputs, architecture)
    tails = [_tail(Q, residuals, rows, H, k, rng) for H in _read_and_said(network, rows.U) for k in sizes]
    return float(min(1.0, len(tails) * min(tails)))


def _read_and_said(network, U):
    """The inputs, and pre-activations and outputs of every hidden layer, each of unit variance."""
    found, H = [U], U
    for W, b, activation in zip(network.weights[:-1], network.biases[:-1], network.activations, strict=False):
        z = H @ W + b
        H = activation(z)
        found += [z, H]
    return [(H - H.mean(axis=0)) / np.maximum(H.std(axis=0), np.finfo(float).tiny) for H in found]


def _beside_the_fit(architecture, rows, x):
    """An orthonormal basis of what parameters can do, (n m_L, P) at most, and residuals orthogonal to it."""
    J, r = BatchedNetworkFits(architecture, rows).jacobians(x[None], rows.U, rows.Y, rows.weight)
    n, p = rows.Y.shape
    Q = np.linalg.qr(J[0].reshape(-1, p, n).T.reshape(n * p, -1))[0]
    residuals = r[0].reshape(p, n).T.ravel()
    return Q, residuals - Q @ (Q.T @ residuals)


def _some(rows, n_parameters, rng):
    """As many rows as there is memory for."""
    n = _NUMBERS // ((n_parameters + _MOST) * rows.n_outputs)
    if n >= len(rows.U):
        return rows
    index = rng.permutation(len(rows.U))[:n]
    return Rows(rows.U[index], rows.Y[index], None if rows.weight is None else rows.weight[index])


def _tail(Q, residuals, rows, H, n_functions, rng):
    """The p-value with a number of functions of H."""
    (n, D), p = H.shape, rows.n_outputs
    scale = np.resize(_SCALES, n_functions)
    W, b = rng.standard_normal((D, n_functions)) * scale / np.sqrt(D), rng.standard_normal(n_functions) * scale
    functions = np.tanh(H @ W + b)[:, None] * rng.standard_normal((p, n_functions))
    functions = functions if rows.weight is None else functions * np.sqrt(rows.weight)[:, None, None]
    functions = functions.reshape(n * p, n_functions)
    V = np.linalg.qr(functions - Q @ (Q.T @ functions))[0]
    spared = np.maximum(1.0 - np.sum(Q**2, axis=1), 1e-8)
    single = (V * (residuals / np.sqrt(spared))[:, None]).reshape(n, p, -1).sum(axis=1)
    own = np.sum(single**2, axis=1)
    explained = np.sum((V.T @ residuals) ** 2) - own.sum()
    spread = np.sqrt(2.0 * max(np.sum((single.T @ single) ** 2) - np.sum(own**2), np.finfo(float).tiny))
    return float(stats.chi2.sf(V.shape[1] + explained / spread * np.sqrt(2.0 * V.shape[1]), V.shape[1]))
