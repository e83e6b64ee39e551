"""Sign vectors that solve linear equations: enumeration, meet in the middle, lattice reduction."""

import itertools

import flint
import numpy as np
import scipy.spatial

from skident.budget import OutOfBudgetError, check_deadline, chunks, require_memory
from skident.budget.constants import MOST_FLIPS, ROOT_RANK_TOL

from . import lapack
from .singular_values import svd

_PIVOT_ERRORS = 4.0  # errors of the equations that a pivot must exceed: a smaller one leaves its sign open
_MAX_ENUMERATED = 14  # free signs enumerated at once: 2^14 combinations
_MAX_HALVES = 28  # free signs enumerated in two halves, before a lattice is tried
_MAX_HALVES_LAST = 42  # and after it: 2^21 numbers per half (budget)
_MAX_PAIRS = 2**21  # pairs of combinations that fit one equation (budget)
_MAX_BITS = 48  # accuracy up to which a lattice is scaled: double precision less rounding of the equations
_EXTRA_BITS = (0, 8, 4, 8, 0, 8)  # beyond the accuracy of the equations, one reduction each
_CHANCE_LIMIT = 1e-3  # expected number of chance solutions up to which one solution is accepted (false alarm rate)
_LLL_DELTA = 0.99  # quality of the reduction, as usual
_LLL_COST = 1.2  # operations of a reduction over K^2 b^2, for K signs and b bits in all; measured up to 260 signs
_MAX_COMPARED = 260  # linearly dependent units whose flips are searched: a lattice reduction of some 20 s (budget)
_MAX_ENTRIES = 2**24  # of a matrix of equations: 128 MB
_LEAST_EIGENVALUE = 1e-12  # of a Gram matrix whose largest column has norm one: its rounding is some eps per column
_COPIES = 6  # of the combinations in a chunk: indices, bits and signs of both halves


class UndecidedSignsError(ValueError):
    """No signs were recovered, but some may exist."""


def solve_signs(M, r, tol, max_solutions=2):
    """Sign vectors (n, K) with ``M sigma = r`` for M (E, K) and r (E,), up to `tol` in the largest entry.

    All solutions, or `max_solutions` of them, for up to 28 free signs; for more, one that can hardly be due to chance,
    and a second one if the reduced lattice contains it. UndecidedSignsError if none was recovered but one may exist,
    also because of the deadline.

    If the columns are independent up to errors of `tol`, the signs are the solution of a linear system. Otherwise the
    columns that pivoted QR leaves over are free, and determine the others. Up to 14 free signs, all combinations are
    tried. Up to 28, both halves of them are enumerated and their sums matched in one equation by sorting [1]_, in
    ``O(2^{q/2})`` time and memory for q free signs. For more, the signs are the shortest vector of a lattice [2]_,
    computed by LLL [3]_ if the equations are accurate enough: E equations of b bits with E b / K above about 3.5. With
    equations exact to 1e-12, 100 signs in 10 equations take 0.4 seconds and 120 in 12 take 0.8 seconds (10 of 10 random
    cases each), 140 in 14 take 5 seconds (8 of 10).

    .. [1] E. Horowitz, S. Sahni (1974). Computing partitions with applications to the knapsack problem.
    .. [2] M. J. Coster, A. Joux, B. A. LaMacchia, A. M. Odlyzko, C.-P. Schnorr, J. Stern (1992). Improved low-density
       subset sum algorithms.
    .. [3] A. K. Lenstra, H. W. Lenstra, L. Lovasz (1982). Factoring polynomials with rational coefficients.

    >>> import numpy as np
    >>> from skident.linalg.sign_vectors import solve_signs
    >>> print(solve_signs(np.array([[1.0, 2.0, 4.0, 0.5]]), np.array([1.5]), 1e-9))
    [[-1. -1.  1.  1.]]
    """
    _, R, order = lapack.scipy_qr(M, mode="economic", pivoting=True)
    diagonal = np.abs(np.diag(R))
    rank = int(np.sum(diagonal > max(ROOT_RANK_TOL * diagonal[0], _PIVOT_ERRORS * tol)))
    q = M.shape[1] - rank
    if q <= _MAX_ENUMERATED:
        return _enumerate(M, r, tol, order, rank, _free_signs, max_solutions)
    if q > _MAX_HALVES:
        found = _reduce_lattice(M, r, tol)
        if len(found) and _chance(M, tol) < _CHANCE_LIMIT:
            return found[:max_solutions]
    if q > _MAX_HALVES_LAST:
        raise UndecidedSignsError(
            f"{M.shape[1]} signs in equations of rank {rank} are too many to try, and the equations are not accurate "
            "enough for a lattice reduction to find them."
        )
    return _enumerate(M, r, tol, order, rank, _matching_halves, max_solutions)


def flippable_units(W, V, tol):
    """Units whose signs the outputs do not determine: mask (K,) of those in a subset S with ``sum_S w_i v_i^T = 0``.

    For units ``relu(w_i . x + b_i)`` with incoming weights W (D, K) and outgoing weights V (K, m). Since
    ``relu(t) = t + relu(-t)``, flipping (w_i, b_i) for all units of S leaves the function as it is, up to a constant
    (Claim 4.8 of Awasthi et al. 2021, for all biases). `tol` is the error of a sum, relative to the largest term.
    UndecidedSignsError if there are too many combinations to decide.

    If the terms are linearly independent, there is no such subset: ``O(K^3)``. Otherwise the subsets are the solutions
    of :func:`solve_signs` that differ from all signs 1, at its cost; beyond 42 free signs, subsets are those that a
    reduced lattice contains.

    >>> import numpy as np
    >>> from skident.linalg.sign_vectors import flippable_units
    >>> W = np.array([[1.0, 0.0, -1.0, 3.0], [0.0, 1.0, -1.0, 1.0]])
    >>> print(flippable_units(W, np.ones((4, 1)), 1e-9))
    [ True  True  True False]
    """
    sizes = np.linalg.norm(W, axis=0) * np.linalg.norm(V, axis=1)
    K = len(sizes)
    if not K or not sizes.max() > 0.0:
        return np.ones(K, dtype=bool)
    V = V / sizes.max()
    least = lapack.eigvalsh((W.T @ W) * (V @ V.T))[0]
    if least > max(_LEAST_EIGENVALUE * K, (2.0 * tol) ** 2):
        return np.zeros(K, dtype=bool)
    if len(W) > K:
        W = lapack.qr(W, mode="r")
    if V.shape[1] > K:
        V = lapack.qr(V.T, mode="r").T
    if K > _MAX_COMPARED or len(W) * V.size > _MAX_ENTRIES:
        raise UndecidedSignsError(f"{K} units in {len(W) * V.shape[1]} equations are too many to compare their signs.")
    M = (V.T[:, None] * W).reshape(-1, K)
    signs = solve_signs(M, M.sum(axis=1), 2.0 * tol, max_solutions=MOST_FLIPS)
    if not len(signs):
        raise UndecidedSignsError(f"other signs of {K} units may give the same function: they are too many to try.")
    return np.any(signs < 0, axis=0)


def nearest_signs(M, r, n=32):
    """Sign vectors (n, K) with small ``|M sigma - r|``, nearest first: solutions of equations with noise.

    Both halves of the K >= 2 signs are enumerated, and every sum of the second is matched with the nearest of the first
    in a k-d tree: memory for ``2^{K/2} E`` numbers. So the first row is a minimum, but the others need not be all of
    the next ones. 24 signs in 10 equations take 0.1 seconds, 30 some seconds.
    """
    half = M.shape[1] // 2
    require_memory(_COPIES * 8 * 2 ** (M.shape[1] - half) * len(M), f"the combinations of {M.shape[1]} signs")
    parts = M[:, :half], M[:, half:]
    left, right = (np.stack([_sums(row) for row in part], axis=1) for part in parts)
    distance, nearest = scipy.spatial.cKDTree(left).query(r - right)
    best = np.argsort(distance, kind="stable")[:n]
    return np.hstack([_bits(nearest[best], half), _bits(best, M.shape[1] - half)])


def _chance(M, tol):
    """How many of all sign vectors solve equations with these singular values to accuracy tol, by chance alone."""
    E, K = M.shape
    shares = 2.0 * tol * np.sqrt(E) / np.maximum(svd(M, compute_uv=False), np.finfo(float).tiny)
    return float(np.exp2(K + np.sum(np.log2(np.minimum(shares, 1.0)))))


def _enumerate(M, r, tol, order, rank, candidates, max_solutions):
    """Solutions from candidates for the free signs, of which the others are a linear function."""
    pseudo = lapack.pinv(M[:, order[:rank]])
    mix, target = pseudo @ M[:, order[rank:]], pseudo @ r
    # How far an error of tol in every equation can move the bound signs.
    slack = np.minimum(2.0 * tol * np.abs(pseudo).sum(axis=1) + 1e-14, 0.5)
    found = []
    for free in candidates(target, mix, slack):
        signs = np.empty((len(free), M.shape[1]))
        signs[:, order[rank:]] = free
        signs[:, order[:rank]] = np.where(target - free @ mix.T > 0, 1.0, -1.0)
        found += list(signs[np.all(np.abs(signs @ M.T - r) <= tol, axis=1)])
        if len(found) >= max_solutions:
            break
    return np.array(found[:max_solutions]).reshape(-1, M.shape[1])


def _fitting(values, slack):
    """Rows (n, rank) whose entries are all -1 or 1 up to slack (rank,)."""
    return np.all(np.abs(np.abs(values) - 1.0) <= slack, axis=1)


def _free_signs(target, mix, slack):
    """Free signs for which the bound ones, ``target - mix @ free``, are signs too."""
    q = mix.shape[1]
    free = np.array(list(itertools.product([-1.0, 1.0], repeat=q))).reshape(2**q, q)
    yield free[_fitting(target - free @ mix.T, slack)]


def _matching_halves(target, mix, slack):
    """The same, from sums over two halves of the free signs that match in one equation."""
    if not len(target):
        raise UndecidedSignsError(f"the equations are not accurate enough for any of {mix.shape[1]} signs.")
    row = int(np.argmin(slack))  # the sharpest equation lets the fewest pairs through
    half = mix.shape[1] // 2
    left, right = _sums(mix[row, :half]), _sums(mix[row, half:])
    order = np.argsort(left)
    left = left[order]
    for sign in (-1.0, 1.0):
        # left + right = target - sign
        low = np.searchsorted(left, target[row] - sign - right - slack[row], side="left")
        counts = np.searchsorted(left, target[row] - sign - right + slack[row], side="right") - low
        if counts.sum() > _MAX_PAIRS:
            raise UndecidedSignsError(
                f"{counts.sum()} combinations of {mix.shape[1]} free signs fit one equation to its accuracy "
                f"({slack[row]:.1e}): the equations are too few, or not accurate enough."
            )
        j = np.repeat(np.arange(len(right)), counts)
        i = order[np.arange(len(j)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)]
        for some in chunks(len(j), _COPIES * 8 * sum(mix.shape)):
            check_deadline()
            free = np.hstack([_bits(i[some], half), _bits(j[some], mix.shape[1] - half)])
            yield free[_fitting(target - free @ mix.T, slack)]


def _sums(values):
    """``values @ sigma`` for every sign vector, in the order of `_bits`."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums - value, sums + value])
    return sums


def _bits(index, q):
    """Sign vectors of combinations: bit k of the index is the sign of entry k."""
    return 2.0 * ((index[:, None] >> np.arange(q)) & 1) - 1.0


def _reduce_lattice(M, r, tol):
    """One solution, or two, or none, (n, K), from a reduced basis of the lattice of (sigma, 1, large * (M sigma - r)).

    Its vectors have entries of one parity: sigma is ``ones - 2 x``. The factor makes an error of tol count about one.
    A basis in another order is reduced to another one, so others are tried if none contains the solution.
    """
    K = M.shape[1]
    unit = np.abs(M).max(axis=1)
    unit[unit == 0] = 1.0
    U = np.zeros((K + 1, K + 1))
    U[np.arange(K), np.arange(K)] = 2.0
    U[K] = 1.0
    equations = U @ np.vstack([M.T, -r]) / unit
    rng = np.random.RandomState(0)
    accurate = np.log2(np.median(unit) / max(tol, np.finfo(float).tiny))
    for more in _EXTRA_BITS:
        bits = int(np.clip(accurate + more, 0, _MAX_BITS))
        _check_time(K, min(len(M), K) * bits)
        order = rng.permutation(K + 1)
        basis = np.hstack([U, np.rint(2.0**bits * equations)])[order]
        reduced = flint.fmpz_mat([[int(entry) for entry in row] for row in basis.tolist()]).lll(delta=_LLL_DELTA)
        # Entries of a reduced basis can be large in the equations, but those of signs are not.
        short = np.array([[int(entry) for entry in row[: K + 1]] for row in reduced.tolist()], dtype=float)
        signs = short[np.all(np.abs(short) == 1.0, axis=1)]
        signs = signs[:, :K] * signs[:, K:]
        signs = signs[np.all(np.abs(signs @ M.T - r) <= tol, axis=1)]
        if len(signs):
            return _with_neighbors(np.unique(signs, axis=0), short, M, r, tol)
    return np.empty((0, K))


def _check_time(n_signs, n_bits):
    """Refuse a reduction that the deadline does not allow: other methods may succeed, so the search goes on."""
    try:
        check_deadline(_LLL_COST * n_signs**2 * n_bits**2)
    except OutOfBudgetError as error:
        raise UndecidedSignsError(f"{n_signs} signs need a lattice reduction: {error}.") from error


def _with_neighbors(signs, U, M, r, tol):
    """Solutions (n, K) and those that differ from the first by a vector of the reduced basis."""
    K = M.shape[1]
    moves = U[U[:, K] == 0.0, :K]
    others = np.concatenate([signs[:1] + moves, signs[:1] - moves])
    others = others[np.all(np.abs(others) == 1.0, axis=1)]
    return np.concatenate([signs, others[np.all(np.abs(others @ M.T - r) <= tol, axis=1)]])
