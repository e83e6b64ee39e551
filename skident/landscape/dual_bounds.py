"""Rigorous lower bounds of the loss by weak duality in floating point, with every rounding error bounded."""

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from skident.budget.constants import MOST_WORK, ROUNDS
from skident.linalg import smat, svd, svec, svec_outer

from .bounded_sums import BLOCK, BoundedSums, deflated, gamma, inflated, norm_upper_bound, normalized, precisions
from .descent import newton_step
from .exact_arithmetic import independent_inputs
from .quadratic_form import BOTH_SIGNS


def dual_bound(problem, u, signs=BOTH_SIGNS, dtype=None):
    """Proven lower bound of f over all M that units of these signs can form, from any vector u (n,).

    For every u with ``sum u = 0`` (if there is an intercept), ``f(M) >= -1/(2n) ||u||^2 - 1/n <u, y> - 1/(2 alpha)
    (||R_u||_descent^2 + linear_weight ||X^T u / n||^2)`` with ``R_u = 1/n sum_i u_i x_i x_i^T``, of which only
    eigenvalues that allow descent count (`OutputSigns.descent_part`); the best multiple of u is taken. Without ridge
    ``X^T u`` must be zero and ``R_u`` without such eigenvalues. A float vector satisfies this only approximately, so u
    stands for its exact projection, and each term is bounded by its computed value and a bound on the difference,
    rounding included. The returned number is therefore at most the least loss for the exact real numbers in X and y; it
    is tight at the residual of a minimizer, and 0 if nothing better can be proven in floating point.

    In extended precision (`numpy.longdouble`, if it is an IEEE format) up to ``n d^2 = 3e7``, double precision beyond.
    Distances to the semidefinite cone are bounded by the distance to ``V max(L, 0) V^T`` of a computed
    eigendecomposition, which is semidefinite whatever V is.

    With weights w of the samples, u is multiplied by them, and ``||u||^2`` is ``sum u_i^2 / w_i``; there is no bound
    without ridge then.
    """
    normal, _, y_exponent = normalized(problem)
    u = np.ldexp(problem.weighted(np.asarray(u, dtype=np.float64)), -y_exponent)
    if normal is None or not (np.isfinite(u).all() and u.any()):
        return 0.0
    rows = BoundedSums(normal, dtype)
    u = u.astype(rows.dtype)
    if normal.alpha > 0:
        bound = _with_ridge(rows, u, signs)
    elif normal.weights is not None:
        bound = 0.0
    elif signs.plus == signs.minus:
        free = unpenalized_columns(rows, forms=signs.plus)
        bound = 0.0 if free is None else _projected_bound(rows, u, free)
    else:
        bound = _one_sign(rows, u, signs)
    return _scaled(bound, y_exponent)


def _one_sign(rows, u, signs):
    """No ridge, one sign: u is not modified, and nothing is proven if R_u is not semidefinite."""
    sign, problem = 1.0 if signs.plus else -1.0, rows.problem
    rows = BoundedSums(problem.changed(y=sign * problem.y), rows.dtype)
    u, has_terms = sign * u, problem.fit_intercept or problem.fit_linear
    free = unpenalized_columns(rows, forms=False) if has_terms else None
    if has_terms and free is None:
        return 0.0
    remainder = free.remainder(u) if has_terms else 0.0
    if _missing_definiteness(rows, u, np.eye(rows.d), remainder) > 0.0:
        return 0.0
    return _best_multiple(rows, u, inflated(remainder * _norm(rows.y, rows)))


def _scaled(bound, y_exponent):
    """A bound for the unscaled problem, rounded down again."""
    value = float(np.ldexp(bound, 2 * y_exponent))
    return value if value > 1e-300 else 0.0


def _best_multiple(rows, u, error):
    """Lower bound of ``max_t -t^2 ||u||^2 / 2n - t (<u, y> + error) / n``."""
    product, rounding = rows.dot(u, rows.y)
    linear = deflated(deflated(-float(product)) - inflated(rounding + error))
    square = rows.square(u)
    return deflated(linear**2 / (2.0 * rows.n * square)) if np.isfinite(square) else 0.0


def _norm(u, rows):
    """Upper bound of the norm of u."""
    return float(np.sqrt(rows.square(u)))


def _projected_bound(rows, u, free):
    """No ridge, both signs: u stands for its projection off the unpenalized columns, which is not longer."""
    return _best_multiple(rows, u, inflated(free.remainder(u) * _norm(rows.y, rows)))


def _with_ridge(rows, u, signs):
    """With a ridge: u stands for itself minus the multiple of the weights that makes its sum zero."""
    problem, n = rows.problem, rows.n
    mean, w = 0.0, rows.weights.astype(float)
    if problem.fit_intercept:
        u = u - rows.weights * (u.sum() / rows.weights.sum())
        total, error = rows.total(u)
        mean = inflated((abs(float(total)) + error) / w.sum() * 1.000001)
    S, error = rows.second_moments(u)
    error += mean * inflated(w @ rows.squares * 1.000001)
    wrong = _distance_to_cone(S, signs) + (error if signs.plus or signs.minus else 0.0)
    quadratic = rows.weighted_square(u, inverse=True) / (2.0 * n) + inflated(wrong / n) ** 2 / (2.0 * problem.alpha)
    if problem.fit_linear:
        s, error = rows.first_moments(u)
        size = norm_upper_bound(s) + error
        size += mean * inflated(w @ np.sqrt(rows.squares) * 1.000001)
        quadratic += problem.linear_weight * inflated(size / n) ** 2 / (2.0 * problem.alpha)
    product, rounding = rows.dot(u, rows.y)
    total, error = rows.dot(rows.weights, rows.y)
    lost = inflated(rounding + mean * (abs(float(total)) + error))
    linear = deflated((deflated(-float(product)) - lost) / n)
    return deflated(linear**2 / (4.0 * inflated(quadratic))) if np.isfinite(quadratic) else 0.0


def _distance_to_cone(S, signs):
    """Upper bound of the Frobenius norm of the part of S that allows descent."""
    size = norm_upper_bound(S)
    if signs.plus == signs.minus:
        return size if signs.plus else 0.0
    values, V = np.linalg.eigh(S.astype(float))
    right = np.maximum(values, 0.0) if signs.plus else np.minimum(values, 0.0)
    V = V.astype(S.dtype)
    left = norm_upper_bound(S - (V * right) @ V.T)
    rounding = gamma(len(S) + 4, S.dtype) * float(np.abs(right) @ np.sum(V.astype(float) ** 2, axis=0))
    return min(size, left + inflated(rounding + gamma(2, S.dtype) * size))


@dataclass(frozen=True)
class LeastSquaresBound:
    """Least loss over all symmetric M without ridge, in floating point."""

    bound: float = 0.0  # proven lower bound
    near: float = np.nan  # approximately the least loss; nan if the factorization failed


def least_squares_bound(problem, accuracy=0.0):
    """Proven lower bound of the loss over all symmetric M without ridge, for well conditioned inputs.

    The residual u of a least squares solution, refined in extended precision, bounds the loss by ``(-<u, y> - ||P u||
    ||y||)^2 / (2 n ||u||^2)``, where the part ``||P u||`` in the span of forms and terms is at most ``||B^T u|| /
    sigma_min(B)`` with a proven bound of the columns' smallest singular value. Extended precision is not used if double
    precision is within `accuracy`. Nothing is proven if there are fewer samples than unknowns p, or the Gram matrix has
    an eigenvalue below about ``1e-15 p`` of its trace. O(n p^2) once.
    """
    normal, _, y_exponent = normalized(problem.changed(terms=problem.terms.without_ridge()))
    if normal is None or problem.weights is not None:
        return LeastSquaresBound()
    found, formats = LeastSquaresBound(), precisions(normal)
    rows = BoundedSums(normal, formats[0])
    free = unpenalized_columns(rows, forms=True) if normal.n >= normal.n_unknowns + normal.fit_intercept else None
    for dtype in formats if free is not None else ():
        free = free.in_rows(BoundedSums(normal, dtype))
        u = free.without(-free.rows.y, repeats=3)
        near = 0.5 * float(u @ u) / normal.n
        bound, near = _projected_bound(free.rows, u, free), float(np.ldexp(near, 2 * y_exponent))
        found = LeastSquaresBound(_scaled(bound, y_exponent), near)
        if found.near - found.bound <= accuracy:
            break
    return found


def one_sign_bound(problem, M, signs, dtype=None):
    """Proven lower bound without ridge for output weights of one sign, from the residual at M (tight near a minimizer).

    A multiple of a vector w with definite ``R_w`` is added to the residual until ``R_u`` is proven definite on the side
    that allows no descent. 0 if nothing better can be proven in floating point.
    """
    sign = 1.0 if signs.plus else -1.0
    positive = problem.changed(y=sign * problem.y, terms=problem.terms.without_ridge())
    normal, exponents, y_exponent = normalized(positive)
    if normal is None:
        return 0.0
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        N = np.ldexp(sign * M, exponents[:, None] + exponents[None, :] - y_exponent)
        rows = BoundedSums(normal, dtype)
        u = rows.forms(N) - rows.y
    frame = _whitening(normal, rows.dtype)
    if frame is None or not np.isfinite(u).all():
        return 0.0
    return _scaled(_shifted_bound(frame, u), y_exponent)


@dataclass(frozen=True)
class _Whitening:
    """Independent inputs, whitening coordinates T, terms to be orthogonal to, and a definite direction.

    The direction w (n,) has ``T^T (sum_i w_i x_i x_i^T) T`` near a multiple of the identity, at least `definite`.
    """

    rows: BoundedSums
    T: np.ndarray
    free: object
    direction: np.ndarray
    definite: float


def _whitening(problem, dtype):
    """A `_Whitening`; None if the inputs are too collinear for double precision."""
    T = _whitener(problem)
    if T is None:
        kept = independent_inputs(problem)
        if not kept or len(kept) == problem.d:
            return None
        problem = problem.changed(X=problem.X[:, kept])
        T = _whitener(problem)
    rows, has_terms = BoundedSums(problem, dtype), problem.fit_intercept or problem.fit_linear
    free = unpenalized_columns(rows, forms=False) if has_terms else None
    if T is None or (has_terms and free is None):
        return None
    direction = np.ones(problem.n, dtype=rows.dtype)
    if has_terms:
        white = problem.changed(X=problem.linear_inputs @ T if problem.fit_linear else problem.X @ T)
        direction = free.without(_definite_direction(white).astype(rows.dtype))
    S = rows.second_moments(direction)[0].astype(float)
    definite = float(np.linalg.eigvalsh(T.T @ S @ T)[0])
    return _Whitening(rows, T, free, direction, definite) if definite > 0 else None


def _definite_direction(problem):
    """A vector w orthogonal to the terms with definite ``R_w``, if the search succeeds."""
    if problem.n * problem.n_unknowns * min(problem.n, problem.n_unknowns) > MOST_WORK or (
        problem.n > 2 * problem.n_unknowns
    ):
        N = newton_step(problem.hessian_product, -np.eye(problem.d), max_iter=100, tol=1e-2)
        return problem.remaining(problem.forms(N))[0]
    return _alternating_projections(problem)


def _alternating_projections(problem, attempts=400):
    """The same by alternating projections between the set of ``R_w`` and matrices with eigenvalues at least 1.

    With few samples not every matrix is some ``R_w``, and the nearest to the identity need not be definite.
    """
    n, d = problem.n, problem.d
    terms = [problem.X] * problem.fit_linear + [np.ones((n, 1))] * problem.fit_intercept
    terms = np.hstack(terms)
    beside = np.linalg.qr(terms, mode="complete")[0][:, terms.shape[1] :]
    U, S, Vt = svd(svec_outer(problem.X).T @ beside / n, full_matrices=False)
    kept = S > 1e-9 * S.max(initial=0.0)
    U, S, Vt = U[:, kept], S[kept], Vt[kept]
    target = svec(np.eye(d))
    for _ in range(attempts):
        coordinates = U.T @ target
        values, V = np.linalg.eigh(smat(U @ coordinates, d))
        if values[0] > 0.02:
            break
        target = svec((V * np.maximum(values, 1.0)) @ V.T)
    return beside @ (Vt.T @ (coordinates / S))


def _whitener(problem):
    """T (d, d) with ``T^T X^T X T`` about n times the identity; None if that is singular to rounding."""
    X = problem.linear_inputs if problem.fit_intercept and problem.fit_linear else problem.X
    values, V = np.linalg.eigh(X.T @ X / problem.n)
    return V / np.sqrt(values) if values[0] > 1e-13 * max(values[-1], 1.0) else None


def _shifted_bound(frame, u):
    """The bound of u plus the least multiple of the definite direction that is proven to be semidefinite."""
    rows, free = frame.rows, frame.free
    u = u if free is None else free.without(u)
    for factor in (1.05, 2.0, 10.0, 100.0, 1000.0):  # what is lacking in the end is rounding, other at every step
        remainder = 0.0 if free is None else free.remainder(u)
        lacking = _missing_definiteness(rows, u, frame.T, remainder)
        if lacking <= 0.0:
            return _best_multiple(rows, u, inflated(remainder * _norm(rows.y, rows)))
        if not np.isfinite(lacking):
            return 0.0
        u = u + rows.dtype.type(factor * lacking / frame.definite) * frame.direction
        u = u if free is None else free.without(u, repeats=1)
    return 0.0


def _missing_definiteness(rows, u, T, remainder):
    """Upper bound of what ``sum_i u_i x_i x_i^T``, in coordinates T, lacks to be semidefinite; proven if not above 0.

    u stands for itself minus a vector in the span of the terms of norm at most `remainder`. With computed eigenvectors
    V and eigenvalues L, ``lambda_min(S) >= min L sigma_min(V)^2 - ||S - V L V^T||_F``.
    """
    S, error = rows.second_moments(u)
    error += remainder * norm_upper_bound(rows.squares) * 1.000001
    stretch, T = inflated(np.sum(T * T) * 1.000001), T.astype(rows.dtype)
    size = norm_upper_bound(S)
    error = inflated(stretch * (error + gamma(2 * rows.d + 6, rows.dtype) * size))
    F = T.T @ S @ T
    values, V = np.linalg.eigh(((F + F.T) / 2).astype(float))
    V = V.astype(rows.dtype)
    left = norm_upper_bound(F - (V * values) @ V.T)
    rounding = gamma(rows.d + 4, rows.dtype) * float(np.abs(values).max()) * 4.0 * rows.d**2
    skew = norm_upper_bound(V.T @ V - np.eye(rows.d))
    lowest = float(values[0])
    lacking = inflated(left + rounding + error) - lowest * (1.0 - 1e-6)
    return lacking if skew <= 1e-7 else np.inf


class UnpenalizedColumns:
    """Columns B (n, p) that a dual vector must be orthogonal to: ``svec(x x^T)``, x and 1, if they are not penalized.

    `factor` is the lower Cholesky factor (p, p) of ``B^T B``; no singular value of B is below `smallest` (proven).
    """

    def __init__(self, rows, forms, factor, smallest):
        self.rows, self.forms, self.factor, self.smallest = rows, forms, factor, smallest

    def in_rows(self, rows):
        """The same columns with sums of another precision, over the same problem."""
        return UnpenalizedColumns(rows, self.forms, self.factor, self.smallest)

    def products(self, u):
        """``B^T u`` (p,) in double precision."""
        terms = self.rows.problem
        parts = [svec(self.rows.second_moments(u)[0].astype(float))] if self.forms else []
        parts += [self.rows.first_moments(u)[0]] if terms.fit_linear else []
        parts += [[self.rows.total(u)[0]]] if terms.fit_intercept else []
        return np.concatenate(parts).astype(float) if parts else np.zeros(0)

    def without(self, u, repeats=2):
        """u minus its projection on B, up to rounding; a repetition removes most of the rounding of the one before."""
        d, terms = self.rows.d, self.rows.problem
        q = d * (d + 1) // 2 if self.forms else 0
        for _ in range(repeats if len(self.factor) else 0):
            step = scipy.linalg.cho_solve((self.factor, True), self.products(u), check_finite=False)
            b = step[q : q + d] if terms.fit_linear else np.zeros(d)
            u = u - self.rows.terms(b, step[-1] if terms.fit_intercept else 0.0)
            u = u - self.rows.forms(smat(step[:q], d)) if q else u
        return u

    def remainder(self, u):
        """Upper bound of the norm of u's projection: ``||P u|| <= ||B^T u|| / sigma_min(B)``, both proven."""
        terms, parts = self.rows.problem, []
        parts += [self.rows.second_moments(u)] if self.forms else []
        parts += [self.rows.first_moments(u)] if terms.fit_linear else []
        parts += [self.rows.total(u)] if terms.fit_intercept else []
        sizes = [norm_upper_bound(s) + e for s, e in parts]
        return inflated(norm_upper_bound(sizes) / self.smallest)


def unpenalized_columns(rows, forms):
    """`UnpenalizedColumns` of a problem's terms, if double precision can prove them independent; else None.

    With a bound e of the error of the Gram matrix and of a Cholesky factorization (``2 gamma_p tr``), a factorization
    of ``B^T B - t`` that succeeds proves ``sigma_min(B)^2 >= t - e``. O(n p^2). Source: S. M. Rump (2006),
    "Verification of positive definiteness", BIT 46, 433-452.
    """
    problem = rows.problem
    if not (forms or problem.fit_linear or problem.fit_intercept):
        return UnpenalizedColumns(rows, forms, np.zeros((0, 0)), np.inf)
    gram, n_chunks = 0.0, 0
    for start in range(0, rows.n, BLOCK):
        X = problem.X[start : start + BLOCK]
        blocks = [svec_outer(X)] if forms else []
        blocks += [X] if problem.fit_linear else []
        blocks += [np.ones((len(X), 1))] if problem.fit_intercept else []
        B = np.hstack(blocks)
        gram, n_chunks = gram + B.T @ B, n_chunks + 1
    if rows.n < len(gram):
        return None
    factor = _cholesky(gram, 0.0)
    if factor is None:
        return None
    trace = float(np.trace(gram))
    error = inflated((gamma(BLOCK + n_chunks + 16, float) + 2.0 * gamma(len(gram) + 2, float)) * trace)
    shift = 0.5 * _lowest_value(factor)
    for _ in range(ROUNDS):
        if shift <= 2.0 * error:
            return None
        if _cholesky(gram, shift) is not None:
            return UnpenalizedColumns(rows, forms, factor, deflated(np.sqrt(deflated(shift - error))))
        shift *= 0.25
    return None


def _cholesky(gram, shift):
    """Lower factor of ``gram - shift``, or None."""
    shifted = gram - shift * np.eye(len(gram)) if shift else gram
    try:
        return scipy.linalg.cholesky(shifted, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None


def _lowest_value(factor, steps=8):
    """Approximate smallest eigenvalue of the matrix of a Cholesky factor, by inverse iteration."""
    z, value = np.cos(np.arange(len(factor), dtype=float)), 0.0
    for _ in range(steps):
        z /= np.linalg.norm(z)
        z = scipy.linalg.cho_solve((factor, True), z, check_finite=False)
        value = 1.0 / max(float(np.linalg.norm(z)), 1e-300)
    return value
