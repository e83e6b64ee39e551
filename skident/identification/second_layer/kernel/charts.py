"""Hidden coordinates on a patch: outputs of the free first-layer units, their shifts known or not."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np
from scipy.special import erfinv

from skident.linalg import n_symmetric_entries
from skident.linalg.packing import packing_weights

__all__ = ["ErfChart", "TanhChart", "exponents"]


@functools.lru_cache(maxsize=32)
def exponents(n_free, order):
    """Exponents of the monomials that the entries of a packed symmetric tensor belong to.

    Parameters
    ----------
    n_free, order : int
        k and p.

    Returns
    -------
    ndarray of int, shape (C(k + p - 1, p), k)
        Read-only, and cached.
    """
    table = np.zeros((n_symmetric_entries(n_free, order), n_free), dtype=np.int64)
    for row, indices in zip(table, itertools.combinations_with_replacement(range(n_free), order), strict=True):
        np.add.at(row, list(indices), 1)
    table.flags.writeable = False
    return table


@dataclass(frozen=True)
class TanhChart:
    """``h' = tanh t`` with t known up to shifts: the true output is ``h = tanh(t + artanh(theta))``.

    With ``eta = h - theta`` it is ``h' = sum_n theta^(n-1) / (1 - theta^2)^n eta^n``, a Moebius map, unit by unit, so
    that Taylor coefficients in h' become those in eta once theta is known.

    Attributes
    ----------
    theta : None
        Not known.
    """

    theta: None = None

    def preactivations(self, H):
        """t at hidden coordinates h'.

        Parameters
        ----------
        H : ndarray of shape (q, k)

        Returns
        -------
        ndarray of shape (q, k)
        """
        return np.arctanh(H)

    def coefficients(self, tensors, theta, order):
        """Taylor coefficients in eta from those in h'.

        Parameters
        ----------
        tensors : list of ndarray of shape (..., C(k + q - 1, q)), q = 0, ..., p
            Packed, see `taylor_coefficients`.
        theta : ndarray of shape (k,)
            Shifts, inside (-1, 1).
        order : int
            At most p.

        Returns
        -------
        ndarray of shape (..., C(k + order - 1, order))
            Packed, of this order.
        """
        k = len(theta)
        tables = [_powers_of_series(t, order) for t in theta]
        target, result = exponents(k, order), 0.0
        for q in range(1, order + 1):
            source = exponents(k, q)
            change = np.ones((len(source), len(target)))
            for i, table in enumerate(tables):
                change *= table[source[:, i][:, None], target[:, i][None]]
            result = result + (tensors[q] * packing_weights(k, q)) @ change
        return result / packing_weights(k, order)


def _powers_of_series(theta, order):
    """Coefficients of ``(h')^a`` by powers of eta: row a, both from 0 to `order`."""
    n = np.arange(1, order + 1)
    series = np.concatenate([[0.0], theta ** (n - 1.0) / (1.0 - theta**2) ** n])
    rows = [np.eye(order + 1)[0]]
    for _ in range(order):
        rows.append(np.convolve(rows[-1], series)[: order + 1])
    return np.array(rows)


@dataclass(frozen=True)
class ErfChart:
    """``h = theta + (1 - |theta|) h'`` with ``h = erf(t + erfinv(theta))``: the tails of erf tell theta beforehand.

    Attributes
    ----------
    theta : ndarray of shape (k,)
    """

    theta: np.ndarray

    def preactivations(self, H):
        """t at hidden coordinates h'; see `TanhChart.preactivations`.

        Parameters
        ----------
        H : ndarray of shape (q, k)

        Returns
        -------
        ndarray of shape (q, k)
        """
        return erfinv(self.theta + (1.0 - np.abs(self.theta)) * H) - erfinv(self.theta)

    def coefficients(self, tensors, theta, order):
        """Taylor coefficients in ``h - theta``; see `TanhChart.coefficients`.

        Parameters
        ----------
        tensors : list of ndarray of shape (..., C(k + q - 1, q)), q = 0, ..., p
        theta : ndarray of shape (k,)
            Those of the chart.
        order : int

        Returns
        -------
        ndarray of shape (..., C(k + order - 1, order))
        """
        units = np.prod((1.0 - np.abs(self.theta)) ** exponents(len(theta), order), axis=1)
        return tensors[order] / units
