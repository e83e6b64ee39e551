"""Gradients of piecewise linear outputs within one linear region, and the normals of boundaries from them."""

import numpy as np

from skident.budget import chunks, rows_at_once
from skident.budget.constants import CHUNK_COPIES
from skident.linalg import lapack, svd

from ...constants import SPARE, STRAIGHT_TOL
from .lines import CriticalPoints
from .robust_fit import NOISY, fit_plane_near
from .windows import locate_by_lines

_CHUNK_NUMBERS = 2**24  # entries of the largest array, 128 MiB

# Gradients at points of long pieces.
_FORWARD_STEP = 0.02  # over the gap, the free length along the line: other boundaries across it are rare that close
_CENTRAL_STEP = 0.7  # `_FORWARD_STEP` for the first central difference
_CENTRAL_SHRINK = 0.3  # ratio of successive steps
_CENTRAL_STEPS = 12  # 0.3^12 = 5e-7 of the free length
_MARGIN = 1.06  # of the error of forward differences, whose accuracies are bounds and not deviations
_FEW_INPUTS = 15  # inputs up to which central differences cost little

# Normals of boundaries: steps in standard deviations of the inputs.
_WIDEST_STEP = 1e-2  # first step; wider ones meet other boundaries
_N_STEPS = 4  # steps tried at most
_STEP_SHRINK = 0.1  # ratio of successive steps
_WIDEST_STEP_NOISY = 0.2  # `_WIDEST_STEP` for noisy outputs, which need all the width there is
_N_STEPS_NOISY = 7  # down to 0.4^6 = 0.4 % of the widest
_STEP_SHRINK_NOISY = 0.4  # finer, as a narrower step loses accuracy
_STEP_PART = 0.12  # step times sqrt(D) over the gap: with the offset below, points use a third of the gap
_AWAY = 2.2  # distance of the gradients from the boundary over sqrt(D) steps: no difference crosses it
_RANK_ONE_ERRORS = 20.0  # second singular value of a jump in errors of the gradients
_RANK_ONE_TOL = 1e-6  # second singular value of a jump, over the first, that is rounding
_NORMAL_TOL = 1e-2  # largest error of a normal: larger ones predict nothing
_NORMAL_TOL_NOISY = 0.3  # `_NORMAL_TOL` for one that is fitted again to positions

# Normals from positions, on noisy outputs.
_REACH = 0.3  # distance of the positions over the free length around the boundary
_NARROWEST_WINDOW = 0.05  # half width over the reach
_WINDOW_NORMAL_ERRORS = 3.0  # errors of the normal that windows allow for
_POSITION_COPIES = 12  # arrays of a chunk: tangents, points, normals, and five points of a window each, twice


def gradients_at(probe, centers, gaps, rng, accurate=False):
    """Gradients (n, m_L, D) at points (n, D) of linear pieces, and the norms (n,) of their errors.

    `gaps` (n,): how far a piece extends, at least in one direction. Differences along a random orthonormal frame.
    Forward ones first, all checked at once by one more point; central ones if that fails, if inputs are few or outputs
    not exact, and with `accurate`: wide steps are some thirty times as accurate. Errors are infinite where no linear
    piece was detected.
    """
    n, D = centers.shape
    if n == 0:
        return np.empty((0, probe.n_outputs, D)), np.empty(0)
    frame = lapack.qr(rng.standard_normal((D, D)))[0]
    size = rows_at_once(CHUNK_COPIES * 8 * D**2, at_most=max(1, _CHUNK_NUMBERS // D**2))
    parts = []
    for i in range(0, n, size):
        some = slice(i, i + size)
        if probe.exact and D > _FEW_INPUTS and not accurate:
            slopes, errors = _forward_or_central(probe, centers[some], gaps[some], frame, rng)
        else:
            slopes, errors = _central(probe, centers[some], gaps[some], frame, *probe.query(centers[some]))
        parts.append((np.swapaxes(slopes, 1, 2) @ frame.T, errors))
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _forward(probe, X, h, frame, check):
    """Slopes (n, D, m_L) along the rows of a frame, the deviation (n,) from linearity along `check`, and queries.

    Steps h (n,); `check` (n, D) are coefficients of the frame. Queried: outputs (n, m_L) at X, and the accuracies
    (n, D + 2) of the outputs at X, at the D points and at the check.
    """
    n, D = X.shape
    steps = np.concatenate([np.zeros((n, 1, D)), np.broadcast_to(frame, (n, D, D)), (check @ frame)[:, None]], axis=1)
    F, tol = probe.query_block(X[:, None] + h[:, None, None] * steps)
    rise = F[:, 1 : D + 1] - F[:, :1]
    deviation = np.abs(F[:, D + 1] - F[:, 0] - np.einsum("nd,ndm->nm", check, rise)).max(axis=1)
    return rise / h[:, None, None], deviation, F[:, 0], tol


def _forward_or_central(probe, centers, gaps, frame, rng):
    """Slopes (n, D, m_L) along a frame (columns) by forward differences; central ones where these are not straight."""
    n, D = centers.shape
    h = _FORWARD_STEP * gaps
    check = rng.choice([-1.0, 1.0], (n, D)) / np.sqrt(D)
    slopes, deviation, f, tols = _forward(probe, centers, h, frame.T, check)
    tol = tols[:, 0]
    errors = _MARGIN * np.sqrt(np.sum(tols[:, 1:-1] ** 2, axis=1) + D * tol**2) / h
    with np.errstate(invalid="ignore"):
        bad = ~(deviation <= STRAIGHT_TOL * (tol + tols[:, -1])) | np.isinf(errors)
    if bad.any():
        slopes[bad], errors[bad] = _central(probe, centers[bad], gaps[bad], frame, f[bad], tol[bad])
    return slopes, errors


def _central(probe, centers, gaps, frame, f, tol):
    """Slopes (n, D, m_L) along a frame by central differences, and the norms (n,) of their errors.

    Every step is the widest of a sequence for which the center lies on the chord.
    """
    n, D = centers.shape
    steps = np.repeat(_CENTRAL_STEP * gaps[:, None], D, axis=1)
    slopes, slope_errors = np.zeros((n, D, f.shape[1])), np.zeros((n, D))
    piece, column = (index.ravel() for index in np.indices((n, D)))
    for _ in range(_CENTRAL_STEPS):
        h = steps[piece, column][:, None]
        move = h * frame.T[column]
        both, tols = probe.query(np.concatenate([centers[piece] + move, centers[piece] - move]))
        (after, before), worst = np.split(both, 2), np.maximum(*np.split(tols, 2))
        slopes[piece, column] = (after - before) / (2.0 * h)
        slope_errors[piece, column] = worst / h[:, 0]
        sag = np.abs(after - 2.0 * f[piece] + before).max(axis=1)
        bent = (sag > STRAIGHT_TOL * np.maximum(tol[piece], worst)) | np.isinf(worst)
        piece, column = piece[bent], column[bent]
        if len(piece) == 0:
            break
        steps[piece, column] *= _CENTRAL_SHRINK
    errors = np.sqrt(np.sum(slope_errors**2, axis=1))
    errors[piece] = np.inf
    return slopes, errors


def normals_at(probe, points, directions, gaps, rng):
    """Normals of the boundaries at points (n, D) as `CriticalPoints`, and the indices of those that have one.

    The boundaries are crossed along unit `directions` (n, D), with no other one up to distances `gaps` (n,). The jump
    of the gradient must have rank one. ``2 D + 4`` queries per point and step size; ``12 D + 96`` more if outputs are
    noisy, whose positions determine a normal far better than gradients do.
    """
    if probe.resolution <= NOISY:
        normals, errors = _normals_from_gradients(probe, points, directions, gaps, rng)
    else:
        normals, errors = _normals_from_gradients(
            *(probe, points, directions, gaps, rng),
            steps=(_WIDEST_STEP_NOISY, _N_STEPS_NOISY, _STEP_SHRINK_NOISY),
            normal_tol=_NORMAL_TOL_NOISY,
        )
        i = np.flatnonzero(np.isfinite(errors))
        if len(i):
            normals[i], errors[i] = _normals_from_positions(probe, points[i], normals[i], errors[i], gaps[i], rng)
    kept = np.flatnonzero(errors < _NORMAL_TOL)
    return CriticalPoints(points[kept], normals[kept], errors[kept]), kept


def _normals_from_gradients(
    probe, points, directions, gaps, rng, steps=(_WIDEST_STEP, _N_STEPS, _STEP_SHRINK), normal_tol=_NORMAL_TOL
):
    """Normals (n, D) and errors (n,), infinite where no step size gives a jump of rank one."""
    n, D = points.shape
    normals, errors = np.zeros((n, D)), np.full(n, np.inf)
    widest, n_steps, shrink = steps
    h = np.minimum(widest, _STEP_PART * gaps / np.sqrt(D))
    todo = np.arange(n)
    for _ in range(n_steps):
        if len(todo) == 0:
            break
        new, error, good = _gradient_jumps(probe, points[todo], directions[todo], h[todo], rng)
        good &= error < normal_tol
        normals[todo[good]], errors[todo[good]] = new[good], error[good]
        todo = todo[~good]
        h[todo] *= shrink
    return normals, errors


def _gradient_jumps(probe, points, directions, h, rng):
    """Directions (n, D) of gradient jumps, their errors (n,), and where these have rank one; in chunks of points."""
    n, D = points.shape
    checks = [_unit_rows(rng.standard_normal((n, D))) for _ in range(2)]
    some = chunks(n, CHUNK_COPIES * 8 * (D + 2) * D)
    parts = [_jump_directions(probe, points[i], directions[i], h[i], [check[i] for check in checks]) for i in some]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _jump_directions(probe, points, directions, h, checks):
    """The same for a chunk, with gradients far enough from the boundary that no difference crosses it."""
    D = points.shape[1]
    away = (_AWAY * np.sqrt(D) * h)[:, None] * directions
    sides, error, good = [], 0.0, np.ones(len(points), dtype=bool)
    for X, check in ((points + away, checks[0]), (points - away, checks[1])):
        slopes, deviation, _, tol = _forward(probe, X, h, np.eye(D), check)
        tol = tol.max(axis=1)
        with np.errstate(invalid="ignore"):
            good &= (deviation < STRAIGHT_TOL * (1.0 + np.sqrt(D)) * tol) & np.isfinite(tol)
        error = error + tol / h
        sides.append(np.swapaxes(slopes, 1, 2))
    s, Vt = svd(sides[0] - sides[1], full_matrices=False)[1:]
    with np.errstate(divide="ignore", invalid="ignore"):  # errors are infinite where outputs are lost
        error = error * np.sqrt(D) / s[:, 0]
        if s.shape[1] > 1:
            good &= s[:, 1] < (_RANK_ONE_TOL + _RANK_ONE_ERRORS * error) * s[:, 0]
    return Vt[:, 0], error, good


def _unit_rows(V):
    return V / np.linalg.norm(V, axis=1, keepdims=True)


def _normals_from_positions(probe, points, normals, errors, gaps, rng):
    """Normals (n, D) of least-squares planes through located points around others, and their errors (n,).

    A position is known to ``tol / jump``; planes through positions at a distance r to that over r. Gradients with a
    step h reach only ``sqrt(D) / h`` of it, and h is far smaller. Normals that do not improve are left as they are.
    """
    normals, errors = normals.copy(), errors.copy()
    for i in chunks(len(points), _POSITION_COPIES * 8 * (points.shape[1] + SPARE) * points.shape[1]):
        normals[i], errors[i] = _tilted(probe, points[i], normals[i], errors[i], _REACH * gaps[i], rng)
    return normals, errors


def _tilted(probe, points, normals, errors, r, rng):
    """Normals and errors of planes through boundary points at distances r (n,), where these are better."""
    n, D = points.shape
    normals, errors = normals.copy(), errors.copy()
    tangents = rng.standard_normal((n, D + SPARE, D))
    tangents -= np.einsum("nqd,nd->nq", tangents, normals)[:, :, None] * normals[:, None]
    tangents /= np.linalg.norm(tangents, axis=2, keepdims=True)
    P = points[:, None] + r[:, None, None] * tangents
    width = np.repeat(np.clip(_WINDOW_NORMAL_ERRORS * errors, _NARROWEST_WINDOW, 1.0) * r, D + SPARE)
    there = locate_by_lines(probe, P.reshape(-1, D), np.repeat(normals, D + SPARE, axis=0), width, n_rounds=1)
    offset, error, found = (np.reshape(v, (n, -1)) for v in (there.offset, there.error, there.found))
    for i in np.flatnonzero(found.sum(axis=1) >= D + 3):
        hit = found[i]
        # At distance 1 from the point, beside its plane.
        on_plane = tangents[i, hit] + (offset[i, hit] / r[i])[:, None] * normals[i]
        fit = fit_plane_near(on_plane, error[i, hit] / r[i], normals[i], 0.0)
        if fit is not None and fit.normal_error < errors[i]:
            normals[i], errors[i] = fit.normal, fit.normal_error
    return normals, errors
