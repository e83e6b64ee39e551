"""What is behind a first layer, fully known on one patch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["KnownPatch"]


@dataclass(frozen=True)
class KnownPatch:
    """Answers of one cell: ``f = sum_j v_j g(W_Fj . h_F + c_j) + v_0`` where free units F move and all others stand.

    Attributes
    ----------
    free : ndarray of int, shape (k,)
        F, first-layer units.
    theta : ndarray of shape (k,)
        Their outputs where their pre-activations as known are 0.
    point : ndarray of shape (D,)
        A point of the cell: pre-activations of free units are about 0 there, all others are saturated.
    signs : ndarray of shape (m_1,)
        Saturated outputs of the others there; 0 for free units.
    rows : ndarray of shape (k, m_2)
        W_F, with lengths.
    shifts : ndarray of shape (m_2,)
        c, what saturated units add included.
    readout : ndarray of shape (m_2, m_L)
        v.
    offset : ndarray of shape (m_L,)
        v_0.
    """

    free: np.ndarray
    theta: np.ndarray
    point: np.ndarray
    signs: np.ndarray
    rows: np.ndarray
    shifts: np.ndarray
    readout: np.ndarray
    offset: np.ndarray
