"""A start for two hidden layers behind the first: directions from Hessians by its outputs, assigned to layers."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import lsq_linear

from skident.linalg import RankOneOptions, find_rank_one, lapack, svd, svec, svec_outer
from skident.network import FeedforwardNetwork, get_activation

from .coordinates import hessian_queries
from .profiles import fit_curvatures

_N_BASES = 3  # points: directions of the second layer are equal at all of them
_LINEAR_POINTS = 2  # further points, at which second-layer units are linear; the second one only if units are missing
_NEARLY_ALL = 0.85  # share of m_2 third-layer units from which others are assumed to be missing
_AWAY = 0.3  # standard deviation of base points but the first, in outputs of tanh units
_SPREAD = 0.25  # of points around a base (tuned on 40-40-30-20-10: 0.2 to 0.4 are alike)
_SPREAD_LINEAR = 0.2  # `_SPREAD` where second-layer units are linear (0.05 to 0.2 are alike)
_OVERSAMPLING = 3.0  # Hessians per dimension of their span
_LARGEST = 0.9  # output of a first-layer unit at which Hessians are taken, of its limit
_LARGEST_LINEAR = 0.7  # `_LARGEST` of a base point: points around it are not clipped
# Dimensions of the span beyond the second layer's, over its width. That directions of the third layer vary within the
# spread takes further ones: too small a span misses directions (tuned on 40-40-30-20-10 and 20-16-12-8-5).
_EXCESSES = (1.3, 2.0, 1.0, 1.6)
_MOST_OF_ALL = 0.6  # share of all symmetric matrices that a span may have: in larger ones every vector is a solution
_SEARCH = RankOneOptions(tol=1e-4, max_iter=300)  # directions are uncertain by 0.05
_GRADIENT_STEP = 1e-3  # in outputs of tanh units
_SAME_COSINE = 0.9  # of directions at different points that are those of one unit: errors are mostly below 0.2
_SAME_COSINE_THIRD = 0.75  # `_SAME_COSINE` of third-layer units, whose directions vary from point to point
_RIDGE = 1e-3  # of second-layer weights, squared: errors of directions, 0.03, hide smaller singular values
_MAX_CURVATURE_RESIDUAL = 0.5  # median, relative: right directions leave 0.1, wrong ones more than 0.8
FEW_UNITS = 20  # up to which directions are too uncertain for norms and biases, and a fit without these is fast


@dataclass(frozen=True)
class _Base:
    """Points (n, m_1) near one point `at` (m_1,), with Hessians in svec form (n, m_L, .) and gradients (n, k, m_L).

    `ones` and `others` are unit vectors (., k): those of one hidden layer, and those of the other.
    """

    at: np.ndarray
    points: np.ndarray
    hessians: np.ndarray
    gradients: np.ndarray
    ones: np.ndarray
    others: np.ndarray


def two_layers_queries(n_units, n_outputs):
    """Queries of one start."""
    n_hessians = _OVERSAMPLING * (1.0 + _EXCESSES[0]) * n_units / n_outputs
    return int((_N_BASES + _LINEAR_POINTS) * n_hessians * (hessian_queries(n_units) + 2 * n_units))


def two_layers_start(model, basis, trial, rng):
    """A network of coordinates along an orthonormal `basis` (m_1, m_2) of second-layer weights; None if there is none.

    In first-layer outputs h, Hessians are sums of ``w w^T`` over second-layer weights w, and of ``v v^T`` over
    entangled third-layer weights ``v = W_2 diag(g'(z_2)) w_3``: near a point their span gives w and v, mixed. All
    outputs together assign them to layers. With the output profile rho_i of direction x_i, the gradient (m_1, m_L) is a
    combination of ``x_i rho_i^T`` over either layer alone, so that the two combinations differ by a null vector of all.
    Its signs times those of the minimum-norm combination are the layers. Directions that persist at other points are
    those of the second layer. The coefficients of a direction in Hessians, over those in gradients, are
    ``norm g''(z) / g'(z)``, which gives norm and bias. Where all ``z_2 = 0``, directions of the third layer do not
    vary: Hessians near there give all directions of both layers, with smaller errors. `trial` sets the size of the
    span. The output layer is zero.
    """
    n_units, excess = basis.shape[1], _EXCESSES[trial % len(_EXCESSES)]
    dimension = min(int((1.0 + excess) * n_units), int(_MOST_OF_ALL * n_units * (n_units + 1) / 2))
    bases = []
    for i in range(_N_BASES):
        at = model.center + model.unit * _AWAY * rng.standard_normal(len(basis)) * (i > 0)
        bases.append(_observed(model, basis, at, _SPREAD, dimension, rng))
    second, third = _by_layer(bases)
    if not len(np.concatenate(second)) or not len(np.concatenate(third)):
        return None
    U = _filled(_distinct(_by_support(second), n_units, _SAME_COSINE), n_units, rng)
    if n_units <= FEW_UNITS:
        return _plain_network(model, basis, U, third)
    norms, biases, residuals = _norms_and_biases(basis, bases, U, third)
    if np.median(residuals) > _MAX_CURVATURE_RESIDUAL:
        return None
    linear = np.empty((0, n_units))
    for _ in range(_LINEAR_POINTS):
        at = _where_linear(model, basis, U.T * norms, biases)
        bases.append(_observed(model, basis, at, _SPREAD_LINEAR, dimension, rng))
        U, others = _by_known(bases[-1], U)
        third.append(others)
        norms, biases, _ = _norms_and_biases(basis, bases, U, third)
        linear = _distinct(np.vstack([others, linear]), n_units, _SAME_COSINE_THIRD)
        if not _NEARLY_ALL * n_units <= len(linear) < n_units:
            break
    return _network(model, basis, (U.T * norms, biases), bases[-1], linear)


def _observed(model, basis, at, spread, dimension, rng):
    """The `_Base` at a point (m_1,)."""
    n, m_L = basis.shape[1], model.n_outputs
    count = int(np.ceil(_OVERSAMPLING * dimension / m_L))
    points = at + model.unit * spread * rng.standard_normal((count, len(at)))
    points = model.clipped(np.vstack([at, points]), _LARGEST)
    H = svec(model.hessians(points[1:], basis)).reshape(count * m_L, -1)
    span = svd(H.T, full_matrices=False)[0][:, :dimension]
    X = find_rank_one(span, n, n_vectors=dimension, options=_SEARCH, rng=rng).vectors
    step = _GRADIENT_STEP * model.unit
    moved = np.concatenate([points[:, None] + step * basis.T, points[:, None] - step * basis.T], axis=1)
    Y = model(moved.reshape(-1, len(at))).reshape(count + 1, 2, n, m_L)
    G = (Y[:, 0] - Y[:, 1]) / (2.0 * step)
    H, first = H.reshape(count, m_L, -1), np.ones(len(X), dtype=bool)
    if len(X) > 1:
        first = _is_first_kind(X, _terms(X, H)[1], G[0])
    return _Base(points[0], points[1:], H, G[1:], X[first], X[~first])


def _terms(X, H):
    """Coefficients (k, n, m_L) of directions X (k, .) in Hessians H (n, m_L, .), and their output profiles (k, m_L)."""
    terms = lapack.lstsq(svec_outer(X).T, H.reshape(-1, H.shape[2]).T, rcond=None)[0]
    terms = terms.reshape(len(X), *H.shape[:2])
    return terms, np.array([svd(term, full_matrices=False)[2][0] for term in terms])


def _is_first_kind(X, profiles, gradient):
    """For directions X (k, n) of two layers with output profiles (k, m_L): whether they are of the one or the other."""
    M = (X[:, :, None] * profiles[:, None, :]).reshape(len(X), -1)
    left, values, right = svd(M.T, full_matrices=False)
    solution = right[:-1].T @ ((left[:, :-1].T @ gradient.ravel()) / values[:-1])
    return solution * right[-1] > 0


def _by_layer(bases):
    """Directions (k, n) of the second layer at every base, and those of the third."""
    second, third = [], []
    for i, here in enumerate(bases):
        others = [np.vstack([there.ones, there.others]) for k, there in enumerate(bases) if k != i]
        ones, rest = (np.mean([_persistence(part, other) for other in others]) for part in (here.ones, here.others))
        second.append(here.ones if ones > rest else here.others)
        third.append(here.others if ones > rest else here.ones)
    return second, third


def _by_known(base, U):
    """Directions of the second layer (m_2, k) at a base, given less accurate ones U (m_2, k), and those of the third.

    Without copies at other points, one assigned to the second layer beyond m_2 is one of the third.
    """
    rest, most = sorted((base.ones, base.others), key=lambda part: np.sum(_cosines(U, part)))
    X = np.vstack([most, rest])
    known = _cosines(X, U)
    candidates = np.flatnonzero((known > _SAME_COSINE) | (np.arange(len(X)) < len(most)))
    candidates = candidates[np.argsort(-known[candidates], kind="stable")]
    second = _distinct(np.vstack([X[candidates], U]), len(U), _SAME_COSINE)
    second = second if len(second) == len(U) else U
    return second, X[_cosines(X, second) < _SAME_COSINE]


def _by_support(second):
    """All directions of the second layer (k, n), those with most copies first."""
    support = [np.mean([_cosines(part, other) for other in second], axis=0) for part in second]
    return np.concatenate(second)[np.argsort(-np.concatenate(support), kind="stable")]


def _cosines(X, other):
    """Largest absolute cosine of every direction (k, n) with others (0 without any)."""
    return np.abs(X @ other.T).max(axis=1, initial=0.0)


def _persistence(X, other):
    """Median absolute cosine of directions with the nearest ones at another point; 0 without any."""
    return float(np.median(_cosines(X, other))) if len(X) else 0.0


def _distinct(X, most, same_cosine):
    """The first directions (k, n) that are no copies of those before, at most so many."""
    kept = np.empty((0, X.shape[1]))
    for x in X:
        if len(kept) < most and np.abs(kept @ x).max(initial=0.0) < same_cosine:
            kept = np.vstack([kept, x])
    return kept


def _filled(X, count, rng):
    """Directions (k, n) and random ones, `count` in all."""
    more = rng.standard_normal((count - len(X), X.shape[1]))
    return np.vstack([X, more / np.linalg.norm(more, axis=1, keepdims=True)])


def _norms_and_biases(basis, bases, U, third):
    """Norms, biases and residuals (m_2,) of second-layer directions U (m_2, k), given those of the third layer."""
    positions, curvatures, slopes = [], [], []
    for base, others in zip(bases, third, strict=True):
        curvature, slope = _coefficients(base, U, others)
        positions.append(base.points @ basis @ U.T)
        curvatures.append(curvature)
        slopes.append(slope)
    return fit_curvatures(*(np.vstack(part) for part in (positions, curvatures, slopes)))


def _coefficients(base, X, others):
    """Coefficients (n, k) of directions X (k, .) in Hessians, beside those of the other layer, and in gradients."""
    terms, profiles = (part[: len(X)] for part in _terms(np.vstack([X, others]), base.hessians))
    M = (X[:, :, None] * profiles[:, None, :]).reshape(len(X), -1)
    slopes = lapack.lstsq(M.T, base.gradients.reshape(len(base.points), -1).T, rcond=None)[0]
    return np.einsum("knp,kp->nk", terms, profiles), slopes.T


def _where_linear(model, basis, W, biases):
    """The first-layer outputs (m_1,) at which second-layer pre-activations are smallest."""
    bound, center = _LARGEST_LINEAR * model.unit, model.center
    weights = basis @ W
    return center + lsq_linear(weights.T, -biases - center @ weights, bounds=(-bound, bound)).x


def _plain_network(model, basis, U, third):
    """The network with second-layer directions U (m_2, k) if neither norms nor biases are known."""
    W, third = U.T, np.concatenate(sorted(third, key=len, reverse=True))
    T = lapack.lstsq(W, _distinct(third, len(U), _SAME_COSINE_THIRD).T, rcond=None)[0]
    T /= np.linalg.norm(T, axis=0)
    b_2, b_3 = -(model.center @ basis) @ W, -get_activation(model.activation)(np.zeros(len(U))) @ T
    weights = [W, T, np.zeros((T.shape[1], model.n_outputs))]
    return FeedforwardNetwork(weights, [b_2, b_3, np.zeros(model.n_outputs)], model.activation)


def _network(model, basis, second, base, third):
    """The network with second-layer weights and biases, and third-layer directions (k, .) at a base point."""
    g, (W, b_2) = get_activation(model.activation), second
    others = W.T / np.linalg.norm(W, axis=0)[:, None]
    curvature, slope = _coefficients(base, third, others)
    norms, offsets, _ = fit_curvatures((base.points - base.at) @ basis @ third.T, curvature, slope)
    z_2 = base.at @ basis @ W + b_2
    A = W * g.jet(z_2, 1)[1]
    T = lapack.solve(A.T @ A + _RIDGE * np.eye(len(b_2)), A.T @ (third.T * norms))
    weights = [W, T, np.zeros((len(third), model.n_outputs))]
    return FeedforwardNetwork(weights, [b_2, offsets - g(z_2) @ T, np.zeros(model.n_outputs)], model.activation)
