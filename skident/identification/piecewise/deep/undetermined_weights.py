"""Weights of the last hidden layer that its kinks do not tell: on which side the units are there, and what fits."""

from __future__ import annotations

import numpy as np

__all__ = ["OpenSides", "fill_open_weights", "open_sides", "usual_sides"]

_NEAREST = 9  # points nearest to a boundary that tell on which side a unit is there
_STEEPEST = 1e3  # weight of an input, beside the others' of norm 1, that is still taken


class OpenSides:
    """On which side of its kink a unit is where an input is active between which and the unit the weight is open.

    On all kinks of unit j that were seen, input k was silent, or it was active on all of them: behind the input's
    boundary the unit stays on one side, that on which it is on the boundary.

    Parameters
    ----------
    sides : ndarray of shape (m_{L-1}, m_L)
        1 or -1 for the sign of ``z_j`` there, 0 where the weight is known.
    usual : ndarray of shape (m_{L-1}, m_L), default=None
        1 where input k was active on all kinks of unit j, -1 (the default) where it was silent.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.identification.piecewise.deep.undetermined_weights import OpenSides
    >>> sides = OpenSides(np.array([[0.0], [-1.0]]))
    >>> print(sides.of(np.array([[2.0], [2.0]]), np.array([[1.0, 0.0], [1.0, 3.0]])).ravel())
    [ 1. -1.]
    """

    def __init__(self, sides, usual=None):
        self.sides, self.usual = sides, -np.ones_like(sides) if usual is None else usual

    def of(self, Z, H):
        """Signs of pre-activations.

        Parameters
        ----------
        Z : ndarray of shape (n, m_L)
            Without the inputs whose weights are open.
        H : ndarray of shape (n, m_{L-1})
            The inputs.

        Returns
        -------
        ndarray of shape (n, m_L)
            0 where two such inputs contradict each other.
        """
        active, silent = (H > 0).astype(float), (H <= 0).astype(float)
        where_active, where_silent = self.sides * (self.usual < 0), self.sides * (self.usual > 0)
        told = active @ where_active + silent @ where_silent
        count = active @ np.abs(where_active) + silent @ np.abs(where_silent)
        return np.where(count == 0, np.where(Z >= 0, 1.0, -1.0), np.where(np.abs(told) == count, np.sign(told), 0.0))

    def take(self, units):
        """Those of some units.

        Parameters
        ----------
        units : ndarray
            Of integers or booleans.

        Returns
        -------
        OpenSides
        """
        return OpenSides(self.sides[:, units], self.usual[:, units])


def usual_sides(known, signs, units, unknown):
    """Whether inputs are active where the kinks of units were seen.

    Parameters
    ----------
    known : KnownLayers
        Its last layer's outputs are the inputs.
    signs : ndarray of shape (m_{L-1},)
        Of that layer.
    units : list of FacetUnit
    unknown : ndarray of bool, shape (m_{L-1}, m_L)
        Where it is asked for.

    Returns
    -------
    ndarray of shape (m_{L-1}, m_L)
        1 where they are on most of a unit's kinks, -1 where not, 0 where it is not asked for.
    """
    usual = np.zeros(unknown.shape)
    for j in np.flatnonzero(unknown.any(axis=0)):
        heights = known.evaluate(units[j].located)[0][:, known.first :] * signs
        usual[:, j] = np.where(np.mean(heights > 0, axis=0) > 0.5, 1.0, -1.0)
    return np.where(unknown, usual, 0.0)


def open_sides(Z, H, heights, open_entries):
    """On which sides units are where inputs are active between which and them weights are open.

    Parameters
    ----------
    Z : ndarray of shape (n, m_L)
        Pre-activations of the units at many points, as they are near the kinks seen.
    H : ndarray of shape (n, m_{L-1})
        The inputs there.
    heights : ndarray of shape (n, m_{L-1})
        Their pre-activations.
    open_entries : ndarray of shape (m_{L-1}, m_L)
        1 or -1 where weights are open: whether inputs were active, or silent, on all kinks seen.

    Returns
    -------
    OpenSides
    """
    sides = np.zeros(open_entries.shape)
    for j in np.flatnonzero(np.any(open_entries != 0, axis=0)):
        rows = np.flatnonzero(open_entries[:, j])
        active, found = (H[:, rows] > 0) == (open_entries[rows, j] < 0), np.zeros(len(rows))
        for _ in range(len(rows)):
            # Where all others are silent, or tell the side already: nearest to the input's own boundary.
            told = active @ found
            unclear = active @ (found == 0)
            side = np.where(active @ np.abs(found) > 0, np.sign(told), np.sign(Z[:, j]))
            new = found.copy()
            for i in np.flatnonzero(found == 0):
                near = np.flatnonzero(active[:, i] & (unclear == 1))
                near = near[np.argsort(np.abs(heights[near, rows[i]]))[:_NEAREST]]
                new[i] = np.sign(side[near].sum())
            if np.array_equal(new, found):
                break
            found = new
        sides[rows, j] = found
    return OpenSides(sides, np.where(open_entries != 0, open_entries, -1))


def fill_open_weights(weights, biases, open_entries, sides, signs, outer, linear, points):
    """Weights for which the units are on these sides and the linear part of the probe is right.

    With ``sum_j a_j |z_j| + l . h`` on the probe, unit j adds ``2 s_j a_j w_kj`` to ``l_k`` where it is on with
    input k. Where it is off with it, any weight does that keeps it so.

    Parameters
    ----------
    weights, biases : ndarray of shape (m_{L-1}, m_L) and (m_L,)
        Up to signs; right near the kinks seen.
    open_entries : ndarray of shape (m_{L-1}, m_L)
        -1 where they are open because the input is silent on the unit's kinks; only these are filled.
    sides : OpenSides
    signs : ndarray of shape (m_L,)
        s.
    outer : ndarray of shape (m_L, m_o)
        a.
    linear : ndarray of shape (m_{L-1}, m_o)
        l.
    points : ndarray of shape (n, m_{L-1})
        Outputs of layer L - 1 at many points.

    Returns
    -------
    ndarray of shape (m_{L-1}, m_L)
    """
    filled, on = weights.copy(), sides.sides == signs
    silent = open_entries < 0
    for k in np.flatnonzero(silent.any(axis=1)):
        units = np.flatnonzero(silent[k] & on[k])
        if len(units):
            left = linear[k] - (signs * weights[k]) @ outer
            filled[k, units] = np.linalg.lstsq((2.0 * signs[units, None] * outer[units]).T, left, rcond=1e-9)[0]
    for k, j in np.argwhere(silent & (sides.sides == -signs)):
        active = points[points[:, k] > 0]
        z = signs[j] * (active @ filled[:, j] + biases[j])
        steepest = np.max(z / active[:, k], initial=0.0)
        if 0.0 < steepest < _STEEPEST:
            filled[k, j] = -1.01 * signs[j] * steepest
    return filled
