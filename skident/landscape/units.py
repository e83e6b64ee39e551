"""The units of a quadratic network: the form that they make, its slope in their weights, and where their signs can go.

Layouts: hidden weights `W` (k, d), a unit a row; output weights `v` (k,); ``M = W^T D_v W`` (d, d).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["BOTH_SIGNS", "UnitSigns", "form_of", "weight_gradient"]


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
