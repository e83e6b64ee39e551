"""Directions, biases and weights of ReLU units from the Hermite coefficients of a sample."""

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import MATRIX_ENTRIES, REFIT_STEPS, ROOT_2PI, SAME_MINIMUM
from skident.linalg import flatten_symmetric, hermite_tensors, moment_sums, n_free_entries, smat, svec, symmetric_power

from .paper.scalars import relu_coefficients
from .ridges import Regression, linear_model, regress_on_ridges, without_ridges
from .tensor_fit import refine_by_moments

_NOISE_FACTOR = 1.3  # times the edge of the spectrum that noise alone has
_HOPELESS = 4.0  # times the loss of the best candidate, beyond which one is not considered further
_GAIN = 0.98  # of the residual sum: what a correction must at least reach to be followed by another
ORDERS = (2, 3, 4)  # of the tensors that are fitted; order 1 gives the linear part
_SHORT = 12  # steps of all candidates (budget)
_FAR = 2.5  # biases of starts are kept within


def _curvature_block(Z, y, w, model):
    r = w * (y - model(Z))
    weighted = r[:, None] * Z
    square = weighted * (np.einsum("nd,nd->n", Z, Z) - 2.0)[:, None]
    return np.asarray(r.sum()), weighted.T @ Z, square.T @ weighted, np.asarray(r @ r)


@dataclass(frozen=True)
class Curvature:
    """``T_2 = E[r He_2(z)]`` of residuals r, with what sampling adds to it.

    Attributes
    ----------
    matrix : ndarray of shape (k, k)
    noise : float
        Where the spectrum of its sampling error ends: ``2 ||sum_n r_n^2 (z_n z_n^T - I)^2||^{1/2} / n``, exact for
        matrices with independent Gaussian entries.
    """

    matrix: np.ndarray
    noise: float


def residual_curvature(sample, model):
    """`Curvature` of ``y - model(z)``; one pass, ``O(n k^2)``."""
    m0, m2, square, r2 = sample.reduce(_curvature_block, model)
    eye = np.eye(len(m2))
    spread = np.linalg.eigvalsh(square + r2 * eye)[-1]
    return Curvature((m2 - m0 * eye) / sample.total, 2.0 * float(np.sqrt(max(spread, 0.0))) / sample.total)


def _parts(p, *arrays):
    """Rows of a block, so few at a time that their products of two of p coordinates fit in 16 MB."""
    rows = max(64, MATRIX_ENTRIES // n_free_entries(p))
    for start in range(0, len(arrays[0]), rows):
        yield tuple(a[start : start + rows] for a in arrays)


def _quadratic_gram(Z, y, w, P):
    i, j = np.triu_indices(P.shape[1])
    gram = 0.0
    for Zp, yp, wp in _parts(P.shape[1], Z, y, w):
        z = Zp @ P
        A = np.column_stack([z[:, i] * z[:, j], Zp, np.ones(len(Zp)), yp])
        gram = gram + (wp[:, None] * A).T @ A
    return (gram,)


def _quadratic_part(sample, P):
    """B (p, p), u (k,) and c of the least-squares fit ``z^T P B P^T z + u . z + c``; None where rows are too few."""
    p = P.shape[1]
    q = n_free_entries(p)
    if sample.n_rows < 3 * (q + sample.dim + 1):
        return None
    (gram,) = sample.reduce(_quadratic_gram, P)
    scale = np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
    gram /= np.outer(scale, scale)
    coefficients = np.linalg.lstsq(gram[:-1, :-1], gram[:-1, -1], rcond=1e-12)[0] * scale[-1] / scale[:-1]
    B = np.zeros((p, p))
    B[np.triu_indices(p)] = 0.5 * coefficients[:q]
    return B + B.T, coefficients[q:-1], float(coefficients[-1])


def _moment_block(Z, y, w, P, model, B):
    z = Z @ P
    r = y - model(Z)
    if B is not None:
        r -= np.einsum("np,np->n", z @ B, z)
    sums = [moment_sums(*part) for part in _parts(z.shape[1], z, w * r)]
    return tuple(sum(parts) for parts in zip(*sums)) if len(sums) > 1 else sums[0]


def estimate_tensors(sample, P, model, *, quadratic=False):
    """Hermite coefficients of orders 2 to 4 in the coordinates ``P^T z``, with a model as control variate.

    The model's own coefficients are known; only those of what it leaves are estimated, and their sampling error is in
    proportion to it.

    P (k, p).

    ``O(n p^4)`` operations, in matrix products over blocks of rows; memory for some ten arrays of ``p^4 / 4`` numbers.
    p is at most the number of units, whatever the number of features.
    """
    part = _quadratic_part(sample, P) if quadratic else None
    B = None
    if part is not None:
        B, u, c = part
        model = without_ridges(u, c)
    tensors = hermite_tensors(sample.reduce(_moment_block, P, model, B), sample.total)
    if B is not None:
        tensors[2] = tensors[2] + 2.0 * svec(B)
    if model.n_units:
        U, b, a = model.units()
        for k, own in units_tensors(U @ P, b, a).items():
            tensors[k] = tensors[k] + own
    return tensors


@dataclass(frozen=True)
class TensorStage:
    """What the tensors of a sample determine.

    Attributes
    ----------
    candidates : list of Regression
        Distinct ones, the best first; empty where nothing but a linear function shows.
    spectrum : ndarray of shape (k,)
        Eigenvalues of T_2, largest absolute value first.
    noise : float
        Absolute value up to which sampling alone may put them.
    rank : int
        Eigenvalues beyond it.
    """

    candidates: list[Regression]
    spectrum: np.ndarray
    noise: float
    rank: int


def leading_eigenvectors(matrix, n):
    """Eigenvectors of the eigenvalues that are largest in absolute value.

    matrix (k, k); returns vectors (k, n), values (k,).
    """
    values, vectors = np.linalg.eigh(matrix)
    order = np.argsort(-np.abs(values), kind="stable")
    return vectors[:, order[:n]], values[order]


def _total_curvature(sample, model):
    """T_2 with a model as control variate."""
    rest = residual_curvature(sample, model)
    if not model.n_units:
        return rest
    U, b, a = model.units()
    return Curvature(rest.matrix + (U.T * (a * np.exp(-0.5 * b * b) / np.sqrt(2 * np.pi))) @ U, rest.noise)


def tensor_stage(sample, n_units=None, *, max_units=None, model=None, n_candidates=16, rng=None):
    """Candidates for the units of a ReLU network from the Hermite coefficients of its sample.

    T_2 of the residuals gives the span of the units, its eigenvalues beyond ``1.3 *`` the edge of their sampling error
    counting. T_3 and T_4 are estimated in that span only. Joint pencils and random directions start as many fits of the
    tensors (:func:`refine_by_moments`); where these end in the same place, one of them is kept. With ``n_units=0`` T_2
    alone counts the units, and there are no candidates.
    """
    if model is None:
        model = linear_model(sample)
    curvature = _total_curvature(sample, model)
    noise = _NOISE_FACTOR * curvature.noise
    _, spectrum = leading_eigenvectors(curvature.matrix, 0)
    rank = int(np.sum(np.abs(spectrum) > noise))
    m = n_units if n_units is not None else min(rank, max_units if max_units is not None else rank)
    if m == 0:
        return TensorStage([], spectrum, noise, rank)
    P, _ = leading_eigenvectors(curvature.matrix, min(m, sample.dim))
    tensors = estimate_tensors(sample, P, model, quadratic=not model.n_units)
    W, b, _, loss = fit_candidates(tensors, *moment_candidates(tensors, P.shape[1], m, n_candidates, rng))
    candidates = [correct(sample, regress_on_ridges(sample, (P @ W[i]).T, b[i])) for i in _distinct(loss)]
    return TensorStage(sorted(candidates, key=lambda c: c.rss), spectrum, noise, rank)


def _distinct(loss, at_most=4):
    """Indices of candidates, sorted by loss, that differ from each other and are not hopeless."""
    chosen = [0]
    for i in range(1, len(loss)):
        new = loss[i] - loss[chosen[-1]] > SAME_MINIMUM * abs(loss[i])
        if len(chosen) < at_most and new and loss[i] < _HOPELESS * abs(loss[0]):
            chosen.append(i)
    return chosen


def correct(sample, start, *, max_iter=5):
    """Estimate the tensors again with a candidate as control variate, and fit them again from there, until it settles.

    What is estimated from the sample are moments of what the candidate leaves, so errors shrink with it: without noise
    every round divides them by about ten where rows are many, and they end in rounding.
    """
    best = start
    for _ in range(max_iter):
        curvature = _total_curvature(sample, best.model)
        P, _ = leading_eigenvectors(curvature.matrix, min(best.model.n_units, sample.dim))
        tensors = estimate_tensors(sample, P, best.model)
        U, b, a = best.model.units()
        W, b, *_ = refine_by_moments(tensors, _rows_in(U, P).T[None], b[None], a[None], max_iter=REFIT_STEPS)
        new = regress_on_ridges(sample, (P @ W[0]).T, b[0])
        gain = new.rss < _GAIN * best.rss
        if new.rss < best.rss:
            best = new
        if not gain:
            break
    return best


def _rows_in(U, P):
    """Unit rows in the coordinates P^T z."""
    rows = U @ P
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(lengths > 1e-12, rows / np.where(lengths > 1e-12, lengths, 1.0), 1.0 / np.sqrt(P.shape[1]))


def units_tensors(U, b, a):
    """Packed tensors of orders 2 to 4 of ``sum_i a_i relu(u_i . z + b_i)``, Lemma 3.5, for rows of any length.

    U (m, p), b, a (m,).
    """
    c = a * relu_coefficients(b, ORDERS[-1])
    return {k: c[k] @ symmetric_power(U, k) for k in ORDERS}


def fit_candidates(tensors, W, b, a):
    """`refine_by_moments` of many candidates, of which the better half goes on after a few steps.

    W (c, p, m), b, a (c, m).
    """
    if len(W) > 3:
        W, b, a, loss = refine_by_moments(tensors, W, b, a, max_iter=_SHORT)
        order = np.argsort(loss, kind="stable")[: -(-len(W) // 2)]
        W, b, a = W[order], b[order], a[order]
    W, b, a, loss = refine_by_moments(tensors, W, b, a, max_iter=REFIT_STEPS)
    order = np.argsort(loss, kind="stable")
    return W[order], b[order], a[order], loss[order]


def _scalars(tensors, U):
    """Biases and output weights that go with directions: least squares for every order, then ``b = -c_3 / c_2``."""
    G = U @ U.swapaxes(-1, -2)
    ridge = 1e-6 * np.eye(U.shape[1])
    values = {k: symmetric_power(U, k) @ tensors[k] for k in (2, 3)}  # T_k(u, ..., u)
    c = {k: np.linalg.solve(G**k + ridge, values[k][..., None])[..., 0] for k in (2, 3)}
    small = 1e-9 * np.abs(c[2]).max(axis=-1, keepdims=True) + np.finfo(float).tiny
    b = np.clip(-c[3] / np.where(np.abs(c[2]) < small, small, c[2]), -_FAR, _FAR)
    a = c[2] * ROOT_2PI * np.exp(0.5 * b * b)
    bound = 10.0 * np.median(np.abs(a), axis=-1, keepdims=True)
    return b, np.clip(a, -bound, bound)


def _pencils(tensors, p, n_draws, rng):
    """Eigenvectors of ``(alpha T_3(v) + (1 - alpha) T_4(V)) T_2^-1`` for random v, V, alpha: a joint pencil a draw."""
    second = smat(tensors[2], p)
    third, fourth = flatten_symmetric(tensors[3], p, (2, 1)), flatten_symmetric(tensors[4], p, (2, 2))
    third = smat(rng.standard_normal((n_draws, p)) @ third.T, p)
    fourth = smat(rng.standard_normal((n_draws, len(fourth))) @ fourth, p)
    share = rng.uniform(size=(n_draws, 1, 1))
    third, fourth = (M / np.linalg.norm(M, axis=(1, 2), keepdims=True) for M in (third, fourth))
    values, vectors = np.linalg.eig((share * third + (1.0 - share) * fourth) @ np.linalg.pinv(second))
    # A complex pair spans a plane: its real and imaginary part take the place of the two.
    rows = np.where((values.imag < 0)[:, None], vectors.imag, vectors.real).swapaxes(1, 2)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def moment_candidates(tensors, p, n_units, n_candidates, rng):
    """Starts for :func:`fit_candidates`.

    Returns W (n_candidates, p, n_units), b, a (n_candidates, n_units).
    """
    n_pencils = -(-n_candidates // 2) if n_units == p else 0
    U = rng.standard_normal((n_candidates, n_units, p))
    U /= np.linalg.norm(U, axis=-1, keepdims=True)
    if n_pencils:
        U[:n_pencils] = _pencils(tensors, p, n_pencils, rng)
    return U.swapaxes(1, 2), *_scalars(tensors, U)
