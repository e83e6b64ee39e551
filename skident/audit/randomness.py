"""Causes that show in calls rather than in outputs: batch normalization in training mode, dropout."""

import numpy as np

from skident.budget.constants import EXACT_RANK_TOL
from skident.network import calculus


def normalizes_batches(Y, tolerance):
    """Whether the outputs (n, c) of single rows are all the same, within a tolerance (n, c).

    A batch of one row, less its mean, is 0 whatever the row.
    """
    return bool(len(Y) > 1 and np.all(np.ptp(Y, axis=0) <= 2.0 * tolerance.max(axis=0)))


def dropout(network, link, X, squares):
    """The layer (None: all hidden ones) and rate of dropout that explain noise; None if constant noise does as well.

    X (n, D); squares (n, c) : squared differences of outputs from those of the network.

    To first order, dropping outputs h_u of hidden units with rate p, the others divided by 1 - p, gives output k the
    variance ``p / (1 - p) sum_u (h_u df_k / dh_u)^2``, which differs from row to row; Gaussian likelihoods compare.
    """
    _, jets = calculus.forward_jets(network.weights, network.biases, network.activations, X, order=1)
    _, by_post = calculus.output_sensitivities(network.weights, jets)
    Z = jets[-1][0]
    hidden = [(link.slopes(Z, S) * jet[0][:, None]) ** 2 for S, jet in zip(by_post[:-1], jets[:-1], strict=True)]
    variances = [(layer, effects.sum(axis=2)) for layer, effects in enumerate(hidden)]
    variances += [(None, sum(v for _, v in variances))] if len(variances) > 1 else []
    best, found = _log_likelihood(squares, np.broadcast_to(np.mean(squares, axis=0), squares.shape)), None
    for layer, variance in variances:
        variance = np.maximum(variance, EXACT_RANK_TOL * np.mean(variance) + np.finfo(float).tiny)
        odds = np.mean(squares / variance)
        value = _log_likelihood(squares, odds * variance)
        if value > best:
            best, found = value, (layer, float(odds / (1.0 + odds)))
    return found


def _log_likelihood(squares, variance):
    variance = np.maximum(variance, np.finfo(float).tiny)
    return -float(np.sum(np.log(variance) + squares / variance))
