"""ReLU units from the Hermite coefficients of orders two to four, by Gauss-Newton steps on the tensors themselves.

Units are kept as rows: ``U`` (c, m, p) has unit rows, ``b`` (c, m) the biases, ``a`` (c, m) the output weights of c
candidates, treated as one batch. The tensor of order k of a candidate is ``sum_i a_i h_k(b_i) u_i^k`` with
``h_k(b) = (-1)^k He_{k-2}(b) phi(b)`` (Lemma 3.5 of Awasthi, Tang and Vijayaraghavan). It does not change when (u, b) change
sign together.
"""

from __future__ import annotations

import math

import numpy as np

from skident.linalg import smat

__all__ = ["coefficient_tensors", "fit_moments", "moment_candidates"]

ORDERS = (2, 3, 4)
_WEIGHTS = {k: 1.0 / math.factorial(k) for k in ORDERS}
_FAR = 4.0  # biases beyond leave nothing in the tensors
_SQRT_2PI = math.sqrt(2.0 * math.pi)
_SHORT = 12  # steps after which only the better candidates go on


def _hermite_coefficients(b):
    """``h_k(b)`` and its derivative, for k = 2, 3, 4."""
    phi = np.exp(-0.5 * b * b) / _SQRT_2PI
    h = {2: phi, 3: -b * phi, 4: (b * b - 1.0) * phi}
    slope = {2: -b * phi, 3: (b * b - 1.0) * phi, 4: (3.0 - b * b) * b * phi}
    return h, slope


def _squares(U):
    """``svec(u u^T)`` of every row, (..., q)."""
    p = U.shape[-1]
    i, j = np.triu_indices(p)
    return U[..., i] * U[..., j] * np.where(i == j, 1.0, math.sqrt(2.0))


def coefficient_tensors(U, b, a):
    """Tensors of orders 2 to 4 of ``sum_i a_i relu(u_i . z + b_i)`` for standard normal z, Lemma 3.5.

    Parameters
    ----------
    U : ndarray of shape (m, p)
        Unit rows.
    b, a : ndarray of shape (m,)

    Returns
    -------
    dict
        ``{2: (p, p), 3: (q, p), 4: (q, q)}`` in the form of :func:`~skident.linalg.hermite_tensors`.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.recovery import coefficient_tensors
    >>> T = coefficient_tensors(np.array([[0.6, 0.8]]), np.zeros(1), np.ones(1))
    >>> print(round(float(np.trace(T[2]) * np.sqrt(2 * np.pi)), 6))
    1.0
    """
    h, _ = _hermite_coefficients(b)
    S = _squares(U)
    return {2: (U.T * (a * h[2])) @ U, 3: (S.T * (a * h[3])) @ U, 4: (S.T * (a * h[4])) @ S}


def _evaluate(tensors, U):
    """``T_k(u, ..., u)`` (c, m) and ``T_k(u, ..., u, .)`` (c, m, p) for every order."""
    S = _squares(U)
    slopes = {2: U @ tensors[2], 3: S @ tensors[3], 4: np.einsum("...ij,...j->...i", smat(S @ tensors[4], U.shape[-1]), U)}
    return {k: (slope * U).sum(axis=-1) for k, slope in slopes.items()}, slopes


def _loss(tensors, norms, U, b, a):
    """``sum_k ||T_k - T_k(U, b, a)||^2 / k!``, (c,)."""
    values, _ = _evaluate(tensors, U)
    h, _ = _hermite_coefficients(b)
    G = U @ U.swapaxes(-1, -2)
    loss = 0.0
    for k in ORDERS:
        c = a * h[k]
        own = np.einsum("ci,cij,cj->c", c, G**k, c)
        loss = loss + _WEIGHTS[k] * (own - 2.0 * (c * values[k]).sum(axis=-1) + norms[k])
    return loss


def _linearise(tensors, U, b, a):
    """Gauss-Newton matrix (c, m (p + 2), m (p + 2)) and descent direction, in (u, a, b) of every unit.

    All inner products of the derivatives are polynomials in the Gram matrix of the units: no tensor is formed.
    """
    n_candidates, m, p = U.shape
    values, slopes = _evaluate(tensors, U)
    h, dh = _hermite_coefficients(b)
    G = U @ U.swapaxes(-1, -2)
    H = np.zeros((n_candidates, m, p + 2, m, p + 2))
    g = np.zeros((n_candidates, m, p + 2))
    eye = np.eye(p)
    mixed = np.zeros((n_candidates, m, m))
    isotropic = np.zeros((n_candidates, m, m))
    for k in ORDERS:
        u, c = _WEIGHTS[k], a * h[k]
        scalars = np.stack([h[k], a * dh[k]], axis=-1)  # derivatives by a and by b
        Gk, G1, G2 = G**k, k * G ** (k - 1), k * (k - 1) * G ** (k - 2)
        H[:, :, p:, :, p:] += u * np.einsum("cis,cij,cjt->cisjt", scalars, Gk, scalars)
        cross = u * np.einsum("cis,cij,cj,ciq->cisjq", scalars, G1, c, U)
        H[:, :, p:, :, :p] += cross
        H[:, :, :p, :, p:] += cross.transpose(0, 3, 4, 1, 2)
        pairs = u * c[:, :, None] * c[:, None, :]
        isotropic += pairs * G1
        mixed += pairs * G2
        missing = values[k] - np.einsum("cij,cj->ci", Gk, c)
        g[:, :, p:] += u * scalars * missing[..., None]
        g[:, :, :p] += u * c[..., None] * (k * slopes[k] - np.einsum("cij,cj,cjp->cip", G1, c, U))
    H[:, :, :p, :, :p] += isotropic[:, :, None, :, None] * eye[:, None, :]
    H[:, :, :p, :, :p] += np.einsum("cij,cjp,ciq->cipjq", mixed, U, U)
    # Only moves along the sphere change the units.
    tangent = eye - U[..., :, None] * U[..., None, :]
    for _ in range(2):  # from the left, and by symmetry from the right
        H[:, :, :p] = (tangent @ H[:, :, :p].reshape(n_candidates, m, p, -1)).reshape(n_candidates, m, p, m, p + 2)
        H = np.ascontiguousarray(H.transpose(0, 3, 4, 1, 2))
    g[:, :, :p] = (tangent @ g[:, :, :p, None])[..., 0]
    size = m * (p + 2)
    return H.reshape(n_candidates, size, size), g.reshape(n_candidates, size)


def _damped_steps(H, g, damping):
    """Solutions of ``(H + damping diag(H)) step = g`` for every candidate."""
    diagonal = np.einsum("cii->ci", H)
    scale = np.maximum(diagonal, 1e-8 * diagonal.max(axis=1, keepdims=True))
    H = H + (damping[:, None] * scale)[:, :, None] * np.eye(H.shape[1])
    return np.linalg.solve(H, g[..., None])[..., 0]


def _moved(U, b, a, steps):
    p = U.shape[2]
    steps = steps.reshape(*b.shape, p + 2)
    U = U + steps[..., :p]
    U /= np.linalg.norm(U, axis=-1, keepdims=True)
    return U, np.clip(b + steps[..., p + 1], -_FAR, _FAR), a + steps[..., p]


def fit_moments(tensors, U, b, a, *, max_iter=60, ftol=1e-6):
    """Minimise ``sum_k ||T_k - T_k(U, b, a)||^2 / k!`` over k = 2, 3, 4 from many starts at once.

    This is the squared L2 risk, cut off after degree four and without the part of degree zero and one, which signs
    depend on (Proposition B.1 of [1]_); the weights are also those of the sampling errors of the entries.

    Parameters
    ----------
    tensors : dict
        ``{2: (p, p), 3: (q, p), 4: (q, q)}`` as :func:`~skident.linalg.hermite_tensors` returns it.
    U : ndarray of shape (c, m, p)
        Starts; unit rows.
    b, a : ndarray of shape (c, m)
    max_iter : int, default=60
        Steps of Levenberg-Marquardt; after 12 of them only the better half of the candidates goes on.
    ftol : float, default=1e-6
        A candidate is done when an accepted step lowers its loss by less than this fraction.

    Returns
    -------
    U, b, a : ndarray
        Of the candidates that went on to the end, the best one first.
    loss : ndarray of shape (c',)

    Notes
    -----
    ``O(c (m^3 p^3 + m q^2))`` a step with ``q = p (p + 1) / 2``, whatever the sample was. Biases are kept within 4.

    References
    ----------
    .. [1] P. Awasthi, A. Tang, A. Vijayaraghavan (2021). Efficient Algorithms for Learning Depth-2 Neural Networks with
       General ReLU Activations.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.recovery import coefficient_tensors, fit_moments
    >>> T = coefficient_tensors(np.eye(2), np.array([0.3, -0.5]), np.array([1.0, -2.0]))
    >>> start = np.array([[[1.0, 0.1], [0.2, 0.9]]])
    >>> U, b, a, loss = fit_moments(T, start, np.zeros((1, 2)), np.array([[1.0, -1.0]]))
    >>> print(np.round(b[0], 6))
    [ 0.3 -0.5]
    """
    norms = {k: float(np.sum(tensors[k] ** 2)) for k in ORDERS}
    U = U / np.linalg.norm(U, axis=-1, keepdims=True)
    damping = np.full(len(U), 1e-2)
    loss = _loss(tensors, norms, U, b, a)
    active = np.ones(len(U), dtype=bool)
    # Losses below this are rounding of the norms they are differences of.
    floor = 1e-15 * sum(_WEIGHTS[k] * norms[k] for k in ORDERS)
    for iteration in range(max_iter):
        if iteration == _SHORT and len(U) > 3:
            order = np.argsort(loss, kind="stable")[: -(-len(U) // 2)]
            U, b, a, loss, damping, active = (x[order] for x in (U, b, a, loss, damping, active))
        at = np.flatnonzero(active)
        if not len(at):
            break
        H, g = _linearise(tensors, U[at], b[at], a[at])
        steps = _damped_steps(H, g, damping[at])
        new = _moved(U[at], b[at], a[at], steps)
        new_loss = _loss(tensors, norms, *new)
        better = new_loss < loss[at]
        slow = better & (loss[at] - new_loss < ftol * np.abs(loss[at]))
        won = at[better]
        for old, value in zip((U, b, a, loss), (*new, new_loss)):
            old[won] = value[better]
        damping[at] = np.where(better, damping[at] / 4.0, damping[at] * 6.0)
        active[at] = ~slow & (damping[at] < 1e6) & (loss[at] > floor)
    order = np.argsort(loss, kind="stable")
    return U[order], b[order], a[order], loss[order]


def _scalars(tensors, U):
    """Biases and output weights that go with directions: least squares for every order, then ``b = -c_3 / c_2``."""
    values, _ = _evaluate(tensors, U)
    G = U @ U.swapaxes(-1, -2)
    ridge = 1e-6 * np.eye(U.shape[1])
    c = {k: np.linalg.solve(G**k + ridge, values[k][..., None])[..., 0] for k in (2, 3)}
    small = 1e-9 * np.abs(c[2]).max(axis=-1, keepdims=True) + np.finfo(float).tiny
    b = np.clip(-c[3] / np.where(np.abs(c[2]) < small, small, c[2]), -2.5, 2.5)
    a = c[2] * _SQRT_2PI * np.exp(0.5 * b * b)
    bound = 10.0 * np.median(np.abs(a), axis=-1, keepdims=True)
    return b, np.clip(a, -bound, bound)


def _pencils(tensors, n_draws, rng):
    """Directions from ``(alpha T_3(v) + (1 - alpha) T_4(V)) T_2^-1`` for random v, V and alpha: one joint pencil a draw."""
    p, q = tensors[3].shape[1], len(tensors[3])
    third = smat(rng.standard_normal((n_draws, p)) @ tensors[3].T, p)
    fourth = smat(rng.standard_normal((n_draws, q)) @ tensors[4], p)
    share = rng.uniform(size=(n_draws, 1, 1))
    third, fourth = (M / np.linalg.norm(M, axis=(1, 2), keepdims=True) for M in (third, fourth))
    values, vectors = np.linalg.eig((share * third + (1.0 - share) * fourth) @ np.linalg.pinv(tensors[2]))
    # A complex pair spans a plane: its real and imaginary part take the place of the two.
    rows = np.where((values.imag < 0)[:, None], vectors.imag, vectors.real).swapaxes(1, 2)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def moment_candidates(tensors, n_units, n_candidates, rng):
    """Starts for :func:`fit_moments`.

    Parameters
    ----------
    tensors : dict
    n_units : int
    n_candidates : int
        Half of them come from joint pencils where there are as many units as dimensions, the others have random
        directions.
    rng : numpy.random.RandomState

    Returns
    -------
    U : ndarray of shape (n_candidates, n_units, p)
    b, a : ndarray of shape (n_candidates, n_units)
    """
    p = tensors[2].shape[0]
    n_pencils = -(-n_candidates // 2) if n_units == p else 0
    U = rng.standard_normal((n_candidates, n_units, p))
    U /= np.linalg.norm(U, axis=-1, keepdims=True)
    if n_pencils:
        U[:n_pencils] = _pencils(tensors, n_pencils, rng)
    return U, *_scalars(tensors, U)
