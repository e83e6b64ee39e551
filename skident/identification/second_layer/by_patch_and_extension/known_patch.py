"""All of the network as it is on one patch: where the further units of the first layer are walked to from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["KnownPatch"]


@dataclass(frozen=True)
class KnownPatch:
    """A cell where some first-layer units are free and all others saturated, and the shallow network it leaves.

    There ``f = tanh(H @ rows + shifts) @ readout + offset`` with ``H = tanh(t + artanh(theta))``, t being the free
    units' pre-activations as known beforehand.

    Attributes
    ----------
    free : ndarray of int, shape (k,)
        First-layer units that are free.
    theta : ndarray of shape (k,)
        Their outputs at ``t = 0``.
    point : ndarray of shape (D,)
        Of the cell: free units have t about 0 there, and all others are saturated.
    signs : ndarray of shape (m_1,)
        Outputs of the others there, 1 or -1; 0 for free units.
    rows : ndarray of shape (k, m_2)
        Weights of the second layer at the free units.
    shifts : ndarray of shape (m_2,)
        Of the second layer, with what saturated units add to it.
    readout : ndarray of shape (m_2, m_L)
    offset : ndarray of shape (m_L,)
    """

    free: np.ndarray
    theta: np.ndarray
    point: np.ndarray
    signs: np.ndarray
    rows: np.ndarray
    shifts: np.ndarray
    readout: np.ndarray
    offset: np.ndarray
