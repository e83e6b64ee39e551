"""The first layer from far away: hyperplanes where a saturated network moves.

Far from the origin every sigmoidal first-layer unit is saturated except near its own hyperplane, so on a large circle
the answer is a step function, and near a step it depends on one unit only: ``f(x) = phi(w_i . x + b_i)``. Moving along
that profile and comparing with steps in other directions gives ``w_i`` without derivatives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial import chebyshev

from skident.network import get_activation
from skident.oracle import BlackBoxError

__all__ = ["FirstLayer", "NotSaturatingError", "find_first_layer", "refine_lengths"]

_GRID = 256  # points of the first look at a half circle
_PROFILE_NODES = 16  # enough for 1e-12 of tanh on |z| <= _PROFILE_RANGE: its poles at +-i pi/2 give rho = 6.4
_PROFILE_RANGE = 0.5
_SHAPE_NODES = 24  # the wider look that gives length and offset
_SHAPE_RANGE = 3.5
_SHAPE_DEGREE = 9  # of the rest of the network as a polynomial in one unit's output
_STRAIGHT = 1e-10  # sum of squares, relative to the step's height, below which a profile is linear in the unit
_SAME_UNIT = 1.0 - 1e-8  # cosine above which two directions are one unit
_RIDGE_TOLERANCE = 1e-6


class NotSaturatingError(ValueError):
    """The answers keep moving everywhere far away: the first layer does not saturate."""


@dataclass
class FirstLayer:
    """First-layer units found from saturation, in the oracle's coordinates.

    Attributes
    ----------
    weights : ndarray of shape (D, m_1)
        Columns: the direction (1e-9) times the length (see `refine_lengths`). The sign is not determined.
    biases : ndarray of shape (m_1,)
        So that the unit's hyperplane is about ``weights.T u + biases = 0``. A start value: with more than one layer
        a shift of z can be absorbed by the layers above (``tanh(x + z)`` is a Moebius map of ``tanh x``), and the
        profile leaves an uncertainty of some tenths.
    points : ndarray of shape (m_1, D)
        A far point on every unit's hyperplane, where all other units are saturated.
    radius : float
        Radius of the circles.
    n_circles : int
        Half circles searched.
    n_unexplained : int
        Steps on those circles that were neither resolved nor on a known hyperplane (overlapping units, mostly).
    """

    weights: np.ndarray
    biases: np.ndarray
    points: np.ndarray
    radius: float
    n_circles: int
    n_unexplained: int

    @property
    def directions(self):
        """Unit vectors, (D, m_1)."""
        return self.weights / np.linalg.norm(self.weights, axis=0)


def find_first_layer(
    oracle,
    *,
    activation="tanh",
    n_units=None,
    radius=3e4,
    max_circles=24,
    patience=3,
    max_units=2000,
    rng=None,
    callback=None,
):
    """Weights (up to sign and, roughly, length) and hyperplanes of a saturating first layer, from function values.

    Parameters
    ----------
    oracle : Oracle
        Asked in its standardised coordinates.
    activation : str, default="tanh"
        A saturating activation; it only sets the unit in which lengths are estimated.
    n_units : int, default=None
        m_1 if known: the search ends when as many are found. Otherwise after `patience` half circles without news.
    radius : float, default=3e4
        Radius of the circles in units of ``sqrt(D)``; grows thirtyfold, up to three times, while the answers still
        move on large parts of the circle.
    max_circles : int, default=24
        Half circles at most. Every hyperplane crosses each of them once.
    patience : int, default=3
        Half circles without a new unit after which an unknown m_1 is taken as complete.
    max_units : int, default=2000
        Bound on steps followed on one half circle.
    rng : numpy.random.RandomState, default=None
    callback : callable, default=None
        ``callback(n_found)`` after every half circle.

    Returns
    -------
    FirstLayer

    Raises
    ------
    NotSaturatingError
        If the answers move everywhere at the largest radius, or nowhere at all.

    Notes
    -----
    About ``256 + k (D + 50)`` queries a half circle with k new steps on it. Works at any depth and for any m_1, also
    above D; two parallel units are found as one.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle
    >>> from skident.recovery import find_first_layer
    >>> W = np.array([[3.0, 0.0], [4.0, -2.0]])
    >>> first = find_first_layer(Oracle(lambda X: np.tanh(X @ W).sum(axis=1), 2), rng=np.random.RandomState(0))
    >>> print(round(float(np.abs(first.directions).max()), 6))
    1.0
    """
    rng = np.random.RandomState(0) if rng is None else rng
    if oracle.n_inputs < 2:
        raise ValueError("n_features=1: hyperplanes of different units cannot be told apart; at least 2 are needed.")
    g = get_activation(activation)
    if not g.saturating:
        raise NotSaturatingError(f"activation={g.name!r} does not saturate; use first_layer='hessian'.")
    scale = np.sqrt(oracle.n_inputs)
    for attempt in range(4):
        reach = radius * scale * 30.0**attempt
        try:
            first = _search(oracle, n_units, reach, max_circles, patience, max_units, rng, callback)
            few = n_units is not None and len(first.biases) < n_units and first.n_unexplained > n_units
            if few and attempt < 3:
                continue
            # Lengths are measured as if g were tanh; another sigmoid has another slope at its centre.
            unit = (g.limits[1] - g.limits[0]) / (2.0 * g.jet(np.zeros(1), 1)[1][0])
            return refine_lengths(oracle, replace(first, weights=unit * first.weights, biases=unit * first.biases), g)
        except NotSaturatingError:
            if attempt == 3:
                raise
        except BlackBoxError as error:
            raise BlackBoxError(
                f"{error} The search for saturation asks up to {reach:.1e} standard deviations from the centre; where "
                "the black box cannot be asked there, EntangledWeightExtractor(first_layer='hessian') stays near it."
            ) from error


def _search(oracle, n_units, radius, max_circles, patience, max_units, rng, callback):
    D = oracle.n_inputs
    weights, biases, points, quality = np.empty((D, 0)), np.empty(0), np.empty((0, D)), np.empty(0)
    idle, unexplained, moved = 0, 0, False
    circle = 0
    while circle < max_circles:
        circle += 1
        frame = np.linalg.qr(rng.standard_normal((D, 2)))[0]
        steps = _scan(oracle, frame, radius, max_units)
        moved = moved or len(steps) > 0
        fresh = [s for s in steps if not _explained(s, weights, biases, frame, radius)]
        units = _resolve(oracle, frame, radius, fresh, rng) if fresh else []
        unexplained += len(fresh) - len(units)
        before = len(biases)
        weights, biases, points, quality = _merge(weights, biases, points, quality, units)
        idle = idle + 1 if len(biases) == before else 0
        if callback is not None:
            callback(len(biases))
        enough = n_units is not None and len(biases) >= n_units
        complete = n_units is None and idle >= patience
        if enough or complete:
            break
        if circle == 3 and not moved:
            break
    if not moved:
        raise NotSaturatingError("the answers do not change at all on large circles.")
    if len(biases) == 0:
        raise NotSaturatingError(
            f"the answers step on large circles ({unexplained} steps), but no step is a smooth sigmoid of one linear "
            "function: the black box is no network with a saturating first layer (a tree, a sign?)."
        )
    return FirstLayer(weights, biases, points, radius, circle, unexplained)


def _on_circle(frame, radius, angles):
    return radius * (np.cos(angles)[:, None] * frame[:, 0] + np.sin(angles)[:, None] * frame[:, 1])


@dataclass
class _Step:
    """A stretch of the circle on which the answer goes from one constant to another."""

    left: float
    right: float
    before: np.ndarray
    after: np.ndarray


def _scan(oracle, frame, radius, max_units):
    """All stretches of a half circle where the answer moves, by bisection of the cells whose ends differ."""
    ask = lambda angles: oracle(_on_circle(frame, radius, angles))  # noqa: E731
    angles = np.linspace(0.0, np.pi, _GRID + 1)
    F = ask(angles)
    tol = 1e-9 * max(np.ptp(F, axis=0).max(), np.finfo(float).tiny) + 64 * np.finfo(float).eps * np.abs(F).max()
    cells = angles[:-1], angles[1:], F[:-1], F[1:]
    width = np.pi / _GRID
    # The narrowest cell: a step of about 2 |w| in the pre-activation of a unit.
    narrow = 2.0 / (radius * np.sqrt(2.0 / oracle.n_inputs))
    level = 0
    while True:
        active = np.abs(cells[3] - cells[2]).max(axis=1) > tol
        cells = tuple(c[active] for c in cells)
        n = len(cells[0])
        if (level >= 4 and n > 0.3 * _GRID * 2**level) or n > 16 * max_units:
            raise NotSaturatingError(
                f"the answers move on {n} of {_GRID * 2**level} stretches of a circle of radius {radius:.3g} "
                "(in units of the inputs' scale): the first layer does not saturate there."
            )
        if width <= narrow or n == 0:
            break
        middle = 0.5 * (cells[0] + cells[1])
        Fm = ask(middle)
        left, right, Fl, Fr = cells
        cells = (
            np.stack([left, middle], axis=1).ravel(),
            np.stack([middle, right], axis=1).ravel(),
            np.stack([Fl, Fm], axis=1).reshape(2 * n, -1),
            np.stack([Fm, Fr], axis=1).reshape(2 * n, -1),
        )
        width, level = width / 2.0, level + 1
    return _join(cells)


def _join(cells):
    """Adjacent moving cells as one step."""
    left, right, Fl, Fr = cells
    if len(left) == 0:
        return []
    cuts = np.flatnonzero(left[1:] > right[:-1] + 1e-15) + 1
    firsts, lasts = np.r_[0, cuts], np.r_[cuts - 1, len(left) - 1]
    steps = [_Step(left[a], right[b], Fl[a], Fr[b]) for a, b in zip(firsts, lasts, strict=True)]
    return [s for s in steps if np.abs(s.after - s.before).max() > 0]


def _explained(step, weights, biases, frame, radius):
    """Whether a known hyperplane crosses the circle within the step."""
    a, b = frame.T @ weights * radius
    amplitude, phase = np.hypot(a, b), np.arctan2(b, a)
    # a cos t + b sin t + bias = amplitude cos(t - phase) + bias = 0
    turn = np.arccos(np.clip(-biases / np.maximum(amplitude, 1e-300), -1.0, 1.0))
    angles = np.concatenate([phase + turn, phase - turn])
    angles = np.mod(angles, 2 * np.pi)
    margin = 0.1 * (step.right - step.left)
    return bool(np.any((angles > step.left - margin) & (angles < step.right + margin)))


def _resolve(oracle, frame, radius, steps, rng):
    """One unit a step: centre the step, sample its profile, compare with steps in all directions, check."""
    D = oracle.n_inputs
    jump = np.array([s.after - s.before for s in steps])
    jump /= np.sum(jump**2, axis=1, keepdims=True)
    before = np.array([s.before for s in steps])

    def progress(index, U):
        """Where the answers at U (t, k, D) stand between the step's two ends: 0 before, 1 after; (t, k)."""
        F = oracle(U.reshape(-1, D)).reshape(U.shape[0], U.shape[1], -1)
        return np.einsum("tkp,tp->tk", F - before[index][:, None], jump[index])

    index = np.arange(len(steps))
    angles, width, value = _centre(progress, frame, radius, steps)
    base = _on_circle(frame, radius, angles)
    tangent = -np.sin(angles)[:, None] * frame[:, 0] + np.cos(angles)[:, None] * frame[:, 1]
    rate = _rate(progress, index, base, tangent, radius * width, value)
    good = np.isfinite(rate) & (rate > 0)
    index, base, tangent, rate, value = (v[good] for v in (index, base, tangent, rate, value))
    if len(index) == 0:
        return []
    profile, monotone = _profile(progress, index, base, tangent, rate)
    basis = np.linalg.qr(rng.standard_normal((D, D)))[0]
    shifts = _matching_shifts(progress, index, base, basis, rate, profile)
    weights = shifts @ basis.T
    norms = np.linalg.norm(weights, axis=1)
    good = monotone & np.isfinite(norms) & (norms > 0)
    # The unit of z was a rough rate; the profile's slope at its middle, as of (1 + tanh z) / 2, mends it.
    height = np.clip(chebyshev.chebval(0.0, profile), 1e-3, 1 - 1e-3)
    slope = chebyshev.chebval(0.0, chebyshev.chebder(profile)) / _PROFILE_RANGE
    weights = np.where(good[:, None], weights * (slope / (2.0 * height * (1.0 - height)))[:, None], 1.0)
    z = 0.5 * np.log(height / (1.0 - height))
    biases = z - np.sum(weights * base, axis=1)
    error = _ridge_error(progress, index, base, weights, rng)
    good &= error < _RIDGE_TOLERANCE
    return [(weights[i], biases[i], base[i], error[i]) for i in np.flatnonzero(good)]


def _centre(progress, frame, radius, steps):
    """Angles (t,) where each step is about half done, the bracket's width there, and the progress."""
    left = np.array([s.left for s in steps])
    right = np.array([s.right for s in steps])
    middle, value = 0.5 * (left + right), np.zeros(len(steps))
    todo = np.arange(len(steps))
    for _ in range(48):
        middle[todo] = 0.5 * (left[todo] + right[todo])
        value[todo] = progress(todo, _on_circle(frame, radius, middle[todo])[:, None])[:, 0]
        low = value[todo] < 0.5
        left[todo[low]], right[todo[~low]] = middle[todo[low]], middle[todo[~low]]
        todo = todo[np.abs(value[todo] - 0.5) > 0.15]
        if len(todo) == 0:
            break
    return middle, right - left, value


def _rate(progress, index, base, tangent, width, value):
    """Slope dz/ds along the tangent of the pre-activation, from the logistic form (1 + tanh z) / 2 of the profile."""
    # The bracket is a fraction of the step's width; a tenth of it is a small move in z.
    step = 0.1 * width[:, None]
    ends = np.stack([base - step * tangent, base + step * tangent], axis=1)
    p = progress(index, ends)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (p[:, 1] - p[:, 0]) / (2.0 * step[:, 0])
    height = np.clip(value, 1e-3, 1 - 1e-3)
    return slope / (2.0 * height * (1.0 - height))


def _profile(progress, index, base, tangent, rate):
    """Chebyshev coefficients (nodes, t) of progress against z on |z| <= range, and whether it rises everywhere."""
    nodes = np.cos(np.pi * (np.arange(_PROFILE_NODES) + 0.5) / _PROFILE_NODES)
    s = _PROFILE_RANGE * nodes / rate[:, None]
    p = progress(index, base[:, None] + s[:, :, None] * tangent[:, None])
    monotone = np.all(np.diff(p, axis=1) < 0, axis=1)
    return chebyshev.chebfit(nodes, p.T, _PROFILE_NODES - 1), monotone


def _matching_shifts(progress, index, base, basis, rate, profile):
    """dz/ds along every basis direction: the tangent move that has the same progress as a step that way."""
    t, D = base.shape
    step = 0.3 / rate
    result = np.zeros((t, D))
    todo = np.ones((t, D), dtype=bool)
    for _ in range(6):
        rows = np.flatnonzero(todo.any(axis=1))
        if len(rows) == 0:
            break
        for r in _blocks(rows, D):
            U = base[r][:, None] + step[r][:, None, None] * basis.T[None]
            p = _ask_some(progress, index[r], U, todo[r])
            z = _invert(profile[:, r], p)
            fine = todo[r] & (np.abs(z) < _PROFILE_RANGE)
            result[r] = np.where(fine, z / step[r][:, None], result[r])
            todo[r] &= ~fine
        step = step / 4.0
    result[todo.any(axis=1)] = np.nan
    return result


def _blocks(rows, D):
    size = max(1, 2**22 // (D * D))
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def _ask_some(progress, index, U, wanted):
    """Progress at the wanted entries of U (t, k, D) only; NaN elsewhere."""
    t, k, D = U.shape
    flat = np.flatnonzero(wanted)
    p = np.full(t * k, np.nan)
    p[flat] = progress(np.repeat(index, k)[flat], U.reshape(-1, 1, D)[flat])[:, 0]
    return p.reshape(t, k)


def _invert(profile, p):
    """z with profile(z) = p, by Newton's iteration on the Chebyshev series; (t, k)."""
    slope = chebyshev.chebder(profile)
    x = np.zeros_like(p)
    tail = profile[:, :, None], slope[:, :, None]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for _ in range(12):
            f = chebyshev.chebval(x, tail[0], tensor=False) - p
            x = np.clip(x - f / chebyshev.chebval(x, tail[1], tensor=False), -1.05, 1.05)
    return _PROFILE_RANGE * x


def _ridge_error(progress, index, base, weights, rng):
    """How much the progress changes when moving along the unit's hyperplane far enough to disturb any other unit."""
    norms = np.linalg.norm(weights, axis=1, keepdims=True)
    normals = weights / norms
    aside = rng.standard_normal((2, *base.shape))
    aside -= np.sum(aside * normals, axis=2, keepdims=True) * normals
    aside /= np.linalg.norm(aside, axis=2, keepdims=True)
    U = np.stack([base, base + 30.0 / norms * aside[0], base - 30.0 / norms * aside[1]], axis=1)
    p = progress(index, U)
    return np.abs(p[:, 1:] - p[:, :1]).max(axis=1)


def _merge(weights, biases, points, quality, units):
    """Add units whose direction is new; of two sightings keep the one with the smaller error."""
    for w, b, point, error in units:
        cosines = np.abs(w @ weights) / (np.linalg.norm(weights, axis=0) * np.linalg.norm(w))
        same = np.flatnonzero(cosines > _SAME_UNIT)
        if len(same) == 0:
            weights, points = np.column_stack([weights, w]), np.vstack([points, point])
            biases, quality = np.append(biases, b), np.append(quality, error)
        elif error < quality[same[0]]:
            k = same[0]
            weights[:, k], biases[k], points[k], quality[k] = w, b, point, error
    return weights, biases, points, quality


def refine_lengths(oracle, first, activation):
    """Length and offset of every first-layer unit from its whole profile.

    Parameters
    ----------
    oracle : Oracle
    first : FirstLayer
    activation : str or Activation
        The true first-layer activation g.

    Returns
    -------
    FirstLayer
        The same directions; lengths and biases such that the answers along the unit's normal are a polynomial in
        ``g(a s + z)`` of lowest misfit. 24 queries a unit.

    Notes
    -----
    With all other units saturated the rest of the network is a smooth function of this unit's output alone, so a
    polynomial of degree 9 in it leaves two unknowns, found by variable projection (Gauss-Newton from six starts, all
    units at once). Exact to rounding where the layers above are gentle, to some per cent where they are steep.
    """
    g = get_activation(activation)
    low, high = g.limits
    lengths = np.linalg.norm(first.weights, axis=0)
    normals = first.weights / lengths
    s = np.linspace(-_SHAPE_RANGE, _SHAPE_RANGE, _SHAPE_NODES)
    U = first.points[:, None] + (s[None, :] / lengths[:, None])[:, :, None] * normals.T[:, None]
    F = oracle(U.reshape(-1, oracle.n_inputs)).reshape(len(lengths), _SHAPE_NODES, -1)
    F = F - F.mean(axis=1, keepdims=True)
    F /= np.maximum(np.abs(F).max(axis=(1, 2), keepdims=True), np.finfo(float).tiny)

    def misfit(log_stretch, shift, degree=_SHAPE_DEGREE):
        y = (g(np.exp(log_stretch)[:, None] * s + shift[:, None]) - low) * (2.0 / (high - low)) - 1.0
        Q, _ = np.linalg.qr(chebyshev.chebvander(y, degree))
        return (F - Q @ (np.swapaxes(Q, 1, 2) @ F)).reshape(len(y), -1)

    z0 = np.sum(first.weights * first.points.T, axis=0) + first.biases
    starts = [(np.full(len(lengths), a), z) for a in (0.0, -0.5, 0.5) for z in (z0, 0.0 * z0)]
    stretch, shift, _ = _best_of([_fit_two(misfit, a, z) for a, z in starts])
    # Where a straight line does, one linear layer lies above, and then the offset is determined too.
    line = _best_of([_fit_two(lambda a, z: misfit(a, z, 1), a, z) for a, z in starts])
    straight = line[2] < _STRAIGHT
    stretch, shift = np.where(straight, line[0], stretch), np.where(straight, line[1], shift)
    weights = first.weights * np.exp(stretch)
    return replace(first, weights=weights, biases=shift - np.sum(weights * first.points.T, axis=0))


def _fit_two(misfit, a, b, n_iter=12, h=1e-6):
    """Batched damped Gauss-Newton in two unknowns a problem, by differences of the projected misfit."""
    r = misfit(a, b)
    cost, damping = np.sum(r**2, axis=1), np.full(len(a), 1e-3)
    for _ in range(n_iter):
        J = np.stack([(misfit(a + h, b) - r) / h, (misfit(a, b + h) - r) / h], axis=1)
        A = J @ np.swapaxes(J, 1, 2)
        A[:, [0, 1], [0, 1]] *= (1.0 + damping)[:, None]
        A[:, [0, 1], [0, 1]] += np.finfo(float).tiny
        step = -np.linalg.solve(A, (J @ r[:, :, None]))[:, :, 0]
        step = np.clip(step, -0.5, 0.5)
        trial = misfit(a + step[:, 0], b + step[:, 1])
        new = np.sum(trial**2, axis=1)
        better = new < cost
        a, b = np.where(better, a + step[:, 0], a), np.where(better, b + step[:, 1], b)
        r, cost = np.where(better[:, None], trial, r), np.where(better, new, cost)
        damping = np.where(better, damping / 10.0, damping * 10.0)
    return a, b, cost


def _best_of(fits):
    """Problem by problem the (a, b, cost) of lowest cost."""
    a, b, cost = (np.array(values) for values in zip(*fits, strict=True))
    best = np.argmin(cost, axis=0), np.arange(a.shape[1])
    return a[best], b[best], cost[best]
