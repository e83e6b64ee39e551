"""One unit of the next layer: linear equations for it, and where they determine it."""

from __future__ import annotations

import numpy as np

from skident.budget import check_deadline, chunks

__all__ = ["FacetUnit"]

_RANK = 1e-7  # singular values below this, relative to the largest, are none
_OPEN = 1e-6  # part of a feature in what is open above which it is not determined
_TOLD = 100.0  # over its error, what noisy equations must tell of a direction that is determined
_KNOWN = 3.0  # accuracies of the known layers that every equation may be off by
_OF_POSITION = 0.03  # error of a kink's position beside that of its normal
_OUTLIER = 10.0  # errors by which no right equation is off
_PER_ERROR = 1e-7  # misfit that stands for an error of a noisy equation
_SPREADS, _SPREADS_NEAR = (0.5, 1.0, 2.0, 3.0), (0.1, 0.3, 1.0)  # of lines around the centre, and around a point
_EXACT, _LIGHTEST = 1e-12, 1e-4  # error of equations that weigh most, and the least weight beside them
_FIRST_LINES = 12  # on which kinks are predicted at a time at first
_SECANTS, _ZERO = 40, 4e-16  # steps to a zero, and what is one
_SVD = 20.0  # operations of a singular value decomposition, beside n m^2 (Golub and Van Loan, section 8.6)
_COPIES = 4  # of arrays of points or features in a chunk
_SPARE = 1  # equations of a kink beyond its unknowns that tell whose it is


class FacetUnit:
    """A unit ``z(x) = phi(x) . theta``, known up to a factor wherever ``phi(x)`` is orthogonal to what is open.

    A kink with its normal gives ``D + 1`` linear equations for theta; every crossing of a boundary gives one more.

    Parameters
    ----------
    known : KnownLayers
    point, normal : ndarray of shape (D,)
        The kink.
    basis : ndarray of shape (T, q), default=None
        ``theta = basis w``: with the signs of layer l, ``q = m_l + 1`` unknowns are left.
    error : float, default=0.0
        Of the normal; it counts where the known layers have an accuracy: equations are weighed by their errors then.

    Attributes
    ----------
    theta : ndarray of shape (T,)
        Of least norm.
    open : ndarray of shape (T, k)
        Orthonormal directions in which theta is not determined.
    scatter : ndarray of shape (T, r)
        A root of theta's covariance where it is determined; of exact probe 0.
    misfit : float
        Largest relative violation of an equation; of noisy equations 1e-7 for every error of it.
    starts : ndarray of shape (s, D)
        Points of the unit's kink.
    located : ndarray of shape (s, D)
        Those of them that the probe showed.
    share : float
        Of the predicted kinks, those that the probe show.
    vouched : bool
        Whether it was told from facets of deeper units.
    """

    def __init__(self, known, point, normal, basis=None, error=0.0):
        self.known, self.point, self.normal, self.basis = known, point, normal, basis
        Z, phi = known.evaluate(point[None])
        self.rows = np.vstack([known.feature_maps(Z > 0)[0].T, phi])
        self.values = np.append(normal, 0.0)
        self.error, self.errors = error, error * np.append(np.ones(len(normal)), _OF_POSITION)
        self.starts, self.located, self.share, self.vouched = point[None], point[None], 0.0, False
        self.scatter = np.zeros((known.n_features, 1))
        self._solve()

    def _solve(self):
        norms = np.maximum(np.linalg.norm(self.rows, axis=1), np.finfo(float).tiny)
        A, y, least = self.rows / norms[:, None], self.values / norms, None
        error = self.errors / norms
        if self.known.accuracy:
            error = error + _KNOWN * self.known.accuracy
            A, y, least = A / error[:, None], y / error, _TOLD
            self.scatter = _scatter(A if self.basis is None else A @ self.basis, self.basis, least)
        weight = None if self.known.accuracy else _EXACT / np.clip(error, _EXACT, _EXACT / _LIGHTEST)
        if self.basis is None:
            self.theta, self.open = _least_norm(A, y, least, weight)
        else:
            w, left = _least_norm(A @ self.basis, y, least, weight)
            self.theta = self.basis @ w
            self.open = np.linalg.qr(self.basis @ left)[0] if left.shape[1] else left[:0].reshape(len(self.theta), 0)
        self.misfit = float(np.abs(A @ self.theta - y).max()) * (1.0 if least is None else _PER_ERROR)

    def learn(self, rows, values, starts, errors=None):
        """Take up more equations.

        Parameters
        ----------
        rows : ndarray of shape (k, T)
        values : ndarray of shape (k,)
        starts : ndarray of shape (s, D)
            More points of the unit's kink, as the probe show them.
        errors : ndarray of shape (k,), default=None
            Of the values; 0 by default.
        """
        self.errors = np.append(self.errors, np.zeros(len(rows)) if errors is None else errors)
        self.rows, self.values = np.vstack([self.rows, rows]), np.concatenate([self.values, values])
        self.starts, self.located = np.vstack([self.starts, starts]), np.vstack([self.located, starts])
        self._solve()

    def forget(self, theta):
        """Leave out equations that a theta contradicts; `learn` solves the others.

        Parameters
        ----------
        theta : ndarray of shape (T,)
        """
        error = self.errors + _KNOWN * self.known.accuracy * np.linalg.norm(self.rows, axis=1)
        kept = np.abs(self.rows @ theta - self.values) < _OUTLIER * error
        kept[: len(self.normal) + 1] = True
        self.theta, self.rows, self.values, self.errors = theta, self.rows[kept], self.values[kept], self.errors[kept]

    def adopt(self, point, normal, error):
        """Take up another kink if it is this unit's where that is not determined; it has more equations than unknowns.

        Parameters
        ----------
        point, normal : ndarray of shape (D,)
        error : float
            Accuracy of the normal.

        Returns
        -------
        bool
            Whether something was learnt.
        """
        Z, phi = self.known.evaluate(point[None])
        rows = np.vstack([self.known.feature_maps(Z > 0)[0].T, phi / np.linalg.norm(point)])
        new, target = rows @ self.open, -rows @ self.theta
        if np.linalg.norm(new) < self.tolerance * np.linalg.norm(rows):
            return False
        A = np.column_stack([new, -np.append(normal, 0.0)])
        x, _, rank, _ = np.linalg.lstsq(A, target, rcond=_RANK)
        size = abs(x[-1])
        misfit, slack = np.abs(A @ x - target).max(), 30.0 * max(error, self.known.accuracy)
        # Gradients are combinations of those of the active units before: no more equations than these.
        n_equations = np.linalg.matrix_rank(rows if self.basis is None else rows @ self.basis, rtol=1e-9)
        if rank + _SPARE > n_equations or size < 1e-6 or misfit > max(1e-6, slack) * size:
            return False
        errors = size * error * np.append(np.ones(len(normal)), _OF_POSITION)
        self.learn(rows, np.append(size * np.sign(x[-1]) * normal, 0.0), point[None], errors)
        return True

    def with_basis(self, basis):
        """The same equations for fewer unknowns.

        Parameters
        ----------
        basis : ndarray of shape (T, q)

        Returns
        -------
        FacetUnit
        """
        unit = FacetUnit(self.known, self.point, self.normal, basis, self.error)
        k = len(unit.rows)
        unit.learn(self.rows[k:], self.values[k:], self.located[1:], self.errors[k:])
        unit.starts = self.starts
        return unit

    def joined(self, other):
        """The equations of two units for a unit that is both.

        Parameters
        ----------
        other : FacetUnit

        Returns
        -------
        FacetUnit
        """
        unit = self.with_basis(self.basis)
        D, n = len(other.normal), other.normal
        # The length of the other's theta is unknown: of its normal only that the gradient has no part across.
        across = np.linalg.svd(n[None])[2][1:]
        rows = np.vstack([across @ other.rows[:D], other.rows[D:]])
        errors = np.append(other.errors[: D - 1], other.errors[D:])
        unit.learn(rows, np.zeros(len(rows)), other.located, errors)
        unit.starts = np.vstack([self.starts, other.starts])
        return unit

    @property
    def tolerance(self):
        """Part of a feature in what is open above which it is not determined."""
        return max(_OPEN, 300.0 * self.known.accuracy)

    @property
    def n_open(self):
        """How many directions of theta are not determined."""
        return self.open.shape[1]

    def determined(self, phi):
        """Where the unit is known.

        Parameters
        ----------
        phi : ndarray of shape (n, T)

        Returns
        -------
        ndarray of bool, shape (n,)
        """
        if self.n_open == 0:
            return np.ones(len(phi), dtype=bool)
        return np.abs(phi @ self.open).max(axis=1) < self.tolerance * np.linalg.norm(phi, axis=1)

    def passes(self, X, tol=1e-6):
        """Which points lie on the unit's kink, where that is known.

        Parameters
        ----------
        X : ndarray of shape (n, D)
        tol : float or ndarray of shape (n,), default=1e-6
            Distance, relative to ``1 + |x|``.

        Returns
        -------
        ndarray of bool, shape (n,)
        """
        if len(X) == 0:
            return np.zeros(0, dtype=bool)
        Z, phi = self.known.evaluate(X)
        slope = np.linalg.norm(self.known.gradients(Z > 0, self.theta), axis=1)
        tol = np.maximum(tol, 300.0 * self.known.accuracy)
        near = np.abs(phi @ self.theta) < tol * (1.0 + np.linalg.norm(X, axis=1)) * slope
        return near & self.determined(phi)

    @property
    def faintness(self):
        """How uncertain positions of its kinks mostly are on noisy probe; 0 on exact ones."""
        if not self.known.accuracy:
            return 0.0
        seen = self.errors[len(self.normal) + 1 :]
        return float(np.median(seen)) if len(seen) else float(self.errors[len(self.normal)])

    def errors_at(self, X):
        """How uncertain the unit is at points, relative to its slope there.

        Parameters
        ----------
        X : ndarray of shape (n, D)

        Returns
        -------
        positions : ndarray of shape (n,)
            Error of its kink's position.
        slopes : ndarray of shape (n,)
            Relative error of its gradient.
        """
        if not self.known.accuracy:
            return np.zeros(len(X)), np.zeros(len(X))
        Z, phi = self.known.evaluate(X)
        size, slopes = np.linalg.norm(self.known.gradients(Z > 0, self.theta), axis=1).clip(1e-300), np.empty(len(X))
        for i in chunks(len(X), _COPIES * 8 * self.known.n_features * self.known.n_inputs):
            maps = np.einsum("ntd,tr->ndr", self.known.feature_maps(Z[i] > 0), self.scatter)
            slopes[i] = np.linalg.norm(maps, axis=(1, 2))
        return np.linalg.norm(phi @ self.scatter, axis=1) / size, slopes / size

    def predicted_kinks(self, n, rng, *, reach=4.0, n_lines=240, n_grid=80):
        """Points of the kink spread over random lines, where the unit is known, and normals there.

        Parameters
        ----------
        n : int
            Points at most.
        rng : numpy.random.RandomState
        reach : float, default=4.0
            Half length of the lines in units of ``sqrt(D)``.
        n_lines : int, default=240
            Lines at most.
        n_grid : int, default=80
            Points of a line at which the unit's sign is looked at.

        Returns
        -------
        points, normals : ndarray of shape (k, D)
            None of them on a kink of the known layers.
        """
        known, D, points = self.known, self.known.n_inputs, np.zeros((0, self.known.n_inputs))
        looked, batch = 0, max(_FIRST_LINES, n // 2)
        while looked < n_lines and len(points) < n:
            check_deadline()
            batch = min(batch, n_lines - looked)
            rare = looked > n_lines // 4 and len(points) < n // 4
            origins = self._near_starts(batch, rng) if rare else _spread(batch, D, rng)
            points = np.vstack([points, self._zeros_on_lines(origins, reach, n_grid, rng)])
            looked, batch = looked + batch, 2 * batch
        points = points[:n]
        if len(points) == 0:
            return points, points
        Z, phi = known.evaluate(points)
        normals, lengths = known.gradients(Z > 0, self.theta), known.boundary_slopes(Z > 0)
        size = np.linalg.norm(normals, axis=1)
        good = self.determined(phi) & (size > 1e-6 * np.linalg.norm(self.theta))
        good &= np.all((np.abs(Z) > 1e-5 * lengths) | (lengths < 1e-9), axis=1)
        return points[good], normals[good] / size[good, None]

    def _near_starts(self, n, rng):
        """Points near those of the kink that are known, for kinks that random lines hardly meet."""
        near = self.starts[rng.randint(len(self.starts), size=n)]
        return near + rng.choice(_SPREADS_NEAR, (n, 1)) * rng.standard_normal((n, self.known.n_inputs))

    def _zeros_on_lines(self, origins, reach, n_grid, rng):
        """Points of the kink on lines in random directions, two a line at most, in random order."""
        n_lines, D = origins.shape
        t = np.linspace(-reach, reach, n_grid) * np.sqrt(D)
        V = rng.standard_normal((n_lines, D))
        V /= np.linalg.norm(V, axis=1, keepdims=True)
        some = chunks(n_lines, _COPIES * 8 * n_grid * (D + self.known.n_features))
        parts = [self._values((origins[i, None] + t[:, None] * V[i, None]).reshape(-1, D)) for i in some]
        z, there = (np.concatenate(part).reshape(n_lines, -1) for part in zip(*parts, strict=True))
        i, j = np.nonzero((z[:, 1:] * z[:, :-1] < 0) & there[:, 1:] & there[:, :-1])
        chosen = rng.permutation(len(i))[: 2 * n_lines]
        i, j = i[chosen], j[chosen]
        return self._zero_between(origins[i], V[i], t[j], t[j + 1], z[i, j], z[i, j + 1])

    def _values(self, X):
        """The unit at points, and where that is known."""
        values, norms = self.known.combinations(X, np.column_stack([self.theta, self.open]))
        return values[:, 0], np.abs(values[:, 1:]).max(axis=1, initial=0.0) < self.tolerance * norms

    def open_boundaries(self):
        """Known units whose weight in this one is not determined.

        Returns
        -------
        ndarray of int
            Among all known units.
        """
        known, size = self.known, np.abs(self.open).max(axis=1, initial=0.0) > self.tolerance
        aims = np.flatnonzero(size[: known.n_units]) + known.first
        if not known.layers:
            return aims
        return np.concatenate([aims, np.flatnonzero(size[known.n_units : -1]) + known.first - known.n_before])

    def start_near_boundaries(self, rng, n=4):
        """Take up points of the kink that are near boundaries across which it is not determined, to walk from there.

        Parameters
        ----------
        rng : numpy.random.RandomState
        n : int, default=4
            Points a boundary.
        """
        aims, points = self.open_boundaries(), self.predicted_kinks(400, rng, n_lines=800)[0]
        if len(aims) == 0 or len(points) == 0:
            return
        Z = self.known.evaluate(points)[0]
        lengths = self.known.boundary_slopes(Z > 0)
        gaps = np.where(lengths > 1e-9, np.abs(Z) / np.maximum(lengths, 1e-9), np.inf)[:, aims]
        nearest = np.argsort(gaps, axis=0)[:n]
        self.starts = np.vstack([self.starts, points[np.unique(nearest)]])

    def _zero_between(self, origins, directions, low, high, at_low, at_high):
        """Zeros on lines between two positions with different signs: secants, exact on the last straight stretch."""
        theta, t, todo, size = self.theta[:, None], low.copy(), np.arange(len(low)), np.linalg.norm(self.theta)
        ends, values, kept = np.stack([low, high]), np.stack([at_low, at_high]), np.full(len(low), -1)
        for _ in range(_SECANTS):
            if len(todo) == 0:
                break
            (a, b), (za, zb) = ends[:, todo], values[:, todo]
            c = np.clip(b - zb * (b - a) / (zb - za), a, b)
            z, norms = self.known.combinations(origins[todo] + c[:, None] * directions[todo], theta)
            z, t[todo] = z[:, 0], c
            side = (z * za <= 0).astype(int)  # which end gives way
            # An end that stays twice counts half.
            again = side == kept[todo]
            values[1 - side[again], todo[again]] *= 0.5
            ends[side, todo], values[side, todo], kept[todo] = c, z, side
            todo = todo[(np.abs(z) > _ZERO * norms * size) & (ends[1, todo] > ends[0, todo])]
        return origins + t[:, None] * directions


def _least_norm(A, y, least=None, weight=None):
    """Least-squares solution of least norm, and an orthonormal basis of what A leaves open."""
    check_deadline(_SVD * max(A.shape) * min(A.shape) ** 2)
    U, s, Vt = np.linalg.svd(A, full_matrices=A.shape[0] < A.shape[1])
    k = int(np.sum(s > (_RANK * s[0] if least is None else least)))
    x = Vt[:k].T @ ((U[:, :k].T @ y) / s[:k])
    if weight is not None and k < len(A):  # more equations than unknowns: the more exact ones decide
        B = (A * weight[:, None]) @ Vt[:k].T
        x = x + Vt[:k].T @ np.linalg.lstsq(B, weight * (y - A @ x), rcond=1e-12)[0]
    return x, Vt[k:].T


def _scatter(A, basis, least):
    """A root of the covariance of a least-squares solution, in the directions that are determined."""
    s, Vt = np.linalg.svd(A, full_matrices=False)[1:]
    root = Vt[s > least].T / s[s > least]
    return root if basis is None else basis @ root


def _spread(n, D, rng):
    """Random points around the centre."""
    return rng.choice(_SPREADS, (n, 1)) * rng.standard_normal((n, D))
