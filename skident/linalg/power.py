"""Rank-one matrices in a subspace of symmetric matrices: the batched subspace power method."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from skident.budget import check_deadline
from skident.budget import chunk_bytes as default_chunk_bytes

from .symmetric import _triangle_like, n_free_entries, svec_outer

# Copies of one fixed point agree to the iteration's tolerance, different ones differ by far more than this angle.
_SAME_COSINE = 1.0 - 1e-3
# Known vectors come from elsewhere, and the subspace's own copy of one is bent by the subspace's error.
_KNOWN_COSINE = 1.0 - 5e-3


@dataclass(frozen=True)
class RankOneSearch:
    """Result of `find_rank_one`.

    Attributes
    ----------
    vectors : array (k, D)
        Distinct maximizers, unit vectors, by descending `phi`.
    phi : array (k,)
        ``||P_W(u u^T)||_F^2``: 1 if ``u u^T`` lies in the subspace.
    n_iter : int
        Iterations of the longest run.
    n_starts : int
        Starts used in all rounds.
    """

    vectors: Any
    phi: Any
    n_iter: int
    n_starts: int


def projection_norms(basis, u):
    """``Phi(u) = ||P_W(u u^T)||_F^2`` for unit rows u (n, D) and an orthonormal basis (q, m): (n,).

    Parameters
    ----------
    basis : array of shape (q, m)
    u : array of shape (n, D)

    Returns
    -------
    array of shape (n,)
        At most 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import projection_norms, svec_outer
    >>> u = np.array([[0.6, 0.8]])
    >>> print(round(float(projection_norms(svec_outer(u).T, u)[0]), 12))
    1.0
    """
    xp = array_namespace(u)
    return xp.sum((svec_outer(u) @ basis) ** 2, axis=-1)


def _gradient_step(basis, u, shift, triangle):
    """One step ``P_W(u u^T) u + shift u``, normalized."""
    xp = array_namespace(u)
    n, D = u.shape
    rows, cols, weights, position = triangle
    coefficients = (xp.take(u, rows, axis=1) * xp.take(u, cols, axis=1) * weights) @ basis
    projected = (coefficients @ basis.T) / weights
    step = xp.reshape(xp.take(projected, position, axis=1), (n, D, D)) @ u[:, :, None]
    step = step[:, :, 0] + shift * u
    length = xp.linalg.vector_norm(step, axis=1, keepdims=True)
    # A vector whose u u^T is orthogonal to the subspace has no gradient and stays where it is.
    return xp.where(length > 0, step / xp.where(length > 0, length, xp.ones_like(length)), u)


def subspace_power_iteration(basis, starts, *, step_size=math.inf, max_iter=1000, tol=1e-10):
    """Projected gradient ascent of ``Phi(u) = ||P_W(u u^T)||_F^2`` on the sphere, all starts at once.

    Parameters
    ----------
    basis : array of shape (q, m)
        Orthonormal basis of W as `svec` vectors, ``q = D (D + 1) / 2``.
    starts : array of shape (n, D)
        Unit vectors.
    step_size : float, default=inf
        The step ``gamma`` of ``u <- P_S(u + 2 gamma P_W(u u^T) u)``; infinity gives the pure power step
        ``P_S(P_W(u u^T) u)``, which converges in the fewest iterations.
    max_iter : int, default=1000
    tol : float, default=1e-10
        A start has converged when its step is shorter than this, or than 20 roundings of the basis' dtype.

    Returns
    -------
    u : array of shape (n, D)
    phi : array of shape (n,)
    n_iter : int
        Iterations until the last start converged, or `max_iter`.

    Notes
    -----
    An iteration is two products with the basis, ``O(n D^2 m)``; converged starts leave the batch. Temporary memory is
    ``O(n D^2)``: cut the starts into chunks to bound it.
    Source: Algorithm 2 of Fiedler et al. (2021), eq. (16).

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import subspace_power_iteration, svec_outer
    >>> a = np.array([[1.0, 0.0], [0.6, 0.8]])
    >>> basis, _ = np.linalg.qr(svec_outer(a).T)
    >>> u, phi, _ = subspace_power_iteration(basis, np.array([[0.9, np.sqrt(0.19)]]))
    >>> print(round(float(phi[0]), 8))
    1.0
    """
    xp = array_namespace(basis, starts)
    shift = 0.0 if math.isinf(step_size) else 1.0 / (2.0 * step_size)
    tol = max(tol, 20.0 * float(xp.finfo(basis.dtype).eps))
    triangle = _triangle_like(starts, starts.shape[1])
    final = xp.asarray(starts, copy=True)
    index = xp.arange(starts.shape[0], device=device(starts))
    u, n_iter = final, 0
    while n_iter < max_iter and index.shape[0]:
        n_iter += 1
        check_deadline()
        new = _gradient_step(basis, u, shift, triangle)
        moved = xp.linalg.vector_norm(new - u, axis=1)
        u = new
        active = moved > tol
        if n_iter % 4 == 0 or n_iter == max_iter or not bool(xp.any(active)):
            final[index] = u
            index, u = index[active], u[active]
    return final, projection_norms(basis, final), n_iter


def _random_units(like, rng, n, D):
    """n unit vectors drawn from rng, as arrays of `like`'s namespace, dtype and device."""
    xp = array_namespace(like)
    draws = rng.standard_normal((n, D))
    draws /= np.linalg.norm(draws, axis=1, keepdims=True)
    return xp.asarray(draws, dtype=like.dtype, device=device(like))


def _distinct(u, phi):
    """Indices of one representative (largest phi) for every direction up to sign, by descending phi."""
    xp = array_namespace(u)
    cosines = xp.abs(u @ u.T) > _SAME_COSINE
    chosen, covered = [], xp.zeros(u.shape[0], dtype=xp.bool, device=device(u))
    for i in xp.argsort(phi, descending=True, stable=True):
        if not bool(covered[i]):
            chosen.append(int(i))
            covered = covered | cosines[i]
    return chosen


def _deflated_basis(basis, found):
    """Orthonormal basis (q, m - k) of the part of W orthogonal to the images of ``found`` (k, D), None if trivial."""
    if not 0 < found.shape[0] < basis.shape[1]:
        return None
    xp = array_namespace(basis, found)
    full, _ = xp.linalg.qr((svec_outer(found) @ basis).T, mode="complete")
    return basis @ full[:, found.shape[0] :]


@dataclass(frozen=True)
class RankOneOptions:
    """How `find_rank_one` searches.

    Attributes
    ----------
    n_starts : int or None
        Starts of the first round, ``2 m`` by default; later rounds use twice the number still missing, at least 16.
    phi_min : float
        Value of ``||P_W(u u^T)||_F^2`` from which a maximizer is accepted.
    step_size, max_iter, tol
        See `subspace_power_iteration`.
    max_rounds : int
        The search ends after this many rounds, or two in a row without a new vector.
    chunk_bytes : int or None
        Bound on the ``n D^2`` temporaries of a batch of starts; by default `skident.budget.chunk_bytes`.
    """

    n_starts: int | None = None
    phi_min: float = 0.9
    step_size: float = math.inf
    max_iter: int = 1000
    tol: float = 1e-10
    max_rounds: int = 8
    chunk_bytes: int | None = None

    def climb(self, basis, deflated, u):
        """A few steps in the deflated subspace, if any, then in the full one until convergence.

        Parameters
        ----------
        basis : array of shape (q, m)
        deflated : array of shape (q, m - k) or None
        u : array of shape (n, D)
            Unit vectors.

        Returns
        -------
        u, phi, n_iter
            As of `subspace_power_iteration`.
        """
        if deflated is not None:
            u, _, _ = subspace_power_iteration(deflated, u, step_size=self.step_size, tol=1e-3, max_iter=50)
        return subspace_power_iteration(basis, u, step_size=self.step_size, tol=self.tol, max_iter=self.max_iter)


def find_rank_one(basis, n_features, *, n_vectors=None, known=None, options=None, rng=None, callback=None):
    """All rank-one matrices of a subspace: power iterations from random starts, then from deflated ones.

    Parameters
    ----------
    basis : array of shape (q, m)
        Orthonormal basis of the subspace W.
    n_features : int
        D, with ``q = D (D + 1) / 2``.
    n_vectors : int, default=None
        Number of vectors that ends the search; m by default.
    known : array of shape (k, D), default=None
        Unit vectors already known to span part of W; they are deflated from the first round on and not returned.
    options : RankOneOptions, default=None
    rng : numpy.random.RandomState or Generator, default=None
    callback : callable, default=None
        ``callback(n_found, n_vectors)`` after every round.

    Returns
    -------
    RankOneSearch

    Raises
    ------
    ValueError
        If the basis or `known` does not belong to matrices of size D.

    Notes
    -----
    Starts converge to new vectors after a few iterations in the deflated subspace (W less the projections of the known
    vectors). This replaces the coupon collector's ``m log m`` random starts.

    Source: Algorithm 2 of Fiedler et al. (2021); deflation of the starts after Kileel and Pereira (2019).

    Examples
    --------
    >>> import numpy as np
    >>> from skident.linalg import find_rank_one, svec_outer
    >>> rng = np.random.default_rng(0)
    >>> a = rng.standard_normal((30, 12)); a /= np.linalg.norm(a, axis=1, keepdims=True)
    >>> basis, _ = np.linalg.qr(svec_outer(a).T)
    >>> search = find_rank_one(basis, 12, rng=rng)
    >>> print(len(search.vectors))
    30
    """
    xp, options = array_namespace(basis), RankOneOptions() if options is None else options
    rng = np.random.RandomState(0) if rng is None else rng
    m, D = _check_sizes(basis, n_features, known)
    known = xp.zeros((0, D), dtype=basis.dtype, device=device(basis)) if known is None else known
    wanted = max(0, m - known.shape[0]) if n_vectors is None else n_vectors
    found, phi = known[:0], basis[0, :0]
    longest, n_starts, idle = 0, 0, 0
    for round_ in range(options.max_rounds):
        missing = wanted - found.shape[0]
        if missing <= 0 or idle == 2:
            break
        n = max(16, 2 * missing) if round_ or not options.n_starts else options.n_starts
        n_starts += n
        deflated = _deflated_basis(basis, xp.concat([known, found], axis=0))
        pools, phis = [found], [phi]
        for size in _chunk_sizes(n, options.chunk_bytes, D):
            u, p, n_iter = options.climb(basis, deflated, _random_units(basis, rng, size, D))
            pools.append(u[p >= options.phi_min])
            phis.append(p[p >= options.phi_min])
            longest = max(longest, n_iter)
        before = found.shape[0]
        found, phi = _distinct_from(known, xp.concat(pools, axis=0), xp.concat(phis, axis=0))
        idle = idle + 1 if found.shape[0] <= before else 0
        if callback is not None:
            callback(found.shape[0], wanted)
    return RankOneSearch(found, phi, longest, n_starts)


def _check_sizes(basis, n_features, known):
    """m and D."""
    if basis.ndim != 2 or basis.shape[0] != n_free_entries(n_features):
        raise ValueError(
            f"the basis of a subspace of symmetric {n_features} x {n_features} matrices must have "
            f"{n_free_entries(n_features)} rows, got shape {tuple(basis.shape)}."
        )
    if known is not None and (known.ndim != 2 or known.shape[1] != n_features):
        raise ValueError(f"known must have shape (k, {n_features}), got {tuple(known.shape)}.")
    return basis.shape[1], n_features


def _chunk_sizes(n, chunk_bytes, n_features):
    """Batches of n starts whose temporaries, 24 D^2 bytes a start in float64, stay within chunk_bytes."""
    chunk = max(1, int((chunk_bytes or default_chunk_bytes()) // (24 * n_features**2)))
    return [min(chunk, n - first) for first in range(0, n, chunk)]


def _distinct_from(known, pool, phi):
    """The pool's distinct directions that are none of the known ones, and their phi."""
    xp = array_namespace(pool)
    keep = _distinct(pool, phi)
    if known.shape[0]:
        repeats = xp.max(xp.abs(pool @ known.T), axis=1) > _KNOWN_COSINE
        keep = [i for i in keep if not bool(repeats[i])]
    keep = xp.asarray(keep, dtype=xp.int64, device=device(pool))
    return xp.take(pool, keep, axis=0), xp.take(phi, keep, axis=0)
