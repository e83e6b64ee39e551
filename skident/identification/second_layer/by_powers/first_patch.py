"""Weights of the second layer at the free units of one patch, with the bias corrections of these units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.linalg import lapack, svd
from skident.linalg.packing import insertion, packing_weights
from skident.oracle import NotIdentified

from ...constants import MAX_GAP
from ...query_points import unit_rows
from ..kernel.charts import exponents
from ..kernel.patch import Patch
from ..kernel.powers import decompose_into_powers
from ..kernel.taylor import TaylorRule, choose_reach, taylor_coefficients

__all__ = ["FirstPatch", "PatchSample", "TaylorBiases", "biases_from_taylor", "powers_on_first_patch"]

_MAX_CENTER_OUTPUT = 0.99  # in absolute value: a least-squares solution may lie outside (-1, 1)
_N_FREE_SETS = 60  # budget of random sets of free units
_N_WELL_CONDITIONED = 20  # of them, one is chosen at random: another try gets another patch
_MIN_POINTS = 0.9  # part of the planned points that has to be in reach: the design has a seventh to spare
_CLEAR_GAP = 1e-3  # ratio at which another width is certain enough to be named
_SPARE_ROWS = 2  # beyond the rank that a gap needs to show


@dataclass(frozen=True)
class PatchSample:
    """A patch, coefficients (n, m_L, m_2) of the powers of W2 at its points, and network outputs (n, m_L) there."""

    patch: Patch
    coefficients: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class FirstPatch:
    """Columns of norm 1 of W2 (k, m_2) at free units (k,), their center outputs (k,), and what they came from.

    `rule` has the reach that serves best; `residual` is that of the powers, relative.
    """

    free: np.ndarray
    center_outputs: np.ndarray
    W2: np.ndarray
    rule: TaylorRule
    sample: PatchSample
    residual: float


@dataclass(frozen=True)
class TaylorBiases:
    """Center outputs (k,), the number of powers m_2, and the ratio of singular values (gap) that shows it."""

    center_outputs: np.ndarray
    n_powers: int
    gap: float


def powers_on_first_patch(downstream, design, n_powers, *, n_points_factor=1.0):
    """The `FirstPatch` of a `PowerDesign`, with more points than planned if a factor is given.

    `n_powers` is m_2, None if the gap of the singular values has to show it. Raises NotIdentified if too few points are
    in reach, the coefficients are no sums of m_2 powers, or not all of these are recovered.
    """
    free = _well_conditioned_units(downstream, design.n_free)
    patch = downstream.patch(free, int(design.n_first * n_points_factor))
    if len(patch.points) < _MIN_POINTS * design.n_first:
        raise NotIdentified(
            "second layer",
            "unreachable",
            f"the patch of {design.n_free} free units has {len(patch.points)} points in reach, "
            f"{design.n_first} are needed",
        )
    chart = downstream.chart(free)
    rule = choose_reach(downstream.query, patch, chart, design.rule, downstream.rng)
    tensors = taylor_coefficients(downstream.query, patch, chart, rule)
    biases = _biases(downstream, tensors, free, n_powers)
    if not biases.gap < MAX_GAP:
        raise _wrong_width(biases.n_powers, _biases(downstream, tensors, free, None), design.n_free)
    C = chart.coefficients(tensors, biases.center_outputs, rule.order)
    W2, coefficients, residual = decompose_into_powers(C, design.n_free, rule.order, biases.n_powers, downstream.rng)
    sample = PatchSample(patch, coefficients, tensors[0][..., 0])
    return FirstPatch(free, biases.center_outputs, W2, rule, sample, residual)


def _wrong_width(n_powers, detected, n_free):
    """The error for coefficients that are no sums of `n_powers` powers, with the width detected if that is clear."""
    n_seen = detected.n_powers if detected.gap < _CLEAR_GAP and detected.n_powers != n_powers else None
    hint = "" if n_seen is None else f", but of {n_seen}"
    message = f"Taylor coefficients of {n_free} units are no sum of {n_powers} powers{hint}"
    return NotIdentified("second layer", "rank", message, n_seen=n_seen)


def _well_conditioned_units(downstream, k):
    """k units (k,) whose weights are well conditioned, at random."""
    m_1, rng = downstream.shape[1], downstream.rng
    sets = [np.sort(rng.permutation(m_1)[:k]) for _ in range(_N_FREE_SETS)]
    conditions = [lapack.cond(downstream.weights[:, units]) for units in sets]
    return sets[np.argsort(conditions)[:_N_WELL_CONDITIONED][rng.randint(_N_WELL_CONDITIONED)]]


def _biases(downstream, tensors, free, n_powers):
    """`TaylorBiases`; center outputs that are known stay, and the highest order alone shows the width."""
    if downstream.center_outputs is None:
        return biases_from_taylor(tensors, n_powers)
    rows = unit_rows(tensors[-1].reshape(-1, tensors[-1].shape[-1]))
    s = svd(rows, compute_uv=False)
    ratios = s[1:] / np.maximum(s[:-1], np.finfo(float).tiny)
    n_powers = int(np.argmin(ratios)) + 1 if n_powers is None else n_powers
    if n_powers >= len(s):
        message = f"{len(s)} coefficients are too few to determine {n_powers} units"
        raise NotIdentified("second layer", "rank", message)
    return TaylorBiases(downstream.center_outputs[free], n_powers, float(ratios[n_powers - 1]))


def biases_from_taylor(tensors, n_powers=None):
    """Center outputs for which Taylor coefficients in ``h' = tanh z`` are sums of few powers.

    `tensors` has an array (n, m_L, C(k + q - 1, q)) for each order q = 0, ..., p. Without `n_powers`, the width m_2 is
    where the gap of the singular values is largest.

    In ``eta = h - center`` the coefficients of order q at all points lie in the span of m_2 powers, so that all orders
    together have rank ``sum_q min(m_2, C(k + q - 1, q))``. A null vector N of the highest order shows as a null vector
    ``(N', L, ...)`` of all orders in h', with ``L_alpha = sum_i alpha_i center_i N'_{alpha + e_i}``: linear in the
    center outputs. Null vectors of order p - 1 alone are free to add to L, and are projected out.
    """
    n_rows, k = len(tensors[0]) * tensors[0].shape[1], tensors[1].shape[-1]
    blocks = [T.reshape(n_rows, -1) for T in tensors[1:]]
    sizes = [np.sqrt(np.mean(B**2)) + np.finfo(float).tiny for B in blocks]
    R = unit_rows(np.hstack([B / s for B, s in zip(blocks, sizes, strict=True)]))
    entries = [B.shape[1] for B in blocks]
    _, s, Vt = svd(R, full_matrices=True)
    s = np.concatenate([s, np.zeros(R.shape[1] - min(R.shape))])
    n_powers, gap = _width(s, entries, n_rows, n_powers)
    rank = sum(min(n_powers, d) for d in entries)
    top, low, lower = _null_vectors(Vt[rank:], entries, sizes, n_powers, k)
    center_outputs = _center_outputs(top, low, lower, k, len(blocks))
    return TaylorBiases(np.clip(center_outputs, -_MAX_CENTER_OUTPUT, _MAX_CENTER_OUTPUT), n_powers, gap)


def _width(s, entries, n_rows, n_powers):
    """The number of powers, and the ratio of singular values (gap) at the rank that it implies."""
    widths = range(1, entries[-1]) if n_powers is None else [n_powers]
    ranks = {m: sum(min(m, d) for d in entries) for m in widths}
    gaps = {m: s[r] / max(s[r - 1], np.finfo(float).tiny) for m, r in ranks.items() if r + _SPARE_ROWS <= n_rows}
    if not gaps or (n_powers is not None and n_powers >= entries[-1]):
        message = f"{n_rows} rows of {entries[-1]} coefficients are too few to determine {n_powers} units."
        raise NotIdentified("second layer", "rank", message)
    best = min(gaps, key=gaps.get)
    return best, float(gaps[best])


def _null_vectors(N, entries, sizes, n_powers, k):
    """Null vectors by monomials of orders p and p - 1, (v, n_p) and (v, n_{p-1}), and those of order p - 1 alone."""
    p, n_top = len(entries), entries[-1] - n_powers
    ends = np.cumsum(entries)
    left = svd(N[:, ends[-2] :], full_matrices=True)[0]
    N = left.T @ N
    top = N[:n_top, ends[-2] :] / (packing_weights(k, p) * sizes[-1])
    of_lower_order = slice(ends[-3] if p > 2 else 0, ends[-2])
    low = N[:n_top, of_lower_order] / (packing_weights(k, p - 1) * sizes[-2])
    alone = N[n_top:, of_lower_order]
    n_alone = max(0, entries[-2] - n_powers)
    alone = svd(alone, full_matrices=False)[2][:n_alone] if n_alone else alone[:0]
    return top, low, alone * (1.0 / sizes[-2])


def _center_outputs(top, low, alone, k, p):
    """Center outputs (k,) by least squares on null vectors: see `biases_from_taylor`."""
    weights = packing_weights(k, p - 1)
    A = top[:, insertion(k, p - 1)] * exponents(k, p - 1) * weights[:, None]  # (v, n_{p-1}, k)
    y = low * weights
    if len(alone):
        Q = lapack.qr(alone.T)[0]
        A = A - np.einsum("ab,nbk->nak", Q @ Q.T, A)
        y = y - y @ Q @ Q.T
    return lapack.lstsq(A.reshape(-1, k), y.ravel(), rcond=None)[0]
