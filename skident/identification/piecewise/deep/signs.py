"""On which side of their kinks the units of a layer are active: a linear problem over the units of the next one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skident.budget import check_deadline, chunks, require_memory

__all__ = ["LayerSigns", "features_with_signs", "layer_signs", "over_ratio", "signs_beside_linear_part"]

_RANK = 1e-8
_MOST_SIGNS = 14  # up to which all signs are tried
_LOW_RANK = 1e-6
_SURE = 1e-3  # distance from 1 up to which the size of a sign is taken as 1
_SURE_NOISY, _TOLD = 0.1, 30.0  # the same where probe are noisy, and what their errors must tell of a sign
_FREE = 1e6  # size of other unknowns beside signs
_COPIES = 5  # of the equations: their blocks, as one matrix, scaled, in the decomposition and its result
_SVD = 20.0  # operations of a singular value decomposition, beside n m^2 (Golub and Van Loan, section 8.6)
_PER_ERROR = 1e-7  # misfit that stands for an error of a noisy equation


class LayerSigns(NamedTuple):
    """Signs of a layer's units.

    Attributes
    ----------
    signs : ndarray of shape (m_l,)
        As they were solved for, over the ratio: near 1 and -1 where they are right.
    doubt : ndarray of shape (m_l,)
        ``| |s| - 1 |``: the certificate.
    ratio : float
        What the signs were solved for as; 1 of ReLU units, ``(1 + a) / (1 - a)`` of leaky ones of slope a.
    determined : ndarray of bool, shape (m_l,)
    misfit : float
        Largest violation of an equation.
    used : list of int
        The units whose equations were used.
    hidden : ndarray of shape (m_{l-1}, m_l)
        Weights of layer l that no kink told, 0 where it did or where they do not matter.
    sure : float
        Doubt up to which a sign is certain.
    """

    signs: np.ndarray
    doubt: np.ndarray
    ratio: float
    determined: np.ndarray
    misfit: float
    used: list
    hidden: np.ndarray
    sure: float = _SURE

    @property
    def certain(self):
        """Whether all that is determined is a sign."""
        return bool(self.doubt[self.determined].max(initial=0.0) < self.sure)

    @property
    def slope(self):
        """Of the units where they are not active."""
        return (self.ratio - 1.0) / (self.ratio + 1.0)


def layer_signs(known, units, slope=0.0, tol=1e-5, vague=None):
    """Signs of the units of layer l from units of layer l + 1.

    A unit ``z = sum_k alpha_k |z_k| + c . h_{l-1} + d`` of layer l + 1 has ``c = sum_k s_k alpha_k w_k``: m_{l-1}
    linear equations for the signs s. What is open of a unit enters as further unknowns. While the equations contradict
    each other, the unit is left out without which they do so least.

    A weight o of layer l that no kink told, of a unit k that is always on where its input i is, adds
    ``2 s_k alpha_k o`` to c_i: one more unknown.

    Parameters
    ----------
    known : KnownLayers
    units : list of FacetUnit
    slope : float or None, default=0.0
        Of units of layer l that are not active; None where it is to be found.
    tol : float, default=1e-5
        Relative violation of an equation that is none.
    vague : ndarray of bool, shape (m_{l-1}, m_l), default=None
        Weights of layer l that are not known, and 0 in `known`.

    Returns
    -------
    LayerSigns
    """
    used, vague = list(range(len(units))), np.argwhere(np.zeros((1, 1)) if vague is None else vague)
    while True:
        result = _solve(known, [units[i] for i in used], slope, vague)[0]._replace(used=used)
        if len(used) <= 2 or (result.misfit < tol and result.certain):
            return result
        without = []
        for j in range(len(used)):
            others = _solve(known, [units[i] for i in used[:j] + used[j + 1 :]], slope, vague)[1]
            without.append((others.max(), np.median(others)))
        used = [u for j, u in enumerate(used) if j != min(range(len(used)), key=without.__getitem__)]


def _solve(known, units, slope, hidden):
    """Signs by least squares, and every unit's largest misfit; `hidden` are pairs of indices of weights."""
    K, m = known.n_units, known.n_before
    scales = [1.0 / max(np.abs(unit.theta[:K]).max(), np.finfo(float).tiny) for unit in units]
    vague = [np.linalg.norm(unit.open[:K], axis=1) > unit.tolerance for unit in units]
    n_unknowns = K + len(hidden) + sum(unit.n_open + int(v.sum()) for unit, v in zip(units, vague, strict=True))
    _require_solution(m * len(units), n_unknowns)
    blocks, values, start = [], [], K + len(hidden)
    for unit, scale, v in zip(units, scales, vague, strict=True):
        block = np.zeros((m, n_unknowns))
        alpha = np.where(v, 0.0, scale * unit.theta[:K])
        block[:, :K] = known.weights * alpha
        block[hidden[:, 0], K + np.arange(len(hidden))] = 2.0 * alpha[hidden[:, 1]]
        # The products of a sign and a weight that is open, and what is open of c.
        for part in (known.weights[:, v], -unit.open[K:-1]):
            block[:, start : start + part.shape[1]] = part
            start += part.shape[1]
        blocks.append(block)
        values.append(scale * unit.theta[K:-1])
    A, y = np.vstack(blocks), np.concatenate(values)
    size, sure = np.maximum(np.linalg.norm(A, axis=0), 1e-12), _SURE
    if known.accuracy:
        errors = np.concatenate([_errors_of(known, *pair) for pair in zip(units, scales, strict=True)])
        A, y, sure = A / errors[:, None], y / errors, _SURE_NOISY
        size = np.append(np.ones(K), np.maximum(np.linalg.norm(A[:, K:], axis=0), 1e-12) / _FREE)
    U, s, Vt = np.linalg.svd(A / size, full_matrices=len(A) < A.shape[1])
    k = int(np.sum(s > (_TOLD if known.accuracy else _RANK * s[0])))
    x = Vt[:k].T @ ((U[:, :k].T @ y) / s[:k])
    determined = np.linalg.norm(Vt[k:, :K], axis=0) < 1e-5
    misfits = np.abs(A @ (x / size) - y).reshape(len(units), -1).max(axis=1) * (_PER_ERROR if known.accuracy else 1.0)
    signs, ratio = over_ratio((x / size)[:K], determined, slope)
    doubt, told = np.abs(np.abs(signs) - 1.0), np.zeros((m, K))
    told[hidden[:, 0], hidden[:, 1]] = np.where(signs >= 0, 1.0, -1.0)[hidden[:, 1]] * (x / size)[K : K + len(hidden)]
    return LayerSigns(signs, doubt, ratio, determined, float(misfits.max()), [], told, sure), misfits


def _require_solution(n_equations, n_unknowns):
    """Refuse a singular value decomposition that memory or time do not allow."""
    few, many = sorted((n_equations, n_unknowns))
    what = f"the equations for the signs of a layer: {n_equations} of them with {n_unknowns} unknowns"
    require_memory(8 * (_COPIES * few * many + n_unknowns**2), what)
    check_deadline(_SVD * many * few**2)


def over_ratio(told, determined, slope):
    """Signs that were solved for, over what they are multiplied by.

    As ``leaky(s z) = (1 - a) / 2 (|z| + rho s z)`` with ``rho = (1 + a) / (1 - a)``, they come out as rho or -rho.

    Parameters
    ----------
    told : ndarray of shape (m,)
    determined : ndarray of bool, shape (m,)
    slope : float or None
        a; None where it is to be found.

    Returns
    -------
    signs : ndarray of shape (m,)
    rho : float
    """
    if slope is None:
        rho = max(1.0, float(np.median(np.abs(told[determined])))) if determined.any() else 1.0
    else:
        rho = (1.0 + slope) / (1.0 - slope)
    return told / rho, rho


def _errors_of(known, unit, scale):
    """Errors (m,) of a unit's equations for the signs."""
    errors, K = scale * np.linalg.norm(unit.scatter, axis=1), known.n_units
    return errors[K:-1] + np.abs(known.weights) @ errors[:K] + 3.0 * known.accuracy


def signs_beside_linear_part(known, units):
    """Signs of the units of layer l where units that are always on are missing: all signs are tried.

    Missing units add ``V beta_j`` to the linear part c of every unit j of layer l + 1, of low rank over all units.

    Parameters
    ----------
    known : KnownLayers
    units : list of FacetUnit
        Only those without anything open are used.

    Returns
    -------
    signs : ndarray of shape (m_l,) or None
        None where no signs leave a part of low rank, or several do.
    linear : ndarray of shape (m_{l-1}, r)
        An orthonormal basis of V.

    Notes
    -----
    ``2^m_l`` small singular value decompositions; given up above 14 signs.
    """
    K, nothing = known.n_units, np.zeros((known.n_before, 0))
    theta = np.array([unit.theta / np.linalg.norm(unit.theta) for unit in units if unit.n_open == 0])
    if len(theta) < 2 or K > _MOST_SIGNS:
        return None, nothing
    A, C = theta[:, :K].T, theta[:, K:-1].T
    signs = 1.0 - 2.0 * (np.arange(2**K)[:, None] >> np.arange(K) & 1)
    sizes = []
    for some in chunks(len(signs), _COPIES * 8 * C.size):
        check_deadline()
        sizes.append(np.linalg.svd(_rest(known, signs[some], A, C), compute_uv=False))
    sizes = np.concatenate(sizes)
    for r in range(1, min(len(theta), known.n_before)):
        fits = np.flatnonzero(sizes[:, r] < _LOW_RANK)
        if len(fits) == 1:
            return signs[fits[0]], np.linalg.svd(_rest(known, signs[fits[:1]], A, C)[0])[0][:, :r]
        if len(fits) > 1:
            break
    return None, nothing


def _rest(known, signs, A, C):
    """What signs (s, m_l) leave of the linear parts of units, (s, m_{l-1}, n)."""
    return C - np.einsum("mk,sk,kj->smj", known.weights, signs, A)


def features_with_signs(known, signs, linear=None, slope=0.0):
    """What a unit of layer l + 1 is in terms of its own weights: ``theta = B (w, b)``.

    Parameters
    ----------
    known : KnownLayers
    signs : ndarray of shape (m_l,)
    linear : ndarray of shape (m_{l-1}, r), default=None
        Of units that are always on.
    slope : float, default=0.0
        a, of units that are not active.

    Returns
    -------
    ndarray of shape (T, m_l + r + 1)
        B, as ``leaky(s z) = (1 - a) |z| / 2 + (1 + a) s z / 2``.
    """
    K, r = known.n_units, 0 if linear is None else linear.shape[1]
    B = np.zeros((known.n_features, K + r + 1))
    B[np.arange(K), np.arange(K)] = 0.5 * (1.0 - slope)
    B[K:-1, :K] = 0.5 * (1.0 + slope) * known.weights * signs
    B[-1, :K] = 0.5 * (1.0 + slope) * signs * known.biases
    if r:
        B[K:-1, K : K + r] = linear
    B[-1, -1] = 1.0
    return B
