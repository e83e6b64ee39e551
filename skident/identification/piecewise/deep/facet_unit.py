"""One unit of the next layer: linear equations for it, and the regions on which they determine it."""

from __future__ import annotations

import numpy as np

from skident.budget import check_deadline, chunks
from skident.budget.constants import CHUNK_COPIES
from skident.linalg import lapack, svd

from ...constants import INDEPENDENT, LAYER_ERRORS, LINE_REACH, NO_GRADIENT, NORMAL_RANK_TOL, RESIDUAL_PER_ERROR

__all__ = ["CONTRADICTION", "SAME_DIRECTION", "FacetUnit", "intersection"]

CONTRADICTION = 1e-5  # residual of an equation that no unit of this layer leaves: 100 errors on noisy outputs
SAME_DIRECTION = 1e-5  # sine of an angle below which directions of coefficients are one

_UNDETERMINED_TOL = 1e-6  # part of a feature in the null space above which the unit is not determined there
_UNDETERMINED_ERRORS = 300.0  # `_UNDETERMINED_TOL` in relative errors of the known layers
_CERTAIN_ERRORS = 100.0  # singular value, over the error, of a direction that noisy equations determine
_POSITION_SHARE = 0.03  # error of a critical point's position over that of its normal
_OUTLIER = 10.0  # errors by which no right equation is off
_EXACT = 1e-12  # error of the equations that weigh most
_LEAST_WEIGHT = 1e-4  # least weight relative to these
_SPARE_EQUATIONS = 1  # of a critical point, beyond the unknowns, that confirm whose it is
_ASSIGN_TOL = 1e-6  # residual up to which a critical point is assigned
_LEAST_SIZE = 1e-6  # norm of the unit's gradient at a point that is assigned, over that at the first one
_ASSIGN_ERRORS = 30.0  # `INDEPENDENT` in errors of its normal

# Predicting points of the boundary on random lines.
_SPREADS = (0.5, 1.0, 2.0, 3.0)  # of the lines' origins around the center, in standard deviations of the inputs
_NEAR_SPREADS = (0.1, 0.3, 1.0)  # `_SPREADS` around points of the boundary
_FIRST_LINES = 12  # lines at a time at first
_N_GRID = 80  # points of a line at which the unit's sign is evaluated
_LEAST_GRADIENT = 1e-6  # norm over that of the coefficients below which the unit is constant on a region
_OFF_BOUNDARIES = 1e-5  # distance that predicted points keep from known boundaries
_N_SECANTS = 40  # steps to a zero
_ZERO = 4e-16  # value over |phi| |coef| that is zero: two roundings

_NEAR_POINTS = 400  # predicted points among which those nearest to undetermined boundaries are chosen
_NEAR_LINES = 800  # on which they are predicted
_PER_BOUNDARY = 4  # of them per boundary


class FacetUnit:
    """A unit ``z(x) = phi(x) . coef``, known up to a factor wherever ``phi(x)`` is orthogonal to the null space.

    A critical point (D,) with its normal (D,) gives ``D + 1`` linear equations; every crossing of a known boundary
    gives one more. Attributes: `coef` (T,), of least norm; `null_basis` (T, k), orthonormal directions in which it is
    undetermined; `cov_root` (T, r), a root of its covariance where it is determined, 0 on exact outputs; `residual`,
    largest relative one of an equation, or 1e-7 times the errors of a noisy one; `starts` (s, D), points of the
    boundary, and `located` those that the outputs confirmed; `hit_rate`, share of predicted points that the outputs
    confirm; `confirmed`, whether it is known not to be of a deeper layer.
    """

    def __init__(self, known, point, normal, basis=None, normal_error=0.0):
        """With a `basis` (T, q), ``coef = basis w``: the signs of layer l leave ``q = m_l + 1`` unknowns."""
        self.known, self.point, self.normal, self.basis = known, point, normal, basis
        Z, phi = known.evaluate(point[None])
        self.equations = np.vstack([known.feature_gradients(Z > 0)[0].T, phi])
        self.targets = np.append(normal, 0.0)
        self.normal_error = normal_error
        self.target_errors = normal_error * np.append(np.ones(len(normal)), _POSITION_SHARE)
        self.starts, self.located, self.hit_rate, self.confirmed = point[None], point[None], 0.0, False
        self.cov_root = np.zeros((known.n_features, 1))
        self._solve()

    def _solve(self):
        norms = np.maximum(np.linalg.norm(self.equations, axis=1), np.finfo(float).tiny)
        A, y, error = self.equations / norms[:, None], self.targets / norms, self.target_errors / norms
        if self.known.accuracy:
            error = error + LAYER_ERRORS * self.known.accuracy
            A, y, weight, least = A / error[:, None], y / error, None, _CERTAIN_ERRORS
            self.cov_root = _covariance_root(A if self.basis is None else A @ self.basis, self.basis, least)
        else:
            weight, least = _EXACT / np.clip(error, _EXACT, _EXACT / _LEAST_WEIGHT), None
        if self.basis is None:
            self.coef, self.null_basis = _least_norm(A, y, least, weight)
        else:
            w, left = _least_norm(A @ self.basis, y, least, weight)
            self.coef = self.basis @ w
            self.null_basis = lapack.qr(self.basis @ left)[0] if left.shape[1] else np.zeros((len(self.coef), 0))
        scale = RESIDUAL_PER_ERROR if self.known.accuracy else 1.0
        self.residual = float(np.abs(A @ self.coef - y).max()) * scale

    def add_equations(self, equations, targets, points, errors=None):
        """Add equations (k, T) with targets (k,), exact unless errors (k,) are given, and confirmed points (s, D)."""
        self.target_errors = np.append(self.target_errors, np.zeros(len(equations)) if errors is None else errors)
        self.equations, self.targets = np.vstack([self.equations, equations]), np.concatenate([self.targets, targets])
        self.starts, self.located = np.vstack([self.starts, points]), np.vstack([self.located, points])
        self._solve()

    def add_points(self, points, errors):
        """Add points (n, D) of the boundary, with errors (n,) across it; those with infinite errors are left out."""
        there = np.isfinite(errors)
        points, errors = points[there], errors[there]
        Z, phi = self.known.evaluate(points)
        slopes = np.linalg.norm(self.known.gradients(Z > 0, self.coef), axis=1)
        self.add_equations(phi, np.zeros(len(phi)), points, errors * np.maximum(slopes, 1.0))

    def keep_consistent(self, coef):
        """Drop the equations that coefficients (T,) contradict, except the first critical point's."""
        error = self.target_errors + LAYER_ERRORS * self.known.accuracy * np.linalg.norm(self.equations, axis=1)
        kept = np.abs(self.equations @ coef - self.targets) < _OUTLIER * error
        kept[: len(self.normal) + 1] = True
        self.coef, self.equations = coef, self.equations[kept]
        self.targets, self.target_errors = self.targets[kept], self.target_errors[kept]

    def assign(self, point, normal, error):
        """Add a critical point (D,) with its normal, if it is this unit's where that is undetermined; whether it is.

        The point must give more equations than there are unknowns; `error` is that of the normal.
        """
        Z, phi = self.known.evaluate(point[None])
        equations = np.vstack([self.known.feature_gradients(Z > 0)[0].T, phi / np.linalg.norm(point)])
        new, target = equations @ self.null_basis, -equations @ self.coef
        if np.linalg.norm(new) < self.tolerance * np.linalg.norm(equations):
            return False
        A = np.column_stack([new, -np.append(normal, 0.0)])
        x, _, rank, _ = lapack.lstsq(A, target, rcond=NORMAL_RANK_TOL)
        size = abs(x[-1])
        residual, slack = np.abs(A @ x - target).max(), _ASSIGN_ERRORS * max(error, self.known.accuracy)
        # Gradients are combinations of those of the active units before: no more equations than these.
        n_equations = lapack.matrix_rank(equations if self.basis is None else equations @ self.basis, rtol=INDEPENDENT)
        if rank + _SPARE_EQUATIONS > n_equations or size < _LEAST_SIZE or residual > max(_ASSIGN_TOL, slack) * size:
            return False
        errors = size * error * np.append(np.ones(len(normal)), _POSITION_SHARE)
        self.add_equations(equations, np.append(size * np.sign(x[-1]) * normal, 0.0), point[None], errors)
        return True

    def with_basis(self, basis):
        """A unit with the same equations for the unknowns of a basis (T, q)."""
        unit = FacetUnit(self.known, self.point, self.normal, basis, self.normal_error)
        k = len(unit.equations)
        unit.add_equations(self.equations[k:], self.targets[k:], self.located[1:], self.target_errors[k:])
        unit.starts = self.starts
        return unit

    def joined(self, other):
        """A unit with the equations of both."""
        unit = self.with_basis(self.basis)
        D, n = len(other.normal), other.normal
        # The norm of the other's coefficients is unknown: its normal only excludes a gradient along the facet.
        along = svd(n[None])[2][1:]
        equations = np.vstack([along @ other.equations[:D], other.equations[D:]])
        errors = np.append(other.target_errors[: D - 1], other.target_errors[D:])
        unit.add_equations(equations, np.zeros(len(equations)), other.located, errors)
        unit.starts = np.vstack([self.starts, other.starts])
        return unit

    @property
    def tolerance(self):
        """Part of a feature in the null space above which the unit is not determined there."""
        return max(_UNDETERMINED_TOL, _UNDETERMINED_ERRORS * self.known.accuracy)

    @property
    def nullity(self):
        """Dimension of the null space: how many directions of the coefficients are undetermined."""
        return self.null_basis.shape[1]

    def is_determined(self, phi):
        """Whether the unit is determined at points with features (n, T): a mask (n,)."""
        if self.nullity == 0:
            return np.ones(len(phi), dtype=bool)
        return np.abs(phi @ self.null_basis).max(axis=1) < self.tolerance * np.linalg.norm(phi, axis=1)

    def contains(self, X):
        """Which points (n, D) are on the unit's boundary, where it is determined: a mask (n,)."""
        if len(X) == 0:
            return np.zeros(0, dtype=bool)
        Z, phi = self.known.evaluate(X)
        slope = np.linalg.norm(self.known.gradients(Z > 0, self.coef), axis=1)
        near = np.abs(phi @ self.coef) < self.tolerance * (1.0 + np.linalg.norm(X, axis=1)) * slope
        return near & self.is_determined(phi)

    @property
    def position_error(self):
        """Usual error of the positions of its critical points on noisy outputs; 0 on exact ones."""
        if not self.known.accuracy:
            return 0.0
        located = self.target_errors[len(self.normal) + 1 :]
        return float(np.median(located)) if len(located) else float(self.target_errors[len(self.normal)])

    def errors_at(self, X):
        """Errors (n,) of the boundary's position near points (n, D), and relative ones (n,) of the gradient there."""
        if not self.known.accuracy:
            return np.zeros(len(X)), np.zeros(len(X))
        Z, phi = self.known.evaluate(X)
        size = np.linalg.norm(self.known.gradients(Z > 0, self.coef), axis=1).clip(np.finfo(float).tiny)
        slopes = np.empty(len(X))
        for i in chunks(len(X), CHUNK_COPIES * 8 * self.known.n_features * self.known.n_inputs):
            gradients = np.einsum("ntd,tr->ndr", self.known.feature_gradients(Z[i] > 0), self.cov_root)
            slopes[i] = np.linalg.norm(gradients, axis=(1, 2))
        return np.linalg.norm(phi @ self.cov_root, axis=1) / size, slopes / size

    def predicted_points(self, n, rng, *, n_lines=240):
        """Up to n points (k, D) of the boundary, and normals (k, D), spread over random lines where it is determined.

        None of them is on a boundary of the known layers.
        """
        known, D, points = self.known, self.known.n_inputs, np.zeros((0, self.known.n_inputs))
        n_done, batch = 0, max(_FIRST_LINES, n // 2)
        while n_done < n_lines and len(points) < n:
            check_deadline()
            batch = min(batch, n_lines - n_done)
            rare = n_done > n_lines // 4 and len(points) < n // 4
            origins = self._near_starts(batch, rng) if rare else _around_center(batch, D, rng)
            points = np.vstack([points, self._zeros_on_lines(origins, rng)])
            n_done, batch = n_done + batch, 2 * batch
        points = points[:n]
        if len(points) == 0:
            return points, points
        Z, phi = known.evaluate(points)
        normals, norms = known.gradients(Z > 0, self.coef), known.gradient_norms(Z > 0)
        size = np.linalg.norm(normals, axis=1)
        good = self.is_determined(phi) & (size > _LEAST_GRADIENT * np.linalg.norm(self.coef))
        good &= np.all((np.abs(Z) > _OFF_BOUNDARIES * norms) | (norms < NO_GRADIENT), axis=1)
        return points[good], normals[good] / size[good, None]

    def _near_starts(self, n, rng):
        """Points (n, D) near known ones of the boundary, for boundaries that random lines hardly meet."""
        near = self.starts[rng.randint(len(self.starts), size=n)]
        return near + rng.choice(_NEAR_SPREADS, (n, 1)) * rng.standard_normal((n, self.known.n_inputs))

    def _zeros_on_lines(self, origins, rng):
        """Points of the boundary on lines in random directions, two per line at most, in random order."""
        n_lines, D = origins.shape
        t = np.linspace(-LINE_REACH, LINE_REACH, _N_GRID) * np.sqrt(D)
        V = rng.standard_normal((n_lines, D))
        V /= np.linalg.norm(V, axis=1, keepdims=True)
        some = chunks(n_lines, CHUNK_COPIES * 8 * _N_GRID * (D + self.known.n_features))
        parts = [self._values((origins[i, None] + t[:, None] * V[i, None]).reshape(-1, D)) for i in some]
        z, there = (np.concatenate(part).reshape(n_lines, -1) for part in zip(*parts, strict=True))
        i, j = np.nonzero((z[:, 1:] * z[:, :-1] < 0) & there[:, 1:] & there[:, :-1])
        chosen = rng.permutation(len(i))[: 2 * n_lines]
        i, j = i[chosen], j[chosen]
        return self._zeros_between(origins[i], V[i], (t[j], t[j + 1]), (z[i, j], z[i, j + 1]))

    def _values(self, X):
        """The pre-activations (n,) at points, and where these are determined."""
        values, norms = self.known.combinations(X, np.column_stack([self.coef, self.null_basis]))
        return values[:, 0], np.abs(values[:, 1:]).max(axis=1, initial=0.0) < self.tolerance * norms

    def undetermined_boundaries(self):
        """Known units, by their indices among all, whose weight in this one is undetermined."""
        known, size = self.known, np.abs(self.null_basis).max(axis=1, initial=0.0) > self.tolerance
        units = np.flatnonzero(size[: known.n_units]) + known.first
        if not known.layers:
            return units
        return np.concatenate([units, np.flatnonzero(size[known.n_units : -1]) + known.first - known.n_before])

    def start_near_boundaries(self, rng):
        """Add to the starts points near every known boundary across which the unit is undetermined."""
        units, points = self.undetermined_boundaries(), self.predicted_points(_NEAR_POINTS, rng, n_lines=_NEAR_LINES)[0]
        if len(units) == 0 or len(points) == 0:
            return
        Z = self.known.evaluate(points)[0]
        nearest = np.argsort(self.known.distances(Z, Z > 0)[:, units], axis=0)[:_PER_BOUNDARY]
        self.starts = np.vstack([self.starts, points[np.unique(nearest)]])

    def _zeros_between(self, origins, directions, ends, values):
        """Zeros between two positions (n,) with different signs, by the Illinois secant method."""
        coef, t, size = self.coef[:, None], ends[0].copy(), np.linalg.norm(self.coef)
        ends, values, kept = np.stack(ends), np.stack(values), np.full(len(t), -1)
        todo = np.arange(len(t))
        for _ in range(_N_SECANTS):
            if len(todo) == 0:
                break
            (a, b), (za, zb) = ends[:, todo], values[:, todo]
            c = np.clip(b - zb * (b - a) / (zb - za), a, b)
            z, norms = self.known.combinations(origins[todo] + c[:, None] * directions[todo], coef)
            z, t[todo] = z[:, 0], c
            replaced = (z * za <= 0).astype(int)  # which end moves
            # An end that stays twice counts half.
            again = replaced == kept[todo]
            values[1 - replaced[again], todo[again]] *= 0.5
            ends[replaced, todo], values[replaced, todo], kept[todo] = c, z, replaced
            todo = todo[(np.abs(z) > _ZERO * norms * size) & (ends[1, todo] > ends[0, todo])]
        return origins + t[:, None] * directions


def intersection(one, other):
    """A unit that is both of two `FacetUnit`s, or None if they do not meet in more directions than by chance."""
    n_unknowns = len(one.coef) if one.basis is None else one.basis.shape[1]
    if one.known.accuracy:
        joint = one.joined(other)
        by_chance = max(0, one.nullity + other.nullity + 2 - n_unknowns)
        return joint if joint.residual < CONTRADICTION and joint.nullity + 1 > by_chance else None
    a, b = (lapack.qr(np.column_stack([unit.coef, unit.null_basis]))[0] for unit in (one, other))
    s = svd(b - a @ (a.T @ b), compute_uv=False)
    if np.sum(s < SAME_DIRECTION) <= max(0, a.shape[1] + b.shape[1] - n_unknowns):
        return None
    eye = np.eye(len(a))
    s, rows = svd(np.vstack([eye - a @ a.T, eye - b @ b.T]), full_matrices=False)[1:]
    rows = rows[s > SAME_DIRECTION]
    joint = FacetUnit(one.known, one.point, one.normal, one.basis)
    joint.add_equations(rows, np.zeros(len(rows)), np.vstack([one.located[1:], other.located]))
    joint.starts = np.vstack([one.starts, other.starts])
    return joint


def _least_norm(A, y, least=None, weight=None):
    """The least-squares solution of least norm, and an orthonormal basis of the null space.

    Singular values up to `least` count as 0, by default 1e-7 of the largest one. With a `weight` (n,), equations in
    excess of the unknowns are fulfilled by weight: the more exact ones decide.
    """
    U, s, Vt = svd(A, full_matrices=A.shape[0] < A.shape[1])
    k = int(np.sum(s > (NORMAL_RANK_TOL * s[0] if least is None else least)))
    x = Vt[:k].T @ ((U[:, :k].T @ y) / s[:k])
    if weight is not None and k < len(A):
        B = (A * weight[:, None]) @ Vt[:k].T
        # By QR with pivoting: divide and conquer does not always converge.
        rest = lapack.scipy_lstsq(B, weight * (y - A @ x), cond=1e-12, lapack_driver="gelsy")[0]
        x = x + Vt[:k].T @ rest
    return x, Vt[k:].T


def _covariance_root(A, basis, least):
    """A root (T, r) of the covariance of a least-squares solution, in the directions that are determined."""
    s, Vt = svd(A, full_matrices=False)[1:]
    root = Vt[s > least].T / s[s > least]
    return root if basis is None else basis @ root


def _around_center(n, D, rng):
    """Random points (n, D) around the center."""
    return rng.choice(_SPREADS, (n, 1)) * rng.standard_normal((n, D))
