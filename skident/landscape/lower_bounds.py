"""Losses that no quadratic network can be below: weak duality, so every bound is valid and a tight one is a proof."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from skident.optim import best_of

from .convex import least_squares_size, solve_convex
from .descent import newton_step
from .problem import QuadraticProblem
from .units import BOTH_SIGNS

__all__ = ["dual_bound", "lower_bound", "whitened"]

# How far beyond the minimiser found another one may lie; multiplies rounding errors only.
_RADIUS = 10.0
_EPS = float(np.finfo(float).eps)


def dual_bound(problem, u, signs=BOTH_SIGNS, slack=0.0):
    """Lower bound of f over all M that units of these signs can make, from any vector u.

    For every u with ``sum u = 0`` (where there is an intercept), ``f(M) >= -1/(2n) ||u||^2 - 1/n <u, y> -
    1/(2 alpha) (||R_u||_wrong^2 + linear_weight ||X^T u / n||^2)`` with ``R_u = 1/n sum_i u_i x_i x_i^T``, of which
    only eigenvalues that allow descent count (`UnitSigns.wrong_part`); the best multiple of u is taken. Without ridge
    those eigenvalues and ``X^T u`` must be zero.

    Parameters
    ----------
    problem : QuadraticProblem
    u : ndarray of shape (n,)
        Tight at the residual of a minimiser.
    signs : UnitSigns, default=UnitSigns(plus=True, minus=True)
        Of the output weights.
    slack : float, default=0
        Without ridge: what eigenvalues and products that are zero only to rounding can amount to.

    Returns
    -------
    float
        Not negative.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.landscape.problem import QuadraticProblem
    >>> from skident.landscape.lower_bounds import dual_bound
    >>> problem = QuadraticProblem(np.array([[1.0], [1.0]]), np.array([1.0, 3.0]))
    >>> print(dual_bound(problem, np.array([1.0, -1.0])), problem.value(np.array([[2.0]])))
    0.5 0.5
    """
    y = problem.y
    if problem.fit_intercept:
        u, y = u - u.mean(), y - y.mean()
    quadratic = 0.5 * float(u @ u) / problem.n
    if problem.alpha > 0:
        wrong = signs.wrong_part(np.linalg.eigvalsh(problem.adjoint(u)))
        quadratic += 0.5 * float(wrong @ wrong) / problem.alpha
        if problem.fit_linear:
            products = problem.linear_inputs.T @ u / problem.n
            quadratic += 0.5 * problem.linear_weight * float(products @ products) / problem.alpha
    linear = -float(u @ y) / problem.n - slack
    return float(linear**2 / (4.0 * quadratic)) if linear > 0 and quadratic > 0 else 0.0


def whitened(problem):
    """The same problem without ridge in coordinates in which the inputs have identity second moments.

    Directions in which the inputs do not vary are left out; columns are scaled first, so that small units are not
    mistaken for that.

    Parameters
    ----------
    problem : QuadraticProblem

    Returns
    -------
    QuadraticProblem or None
        None where nothing is left.
    """
    X = problem.X
    sizes = np.sqrt(np.mean(X**2, axis=0))
    if problem.fit_intercept and problem.fit_linear:  # a shift of the inputs changes constant and linear terms only
        X = X - X.mean(axis=0)
    spread = np.sqrt(np.mean(X**2, axis=0))
    varies = spread > 10.0 * _EPS * np.maximum(sizes, np.finfo(float).tiny)
    if not varies.any():
        return None
    U, S, _ = scipy.linalg.svd(X[:, varies] / spread[varies], full_matrices=False)
    U = U[:, S > 20.0 * max(X.shape) * _EPS * S[0]]
    return QuadraticProblem(U * np.sqrt(problem.n), problem.y, problem.terms.without_ridge())


def lower_bound(problem, M, signs, *, tol=1e-10, max_dense=6000, solution=None):
    """The best lower bound at hand of the loss over all networks with output weights of these signs.

    Parameters
    ----------
    problem : QuadraticProblem
    M : ndarray of shape (d, d)
        A point whose residual is tried first.
    signs : UnitSigns
        Of the output weights.
    tol : float, default=1e-10
        The search ends at a bound that is this close, relative to the loss of a constant.
    max_dense : int, default=6000
        Largest order of a matrix to be factorised.
    solution : ConvexSolution, default=None
        Of this problem, if it is at hand.

    Returns
    -------
    bound : float
    how : str
        Where it comes from.
    """
    if not (signs.plus or signs.minus):
        return problem.null_value, "no unit has an output weight"
    value, enough = problem.value(M), tol * problem.target_value + problem.rounding
    bounds = _bounds(problem, M, signs, max_dense, solution)
    return best_of(bounds, lambda bound: -bound[0], enough=lambda costs: value + min(costs) <= enough)[0]


def _bounds(problem, M, signs, max_dense, solution):
    """One bound after the other, those that cost little first, each with where it comes from."""
    yield 0.0, "losses are not negative"
    if problem.alpha > 0:
        yield dual_bound(problem, problem.residual(M), signs), "weak duality at the point's own residual"
    elif signs.plus != signs.minus:
        yield _shifted(problem, M, signs), "weak duality at the point's residual, shifted until R is definite"
    yield _convex(problem, max_dense, solution)
    # Ridges too small for weak duality in double precision are left out: that lowers the loss by what they cost.
    if problem.alpha > 0 and 0.5 * problem.alpha * float(np.sum(M * M)) <= 1e-13 * problem.target_value:
        bare = QuadraticProblem(problem.X, problem.y, problem.terms.without_ridge())
        yield lower_bound(bare, M, signs, tol=1e-13, max_dense=max_dense)


def _shifted(problem, M, signs):
    """Units of one sign, no ridge: from the residual plus a multiple of a vector that makes R definite."""
    white = whitened(problem)
    if white is None:
        return 0.0
    sign = 1.0 if signs.plus else -1.0
    u = problem.residual(M)
    shift = np.ones(white.n)
    if white.fit_intercept or white.fit_linear:  # orthogonal to their terms, and with R about the identity
        N = newton_step(white.hessian_product, -np.eye(white.d), max_iter=100, tol=1e-2)
        shift, _ = white.remaining(white.forms(N))
    try:
        lowest = scipy.linalg.eigh(sign * white.adjoint(u), white.adjoint(shift), eigvals_only=True)[0]
    except np.linalg.LinAlgError:  # the shift's matrix is not definite
        return 0.0
    u = u + sign * max(0.0, -lowest * (1.0 + 1e-12)) * shift
    return dual_bound(problem, u, signs, slack=_rounding_slack(white, u, white.null_value))


def _rounding_slack(white, u, size):
    """What R_u and X^T u can amount to where they are zero only to rounding, for outputs as large as the targets."""
    return _RADIUS * white.d * _EPS * float(np.sqrt(np.mean(u**2)) * np.sqrt(size))


def _convex(problem, max_dense, solution):
    """Least squares over all symmetric M, whatever the signs."""
    how = "least squares over all quadratic forms"
    if problem.alpha == 0:
        if solution is not None and solution.rank_is_certain and solution.value <= 1e-12 * problem.null_value:
            return 0.0, how
        null_value = problem.null_value
        problem, solution = whitened(problem), None
        if problem is None:
            return null_value, "the inputs do not vary"
    if solution is None:
        if least_squares_size(problem) > max_dense:
            return 0.0, how
        solution = solve_convex(problem)
    if not (problem.alpha > 0 or solution.rank_is_certain):
        return 0.0, how
    u = problem.residual(solution.M)
    slack = _solution_slack(problem, solution.M, u) if problem.alpha == 0 else 0.0
    return dual_bound(problem, u, slack=slack), how


def _solution_slack(problem, M, u):
    """What R_u and X^T u, zero at a minimiser but for rounding, can amount to beside it."""
    b, _ = problem.side_terms(M)
    left = np.abs(np.linalg.eigvalsh(problem.adjoint(u))).max()
    linear = np.linalg.norm(problem.linear_inputs.T @ u / problem.n) if problem.fit_linear else 0.0
    sizes = np.abs(np.linalg.eigvalsh(M)).sum(), np.linalg.norm(b)
    return _RADIUS * (left * sizes[0] + linear * sizes[1])
