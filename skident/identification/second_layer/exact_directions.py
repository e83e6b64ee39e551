"""First-layer directions to rounding error, from how little a unit's step moves along a ray inside one cell."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..query_points import query_block
from .kernel.patch import SATURATED, rays_of_one_unit

__all__ = ["exact_directions"]

_FAR, _BEGINS = 1e5, 0.3  # where the ray ends, and the part of that where it begins, at most
_SURELY = 6.0  # times the pre-activation of a saturated unit: lengths may be wrong
_RAYS_MORE = 2  # than inputs
_NODES = np.array([-0.7, 0.7])  # of the profile, in pre-activations
_STEP = 0.05  # of its slopes
_LARGEST, _FAR_OFF = 1e-5, 1e-9  # corrections that the first order can tell, and after which another look is worth it
_ROUNDS, _SETTLED = 4, 3e-14  # at most, and correction that is the last one


def exact_directions(oracle, first, activation, rng):
    """The same units, directions good to rounding error.

    Parameters
    ----------
    oracle : Oracle
        With exact answers.
    first : FirstLayer
        All units, their directions good to about 1e-6, lengths within a factor of six.
    activation : Activation
    rng : numpy.random.RandomState

    Returns
    -------
    FirstLayer
        Units that are not seen along enough rays are as they were.

    Raises
    ------
    BlackBoxError
        If the black box cannot be asked 1e5 standard deviations away.

    Notes
    -----
    Inside one cell, where all other units are saturated, the answer near unit i's hyperplane is ``phi(w_i . x + b_i)``
    with one phi all along a ray ``x_0 + R r``. Where the hyperplane as known leaves the true one, by delta between a
    near R and a far one, the error of the direction is to blame: ``e . r (R_far - R_near) = delta``. D + 2 rays and
    least squares give e; further rounds take away what linearisation left. About ``10 (D + 2)`` queries a unit.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.identification.second_layer.exact_directions import exact_directions
    >>> from skident.identification.saturating.first_layer import find_first_layer
    >>> from skident.network import get_activation
    >>> from skident.oracle import Oracle
    >>> W = np.array([[3.0, 0.0, 1.0], [4.0, -2.0, 1.0]])
    >>> oracle, rng = Oracle(lambda X: np.tanh(X @ W).sum(axis=1), 2), np.random.RandomState(0)
    >>> first = exact_directions(oracle, find_first_layer(oracle, n_units=3, rng=rng), get_activation("tanh"), rng)
    >>> print(bool(np.abs([4.0, -3.0] @ first.directions).min() < 1e-11))
    True
    """
    units = np.arange(len(first.biases))
    for _ in range(2):  # what was far off is looked at again from where it is by now: rays began beside its hyperplane
        looks = [_look(first, i, activation.name, oracle, rng) for i in units]
        weights = _corrected(
            oracle, first.weights, [look for look in looks if len(look.points) >= len(look.weights) - 1]
        )
        moved = np.linalg.norm(weights - first.weights, axis=0) > _FAR_OFF * np.linalg.norm(weights, axis=0)
        first, units = replace(first, weights=weights), np.flatnonzero(moved)
    return first


def _corrected(oracle, weights, looks):
    """Weights (D, m_1), the units looked at corrected until that changes them no more."""
    weights = weights.copy()
    profiles = dict(zip(looks, _ask_parts(oracle, [look.near() for look in looks]), strict=True)) if looks else {}
    for _ in range(_ROUNDS):
        if not looks:
            break
        far, open_ = [look.far(weights) for look in looks], []
        for look, there, G in zip(looks, far, _ask_parts(oracle, far), strict=True):
            error = look.error(weights, profiles[look], there, G)
            size = np.linalg.norm(error) / np.linalg.norm(weights[:, look.unit])
            if size < _LARGEST:
                weights[:, look.unit] += error
            if _SETTLED < size < _LARGEST:
                open_.append(look)
        looks = open_
    return weights


@dataclass(frozen=True, eq=False)
class _Look:
    """One unit along rays inside cells of all others.

    Attributes
    ----------
    unit : int
    weights : ndarray of shape (D,)
        As known at first; nodes are at pre-activations of these.
    bias : float
    points : ndarray of shape (n, D)
        On the unit's hyperplane as known at first.
    rays : ndarray of shape (n, D)
        From the hyperplane's point nearest to the centre, the unit vectors towards the points.
    reach : float
    """

    unit: int
    weights: np.ndarray
    bias: float
    points: np.ndarray
    rays: np.ndarray
    reach: float

    def near(self):
        """Two nodes, and beside each of them two more for the slope: (n, 6, D)."""
        t = np.concatenate([_NODES, _NODES + _STEP, _NODES - _STEP])
        return self.points[:, None] + t[:, None] * (self.weights / (self.weights @ self.weights))

    def far(self, weights):
        """The nodes at the other end, on the hyperplane of the weights as known by now: (n, 2, D)."""
        w = weights[:, self.unit]
        base = -self.bias * w / (w @ w)
        rays = self.rays - (self.rays @ w)[:, None] * w / (w @ w)
        return (base + self.reach * rays)[:, None] + _NODES[:, None] * (w / (w @ w))

    def error(self, weights, F, there, G):
        """What the weights lack, from answers F (n, 6, m_L) at the near nodes and G (n, 2, m_L) at the far ones."""
        w = weights[:, self.unit]
        slopes = (F[:, 2:4] - F[:, 4:6]) / (2.0 * _STEP)
        here = self.near()[:, :2]
        steepness = np.sum(slopes**2, axis=2)
        seen = steepness > 1e-6 * steepness.max()
        with np.errstate(invalid="ignore", divide="ignore"):
            delta = np.sum(slopes * (G - F[:, :2]), axis=2) / steepness
        lacking = delta - (there - here) @ w  # of the pre-activation's change, what the weights do not explain
        along = there - here - ((there - here) @ w)[..., None] * w / (w @ w)  # lengths do not show here
        scale = np.sqrt(steepness[seen])
        return np.linalg.lstsq(along[seen] * scale[:, None], lacking[seen] * scale, rcond=1e-9)[0]


def _look(first, unit, activation, oracle, rng):
    """Where to look at one unit."""
    reach, w, bias = min(_FAR, 0.5 * oracle.reach), first.weights[:, unit], first.biases[unit]
    margin, n_rays = _SURELY * SATURATED[activation], len(w) + _RAYS_MORE
    base, rays, starts = rays_of_one_unit(
        first.weights, first.biases, unit, n_rays, rng, margin=margin, farthest=_BEGINS * reach
    )
    return _Look(unit, w, bias, base + starts[:, None] * rays, rays, reach)


def _ask_parts(oracle, blocks):
    """Answers at blocks of points (n_i, q, D), all asked at once."""
    asked = query_block(oracle, np.concatenate(blocks))
    return np.split(asked, np.cumsum([len(block) for block in blocks])[:-1])
