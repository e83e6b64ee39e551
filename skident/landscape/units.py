"""The units of a quadratic network: the form that they make and its factors, slopes, and where their signs can go.

Layouts: hidden weights `W` (k, d), a unit a row; output weights `v` (k,); ``M = W^T D_v W`` (d, d).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["BOTH_SIGNS", "UnitSigns", "factorise", "form_of", "weight_gradient"]


@dataclass(frozen=True)
class UnitSigns:
    """Which signs the output weights of a network have, and so in which directions its units can move M.

    Attributes
    ----------
    plus, minus : bool
        Whether there are units with v > 0, and units with v < 0.
    """

    plus: bool = True
    minus: bool = True

    @classmethod
    def of(cls, v):
        """The signs that occur among output weights.

        Parameters
        ----------
        v : ndarray of shape (k,)

        Returns
        -------
        UnitSigns
        """
        return cls(bool((v > 0).any()), bool((v < 0).any()))

    def wrong_part(self, values):
        """Eigenvalues of the gradient with respect to M that allow descent; the others as 0.

        Parameters
        ----------
        values : ndarray of shape (d,)

        Returns
        -------
        ndarray of shape (d,)
            Negative ones where there are units with v > 0, positive ones where there are units with v < 0.
        """
        negative = np.minimum(values, 0.0) if self.plus else 0.0
        positive = np.maximum(values, 0.0) if self.minus else 0.0
        return negative + positive + 0.0 * values


BOTH_SIGNS = UnitSigns()


def form_of(W, v):
    """The quadratic form that a network is.

    Parameters
    ----------
    W : ndarray of shape (k, d)
    v : ndarray of shape (k,)

    Returns
    -------
    ndarray of shape (d, d)
        ``M = W^T D_v W``.
    """
    return W.T @ (v[:, None] * W)


def weight_gradient(W, v, gradient):
    """The loss's gradient with respect to the hidden weights, from the one with respect to M.

    Parameters
    ----------
    W : ndarray of shape (k, d)
    v : ndarray of shape (k,)
    gradient : ndarray of shape (d, d)
        G, at ``form_of(W, v)``.

    Returns
    -------
    ndarray of shape (k, d)
        ``2 D_v W G``.
    """
    return 2.0 * v[:, None] * (W @ gradient)


def factorise(M, v):
    """Hidden weights whose network is a given quadratic form: ``W^T D_v W = M`` as far as the signs of v allow.

    Parameters
    ----------
    M : ndarray of shape (d, d)
        Symmetric.
    v : ndarray of shape (k,)
        Output weights; those that are 0 stay unused.

    Returns
    -------
    W : ndarray of shape (k, d)
        Orthogonal rows: an eigenvector each, the eigenvalues of largest magnitude first.
    lost : float
        Frobenius norm of ``M - W^T D_v W``: more than rounding when M has more eigenvalues of a sign than v entries.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.landscape.units import factorise
    >>> W, lost = factorise(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1.0, -1.0]))
    >>> print(round(float((np.array([1.0, 2.0]) @ W.T) ** 2 @ [1.0, -1.0]), 12), lost < 1e-15)
    4.0 True
    """
    values, vectors = np.linalg.eigh(0.5 * (M + M.T))
    W, lost = np.zeros((len(v), len(M))), 0.0
    for sign in (1.0, -1.0):
        units = np.flatnonzero(sign * v > 0)
        order = np.argsort(-sign * values, kind="stable")
        order = order[sign * values[order] > 0]
        used = order[: len(units)]
        units = units[: len(used)]
        W[units] = np.sqrt(values[used] / v[units])[:, None] * vectors[:, used].T
        lost += float(np.sum(values[order[len(used) :]] ** 2))
    return W, float(np.sqrt(lost))
