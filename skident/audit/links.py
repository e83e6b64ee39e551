"""What an audit compares: a network's outputs, centered logits, or class probabilities."""

import numpy as np

from skident.oracle import probabilities_from_logits


class _Values:
    """The outputs themselves."""

    centered = False

    def values(self, Z):
        """What is compared, from a network's outputs Z (n, m_L)."""
        return Z

    def slopes(self, Z, S):
        """Derivatives of what is compared, from derivatives S (n, m_L, k) of the outputs Z."""
        return S

    def deviations(self, Z, sigma):
        """Standard deviation of what is compared, from that of the outputs Z, sigma (n, m_L)."""
        return sigma


class _CenteredLogits(_Values):
    """Outputs less their mean: all that a softmax determines of them."""

    centered = True

    def values(self, Z):
        """As above."""
        return Z - Z.mean(axis=1, keepdims=True)

    def slopes(self, Z, S):
        """As above."""
        return S - S.mean(axis=1, keepdims=True)


class Probabilities(_Values):
    """The softmax of logits: `n_columns` of its columns, 1 or 2 with two classes."""

    def __init__(self, n_columns):
        self.n_columns = n_columns

    def values(self, Z):
        """As above."""
        return probabilities_from_logits(Z)[:, -self.n_columns :]

    def slopes(self, Z, S):
        """As above."""
        P, S = probabilities_from_logits(Z), _of_all_classes(S)
        return (P[:, :, None] * (S - np.einsum("nk,nku->nu", P, S)[:, None]))[:, -self.n_columns :]

    def deviations(self, Z, sigma):
        """As above; added linearly, since the errors of logits share those of the hidden units."""
        P, sigma = probabilities_from_logits(Z), _of_all_classes(sigma)
        own = P * sigma
        others = np.maximum(own.sum(axis=1, keepdims=True) - own, 0.0)
        return (P * ((1.0 - P) * sigma + others))[:, -self.n_columns :]


class Through(_Values):
    """A further function of what is compared, whose slope is at most `steepest`."""

    def __init__(self, link, function, steepest):
        self.link, self.function, self.steepest = link, function, steepest

    def values(self, Z):
        """As above."""
        return self.function(self.link.values(Z))

    def deviations(self, Z, sigma):
        """As above, at most."""
        return self.steepest * self.link.deviations(Z, sigma)


def _of_all_classes(A):
    """Logits of two classes (n, 2, ...) from those of the second one (n, 1, ...), relative to the first."""
    return np.concatenate([np.zeros_like(A), A], axis=1) if A.shape[1] == 1 else A


VALUES = _Values()
CENTERED_LOGITS = _CenteredLogits()


def logits_within(P, tolerance, n_logits):
    """Centered logits, or one log-odds, of probabilities that are known within a tolerance.

    P, tolerance (n, K); returns two arrays (n, n_logits). The tolerance is infinite if a probability is smaller than
    twice its own.
    """
    P = np.clip(P, 0.0, 1.0)
    if P.shape[1] == 1:
        P, tolerance = np.hstack([1.0 - P, P]), np.hstack([tolerance, tolerance])
    lost = np.any(tolerance >= 0.5 * P, axis=1)
    P = np.maximum(P, np.finfo(float).tiny)
    logs, error = np.log(P), tolerance / P
    if n_logits == 1:
        Z, error = logs[:, 1:] - logs[:, :1], error.sum(axis=1, keepdims=True)
    else:
        Z = CENTERED_LOGITS.values(logs)
        error = error * (1.0 - 2.0 / P.shape[1]) + error.mean(axis=1, keepdims=True)
    error[lost] = np.inf
    return Z, error
