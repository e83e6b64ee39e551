"""Two hidden layers whose first is wider than the input, from the directions of the outputs' jumps."""

import numpy as np

from skident.linalg import lapack
from skident.oracle import NotIdentified

from ...constants import EQUAL_JUMP, NEAR_SHARE, POSITION_TOL, READOUT_RADII, SAME_JUMP, SAME_NORMAL
from .first_layer import random_line
from .lines_across import line_across_missing
from .rare_units import rare_units
from .second_layer_signs import determined, second_layer_signs
from .shared_jacobians import STAGE, good, normals_on_line
from .unit_equations import (
    SPARE_EQUATIONS,
    SecondLayerUnit,
    determined_weights,
    null_vector,
    rows_by_outputs,
    rows_by_sizes,
)
from .unseen_weights import UnseenWeights

_SHORT = 1.0  # half length of a line near a critical point
_TURN = 0.5  # random part of a line's direction beside the gradient
_SIGN_LINES = 12  # after which there is no second layer if not one of its units is determined
_MOST_LINES = 60  # (budget)
_FIRST_FROM_LINES = 12  # that may show units of the first layer which the first lines have missed (budget)
_SAME_OFFSET = 1e-2  # difference of the offsets of one hyperplane, over the unit length of the lines
_PLANE_HITS = 2  # further lines that a hyperplane of the first layer meets where it is predicted
_HIT_SHARE = 0.6  # of the lines, besides: facets of deeper units meet few, other critical points hide one
_LEAST_POINTS = 3  # critical points of a unit of the second layer, unless its normals determine more than its weights
_FEW_UNSEEN = 10  # weights of a unit that short lines measure: further long lines determine more at once
_HINTED_LINES = 8  # before which critical points that no unit explains are taken for units
_SPOILED = 0.03  # residual of a unit's equations over their lengths, from which weights are wrong: mostly 1e-3 or less
_WEAK = 1e-6  # singular value over the largest, below which equations leave weights as they are
_OVERDETERMINED = 2.0  # equations per sign of the first layer
_SIGN_STEPS = 8  # of reweighted least squares
_INLIER = 1e-7  # relative residual of the signs' equations beyond which they count less
_SAMPLES_FOR_SIGNS = 8  # of the second layer, at which outputs show its signs
_MORE_SAMPLES = 40  # beside these


class WideLayers:
    """The first two layers from critical points of random lines; several outputs, any widths.

    Jumps of the outputs at a unit of the last hidden layer have the same direction everywhere: the critical points
    with one direction belong to one unit. Its pre-activation is ``a . |z| + p . x + q`` with the pre-activations z of
    the first layer, whose signs are unknown. Each of its critical points and normals gives linear equations of a, p
    and q. Then ``p = W_1 (s * a)`` for all units determines the signs s of the first layer.
    """

    def __init__(self, space, lines, rng):
        self.space, self.lines, self.rng = space, list(lines), rng
        self.n_done, self.first, self.short_lines, self.samples = 0, None, [], None
        self.across, self.n_crossed, self.completed = None, 0, []
        self.determined, self.undetermined, self.hints = [], [], []

    def extend(self, through=None):
        """Scan a further line, through a given point (D,) or near an undetermined unit; False if there are enough."""
        if self.n_done >= (_MOST_LINES if self.determined else _SIGN_LINES):
            return False
        if self.n_done == len(self.lines):
            direction, reach = None, np.inf
            if through is not None and self.across is not None:
                (through, direction), self.across = self.across, None
            elif (self.undetermined or self.hints) and self.n_done % (3 if through is None else 2):
                through, direction, reach = self._near_undetermined()
            self.lines.append(random_line(self.space, self.rng, self.space.n_coordinates, through, direction, reach))
        line = self.lines[self.n_done]
        if self.first is not None:
            self._insert_known(line)
        if np.any(np.isnan(line.normals)):
            normals_on_line(self.space, line, self.rng)
        self.n_done += 1
        return True

    @property
    def jacobians(self):
        """All Jacobians that lines have measured."""
        return [one for line in [*self.lines[: self.n_done], *self.short_lines] for one in line.jacobians]

    @property
    def open_points(self):
        """Critical points (n, D) of units that are not determined: of rare ones, or errors."""
        return np.concatenate(
            [np.empty((0, self.space.n_coordinates))] + [unit.points for unit, *_ in self.undetermined + self.hints]
        )

    def _near_undetermined(self):
        """A point near a critical point of a unit that is not determined, a direction or None, and the line's reach.

        If a weight is unknown because its first-layer unit was inactive at all points, that unit is active on all
        of the line, which points along the gradient.
        """
        (W, b), rng = self.first, self.rng
        targets = self.undetermined or self.hints
        unit, v, unseen = targets[rng.randint(len(targets))]
        point = unit.points[rng.randint(len(unit.points))]
        size = NEAR_SHARE * (self.space.unit + np.linalg.norm(point)) / np.sqrt(len(point))
        if v is None:
            reach = _SHORT * size * np.sqrt(len(point))
            return point + size * rng.standard_normal(len(point)), self._normal_near(unit, point), reach
        i = rng.choice(np.flatnonzero(unseen))
        point = point + (size * rng.uniform() - point @ W[:, i] - b[i]) * W[:, i]
        gradient = (W * (point @ W + b > 0.0)) @ v[:-1]
        noise = rng.standard_normal(len(point)) / np.sqrt(len(point))
        direction = gradient / np.linalg.norm(gradient) + _TURN * noise
        return point, direction - (direction @ W[:, i]) * W[:, i], np.inf

    def _normal_near(self, unit, point):
        """A direction near a known normal of a unit, or None."""
        if len(unit.normals) == 0:
            return None
        noise = self.rng.standard_normal(len(point)) / np.sqrt(len(point))
        return unit.normals[self.rng.randint(len(unit.normals))] + _TURN * noise

    def _insert_known(self, line):
        """Set the normals of a line that are known: those of undetermined units are left to be measured."""
        W, b = self.first
        which = self._nearest(line, W.T / np.linalg.norm(W, axis=0)[:, None], b / np.linalg.norm(W, axis=0))
        known = {int(i): W[:, j] for j, i in enumerate(which) if i >= 0}
        for v, unit in self.determined:
            for i in np.flatnonzero(line.units @ unit.direction > 1.0 - SAME_JUMP):
                known.setdefault(int(i), (W * (line.points[i] @ W + b > 0.0)) @ v[:-1])
        for i, normal in known.items():
            line.normals[i], line.residuals[i] = normal * line.sizes[i] / (normal @ line.direction), 0.0

    def solved(self):
        """W_1 (D, m_1), b_1, and weights (m_1, m_2), biases and outgoing weights (m_2, m_L) of the second layer.

        Raises `NotIdentified` while lines are too few.
        """
        if self.first is None or self.n_done <= _FIRST_FROM_LINES:
            self._find_first()
        W, b = self.first
        solved, hints = self._second_layer()
        for unit, v, unseen in solved:
            few = unseen.sum() <= _FEW_UNSEEN or self.n_done >= _HINTED_LINES
            if v is not None and unseen.any() and few:
                weights = UnseenWeights(self.space, self.first, unit, v, unseen, self.rng)
                weights.measure(SAME_JUMP)
                self.short_lines += weights.lines
                self.completed += [] if weights.unseen.any() else [(unit.direction, weights.v)]
        solved, hints = self._second_layer()
        self.hints = [(unit, None, None) for unit in hints]
        self.determined = [(v, unit) for unit, v, unseen in solved if v is not None and not unseen.any()]
        self.undetermined = [one for one in solved if one[1] is None or one[2].any()]
        # Critical points that no unit explains may be errors: if units are missing, outputs are not explained.
        early = self.n_done < _HINTED_LINES and self.hints
        if not self.determined or early or any(v is not None for _, v, _ in self.undetermined):
            raise NotIdentified(STAGE, "layers", "some units of the second layer are not determined.")
        V = np.array([v for v, _ in self.determined]).T
        U = np.array([unit.size(W, b, v[:-1]) * unit.direction for v, unit in self.determined])
        return W, b, self._with_signs(W, b, V[:-1], V[-1], U)

    def _find_first(self):
        """Determine the first layer, or replace it if further lines show more of its units."""
        normals, offsets = self._hyperplanes()
        if self.first is not None and len(offsets) <= len(self.first[1]):
            return
        units = [unit for unit in self._units(normals, offsets) if len(unit.points) >= _LEAST_POINTS]
        signs = _signs(normals, offsets, units)
        self.first, self.completed = ((normals * signs[:, None]).T, offsets * signs), []

    def _second_layer(self):
        """Units of the second layer, their weights, and which are unknown; and units with too few critical points."""
        W, b = self.first
        solved, few = [], []
        for unit in self._units(W.T, b):
            v, unseen, spare, unit = determined_weights(W, b, unit)
            if v is None or unseen.any():
                v, unseen = self._completed(unit, v, unseen)
            if len(unit.points) >= _LEAST_POINTS or (v is not None and spare >= SPARE_EQUATIONS):
                solved.append((unit, v, unseen))
            else:
                few.append(unit)
        return solved, few

    def _completed(self, unit, v, unseen):
        """Weights of a unit that short lines have determined one by one, corrected by all of its critical points."""
        same = [direction @ unit.direction > 1.0 - SAME_JUMP for direction, _ in self.completed]
        if not any(same):
            return v, unseen
        rows, w = rows_by_outputs(*self.first, unit), self.completed[np.flatnonzero(same)[-1]][1]
        left = rows @ w
        if np.any(np.abs(left) > _SPOILED * np.linalg.norm(rows, axis=1)):  # critical points since then: measure again
            self.completed = [one for one, drop in zip(self.completed, same, strict=True) if not drop]
            return v, unseen
        v = w - lapack.lstsq(rows, left, rcond=_WEAK)[0]
        return v / np.linalg.norm(v), np.zeros(len(v), dtype=bool)

    def _hyperplanes(self):
        """Unit normals (m_1, D) and offsets of the hyperplanes that enough lines meet where they are predicted."""
        lines = self.lines[: self.n_done]
        rows = [(line, i) for line in lines for i in np.flatnonzero(good(line))]
        if not rows:
            raise NotIdentified(STAGE, "layers", "no normal was measured.")
        N = np.array([line.normals[i] for line, i in rows])
        P = np.array([line.origin + line.positions[i] * line.direction for line, i in rows])
        U = np.array([line.jumps[i] / np.linalg.norm(line.jumps[i]) for line, i in rows])
        errors = np.array([line.errors[i] for line, i in rows]) * np.maximum(
            1.0, np.linalg.norm(P, axis=1) / self.space.unit
        )
        N /= np.linalg.norm(N, axis=1, keepdims=True)
        offsets = -np.sum(N * P, axis=1)
        hits = np.zeros(len(N), dtype=int)
        for line in lines:
            which = self._nearest(line, N, offsets)
            same = np.sum(U * line.units[which], axis=1) > 1.0 - EQUAL_JUMP
            hits += (which >= 0) & ~same
        kept = []
        for i in np.argsort(errors):
            if hits[i] < max(_PLANE_HITS, _HIT_SHARE * (len(lines) - 1)):
                continue
            cosines = N[kept] @ N[i]
            near = np.abs(offsets[kept] - np.sign(cosines) * offsets[i]) < _SAME_OFFSET * self.space.unit
            if not np.any(near & (np.abs(cosines) > 1.0 - SAME_NORMAL)):
                kept.append(i)
        if not kept:
            raise NotIdentified(STAGE, "layers", "no hyperplane of a first layer was confirmed.")
        return N[kept], offsets[kept]

    def _nearest(self, line, normals, offsets):
        """Critical point (q,) of a line on each hyperplane, -1 for none."""
        if len(line.positions) == 0:
            return np.full(len(offsets), -1)
        t = self._crossings(line, normals, offsets)
        which = np.minimum(np.searchsorted(line.positions, t), len(line.positions) - 1)
        before = np.maximum(which - 1, 0)
        which = np.where(np.abs(line.positions[before] - t) < np.abs(line.positions[which] - t), before, which)
        gap = np.abs(line.positions[which] - t)
        return np.where(gap < POSITION_TOL * (self.space.unit + np.abs(t)), which, -1)

    def _off_hyperplanes(self, line, normals, offsets):
        """Indices of the critical points of a line on no hyperplane; two may lie on one because of errors."""
        t = np.sort(self._crossings(line, normals, offsets))
        right = np.clip(np.searchsorted(t, line.positions), 1, len(t) - 1)
        gap = np.minimum(np.abs(line.positions - t[right - 1]), np.abs(line.positions - t[right]))
        return np.flatnonzero(gap >= POSITION_TOL * (self.space.unit + np.abs(line.positions)))

    def _crossings(self, line, normals, offsets):
        """Positions (q,) at which a line crosses hyperplanes."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.nan_to_num(-(offsets + normals @ line.origin) / (normals @ line.direction))

    def _units(self, normals, offsets):
        """The `SecondLayerUnit` of each direction of jumps off the hyperplanes."""
        points, jumps, found, along = [], [], [], []
        for line in [*self.lines[: self.n_done], *self.short_lines]:
            rest = self._off_hyperplanes(line, normals, offsets)
            points.append(line.points[rest])
            jumps.append(line.units[rest])
            found.append(np.where(good(line)[rest, None], line.normals[rest], np.nan))
            along.append(line.direction / line.sizes[rest, None])
        P, U, N, T = (np.concatenate(parts) for parts in (points, jumps, found, along))
        units, left = [], np.ones(len(U), dtype=bool)
        for i in range(len(U)):
            if not left[i]:
                continue
            same = left & (U @ U[i] > 1.0 - SAME_JUMP)
            left &= ~same
            direction = U[same].mean(axis=0)
            units.append(SecondLayerUnit(P[same], N[same], T[same], direction / np.linalg.norm(direction)))
        return units

    def _outputs(self, n):
        """At least n random points (k, D) near the center, and outputs (k, m_L) there; they are queried once."""
        known = 0 if self.samples is None else len(self.samples[0])
        if known < n:
            X = np.array(READOUT_RADII)[np.arange(n - known) % len(READOUT_RADII), None] * self.rng.standard_normal(
                (n - known, self.space.n_coordinates)
            )
            X = self.space.within_reach(X)
            more = X, self.space.query(X)
            self.samples = more if known == 0 else tuple(map(np.concatenate, zip(self.samples, more, strict=True)))
        return self.samples

    def _with_signs(self, W, b, V, c, U):
        """The second layer with signs s_j that explain outputs: ``1/2 sum_j u_j (|z_j| + s_j z_j)`` and constants."""
        X, Y = self._outputs(_SAMPLES_FOR_SIGNS * len(c) + _MORE_SAMPLES)
        H = np.maximum(X @ W + b, 0.0)
        Z = H @ V + c
        others = [unit.direction for unit, *_ in self.undetermined + self.hints]
        signs = second_layer_signs(Z, 2.0 * Y - np.abs(Z) @ U, U, np.array(others).reshape(-1, U.shape[1]))
        if not determined(signs):
            raise NotIdentified(STAGE, "signs", "outputs do not determine the signs of the second layer.")
        V, c = V * np.sign(signs), c * np.sign(signs)

        def left(X, Y):
            return Y - np.maximum(np.maximum(X @ W + b, 0.0) @ V + c, 0.0) @ U

        if self.n_crossed < len(c):  # once for each unit: the samples stay
            self.n_crossed, self.across = len(c), line_across_missing(W, b, X, left(X, Y), self.rng)
        more = rare_units((W, b), U, X, left(X, Y), lambda X: left(X, self.space.query(X)), self.rng)
        if more is None:
            return V, c, U
        return np.hstack([V, more[0]]), np.concatenate([c, more[1]]), np.concatenate([U, more[2]])


def _signs(normals, offsets, units):
    """Signs (m_1,) of the first layer: for each unit of the second, ``p = W_1 (s * a)``.

    Entries of a are unknown if a unit has the same sign at all points: equations along its weights are left out.
    """
    (m1, D), rows, right, n_equations = normals.shape, [], [], 0
    for unit in units:
        v, unseen = null_vector(rows_by_sizes(normals, offsets, unit))
        if v is None or unseen.sum() >= D:
            continue
        Q = lapack.qr(normals[unseen[:m1]].T)[0]
        A, y = v[:m1] * normals.T, v[m1 : m1 + D]
        size = np.linalg.norm(y)
        rows.append((A - Q @ (Q.T @ A)) / size)
        right.append((y - Q @ (Q.T @ y)) / size)
        n_equations += D - Q.shape[1]
    if n_equations < _OVERDETERMINED * m1:
        raise NotIdentified(STAGE, "signs", "too few units of a second layer are determined.")
    A, y, weights = np.array(rows), np.array(right), np.ones(len(rows))
    for _ in range(_SIGN_STEPS):
        s = lapack.lstsq((A * weights[:, None, None]).reshape(-1, m1), (y * weights[:, None]).ravel())[0]
        weights = 1.0 / np.maximum(np.linalg.norm(A @ s - y, axis=1) / _INLIER, 1.0)
    if not determined(s):
        raise NotIdentified(STAGE, "signs", "the signs of the first layer are not determined.")
    return np.sign(s)
