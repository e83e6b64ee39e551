"""The network of units where not all answers tell anything: logits that are lost, or a range that must not be left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.budget import check_deadline
from skident.linalg.sign_vectors import UndecidedSignsError
from skident.network import FeedforwardNetwork

from .positions import locate_units
from .residual_probe import Rest
from .signs import points_on_both_sides, signs_for
from .units import ReLUUnits

__all__ = ["Found", "View", "network_of_view", "view_of"]

_ROBUST = 20  # reweightings
_WRONG = 64.0  # accuracies by which a fitted answer may be off
_SLACK = 1e-12  # or this share of the answers' spread
_BEYOND = 100.0  # distance, in units of sqrt(D), beyond which a unit that is always active may be at rest
_FALSE = 0.3  # share of its zeros that must show for a unit to be one
_SHARP = 30.0  # error, in units of the noise, of units that need to be known no better
_SAME = 1e-8  # difference of hyperplanes that is none
_SKIP = 1e-10  # relative size of a linear part that is rounding


@dataclass(frozen=True)
class Found:
    """A network read off kinks.

    Attributes
    ----------
    network : FeedforwardNetwork
        Of standardised inputs.
    n_skips : int
        Its last hidden units, so many of them, are always active: they only stand for a linear part of the answers that
        no signs of the other units explain. The answers are the same, the weights may not be those of the black box.
    """

    network: FeedforwardNetwork
    n_skips: int = 0


@dataclass(frozen=True)
class View:
    """All that the answers in view determine: ``f(u) = a + g . u + sum_i c_i |w_i . u + b_i| / 2``.

    Attributes
    ----------
    units : ReLUUnits
        With outgoing weights c from the fit.
    constant : ndarray of shape (m_L,)
        a, in units of the noise.
    linear : ndarray of shape (m_L, D)
        ``2 g``.
    accuracy : float
        Of `linear`.
    misfit : float
        Largest error, relative to the spread of the answers.
    wrong, right : ndarray of shape (n, D) and (k, D)
        Points whose answers this misses, and explains.
    """

    units: ReLUUnits
    constant: np.ndarray
    linear: np.ndarray
    accuracy: float
    misfit: float
    wrong: np.ndarray
    right: np.ndarray


def view_of(search):
    """Everything but signs, fitted to answers all over the view, and where that fails.

    Parameters
    ----------
    search : LineSearch

    Returns
    -------
    View

    Notes
    -----
    The units are located anew (`locate_units`); then a, g and c are linear, and are fitted by least absolute
    deviations, reweighted, so that a unit that is missing shows as wrong answers on one of its sides.
    """
    probe, rng, units = search.probe, search.rng, search.units
    D, m = units.weights.shape
    units = _distinct(_located(probe, units, search.n_known, search.pool, rng), probe.unit)
    m = len(units)
    n = 6 * (m + D + 1) + 1000
    U = np.concatenate([points_on_both_sides(units, n, rng), search.pool[rng.randint(len(search.pool), size=n)]])
    U = probe.oracle.clip_to_range(U)
    F, tol = probe.ask(U)
    seen = np.isfinite(tol)
    U, F, tol = U[seen], F[seen], tol[seen]
    design = np.column_stack([np.ones(len(U)), U, 0.5 * np.abs(U @ units.weights + units.biases)])
    theta, accuracy, residual = _robust(design, F, tol)
    linear = 2.0 * theta[1 : D + 1].T
    units = ReLUUnits(units.weights, units.biases, theta[D + 1 :], units.errors)
    sizes = np.linalg.norm(units.outgoing, axis=1) * units.errors
    spread = np.ptp(F, axis=0).max()
    wrong = residual > np.maximum(_WRONG * tol, _SLACK * spread)
    misfit = float(np.max(residual - _WRONG * tol, initial=0.0) / spread)
    return View(units, theta[0], linear, accuracy + float(np.linalg.norm(sizes)), misfit, U[wrong], U[~wrong])


def _located(probe, units, n_known, points, rng):
    """Units located anew where that is needed; faint ones on what the others leave over. False ones are left out.

    The first `n_known` have been located before, and stay.
    """
    known, new = units.take(slice(0, n_known)), units.take(slice(n_known, None))
    if n_known == 0:
        new, shares = locate_units(probe, new, points, rng)
        known, new = new.take(shares > _FALSE), new.take(shares <= _FALSE)
    sharp = _is_sharp(known)
    if not sharp.all():
        again, _ = locate_units(Rest(probe, known.take(sharp)), known.take(~sharp), points, rng)
        better = again.errors < known.take(~sharp).errors
        known = known.take(sharp).joined(known.take(~sharp).take(~better)).joined(again.take(better))
    if len(new):
        new, shares = locate_units(Rest(probe, known), new, points, rng)
        new = new.take(shares > _FALSE)
    return known.joined(new)


def _is_sharp(units):
    """Units that are known so well that their part of the answers is exact to rounding."""
    return units.errors * np.linalg.norm(units.outgoing, axis=1) < _SHARP


def _distinct(units, unit):
    """One unit of each hyperplane, the first."""
    planes, kept = np.column_stack([units.weights.T, units.biases / unit]), []
    for k, plane in enumerate(planes):
        others = planes[kept]
        gaps = np.minimum(np.abs(others - plane).max(axis=1), np.abs(others + plane).max(axis=1))
        if np.all(gaps > _SAME + 10.0 * units.errors[k]):
            kept.append(k)
    return units.take(np.array(kept, dtype=int))


def _robust(design, F, tol):
    """Coefficients (k, m_L) by reweighted least squares, the accuracy of those of the inputs, and residuals (n,)."""
    scale = np.linalg.norm(design / tol[:, None], axis=0)
    weights = 1.0 / tol
    for _ in range(_ROBUST):
        check_deadline()
        theta = (
            np.linalg.lstsq(design * (weights[:, None] / scale), F * weights[:, None], rcond=1e-14)[0] / scale[:, None]
        )
        residual = np.abs(F - design @ theta).max(axis=1)
        if np.all(residual <= _WRONG * tol):
            break
        weights = 1.0 / np.sqrt(tol * np.maximum(tol, residual))
    accuracy = 8.0 * float(np.median(tol)) / np.sqrt(len(F)) * 4.0
    return theta, accuracy, residual


def network_of_view(view, noise, unit):
    """The network of a view: with signs if some explain its linear part, or else with units that are always active.

    Parameters
    ----------
    view : View
    noise : ndarray of shape (m_L,)
        Units of the view's answers.
    unit : float
        ``sqrt(D)``.

    Returns
    -------
    Found
        With units that only stand for a linear part, where the signs leave one over.
    """
    units, tol = view.units, 64.0 * view.accuracy
    try:
        choices, misfit = signs_for(units, view.linear, tol)
    except UndecidedSignsError:
        choices, misfit = np.empty((0, len(units))), np.empty(0)
    if len(choices) == 1 or (len(choices) > 1 and np.sort(misfit)[1] > 100.0 * misfit.min()):
        signs, skip = choices[np.argmin(misfit)], np.zeros_like(view.linear)
    else:
        M = (units.outgoing.T[:, None] * units.weights).reshape(-1, len(units))
        signs = np.where(np.linalg.lstsq(M, view.linear.ravel(), rcond=1e-10)[0] < 0, -1.0, 1.0)
        skip = 0.5 * (view.linear - (units.outgoing.T * signs) @ units.weights.T)
    # sum_i c_i (|z_i| + s_i z_i) / 2 has the constant sum_i c_i s_i b_i / 2.
    constant = view.constant - 0.5 * (signs * units.biases) @ units.outgoing
    left, sizes, right = np.linalg.svd(skip, full_matrices=False)
    kept = sizes > _SKIP * np.linalg.norm(view.linear) + tol
    reach = _BEYOND * unit
    outgoing = (left[:, kept] * sizes[kept]).T
    constant = constant - reach * outgoing.sum(axis=0)
    weights = [np.hstack([units.weights * signs, right[kept].T]), np.vstack([units.outgoing, outgoing]) * noise]
    biases = [np.concatenate([units.biases * signs, np.full(kept.sum(), reach)]), constant * noise]
    return Found(FeedforwardNetwork(weights, biases, "relu"), int(kept.sum()))
