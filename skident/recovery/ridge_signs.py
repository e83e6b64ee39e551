"""From absolute values and a linear function to ReLU units: which side of each hyperplane is the active one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .relu_signs import UndecidedSignsError, solve_signs
from .ridge_fit import RidgeFit, RidgeModel, fit_ridges
from .ridge_selection import criterion, is_exact

__all__ = ["SignedFit", "as_relu", "resolve_signs"]

_EXACT_TOL = 1e-6  # relative misfit of the linear part that noise-free fits may leave


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

    Parameters
    ----------
    model : RidgeModel
        Of kind "abs".
    signs : ndarray of shape (m,), default=None
        The xi; None for those that leave little of the linear part.
    skip : bool, default=True
        Whether what is left of it is kept: with it, this is the same function whatever the signs.

    Returns
    -------
    RidgeModel
        Of kind "relu".
    """
    if signs is None:
        signs = _signs_of(model, False)[1]
    V, beta = 2.0 * model.V * signs, 2.0 * model.beta * signs
    u = model.u - 0.5 * V @ model.s if skip else np.zeros_like(model.u)
    c = model.c - 0.5 * float(beta @ model.s)
    return RidgeModel(V, beta, model.s, u, c, "relu", skip)


def _signs_of(model, exact):
    """Real solution of ``sum_i s_i xi_i v_i = u`` of least norm, and the signs closest to it or solving it."""
    M = model.V * model.s
    values = np.linalg.lstsq(M, model.u, rcond=1e-10)[0]
    signs = np.where(values < 0, -1.0, 1.0)
    if exact and np.linalg.matrix_rank(M, tol=1e-8 * np.linalg.norm(M, 2)) < len(signs):
        try:
            found = solve_signs(M, model.u, _EXACT_TOL * np.abs(model.V).max(), max_solutions=1)
        except UndecidedSignsError:
            found = np.empty((0, len(signs)))
        if len(found):
            return found[0], found[0]
    return values, signs


def resolve_signs(sample, fit, rng, *, ftol=1e-9):
    """Signs of the units, and the fit without a skip where that is no worse than its fewer parameters allow.

    Parameters
    ----------
    sample : Sample
    fit : RidgeFit
        Of kind "abs", at its minimum.
    rng : numpy.random.RandomState
    ftol : float

    Returns
    -------
    SignedFit

    Notes
    -----
    A network without a skip has ``u = sum_i s_i xi_i v_i`` with signs xi: a linear solve for up to k units in general
    position, and a search of :func:`solve_signs` for more units where residuals are rounding. The thresholds of
    Algorithm 3 of Awasthi, Tang and Vijayaraghavan, with the linear part of the fit in place of T_1.
    """
    model = fit.model
    exact = is_exact(sample, fit.rss)
    if model.n_units == 0:
        empty = RidgeModel(model.V, model.beta, model.s, model.u, model.c, "relu", True)
        return SignedFit(RidgeFit(empty, fit.rss, fit.n_iter, fit.status), np.empty(0))
    values, signs = _signs_of(model, exact)
    with_skip = RidgeFit(as_relu(model, signs, True), fit.rss, fit.n_iter, fit.status)
    plain = fit_ridges(sample, as_relu(model, signs, False), ftol=ftol, rng=rng)
    plain = RidgeFit(plain.model, plain.rss, fit.n_iter + plain.n_iter, plain.status)
    better = is_exact(sample, plain.rss) if exact else criterion(sample, plain) <= criterion(sample, with_skip)
    return SignedFit(plain if better else with_skip, np.minimum(np.abs(values), 1.0))
