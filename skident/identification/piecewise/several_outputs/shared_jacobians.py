"""Normals of the activation boundaries on a line, from one Jacobian every few critical points."""

from dataclasses import dataclass, replace

import numpy as np

from skident.linalg import lapack, svd

from ...constants import MIN_OUTPUTS
from ..kernel.scan import scan_line

__all__ = ["MIN_OUTPUTS", "STAGE", "Space", "good", "jacobians_at", "normals_on_line", "scanned"]

STAGE = "layers (shared Jacobians)"
_MAX_BOUNDARIES = 20_000  # on a line (budget)
_PAIRS = 9  # first pairs of queries on a line
_LEAST_JUMP = 1e-6  # of a critical point, over the largest: where logits are nearly lost, their errors look like jumps
_LEAST_SINGULAR = 0.08  # of the unit jumps of critical points that share a Jacobian: errors grow by its inverse
_KNOWN_BESIDE = 8  # known critical points before the first unknown one, and after the last, among whose gaps to choose
_LATE_SHARE = 0.6  # of the critical points that could share a Jacobian, after which the widest interval is chosen
_STEP = 0.4  # first step of a Jacobian over the width of its interval: most boundaries are four times as far away
_TRIES = 12  # steps of which the outputs must be straight on one (budget)
_SHRINK = 0.6  # ratio of successive ones
_PROBES = 3  # random differences that test a step: a further output confirms the Jacobian
_FIRST_TRIES = 6  # steps tested by one difference before (budget)
_FIRST_SHRINK = 0.3  # ratio of these: the first steps are 30 to 100 times too long in deep networks
_PROBE_LENGTH = 3.5  # length of these in steps
_FINAL_STEP = 0.4  # of the tested step: a step along an axis meets boundaries that random ones do not
_STRAIGHT_ERRORS = 8.0  # errors of the outputs up to which they are straight
_MORE_TRIES = 5  # steps of which the Jacobian must explain a further output for one (budget)
_MORE_SHRINK = 0.2  # ratio of successive ones
_CHUNK_BYTES = 2**24  # of points that are queried at a time (memory)
_CALL_BYTES = 2**25  # of points at which Jacobians are measured in one call of the model (memory)
_MAX_RESIDUAL = 1e-6  # relative residual of the jumps of a good group, and of a slope along the line


@dataclass(frozen=True)
class Space:
    """Coordinates in which lines are scanned, and how the model is queried there.

    Attributes
    ----------
    query : callable
        Outputs (n, m_L) at points (n, k).
    n_coordinates : int
    output_error : ndarray of shape (m_L,)
        Errors of the outputs at distances of order one.
    unit : float
        Length over which outputs and their errors double.
    reach : float
        Distance from the center beyond which outputs may be lost, as probabilities that underflow.
    least_units : int
        Units of the first layer that are known to exist: those whose weights span the coordinates.
    """

    query: object
    n_coordinates: int
    output_error: np.ndarray
    unit: float
    reach: float = np.inf
    least_units: int = 0

    def within_reach(self, points):
        """Points (n, k) moved towards the center until they are within reach."""
        return points * np.minimum(1.0, self.reach / np.maximum(np.linalg.norm(points, axis=1), self.unit))[:, None]

    def seen_from(self, origin):
        """The space with another center, where errors are larger and the reach is shorter."""
        distance = np.linalg.norm(origin)
        error = self.output_error * (1.0 + distance / self.unit)
        return replace(self, output_error=error, reach=self.reach - distance)

    def error_at(self, points, outputs):
        """Error of the outputs near points (k,) or (n, k)."""
        distance = np.linalg.norm(np.atleast_2d(points), axis=1).max() / self.unit
        return float(self.output_error.max() * (1.0 + distance) + np.finfo(float).eps * np.abs(outputs).max())


@dataclass
class ScannedLine:
    """Critical points of a line ``origin + t direction``, in order, and their normals as far as they are known.

    `normals` (n, k) hold n such that the Jacobian changes by ``u n^T`` with u the unit vector of `jumps`; nan where
    unknown. `residuals` (n,) are relative; `errors` (n,) are those of the normals, relative to their lengths.
    """

    origin: np.ndarray
    direction: np.ndarray
    low: float
    high: float
    positions: np.ndarray
    jumps: np.ndarray
    normals: np.ndarray
    residuals: np.ndarray
    errors: np.ndarray
    jacobians: list

    def only(self, index):
        """The line with some of its critical points."""
        parts = (self.positions, self.jumps, self.normals, self.residuals, self.errors)
        return ScannedLine(
            self.origin, self.direction, self.low, self.high, *(part[index] for part in parts), self.jacobians
        )

    @property
    def points(self):
        """Critical points (n, k)."""
        return self.origin + self.positions[:, None] * self.direction

    @property
    def sizes(self):
        """Lengths of the jumps (n,)."""
        return np.linalg.norm(self.jumps, axis=1)

    @property
    def units(self):
        """Unit vectors of the jumps (n, m_L)."""
        return self.jumps / self.sizes[:, None]


@dataclass(frozen=True)
class JacobianAt:
    """A Jacobian (m_L, k), its point (k,), outputs there (m_L,), error of its entries, and whether it is confirmed."""

    value: np.ndarray
    point: np.ndarray
    outputs: np.ndarray
    error: float
    confirmed: bool


def scanned(space, origin, direction, low, high, rng, *, length_scale, **options):
    """The `ScannedLine` through `origin` (k,) along `direction` (k,), between positions `low` and `high`."""

    def query(t):
        rows = max(1, _CHUNK_BYTES // (8 * len(origin)))
        parts = [space.query(origin + t[i : i + rows, None] * direction) for i in range(0, max(len(t), 1), rows)]
        return np.concatenate(parts)

    options = {"max_boundaries": _MAX_BOUNDARIES, "n_pairs": _PAIRS, **options}
    error = float(space.output_error.max())
    scan = scan_line(query, (low, high), output_error=error, length_scale=length_scale, rng=rng, **options)
    positions, jumps = scan.positions, scan.jumps
    sizes = np.linalg.norm(jumps, axis=1)
    kept = sizes > _LEAST_JUMP * sizes.max(initial=0.0)
    positions, jumps = positions[kept], jumps[kept]
    n, k = len(positions), space.n_coordinates
    unknown = np.full((n, k), np.nan)
    line = (positions, jumps, unknown, np.full(n, np.inf), np.full(n, np.inf), [])
    return ScannedLine(origin, direction, low, high, *line)


def normals_on_line(space, line, rng):
    """Determine the unknown normals of a line: Jacobians in wide intervals, and a linear system for those in between.

    The Jacobians J before and J' after a group of critical points obey ``J' - J = sum_i u_i n_i^T``, with unit jumps
    u_i. About ``k + 12`` queries per Jacobian in k coordinates, and one Jacobian per ``m_L`` critical points or fewer.
    """
    unknown = np.isnan(line.normals[:, 0])
    edges = np.concatenate([[line.low], line.positions, [line.high]])
    U, length, before = line.units, np.linalg.norm(line.direction), None
    index = np.array(_intervals(unknown, U, np.diff(edges)))
    points = line.origin + 0.5 * (edges[index] + edges[index + 1])[:, None] * line.direction
    line.jacobians += jacobians_at(space, points, _STEP * length * (edges[index + 1] - edges[index]), rng)
    for i, after in zip(index, line.jacobians[-len(index) :], strict=True):
        if before is not None:
            _solve_group(line, np.arange(before[0], i), unknown, U, before[1], after)
        before = i, after


def _solve_group(line, group, unknown, U, before, after):
    """Normals of the critical points of a group between two Jacobians."""
    change = after.value - before.value
    size = np.linalg.norm(change)
    known, todo = group[~unknown[group]], group[unknown[group]]
    if len(todo) == 0:
        return
    change = change - U[known].T @ line.normals[known]
    inverse = lapack.pinv(U[todo].T)
    normals = inverse @ change
    unexplained = np.linalg.norm(U[todo].T @ normals - change) / max(size, np.finfo(float).tiny)
    lengths = np.maximum(np.linalg.norm(normals, axis=1), np.finfo(float).tiny)
    # The line itself shows the product of normal and direction.
    along = np.abs(normals @ line.direction - line.sizes[todo]) / line.sizes[todo]
    line.normals[todo] = normals
    line.residuals[todo] = np.maximum(unexplained, along) if before.confirmed and after.confirmed else 1.0
    blur = (before.error + after.error) * np.sqrt(change.shape[1]) + unexplained * size
    line.errors[todo] = blur * np.linalg.norm(inverse, axis=1) / lengths


def _intervals(unknown, U, widths):
    """Intervals (0 is before the first critical point) for Jacobians, between which unknown jumps are independent.

    Few known critical points lie beside the unknown ones: errors of their normals are taken for those of the others.
    """
    if len(unknown) == 0:  # the line meets no boundary
        return [0]
    n, first = len(unknown), int(np.argmax(unknown))
    least = max(0, first - _KNOWN_BESIDE)
    start = least + int(np.argmax(widths[least : first + 1]))
    chosen = [start]
    while start < n and unknown[start:].any():
        stop = best = start + 1
        while stop <= n:
            of = np.arange(start, stop)[unknown[start:stop]]
            if len(of) > U.shape[1] or (len(of) > 1 and svd(U[of], compute_uv=False)[-1] < _LEAST_SINGULAR):
                break
            best, stop = stop, stop + 1
        first = start + max(1, int(np.ceil(_LATE_SHARE * (best - start))))
        if best == n:  # the rest needs no Jacobian of its own
            last = int(np.flatnonzero(unknown)[-1]) + 1
            first, best = max(first, last), max(first, min(n, last + _KNOWN_BESIDE))
        start = first + int(np.argmax(widths[first : best + 1]))
        chosen.append(start)
    return chosen


def jacobians_at(space, points, steps, rng):
    """A `JacobianAt` per point (n, k): forward differences with the largest step on which random ones are straight.

    `steps` (n,) are the first ones tried. All points share calls of the model.
    """
    if len(points) == 0:
        return []
    (n, k), F0, steps = points.shape, space.query(points), steps / _FINAL_STEP
    errors = np.array([space.error_at(*one) for one in zip(points, F0, strict=True)])
    for n_probes, shrink, tries in ((1, _FIRST_SHRINK, _FIRST_TRIES), (_PROBES, _SHRINK, _TRIES)):
        todo = np.arange(n)
        for _ in range(tries):
            bent = _bent(space, points[todo], _PROBE_LENGTH * steps[todo], n_probes, (F0[todo], errors[todo]), rng)
            todo = todo[bent]
            if len(todo) == 0:
                break
            steps[todo] *= shrink
    steps, found, todo = steps * _FINAL_STEP, [None] * n, np.arange(n)
    per_call = max(1, _CALL_BYTES // (8 * (k + 1) * k))
    for _ in range(_MORE_TRIES):
        for part in np.split(todo, range(per_call, len(todo), per_call)):
            for i, one in zip(
                part, _forward(space, points[part], steps[part], F0[part], errors[part], rng), strict=True
            ):
                found[i] = one
        todo = np.array([i for i in todo if not found[i].confirmed], dtype=int)
        if len(todo) == 0:
            break
        steps[todo] *= _MORE_SHRINK
    return found


def _bent(space, points, lengths, n_probes, outputs, rng):
    """Whether outputs bend (n,) along one of a few random directions, between moves of some lengths (n,) both ways.

    `outputs` are those (n, m_L) at the points (n, k), and their errors (n,).
    """
    V = rng.standard_normal((len(points), n_probes, points.shape[1]))
    V *= lengths[:, None, None] / np.linalg.norm(V, axis=2, keepdims=True)
    ends = _differences(space, points, np.concatenate([V, -V], axis=1), outputs[0])
    return np.abs(ends[:, :n_probes] + ends[:, n_probes:]).max(axis=(1, 2)) >= _STRAIGHT_ERRORS * outputs[1]


def _forward(space, points, steps, F0, errors, rng):
    """The `JacobianAt` of a few points by forward differences, each confirmed by one along another direction."""
    k = points.shape[1]
    C = rng.standard_normal((len(points), 1, k))
    C /= np.linalg.norm(C, axis=2, keepdims=True)
    axes = np.broadcast_to(np.eye(k), (len(points), k, k))
    F = _differences(space, points, steps[:, None, None] * np.concatenate([axes, C], axis=1), F0)
    J = np.swapaxes(F[:, :-1], 1, 2) / steps[:, None, None]
    left = np.abs(F[:, -1] - steps[:, None] * (J @ C[:, 0, :, None])[:, :, 0]).max(axis=1)
    confirmed = left < _STRAIGHT_ERRORS * errors
    rows = zip(J, points, F0, errors / steps, confirmed, strict=True)
    return [JacobianAt(j, point, f0, float(error), bool(good)) for j, point, f0, error, good in rows]


def _differences(space, points, moves, F0):
    """Changes (n, q, m_L) of the outputs from points (n, k), where they are F0 (n, m_L), by moves (n, q, k)."""
    n, q, k = moves.shape
    F = space.query((points[:, None] + moves).reshape(n * q, k))
    return F.reshape(n, q, F0.shape[1]) - F0[:, None]


def good(line, max_residual=_MAX_RESIDUAL):
    """Which critical points of a line have a reliable normal."""
    return (line.residuals < max_residual) & (line.errors < 0.1 * np.sqrt(max_residual))
