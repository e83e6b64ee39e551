"""Hyperplanes of units: the direction in which two pencils of facets meet."""

from dataclasses import dataclass

import numpy as np

from skident.linalg import lapack, svd

from ...constants import APART

_MEET_TOL = 3e-8  # sine of the angle of two pencils up to which they meet; normals are accurate to 1e-9 or better
_ON_TOL = 1e-5  # distance of a bend from the hyperplane of its unit, relative to 1 + |x|
_RIDGE_TOL = 1e-6  # distance of a point from both planes of its pencil, relative to 1 + |x|
_SAME = 1e-5  # distance of two hyperplanes (unit normals) that count as one


@dataclass(frozen=True)
class Pencil:
    """Planes (2, D + 1) of two facets that meet at a bend, and the bend's position (D,)."""

    planes: np.ndarray
    bend: np.ndarray


class Units:
    """Hyperplanes (m, D + 1) with unit normals, and pencils that wait for a second one."""

    def __init__(self, n_features):
        self.hyperplanes, self.pending = np.zeros((0, n_features + 1)), []

    def has_ridge(self, x):
        """Whether x (D,) lies on both planes of a pencil that waits for a second one: the same bend again."""
        one, slack = np.append(x, 1.0), _RIDGE_TOL * (1.0 + np.linalg.norm(x))
        return any(np.abs(pencil.planes @ one).max() < slack for pencil in self.pending)

    def knows(self, w):
        """Whether hyperplane w (D + 1,) is known."""
        H = self.hyperplanes
        apart = np.minimum(np.abs(H - w).max(axis=1, initial=0.0), np.abs(H + w).max(axis=1, initial=0.0))
        return bool(np.any(apart < _SAME * np.abs(w).max()))

    def append(self, w):
        """Add a hyperplane w (D + 1,) with unit normal; its index."""
        self.hyperplanes = np.vstack([self.hyperplanes, w])
        self.pending = [p for p in self.pending if not _contains(p, w)]
        return len(self.hyperplanes) - 1

    def add(self, pencil):
        """Add a pencil; True if it meets an earlier one in a new hyperplane."""
        for other in self.pending:
            w = common_hyperplane(pencil, other)
            if w is not None and not self.knows(w):
                self.append(w)
                return True
        self.pending.append(pencil)
        return False


def _span(pencil):
    """Orthonormal basis (D + 1, 2)."""
    return lapack.qr(pencil.planes.T)[0]


def _contains(pencil, w):
    Q, v = _span(pencil), w / np.linalg.norm(w)
    return np.linalg.norm(v - Q @ (Q.T @ v)) < 100 * _MEET_TOL


def common_hyperplane(one, two):
    """The hyperplane (D + 1,), unit normal, in which two pencils meet; None unless it is a unit's."""
    P, Q = _span(one), _span(two)
    U, _, V = svd(P.T @ Q)
    sines = [np.linalg.norm(P @ U[:, k] - Q @ (Q.T @ (P @ U[:, k]))) for k in range(2)]
    if sines[0] > _MEET_TOL or sines[1] < APART:
        return None
    w = P @ U[:, 0] + Q @ V[0]
    if np.linalg.norm(w[:-1]) < APART * np.linalg.norm(w):
        return None
    w /= np.linalg.norm(w[:-1])
    on = [abs(w @ np.append(p.bend, 1.0)) < _ON_TOL * (1.0 + np.linalg.norm(p.bend)) for p in (one, two)]
    planes = np.vstack([one.planes, two.planes])
    cosines = np.abs(planes @ w) / (np.linalg.norm(planes, axis=1) * np.linalg.norm(w))
    return w if all(on) and np.all(1.0 - cosines**2 > APART**2) else None  # a common facet is no unit
