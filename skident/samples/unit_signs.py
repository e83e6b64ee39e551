"""Signs of ReLU units: from absolute values and a linear function to the signs with which units are active."""

import itertools
from dataclasses import dataclass, replace

import numpy as np

from skident.budget.constants import MOST_FLIPS
from skident.linalg.sign_vectors import UndecidedSignsError, nearest_signs, solve_signs
from skident.optim import best_of

from .ridges import RidgeFit, RidgeModel, fit_ridges, is_exact, ridge_gram
from .unit_count import criterion, unit_penalty

_ALL_SIGNS = 12  # units up to which all combinations are compared
_HALVES = 30  # up to which, where there are more of them than equations, halves of all combinations are matched
_PAIRS = 40  # up to which pairs of changes are tried
_REFITTED = 4  # combinations, the best ones at the units of the fit, whose own fits are compared (budget)
_CLOSE = 40.0  # noise variances by which their residuals may exceed the least: refits gain as much
_CHANCE = 3.0  # times what a unit gains by chance: hyperplanes fitted with other signs leave more than a fit would
_CUTOFFS = (1e-10, 0.03, 0.1, 0.3)  # of singular values
_PRECISELY = 1e-9  # relative decrease at which the fit without a skip stops
_EXACT_TOL = 1e-6  # relative residual of the linear part that noise-free fits may leave
_TERM_ERROR = 10.0  # noise deviations over root n: errors of the sum of a few units' terms a_i w_i


@dataclass(frozen=True)
class SignedFit:
    """ReLU units with signs.

    Attributes
    ----------
    fit : RidgeFit
        Of kind "relu"; with a skip where signs alone do not explain the linear part.
    margins : ndarray of shape (m,)
        How far every sign is from its opposite: 1 where it is determined, 0 where both do as well.
    """

    fit: RidgeFit
    margins: np.ndarray


def as_relu(model, signs=None, skip=True):
    """A model of absolute values as ReLU units, ``s |t| = 2 s relu(xi t) - s xi t``.

    signs (m,).
    """
    if signs is None:
        signs = np.where(sign_values(model) < 0, -1.0, 1.0)
    V, beta = 2.0 * model.V * signs, 2.0 * model.beta * signs
    u = model.u - 0.5 * V @ model.s if skip else np.zeros_like(model.u)
    c = model.c - 0.5 * float(beta @ model.s)
    return RidgeModel(V, beta, model.s, u, c, "relu", skip)


def sign_values(model):
    """Solution xi of least norm of ``sum_i s_i xi_i v_i = u`` in real numbers; signs where a model has no linear part.

    Returns (m,).
    """
    return np.linalg.lstsq(model.V * model.s, model.u, rcond=1e-10)[0] if model.n_units else np.empty(0)


def _squared_residuals(gram, U, b, signs):
    """Residual sums of the regressions on ``relu(xi_i (u_i . z + b_i))`` and 1, for every row xi (c, m) of signs.

    The features are ``(|t_i| + xi_i t_i) / 2`` and t_i is linear: all sums of products are in the Gram matrix of
    (|t|, z, 1, y).
    """
    m, k = U.shape
    eye = np.broadcast_to(np.eye(m), (len(signs), m, m))
    linear = signs[:, :, None] * np.column_stack([U, b])
    rows = np.concatenate([eye, linear], axis=2)
    constant = np.broadcast_to(np.eye(m + k + 1)[-1], (len(signs), 1, m + k + 1))
    B = np.concatenate([rows, constant], axis=1)
    G, g = B @ gram[:-1, :-1] @ B.swapaxes(1, 2), B @ gram[:-1, -1]
    G[:, np.arange(m + 1), np.arange(m + 1)] *= 1.0 + 1e-12
    return gram[-1, -1] - np.sum(g * np.linalg.solve(G, g[..., None])[..., 0], axis=1)


def _best_signs(sample, model):
    """Signs (c, m) whose units alone, with free output weights, leave least, the best ones first; those undetermined.

    Of all combinations for few units, else of those that a local search ends with, next to it, or that have the same
    linear part within its errors. The sign of a unit is undetermined (m,) if a combination with the other one leaves no
    more than chance.
    """
    m = model.n_units
    U, b, _ = model.units()
    (gram,) = sample.reduce(ridge_gram, U, b)
    if m <= _ALL_SIGNS:
        return _closest(sample, gram, U, b, np.array(list(itertools.product([-1.0, 1.0], repeat=m))))
    changes = 1.0 - 2.0 * np.eye(m)
    if m <= _PAIRS:
        first, second = np.triu_indices(m, 1)
        changes = np.vstack([changes, changes[first] * changes[second]])
    ends = (_descend(gram, U, b, start, changes) for start in _starts(gram, U, b, model))
    (least, signs), _ = best_of(ends, lambda end: end[0])
    if m > _HALVES:
        return _closest(sample, gram, U, b, np.vstack([signs, signs * changes]))
    tol = _TERM_ERROR * np.sqrt(max(least, 0.0) / sample.total / sample.effective_rows)
    try:
        alike = solve_signs(model.V * model.s, (model.V * model.s) @ signs, tol, max_solutions=MOST_FLIPS)
    except UndecidedSignsError:
        return _closest(sample, gram, U, b, np.vstack([signs, signs * changes]))[0], np.ones(m, dtype=bool)
    return _closest(sample, gram, U, b, np.vstack([signs, signs * changes, alike]))


def _closest(sample, gram, U, b, signs):
    """Those of some signs (c, m) that leave least, and hardly more than the best ones; which units chance decides."""
    left = _squared_residuals(gram, U, b, signs)
    order = np.argsort(left, kind="stable")
    noise = max(left[order[0]], 0.0) / sample.effective_rows
    chance = left <= left[order[0]] + _CHANCE * unit_penalty(sample) * noise
    undetermined = np.any(signs[chance] != signs[order[0]], axis=0)
    order = order[:_REFITTED]
    return signs[order][left[order] <= left[order[0]] + _CLOSE * noise], undetermined


def _rounded(model):
    """Signs of solutions of the equations with small singular values left out, more and more of them."""
    M = model.V * model.s
    starts = [np.linalg.lstsq(M, model.u, rcond=rcond)[0] for rcond in _CUTOFFS]
    return np.unique(np.where(np.array(starts) < 0, -1.0, 1.0), axis=0)


def _starts(gram, U, b, model):
    """Where descents begin; with more units than equations, first the signs that solve these best."""
    starts = _rounded(model)
    if not model.V.shape[0] < model.n_units <= _HALVES:
        return starts
    near = nearest_signs(model.V * model.s, model.u)
    return np.vstack([near[[np.argmin(_squared_residuals(gram, U, b, near))]], starts])


def _descend(gram, U, b, signs, changes):
    """Squared residual and signs once none of the changes lowers it."""
    best = _squared_residuals(gram, U, b, signs[None])[0]
    while True:
        squared_residuals = _squared_residuals(gram, U, b, signs * changes)
        i = int(np.argmin(squared_residuals))
        if squared_residuals[i] >= best * (1.0 - 1e-9):
            return best, signs
        signs, best = signs * changes[i], squared_residuals[i]


def _signs_of(sample, model, exact):
    """The signs (c, m) that explain the linear part best, and for all units how well each of them is determined."""
    M, values = model.V * model.s, sign_values(model)
    if exact and np.linalg.matrix_rank(M, tol=1e-8 * np.linalg.norm(M, 2)) < len(values):
        try:
            found = solve_signs(M, model.u, _EXACT_TOL * np.abs(model.V).max(), max_solutions=MOST_FLIPS)
        except UndecidedSignsError:
            found = np.empty((0, len(values)))
        if len(found):
            return found[:1], np.all(found == found[0], axis=0)[None].astype(np.float64)
        chosen, _ = _best_signs(sample, model)
        return chosen, np.zeros(chosen.shape)
    chosen, undetermined = _best_signs(sample, model)
    margins = np.clip(values * chosen, 0.0, 1.0)
    return chosen, margins if exact else np.where(undetermined, 0.0, margins)


def _margins(sample, model):
    """Margins (m,) of the signs of ReLU units: 0 with a linear part, or if chance decides."""
    if model.skip:
        return np.zeros(model.n_units)
    halves = replace(model, V=0.5 * model.V, beta=0.5 * model.beta, u=0.5 * model.V @ model.s, kind="abs")
    chosen, undetermined = _best_signs(sample, halves)
    return np.where(undetermined | (chosen[0] < 0), 0.0, 1.0)


def resolve_signs(sample, fit, rng):
    """Signs of the units, and the fit without a skip where that is no worse than its fewer parameters allow.

    A network without a skip has ``u = sum_i s_i xi_i v_i`` with signs xi: a linear solve or :func:`solve_signs`
    where residuals are rounding. Otherwise the signs are those whose units alone fit best on the given hyperplanes: all
    combinations are compared for up to 12 units, beyond that single and paired changes of rounded solutions and, for up
    to 30 units that are more than equations, of the best match of two halves of them (:func:`nearest_signs`). All these
    regressions come from one Gram matrix, one pass over the rows. If several combinations leave about as much, up to
    four of them are fitted. This is Algorithm 3 of Awasthi, Tang and Vijayaraghavan with the linear part of the fit,
    which is known better, in place of T_1.

    The margin of a sign is how far the real solution of these equations lies on its side, cut off at 1. It is 0 if
    other signs do as well: if terms ``s_i v_i`` of some units add up to zero, these can be flipped together (Claim
    4.8), and with a linear part, every unit can.
    """
    model = fit.model
    exact = is_exact(sample, fit.rss)
    if model.n_units == 0:
        return SignedFit(replace(fit, model=replace(model, kind="relu")), np.empty(0))
    if fit.alpha:
        return SignedFit(fit, _margins(sample, model))
    candidates, margins = _signs_of(sample, model, exact)
    plains = [fit_ridges(sample, as_relu(model, signs, False), ftol=_PRECISELY, rng=rng) for signs in candidates]
    best = min(range(len(plains)), key=lambda i: plains[i].rss)
    with_skip, plain = replace(fit, model=as_relu(model, candidates[best], True)), plains[best]
    plain = replace(plain, n_iter=fit.n_iter + plain.n_iter)
    better = is_exact(sample, plain.rss) if exact else criterion(sample, plain) <= criterion(sample, with_skip)
    return SignedFit(plain, margins[best]) if better else SignedFit(with_skip, np.zeros(model.n_units))
