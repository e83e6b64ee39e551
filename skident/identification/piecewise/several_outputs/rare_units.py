"""Units of the second layer that lines have not shown: what is left of outputs, as a function of the first layer."""

import numpy as np

from skident.budget.constants import ROUNDS
from skident.linalg import lapack, svd

from ...constants import NEAR_SHARE

_REWEIGHTINGS = 12  # of reweighted least squares
_CLEAN_SHARE = 0.4  # of the samples, that show no rare unit, at least
_NOISE = 20.0  # times the errors of these, above which a sample shows one
_LEAST_NOISE = 1e-8  # `_NOISE` relative to what is left: rounding
_LEAST_SAMPLES = 4  # with one direction: two agree by chance if two units are on at both
_MORE = 1.2  # samples per unknown weight
_OTHER_FACTOR = 0.1  # difference of a factor from 0 or -1: other units have been missed
_SAME_COSINE = 1e-5  # one minus the cosine
_GAP = 30.0  # singular value of a linear part over the median one, of units that are never inactive
_LEAST_SHARE = 1e-3  # of an error, over the outputs of a known unit: smaller ones are errors of weights
_LEAST_LINEAR = 1e-2  # `_LEAST_SHARE` of the linear part
_MARGIN = 10.0  # least pre-activation of these at a sample, over the spread: they are active far out, too


def rare_units(first, known, X, left, query_left, rng):
    """Weights (m_1, q), biases (q,) and outgoing weights (q, m_L) of units that explain what is `left` (n, m_L) at X.

    With all other units taken off, outputs are linear in those of the first layer wherever these units are on their
    usual side. At the rare samples on the other side of a unit, the difference is a positive multiple of its outgoing
    weights. More samples near those give its weights by least squares. The linear part shows which side is active.
    ``query_left(X)`` is what is left at further samples. Errors along outgoing weights that are `known` (k, m_L) are
    those of other units. None if some samples are not explained.
    """
    W, b = first
    rows = _with_ones(np.maximum(X @ W + b, 0.0))
    linear, errors = _robust_fit(rows, left)
    size = np.linalg.norm(errors, axis=1)
    scale = np.linalg.norm(left - left.mean(axis=0), axis=1).max()
    noise = _NOISE * max(float(np.quantile(size, _CLEAN_SHARE)), _LEAST_NOISE * scale)

    def query(points):
        rows = _with_ones(np.maximum(points @ W + b, 0.0))
        return rows, query_left(points) - rows @ linear

    unit_size = float(np.linalg.norm(known, axis=1).max() * rows.max())
    found, todo = [], size > max(noise, _LEAST_SHARE * unit_size)
    while todo.any():
        i = int(np.argmax(size * todo))
        same = todo & _is_along(errors, errors[i] / size[i], noise)
        todo &= ~same
        old = np.abs(known @ errors[i]) > (1.0 - _SAME_COSINE) * size[i] * np.linalg.norm(known, axis=1)
        if same.sum() >= _LEAST_SAMPLES and not old.any():
            unit = _unit(query, X[same], rows[same], errors[same], noise, rng)
            if unit is None:
                return None
            found.append(unit)
    V, U = (np.array([unit[k] for unit in found]).reshape(-1, n) for k, n in ((0, rows.shape[1]), (1, left.shape[1])))
    return _oriented(V.T, U, linear, rows, noise, unit_size)


def _oriented(V, U, linear, rows, noise, unit_size):
    """Units from those parts that are rarely active (m_1 + 1, q), (q, m_L) and the linear part (m_1 + 1, m_L)."""
    factors = np.zeros(len(U))
    if len(U):
        A = np.stack([np.outer(v[:-1], u).ravel() for v, u in zip(V.T, U, strict=True)], axis=1)
        factors = lapack.lstsq(A, linear[:-1].ravel())[0]
        linear = linear[:-1] - (A @ np.round(factors)).reshape(linear[:-1].shape)
        if np.any(np.minimum(np.abs(factors), np.abs(factors + 1.0)) > _OTHER_FACTOR):
            return None
    else:
        linear = linear[:-1]
    V = V * np.where(np.round(factors) == -1.0, -1.0, 1.0)
    left, values, right = svd(linear, full_matrices=False)
    H = rows[:, :-1]
    large = values * np.linalg.norm(H, axis=1).max() > max(noise, _LEAST_LINEAR * unit_size)
    n_linear = int(np.sum(large & (values > _GAP * np.median(values))))
    more = left[:, :n_linear]
    bias = _MARGIN * np.abs(H @ more).max(axis=0, initial=0.0)
    V = np.hstack([V, np.vstack([more, bias])])
    return V[:-1], V[-1], np.concatenate([U, values[:n_linear, None] * right[:n_linear]])


def _unit(query, X, rows, errors, noise, rng):
    """Weights and bias (m_1 + 1,) and outgoing weights (m_L,) of the unit that samples show alone; or None."""
    u = svd(errors, full_matrices=False)[2][0]
    u *= np.sign(np.median(errors @ u))
    wanted = int(_MORE * rows.shape[1])
    for _ in range(ROUNDS):
        if len(rows) >= wanted:
            break
        near = X[rng.randint(len(X), size=wanted)]
        far = np.linalg.norm(near, axis=1, keepdims=True) / np.sqrt(near.shape[1])
        more_rows, more = query(near + NEAR_SHARE * far * rng.standard_normal(near.shape))
        alone = _is_along(more, u, noise)
        rows, errors = np.concatenate([rows, more_rows[alone]]), np.concatenate([errors, more[alone]])
    if len(rows) < wanted:
        return None
    v = lapack.lstsq(rows, errors @ u)[0]
    return (v, u) if np.sqrt(np.mean((rows @ v - errors @ u) ** 2)) < noise else None


def _is_along(errors, u, noise):
    """Which errors (n, m_L) are positive multiples of a unit vector (m_L,), beyond noise."""
    along = errors @ u
    return (along > noise) & (np.linalg.norm(errors - along[:, None] * u, axis=1) < noise)


def _robust_fit(rows, Y):
    """Least absolute deviations of Y (n, m_L) by rows (n, q): coefficients (q, m_L) and errors."""
    weights = np.ones(len(rows))
    for _ in range(_REWEIGHTINGS):
        solution = lapack.lstsq(rows * weights[:, None], Y * weights[:, None])[0]
        errors = Y - rows @ solution
        size = np.linalg.norm(errors, axis=1)
        weights = 1.0 / np.sqrt(np.maximum(size, _LEAST_NOISE * size.max()))
    return solution, errors


def _with_ones(H):
    return np.column_stack([H, np.ones(len(H))])
