"""The second layer's rows at the free units of one patch, with their shifts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.linalg import find_symmetric_powers, symmetric_power
from skident.oracle import NotIdentified

from ..downstream import PatchSample
from ..kernel.taylor import TaylorRule, choose_reach, taylor_coefficients
from .biases_from_taylor import biases_from_taylor

__all__ = ["FirstPatchPowers", "powers_on_first_patch"]

_LARGEST = 0.99  # |theta|
_CHOICES, _WELL = 60, 20  # sets of free units that are drawn, and the best conditioned ones of them
_FARTHEST = 0.03  # of a power from the rows' space, where a nearly dead unit's coefficients tell it to few digits
_GAP, _CLEAR = 0.1, 1e-3  # of the singular values: the second layer is not as wide as that, and it certainly is


@dataclass(frozen=True)
class FirstPatchPowers:
    """Rows of the second layer at some first-layer units.

    Attributes
    ----------
    free : ndarray of int, shape (k,)
    theta : ndarray of shape (k,)
        Outputs of these units at t = 0.
    rows : ndarray of shape (k, m_2)
        Columns of length 1: weights up to a factor a second-layer unit.
    rule : TaylorRule
        With the reach that serves best.
    sample : PatchSample
    misfit : float
        Relative, of the powers.
    gap : float
        See `TaylorBiases`.
    """

    free: np.ndarray
    theta: np.ndarray
    rows: np.ndarray
    rule: TaylorRule
    sample: PatchSample
    misfit: float
    gap: float


def powers_on_first_patch(downstream, plan, n_powers, *, generosity=1.0):
    """Rows and shifts on one patch.

    Parameters
    ----------
    downstream : Downstream
    plan : PowerDesign
    n_powers : int or None
        m_2; None where the gap of the singular values has to tell it.
    generosity : float, default=1
        How many times the planned points are asked.

    Returns
    -------
    FirstPatchPowers

    Raises
    ------
    NotIdentified
        If the patch has too few points in reach, its coefficients are no sum of m_2 powers, or not all are found.
    """
    free = _free_units(downstream, plan.n_free)
    patch = downstream.patch(free, int(plan.n_first * generosity))
    if len(patch.points) < 0.9 * plan.n_first:
        raise NotIdentified(
            "second layer",
            "unreachable",
            f"the patch of {plan.n_free} free units has {len(patch.points)} points in reach, {plan.n_first} are needed",
        )
    chart = downstream.chart(free)
    rule, _ = choose_reach(downstream.query, patch, chart, plan.rule, downstream.rng)
    tensors = taylor_coefficients(downstream.query, patch, chart, rule)
    theta, n_powers, gap = _shifts(downstream, tensors, free, n_powers)
    if not gap < _GAP:
        told = _shifts(downstream, tensors, free, None)
        seen = told[1] if told[2] < _CLEAR and told[1] != n_powers else None
        says = "" if seen is None else f", but of {seen}"
        raise NotIdentified(
            "second layer",
            "rank",
            f"Taylor coefficients of {plan.n_free} units are no sum of {n_powers} powers{says}",
            n_seen=seen,
        )
    C = chart.coefficients(tensors, theta, rule.order)
    flat = C.reshape(-1, C.shape[-1])
    lengths = np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), np.finfo(float).tiny)
    basis = np.linalg.svd(flat / lengths, full_matrices=False)[2][:n_powers].T
    found = find_symmetric_powers(basis, plan.n_free, rule.order, downstream.rng)
    if len(found.vectors) < n_powers:
        found = find_symmetric_powers(basis, plan.n_free, rule.order, downstream.rng, farthest=_FARTHEST)
    if len(found.vectors) < n_powers:
        raise NotIdentified(
            "second layer", "incomplete", f"{len(found.vectors)} of {n_powers} powers were found on a patch"
        )
    Phi = symmetric_power(found.vectors, rule.order)
    coefficients = np.linalg.lstsq(Phi.T, flat.T, rcond=None)[0].T
    misfit = np.linalg.norm(coefficients @ Phi - flat) / np.linalg.norm(flat)
    sample = PatchSample(patch, coefficients.reshape(*C.shape[:2], n_powers), tensors[0][..., 0])
    return FirstPatchPowers(free, theta, found.vectors.T, rule, sample, float(misfit), gap)


def _shifts(downstream, tensors, free, n_powers):
    """theta (k,), m_2, and the gap that tells it."""
    if downstream.theta is not None:
        n_powers, gap = _width_of_known(tensors, n_powers)
        return downstream.theta[free], n_powers, gap
    found = biases_from_taylor(tensors, n_powers)
    return np.clip(found.theta, -_LARGEST, _LARGEST), found.n_powers, found.gap


def _width_of_known(tensors, n_powers):
    """m_2 and the gap of the singular values of the highest order alone, where shifts are known."""
    flat = tensors[-1].reshape(-1, tensors[-1].shape[-1])
    lengths = np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), np.finfo(float).tiny)
    s = np.linalg.svd(flat / lengths, compute_uv=False)
    ratios = s[1:] / np.maximum(s[:-1], np.finfo(float).tiny)
    n_powers = int(np.argmin(ratios)) + 1 if n_powers is None else n_powers
    if n_powers >= len(s):
        raise NotIdentified("second layer", "rank", f"{len(s)} coefficients are too few to tell {n_powers} units")
    return n_powers, float(ratios[n_powers - 1])


def _free_units(downstream, k):
    """k units whose weights are well conditioned."""
    m_1, rng = downstream.shape[1], downstream.rng
    sets = [np.sort(rng.permutation(m_1)[:k]) for _ in range(_CHOICES)]
    conditions = [np.linalg.cond(downstream.weights[:, units]) for units in sets]
    return sets[np.argsort(conditions)[:_WELL][rng.randint(_WELL)]]
