"""Lack-of-fit test: whether functions of the inputs explain the residuals of a fit, or they are noise."""

import numpy as np
from scipy import stats

from skident.budget.constants import MATRIX_ENTRIES, TINY
from skident.linalg import lapack

from .batched_fits import BatchedNetworkFits, WeightedSamples, network_of

NO_NOISE = 1e-3  # p-value below which residuals are not noise: false alarm rate for the right network

_FUNCTION_SHARES = (0.1, 1 / 3)  # numbers of functions tried, as shares of the residual degrees of freedom
_MAX_FUNCTIONS = 500  # budget: a QR factorization of so many columns
_MIN_FUNCTIONS = 5  # below which the test has no power
MIN_FREEDOM = int(_MIN_FUNCTIONS / _FUNCTION_SHARES[0])  # residual degrees of freedom that the test needs
_WEIGHT_SCALES = np.array([0.5, 1.0, 2.0, 4.0])  # of the functions' weights, for features of unit variance
_MIN_LEVERAGE_GAP = 1e-8  # of 1 - leverage: residuals of samples that the fit interpolates carry no information


def lack_of_fit(architecture, samples, x, rng, max_entries=MATRIX_ENTRIES):
    """P-value that noise alone would follow random functions of the inputs as closely as the residuals do.

    `samples` are whitened `WeightedSamples`, x (P,) the parameters fitted to them. 1 if there are too few samples.

    The functions are random ``tanh(w^T h + b) c^T`` of the inputs, and of the pre-activations and outputs of every
    hidden layer, each of unit variance: a tenth and a third as many as degrees of freedom, 500 at most. The smallest
    p-value is multiplied by the number of tests (Bonferroni). Let V be an orthonormal basis of the functions,
    orthogonal to the derivatives of the network. For noise that is independent from sample to sample, whatever its
    distribution and variance, ``|V^T r|^2`` less the contributions of single samples has mean 0 and variance ``2 sum_{i
    != j} (v_i^T v_j)^2`` with ``v_i = V_i^T r_i``, unless few samples hold most of it. Residuals are divided by the
    root of 1 - leverage (HC2, MacKinnon and White, 1985). The statistic is compared with a chi-squared variable with as
    many degrees of freedom as there are functions.
    """
    samples = _subsample(samples, len(x), rng, max_entries)
    Q, residuals = _orthogonal_residuals(architecture, samples, x)
    freedom = len(residuals) - Q.shape[1]
    if int(_FUNCTION_SHARES[0] * freedom) < _MIN_FUNCTIONS:
        return 1.0
    sizes = [min(int(share * freedom), _MAX_FUNCTIONS) for share in _FUNCTION_SHARES]
    network = network_of(x, samples.n_inputs, architecture)
    features = _features(network, samples.U)
    p_values = [_p_value(Q, residuals, samples, H, k, rng) for H in features for k in sizes]
    return float(min(1.0, len(p_values) * min(p_values)))


def _features(network, U):
    """The inputs (n, D), and pre-activations and outputs of every hidden layer, each of unit variance."""
    features, H = [U], U
    for W, b, activation in zip(network.weights[:-1], network.biases[:-1], network.activations, strict=False):
        z = H @ W + b
        H = activation(z)
        features += [z, H]
    return [(H - H.mean(axis=0)) / np.maximum(H.std(axis=0), TINY) for H in features]


def _orthogonal_residuals(architecture, samples, x):
    """An orthonormal basis (n m_L, P) of what changes of the parameters do, and residuals orthogonal to it."""
    J, r = BatchedNetworkFits(architecture, samples).jacobians(x[None], samples.U, samples.Y, samples.weight)
    n, p = samples.Y.shape
    Q = lapack.qr(J[0].reshape(-1, p, n).T.reshape(n * p, -1))[0]
    residuals = r[0].reshape(p, n).T.ravel()
    return Q, residuals - Q @ (Q.T @ residuals)


def _subsample(samples, n_parameters, rng, max_entries):
    """As many random samples as fit into matrices of `max_entries`."""
    n = max_entries // ((n_parameters + _MAX_FUNCTIONS) * samples.n_outputs)
    if n >= len(samples.U):
        return samples
    index = rng.permutation(len(samples.U))[:n]
    weight = None if samples.weight is None else samples.weight[index]
    return WeightedSamples(samples.U[index], samples.Y[index], weight)


def _p_value(Q, residuals, samples, H, n_functions, rng):
    """The p-value with a number of random functions of features H (n, k)."""
    (n, D), p = H.shape, samples.n_outputs
    scale = np.resize(_WEIGHT_SCALES, n_functions)
    W, b = rng.standard_normal((D, n_functions)) * scale / np.sqrt(D), rng.standard_normal(n_functions) * scale
    functions = np.tanh(H @ W + b)[:, None] * rng.standard_normal((p, n_functions))
    functions = functions if samples.weight is None else functions * np.sqrt(samples.weight)[:, None, None]
    functions = functions.reshape(n * p, n_functions)
    V = lapack.qr(functions - Q @ (Q.T @ functions))[0]
    gap = np.maximum(1.0 - np.sum(Q**2, axis=1), _MIN_LEVERAGE_GAP)
    single = (V * (residuals / np.sqrt(gap))[:, None]).reshape(n, p, -1).sum(axis=1)
    own = np.sum(single**2, axis=1)
    explained = np.sum((V.T @ residuals) ** 2) - own.sum()
    spread = np.sqrt(2.0 * max(np.sum((single.T @ single) ** 2) - np.sum(own**2), TINY))
    return float(stats.chi2.sf(V.shape[1] + explained / spread * np.sqrt(2.0 * V.shape[1]), V.shape[1]))
