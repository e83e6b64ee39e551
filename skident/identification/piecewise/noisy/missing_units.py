"""Units of the second layer that were never crossed, from outputs that a network does not explain.

Where one such unit is active alone, what is left of the outputs is linear in the outputs of the first layer.
"""

import numpy as np

from skident.budget import check_deadline
from skident.budget.constants import MANY_ROUNDS
from skident.linalg import lapack, svd

from ...constants import LEAST_SHARE, REWEIGHTINGS
from ..kernel.robust_fit import fit_outputs

_N_SEEDS = 4  # wrong points around which units are searched
_N_MORE_SEEDS = 16  # around which more points of a unit are searched
_PER_UNKNOWN = 6  # wrong points per weight of a unit
_STEPS = (0.03, 0.1, 0.3, 0.6, 1.0)  # steps from one wrong point to the next, in standard deviations of the inputs
_BATCH = 200  # steps tried at a time
_LEAST_POINTS = 2.0  # of the wrong points per weight: as many as weights always fit
_ONE_WEIGHT = 0.95  # share of one input in a unit's sum that is a wrong weight of another unit
_MARGIN_STEPS = 30  # Newton steps on the squares of pre-activations above the margin
_MARGIN = 0.05  # of pre-activations below 0, over their median size
_MARGIN_RIDGE = 1e-3  # over the size of the inputs: weights that no right point limits stay small
_RANK_ONE = 0.1  # second singular value of several outputs, over the first


def find_missing_unit(layers, residual_at, seeds, right, tol, rng):
    """A unit (weights, bias, output) that explains the residuals around one of the seeds (n, D), and these points.

    None if there is no such unit.
    ``residual_at(X)`` gives points (n, D) close to X that were queried, the residuals (n, m_L) there in the units of
    the probe, and their standard deviations (n,); residuals above `tol` deviations are wrong.
    At the points `right` (k, D) the unit is not active, which limits its weights from inputs that no wrong point has.
    """
    for seed in seeds[rng.permutation(len(seeds))[:_N_SEEDS]]:
        check_deadline()
        n = _PER_UNKNOWN * (layers.W2.shape[0] + 1)
        cloud = _cloud(residual_at, seed[None], tol, n, rng)
        unit = _unit_of(layers, *cloud, tol)
        if unit is not None:
            # Inputs that are not active around this seed may be so around others.
            some = seeds[rng.permutation(len(seeds))[:_N_MORE_SEEDS]]
            clouds = [_cloud(residual_at, other[None], tol, n // 2, rng) for other in some]
            joint = tuple(np.concatenate(parts) for parts in zip(cloud, *clouds, strict=True))
            larger = _unit_of(layers, *joint, tol)
            unit, cloud = (unit, cloud) if larger is None else (larger, joint)
            return _inactive_at(layers.hidden(right), *unit), cloud[0]
    return None


def _cloud(residual_at, seeds, tol, n, rng):
    """At least n wrong points around seeds, by random steps, if there are so many; with residuals and errors."""
    X, R, std = residual_at(seeds)
    for _ in range(MANY_ROUNDS):
        if len(X) >= n:
            break
        step = rng.choice(_STEPS, (_BATCH, 1))
        new = residual_at(X[rng.randint(len(X), size=_BATCH)] + step * rng.standard_normal((_BATCH, X.shape[1])))
        wrong = np.linalg.norm(new[1], axis=1) > tol * new[2]
        X, R, std = (np.concatenate([old, part[wrong]]) for old, part in zip((X, R, std), new, strict=True))
    return X, R, std


def _unit_of(layers, X, R, std, tol):
    """The unit that is active alone at most of the points X with residuals R (n, m_L); None if there is none."""
    tol = tol * np.median(std)
    s, Vt = svd(R, full_matrices=False)[1:]
    if len(s) > 1 and s[1] > _RANK_ONE * s[0]:
        return None
    output = Vt[0] if np.median(R @ Vt[0]) > 0 else -Vt[0]
    H = layers.hidden(X)
    used = np.flatnonzero(np.count_nonzero(H, axis=0) > 1)
    A = np.column_stack([H[:, used], np.ones(len(X))])
    if len(X) < _LEAST_POINTS * A.shape[1]:
        return None
    options = {"explained": 1.0, "n_rounds": REWEIGHTINGS}
    _, residual = fit_outputs(A, (R @ output)[:, None], np.full(len(X), tol), **options)
    good = residual < 1.0
    if good.sum() < _LEAST_POINTS * A.shape[1] or good.mean() < LEAST_SHARE:
        return None
    coef = lapack.lstsq(A[good], R[good] @ output, rcond=1e-8)[0]
    parts = np.abs(coef) * np.mean(A[good], axis=0)
    if parts.max() > _ONE_WEIGHT * parts.sum():
        return None
    w = np.zeros(layers.W2.shape[0])
    w[used] = coef[:-1]
    return w, coef[-1], output


def _inactive_at(H, w, b, output):
    """The unit with weights instead of 0 such that it is not active at outputs H (n, K1) of the first layer."""
    free = w == 0
    w = w.copy()
    for _ in range(_MARGIN_STEPS if free.any() else 0):
        z = H @ w + b
        margin = _MARGIN * np.median(np.abs(z))
        near = z > -margin
        if not np.any(z > 0):
            break
        ridge = _MARGIN_RIDGE * np.sqrt(np.mean(H[:, free] ** 2)) * np.eye(free.sum())
        target = np.concatenate([-margin - z[near], np.zeros(free.sum())])
        w[free] += lapack.lstsq(np.vstack([H[near][:, free], ridge]), target, rcond=None)[0]
    return w, b, output
