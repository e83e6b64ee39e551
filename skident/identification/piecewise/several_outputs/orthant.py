"""The second layer, from lines in the positive orthant of the first layer's outputs."""

from dataclasses import replace

import numpy as np

from skident.linalg import lapack, svd
from skident.oracle import NotIdentified

from .planes import PlaneSearch, measure_again
from .shared_jacobians import STAGE, Space, scanned

LEAST_VALUE = 1e-3  # least value of a unit in the positive orthant, over its deviation
_MAX_SECOND_LINES = 40  # in the positive orthant
_LAST_LINES = 6  # lines in a row without a new unit, after which the second layer is complete
_MOST_BOUNDARIES = 10  # on a line, per unit of the first layer (budget)
_MORE_BOUNDARIES = 1000  # beside these (budget)
_PER_UNIT = 2  # `_MORE_BOUNDARIES` per unit of the second layer, once several lines have shown most units (budget)
_BESIDE_UNITS = 100  # beside these (budget)
_ACCURATE = 1e-8  # bound of the error of a normal of the second layer up to which it is not measured again
_ACCURATE_LINES = 3  # on which these are measured again (budget: m_1 + 12 queries per Jacobian)
_INACCURATE = 1e-3  # `_ACCURATE_LINES` on all further lines: normals of weak units
_MAX_HALVINGS = 12  # of the distance of a point, until its outputs are not lost
# Shares of the units that are large at an end of a line: at few large ones, each unit of the second layer is active or
# not by their weights alone, also one that is nearly always inactive.
_SPARSE = (0.005, 0.02, 0.05)
_FEWEST_LARGE = 3  # of these
_FIRST_LINES = 6  # random ones, which most units are detected on, before lines are aimed at the others
_LOW = 0.01  # size of the others there
_DEEPER_LINES = 8  # after which a second layer has more confirmed boundaries than others: 2 to 5 times as many
_DEEPER = 1.0  # ratio of the others to these, and the units of the first layer, beyond which there are more layers
_LOW_PER_SHARE = 0.1  # `_LOW` over the share, if that is less
_WINDOW = 0.01  # half length of the part of a line, over all of it, on which one known boundary is confirmed
_WINDOW_PAIRS = 3  # first pairs of points there
_WINDOW_BOUNDARIES = 200  # (budget)
_WINDOWS = 2  # per boundary (budget: about 60 queries each)
_UNEXPLAINED = 1e-5  # relative part of a Jacobian that signs leave unexplained: further units or layers
_EXPLAINED_JACOBIANS = 0.8  # share of Jacobians that is explained: others may have crossed a boundary; outputs decide
_ONE_UNIT = 1e-4  # second singular value over the first of the unexplained part that one unit leaves
_TRIES_MISSING = 4  # lines that are aimed at it
_LEAST_SIZE = 1e-3  # of a Jacobian over the largest: at some points nearly all units rest
_MAX_JACOBIANS = 50  # that the signs must explain (budget)
_MAX_TARGETS = 6  # of the others at which lines are aimed: they show the units that are missing


class SecondLayer:
    """Boundaries of the second layer in the coordinates h of the positive orthant, where the first layer is linear.

    `extend` scans lines until several in a row show no new unit; `solved` determines signs and outgoing weights.
    """

    def __init__(self, inputs, W, b, seen, rng):
        inverse = lapack.pinv(W)  # x = (h - b) W^+ has W^T x + b = h
        self.m, self.seen, self.rng, self.n_lines = len(b), seen, rng, 0
        self.inputs, self.first, self.inverse = inputs, (W, b), inverse
        error = inputs.output_error
        self.space = Space(lambda H: inputs.query((H - b) @ inverse), self.m, error, np.sqrt(self.m))
        self.search, self.jacobians = PlaneSearch(1.0, True, self.m, len(error)), []
        self.targets, self.crossed = [], []

    def aim_at(self, X):
        """Scan lines through the outputs of the first layer at inputs X (n, D), at which units are missing."""
        W, b = self.first
        self.targets = list(np.maximum(X[:_MAX_TARGETS] @ W + b, 0.0) + LEAST_VALUE)

    def aim_through(self, X):
        """Scan lines that cross the boundaries of missing units, at outputs of the first layer at inputs X (n, D)."""
        W, b = self.first
        X = X[2.0 * np.linalg.norm(X, axis=1) <= self.inputs.reach]  # errors of lost outputs look like boundaries
        self.crossed = list(np.maximum(self.rng.permutation(X)[:_MAX_TARGETS] @ W + b, 0.0))

    def extend(self):
        """Scan lines until `_LAST_LINES` in a row show no new unit."""
        idle = 0
        for index in range(_MAX_SECOND_LINES):
            idle = 0 if self._scan(aim=index >= _FIRST_LINES and index % 2 == 1) else idle + 1
            if idle >= _LAST_LINES:
                break
            search = self.search
            if self.n_lines == _DEEPER_LINES and len(search.candidates) > _DEEPER * (len(search) + self.m):
                raise NotIdentified(STAGE, "layers", "boundaries behind the first layer end: units of further layers.")
        self._confirm_candidates()

    def _confirm_candidates(self):
        """Confirm the boundaries of rare units, which one line has met, on parts of lines that cross them."""
        for normal, offset, *_ in list(self.search.candidates) * _WINDOWS:
            if not any(normal is candidate[0] for candidate in self.search.candidates):
                continue
            origin, end = (self._within_reach(h) for h in _aimed(normal, np.ones(self.m, dtype=bool), self.rng))
            slope = normal @ (end - origin)
            t = -(offset + normal @ origin) / slope if slope else np.inf
            if not _WINDOW < t < 1.0 - _WINDOW:
                continue
            options = {"length_scale": 1.0, "max_boundaries": _WINDOW_BOUNDARIES, "n_pairs": _WINDOW_PAIRS}
            ends = t - _WINDOW, t + _WINDOW
            try:
                self.search.confirm(scanned(self.space, origin, end - origin, *ends, self.rng, **options))
            except NotIdentified:
                continue

    def _scan(self, aim):
        """Scan one line; whether it showed a new unit, or further lines are to be scanned in any case."""
        self.seen = [one for one in self.seen if one[2] and not _is_known(self.search, *one[:2])]
        if self.crossed:
            h = self.crossed.pop()
            move = self.rng.uniform(-1.0, 1.0, self.m) * h
            ends = [h + move + LEAST_VALUE, h - move + LEAST_VALUE]
        elif self.targets:
            ends = [self.targets.pop(), self._random_ends()[0]]
        elif self.seen and aim:
            a, active, tries = self.seen.pop(0)
            self.seen.append((a, active, tries - 1))
            ends = _aimed(a, active, self.rng)
        elif self.search.candidates and aim:  # a rare unit: no second line has met its boundary
            normal = self.search.candidates[self.rng.randint(len(self.search.candidates))][0]
            ends = _aimed(normal, np.ones(self.m, dtype=bool), self.rng)
        else:
            ends = self._random_ends()
        ends = [self._within_reach(end) for end in ends]
        options = {"length_scale": 1.0, "max_boundaries": self._most_boundaries()}
        space = self.space.seen_from(max(ends, key=np.linalg.norm))
        try:
            line = scanned(space, ends[0], ends[1] - ends[0], 0.0, 1.0, self.rng, **options)
        except NotIdentified:  # a boundary of the first layer is next to one end, or outputs are lost
            return True
        search, n_units = self.search, len(self.search)
        search.confirm(line)
        which = search.explained(line)
        search.insert_known(line, which)
        self.n_lines += 1
        again = search.forget_inaccurate(line, which, _ACCURATE if self.n_lines <= _ACCURATE_LINES else _INACCURATE)
        if np.any(which < 0) or len(again):
            measure_again(self.space, search, line, which, again, self.rng)
            search.add_candidates(line, which)
            self.jacobians += [J for J in line.jacobians if J.confirmed]
        aimed = self.seen or self.targets or self.crossed
        return len(search) > n_units or bool(aimed) or self.n_lines < _ACCURATE_LINES

    def _most_boundaries(self):
        """Boundaries on a line, beyond which errors of the outputs are taken for boundaries (budget)."""
        if self.n_lines < _ACCURATE_LINES:
            return _MOST_BOUNDARIES * self.m + _MORE_BOUNDARIES
        return _PER_UNIT * (len(self.search) + len(self.search.candidates)) + _BESIDE_UNITS

    def _random_ends(self):
        """Two points of the positive orthant whose entries differ widely."""
        ends, m = [], self.m
        for _ in range(2):
            n_large = max(_FEWEST_LARGE, int(self.rng.choice(_SPARSE) * m))
            large = self.rng.permutation(m) < n_large
            size = np.where(large, np.sqrt(m / n_large), min(_LOW, _LOW_PER_SHARE * n_large / m))
            ends.append(self.rng.exponential(size=m) ** 1.5 * size + LEAST_VALUE)
        return ends

    def _within_reach(self, h):
        """A point of the orthant, moved towards its corner until its input is within reach."""
        b = self.first[1]
        for _ in range(_MAX_HALVINGS):
            if np.linalg.norm((h - b) @ self.inverse) <= self.inputs.reach:
                break
            h = 0.5 * h + LEAST_VALUE
        return h

    def _aim_at_missing(self, left):
        """Aim at the unit that leaves most of an unexplained part (n, m_L, m_1) of Jacobians, if it is one unit's."""
        _, sizes, directions = svd(left, full_matrices=False)
        one = np.argmin(sizes[:, 1] / sizes[:, 0])
        if sizes[one, 1] < _ONE_UNIT * sizes[one, 0]:
            self.seen.append((directions[one, 0], np.ones(self.m, dtype=bool), _TRIES_MISSING))

    def input_jacobians(self):
        """The Jacobians by the inputs; none if these have more dimensions than h."""
        W, b = self.first
        if W.shape[0] != W.shape[1]:
            return []
        to_inputs = lapack.inv(self.inverse).T
        return [replace(J, value=J.value @ to_inputs, point=(J.point - b) @ self.inverse) for J in self.jacobians]

    def solved(self):
        """Weights (m_1, m_2), biases and outgoing weights (m_2, m_L) of the second layer.

        With z_j = n_j . h + o_j, unit jumps u_j and unknown signs s_j, a Jacobian in the orthant is
        ``J = 1/2 sum_j (s_j + sign z_j) |n_j| u_j n_j^T``: linear in the signs.
        """
        search = self.search
        if len(search) == 0 or not self.jacobians:
            raise NotIdentified(STAGE, "layers", "no boundary of a second layer was detected.")
        jacobians = sorted(self.jacobians, key=lambda J: J.error)[:_MAX_JACOBIANS]
        rank_one = search.jumps.T[:, None, :] * (search.normals.T * search.sizes)
        rank_one = rank_one.reshape(-1, len(search))
        sides = [np.sign(search.normals @ J.point + search.offsets) for J in jacobians]
        targets = [2.0 * J.value.ravel() - rank_one @ side for J, side in zip(jacobians, sides, strict=True)]
        signs = lapack.lstsq(rank_one, targets[0])[0]
        signs = np.where(signs >= 0.0, 1.0, -1.0)
        left = np.array([target - rank_one @ signs for target in targets])
        sizes = np.array([np.linalg.norm(2.0 * J.value) for J in jacobians])
        shares = np.linalg.norm(left, axis=1) / np.maximum(sizes, _LEAST_SIZE * sizes.max())
        share = np.quantile(shares, _EXPLAINED_JACOBIANS)
        if share > _UNEXPLAINED:
            self._aim_at_missing(left[shares > _UNEXPLAINED].reshape(-1, len(jacobians[0].outputs), self.m))
            raise NotIdentified(
                STAGE,
                "layers",
                f"{len(search)} units of a second layer leave a share of {share:.0e} of a Jacobian unexplained.",
            )
        outgoing = search.jumps * search.sizes[:, None]
        return (search.normals * signs[:, None]).T, search.offsets * signs, outgoing


def _aimed(a, active, rng):
    """Two points of the positive orthant on both sides of a boundary with weights a (m,) on the active units."""
    size = rng.exponential(size=(2, len(a)))
    return [
        s * np.where(active & (sign * a > 0), 2.0, 2.0 * _LOW) + LEAST_VALUE
        for s, sign in zip(size, (1, -1), strict=True)
    ]


def _is_known(search, a, active):
    """Whether a hyperplane or a candidate has the weights a (m,) on the active units, up to a factor."""
    normals = [search.normals, *(candidate[0][None] for candidate in search.candidates)]
    B = np.concatenate(normals)[:, active]
    size = np.linalg.norm(B, axis=1) * np.linalg.norm(a[active])
    return bool(np.any(np.abs(B @ a[active]) > (1.0 - 1e-6) * size))
