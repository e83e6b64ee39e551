"""Decomposition of Hermite tensors into units: Algorithms 1, 4 and 6 of Awasthi et al. (2021)."""

import math
from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from skident.budget import require_memory
from skident.budget.constants import CHUNK_COPIES
from skident.linalg import contract_symmetric, flatten_symmetric, jennrich, joint_pencil, n_symmetric_entries, smat, svd

from .scalars import fix_signs, recover_scalars

_CONTRACTIONS = 10  # of a tensor, in a joint pencil


# eta_1, eta_2 and eta_3 of Algorithm 4: singular value, relative to the largest, that counts as zero (rounding); norm
# of a term, relative to the tensor, below which it is noise; distance of directions of one unit from two contractions.
_TOLERANCES = (1e-10, 1e-6, 1e-3)


class RecoveredUnits(NamedTuple):
    """Units ``a_i relu(w_i . x + b_i)`` recovered from tensors; the result of `units_from_tensors`.

    Attributes
    ----------
    W : ndarray of shape (D, m)
        Unit columns.
    b, a : ndarray of shape (m,)
    residual : float
        Relative residual of the decomposition that the directions come from; of two decompositions the larger one.
    spectrum : ndarray
        Singular values that the number of units was read from.
    margins : ndarray of shape (m,) or None
        1 for signs that fit exactly, 0 if both fit equally well; None if the signs of (w_i, b_i) are undetermined.

    Notes
    -----
    Undetermined signs leave the function undetermined up to a linear part.
    """

    W: np.ndarray
    b: np.ndarray
    a: np.ndarray
    residual: float
    spectrum: np.ndarray
    margins: np.ndarray | None = None


def order_for(n_features, n_units):
    """The smallest order l that separates so many generic units: ``C(D + l - 1, l) >= m`` (Corollary 3.3).

    Units of one input are parallel: no order separates two of them.
    """
    if n_features == 1 and n_units > 1:
        raise ValueError(f"tensors over one input separate 1 unit, got n_units={n_units}: all directions are parallel.")
    order = 1
    while n_symmetric_entries(n_features, order) < n_units:
        order += 1
    return order


def decomposition_bytes(n_features, order):
    """Memory that the decomposition of order l takes: some copies of ``T_{2l+2}`` as ``(n_l, n_l, n_2)``."""
    n = n_symmetric_entries(n_features, order)
    return 8 * CHUNK_COPIES * n * n * n_symmetric_entries(n_features, 2)


def _count(spectrum, n_units, rank_tol, limit, D, order):
    """How many units there are, or an error where there are more than the flattening can separate."""
    if n_units is not None and n_units > limit:
        hint = f"take order={order_for(D, n_units)}" if D > 1 else "tensors over one input separate no more"
        raise ValueError(f"order {order} separates at most {limit} units here, got n_units={n_units}: {hint}.")
    found = int(np.count_nonzero(spectrum > rank_tol * spectrum[0])) if spectrum[0] > 0 else 0
    if not found:
        raise ValueError("the tensors vanish: no unit shows in them.")
    return found if n_units is None else n_units


def _directions(vectors, D, order):
    """Unit vectors (D, r) of which the columns of vectors (n_l, r) are the packed powers, up to sign and error."""
    if order == 1:
        return vectors / np.linalg.norm(vectors, axis=0)
    if order > 2:  # w (x) w^{l-1}, of rank one
        left, _, _ = svd(flatten_symmetric(vectors.T, D, (1, order - 1)), full_matrices=False)
        return left[..., 0].T
    values, frames = np.linalg.eigh(smat(vectors.T, D))
    top = np.argmax(np.abs(values), axis=1)
    return frames[np.arange(len(top)), :, top].T


def _family(tensors, D, order, rng):
    """T_2l and contractions of T_{2l+1} and T_{2l+2}, as symmetric matrices (J, n_l, n_l) with errors of one size."""
    n = n_symmetric_entries(D, order)
    family = [flatten_symmetric(tensors[2 * order], D, (order, order))[None] / math.sqrt(math.factorial(2 * order))]
    for j in (1, 2):
        k, size = 2 * order + j, n_symmetric_entries(D, j)
        by = np.linalg.qr(rng.standard_normal((size, min(size, _CONTRACTIONS))))[0].T
        contracted = contract_symmetric(tensors[k], D, k, by, j) / math.sqrt(math.factorial(k))
        family.append(flatten_symmetric(contracted, D, (order, order)))
    return np.concatenate(family).reshape(-1, n, n)


def _joint_directions(tensors, D, order, n_units, rank_tol, n_draws, rng):
    family = _family(tensors, D, order, rng)
    spectrum = svd(np.concatenate(family, axis=1), compute_uv=False)
    m = _count(spectrum, n_units, rank_tol, family.shape[1], D, order)
    # He_0 has no zero: T_2 sees every unit. T_4 does not see units with |b| = 1, but a mixture does.
    base = family[0] if order == 1 else None
    found = joint_pencil(family, m, base=base, n_draws=n_draws, rng=rng)
    return _directions(found.vectors, D, order), found.residual, spectrum


def _literal_directions(tensors, D, order, n_units, tolerances, rng):
    """Steps 1 to 4 of Algorithm 4: separate decompositions, small terms and duplicates removed."""
    directions, sizes, residuals, spectra = [], [], [], []
    for j in (1, 2):
        flat = flatten_symmetric(tensors[2 * order + j], D, (order, order, j))
        spectra.append(svd(flat.reshape(len(flat), -1), compute_uv=False))
        m = _count(spectra[-1], n_units, tolerances[0], len(flat), D, order)
        # A unit at a zero of the Hermite polynomial is missing here.
        m = min(m, _count(spectra[-1], None, tolerances[0], len(flat), D, order))
        found = jennrich(flat, m, n_draws=1, rng=rng)
        residuals.append(found.residual)
        directions.append(_directions(found.U, D, order))
        sizes.append(np.linalg.norm(found.W, axis=0))
    W, size = np.concatenate(directions, axis=1), np.concatenate(sizes)
    order_of_size = np.argsort(-size, kind="stable")
    W, size = W[:, order_of_size], size[order_of_size]
    W = W[:, size > tolerances[1] * size[0]]
    kept = []
    for i in range(W.shape[1]):
        cosines = np.abs(W[:, kept].T @ W[:, i])
        if np.all(2.0 - 2.0 * cosines > tolerances[2] ** 2):
            kept.append(i)
    return W[:, kept[:n_units]], max(residuals), max(spectra, key=lambda s: s[0])


def _checked_tensors(tensors, order, needed):
    if isinstance(order, bool) or not isinstance(order, Integral) or order < 1:
        raise ValueError(f"order must be an integer >= 1, got {order!r}.")
    missing = [k for k in needed if k not in tensors]
    if missing:
        raise ValueError(f"order {order} needs the tensors of orders {list(needed)}, got {sorted(tensors)}.")
    tensors = {k: np.asarray(T, dtype=np.float64) for k, T in tensors.items()}
    # T_2 has D (D + 1) / 2 entries.
    D = (math.isqrt(8 * tensors[2].size + 1) - 1) // 2
    for k, T in tensors.items():
        if T.shape != (n_symmetric_entries(D, k),):
            raise ValueError(
                f"tensors[{k}] must be packed, of shape ({n_symmetric_entries(D, k)},) over R^{D}, got {T.shape}."
            )
        if not np.isfinite(T).all():
            raise ValueError(f"tensors[{k}] must be finite.")
    return tensors, D


def recover_up_to_signs(
    tensors,
    order=1,
    *,
    n_units=None,
    method="joint",
    tolerances=_TOLERANCES,
    n_draws=20,
    rng=None,
):
    """All units of a network up to the signs of (w_i, b_i), from its packed tensors: Algorithm 4 of the paper.

    Order l takes the tensors T_2 to T_{2l+2} and separates up to ``n = C(D + l - 1, l)`` generic units (Corollary 3.3),
    see `order_for`. ``O(n^3)`` for each of some 20 contractions, ``O(m^3)`` a draw, and
    ``O(m C(D + l + 2, l + 3))`` for the scalars; memory of `decomposition_bytes`, checked before it is allocated.
    """
    rng = np.random.RandomState(0) if rng is None else rng
    tensors, D = _checked_tensors(tensors, order, range(2, 2 * order + 3))
    require_memory(decomposition_bytes(D, order), f"tensors of order {2 * order + 2} over {D} inputs")
    if method == "joint":
        W, residual, spectrum = _joint_directions(tensors, D, order, n_units, tolerances[0], n_draws, rng)
    elif method == "literal":
        W, residual, spectrum = _literal_directions(tensors, D, order, n_units, tolerances, rng)
    else:
        raise ValueError(f"method must be 'joint' or 'literal', got {method!r}.")
    b, a = recover_scalars(tensors, W, order, literal=method == "literal")
    return RecoveredUnits(W, b, a, residual, spectrum)


def units_from_tensors(
    tensors, order="auto", *, n_units=None, method="joint", tolerances=_TOLERANCES, n_draws=20, random_state=None
):
    """Recover ReLU units from Hermite tensors: Algorithms 1 to 4 and 6 of [1]_.

    Parameters
    ----------
    tensors : dict of int to ndarray
        Packed ``T_k = E[f(x) He_k(x)]``, of shape ``(C(D + k - 1, k),)``, for k = 2 to ``2 l + 2`` and, for signs, k =
        1. `population_tensors` computes those of a network; :func:`skident.linalg.hermite_tensors` estimates them.
    order : "auto" or int, default="auto"
        l, which separates up to ``C(D + l - 1, l)`` generic units (Corollary 3.3). "auto" is the smallest for
        `n_units`, or the largest that the tensors allow if `n_units` is None.
    n_units : int, default=None
        m. None counts singular values above the first tolerance.
    method : {"joint", "literal"}, default="joint"
        "literal" is the algorithm as printed: two decompositions, whose units are merged. "joint" decomposes
        combinations of three tensors together, with a third of its error at equal noise.
    tolerances : tuple of 3 float, default=(1e-10, 1e-6, 1e-3)
        eta_1 (zero singular values), eta_2 (small terms) and eta_3 (equal directions) of Algorithm 4. The last two are
        for "literal". Raise them for estimated tensors.
    n_draws : int, default=20
        Random combinations that "joint" tries.
    random_state : int, RandomState or None, default=None

    Returns
    -------
    RecoveredUnits
        With signs for order 1 if T_1 is given (Algorithms 1 and 6), else up to the signs of (w_i, b_i).

    Raises
    ------
    ValueError
        If a tensor is missing, not finite or of another shape, all vanish, or the order separates too few units.
    MemoryLimitError
        If the tensors do not fit into the memory that is allowed.

    Notes
    -----
    Biases and output weights come from Algorithm 2, signs from Algorithm 3. With ``n = C(D + l - 1, l)``: ``O(n^3)``
    for each of some 20 contractions, ``O(m^3)`` per draw, and ``O(m C(D + l + 2, l + 3))`` for the scalars.

    References
    ----------
    .. [1] P. Awasthi, A. Tang, A. Vijayaraghavan, "Efficient algorithms for learning depth-2 neural networks with
       general ReLU activations", 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.samples import population_tensors, units_from_tensors
    >>> W, b, a = np.eye(3)[:, :2], np.array([0.5, -1.0]), np.array([1.0, 2.0])
    >>> units = units_from_tensors(population_tensors(W, b, a, 4), random_state=0)
    >>> print(np.sort(units.b).round(9))
    [-1.   0.5]
    """
    if isinstance(order, str) and order == "auto":
        _, D = _checked_tensors(tensors, 1, (2,))
        order = max(1, (max(tensors) - 2) // 2) if n_units is None else order_for(D, n_units)
    found = recover_up_to_signs(
        tensors,
        order,
        n_units=n_units,
        method=method,
        tolerances=tolerances,
        n_draws=n_draws,
        rng=check_random_state(random_state),
    )
    if order > 1 or 1 not in tensors:
        return found
    signs, margins = fix_signs(np.asarray(tensors[1]), found.W, found.b, found.a, literal=method == "literal")
    return found._replace(W=found.W * signs, b=found.b * signs, margins=margins)
