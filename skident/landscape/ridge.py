"""How much ridge a quadratic form needs: leave-one-out errors over a grid, from one eigendecomposition each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.optim import best_of

from .convex import QuadraticSystem, solve_convex
from .problem import QuadraticProblem

__all__ = ["RidgeChoice", "is_clear", "leave_one_out_ridge", "linear_alone", "relevance"]

ALPHAS = np.logspace(-8, 3, 45)
LINEAR_WEIGHTS = (1.0, 10.0, 100.0, 1000.0)
# Ridges of linear terms alone, for the model that a quadratic part has to beat.
_LINEAR_RIDGES = np.logspace(-5, 3, 33)
# More rows or unknowns than this are not worth their eigendecompositions.
_MAX_ROWS, _MAX_SIZE = 5000, 1000
_EXACT = 1e-10
_LEAST_RELEVANT, _ADAPTED_MARGIN, _DOZEN = 0.05, 2.0, 10.0


@dataclass(frozen=True)
class RidgeChoice:
    """How much ridge, in which units of the inputs, and what leave-one-out errors say of it.

    Attributes
    ----------
    alpha, linear_weight : float
        As of `QuadraticProblem`; alpha is 0 where the leave-one-out error vanishes with the ridge (below 1e-10 of the
        variance): data without noise.
    units : ndarray of shape (d,)
        The columns of X are to be divided by.
    squares, linear_squares : ndarray of shape (n,)
        Squared leave-one-out errors of this choice, and of linear and constant terms with their best ridge, on `rows`.
    rows : ndarray of int of shape (n,)
        Rows that were looked at.
    """

    alpha: float
    linear_weight: float
    units: np.ndarray
    squares: np.ndarray
    linear_squares: np.ndarray
    rows: np.ndarray


def leave_one_out_ridge(problem, rng, *, alphas=None, linear_weights=LINEAR_WEIGHTS):
    """Ridge, weight of the linear terms and units of the inputs by leave-one-out errors, as simple as these allow.

    In this order, what is clearly better than all simpler ones, by a standard error of the difference: the pair of
    ridge and linear weight with the smallest error after every input was multiplied by its share in a first fit
    (`relevance`; two standard errors, as the shares have seen all rows); that pair for inputs as they are; linear and
    constant terms alone, which is the largest ridge with a linear weight that gives the linear terms their best one;
    the largest ridge. With no choice of linear weight there are no linear terms alone.

    Parameters
    ----------
    problem : QuadraticProblem
        Its own alpha and linear_weight are not read. Columns of X should have comparable units.
    rng : RandomState
        Draws rows where there are too many: 5000, or 1000 where there are over 1000 unknowns too; the ridge found is
        then scaled to all rows, as the best one falls like 1/n.
    alphas : array-like, default=None
        Increasing; None is 45 values from 1e-8 to 1e3.
    linear_weights : sequence of float, default=(1, 10, 100, 1000)
        Tried only with linear terms; a single one is kept.

    Returns
    -------
    RidgeChoice

    Notes
    -----
    The error of row i is ``r_i / (1 - h_ii)`` with the diagonal of the smoothing matrix. On few rows the smallest of
    many such means is often small by chance, and a quadratic part fitted by chance extrapolates badly; so the margin.
    Cost O(s^3 + n s^2) a weight, twice, s = min(n, unknowns) at most 1000.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.landscape.problem import LossTerms, QuadraticProblem
    >>> from skident.landscape.ridge import leave_one_out_ridge
    >>> X = np.random.default_rng(0).standard_normal((60, 3))
    >>> exact = QuadraticProblem(X, X[:, 0] * X[:, 1], LossTerms(fit_intercept=True))
    >>> choice = leave_one_out_ridge(exact, np.random.RandomState(0))
    >>> print(choice.alpha, choice.linear_weight)
    0.0 1.0
    """
    alphas = np.asarray(ALPHAS if alphas is None else alphas, dtype=np.float64)
    weights = linear_weights if problem.fit_linear else linear_weights[:1]
    rows = _some_rows(problem, rng)
    some = problem if len(rows) == problem.n else QuadraticProblem(problem.X[rows], problem.y[rows], problem.terms)
    ones = np.ones(problem.d)
    if some.n < 3:
        return RidgeChoice(1.0, float(weights[0]), ones, np.full(some.n, np.nan), np.full(some.n, np.nan), rows)
    best = _best_grid(some, alphas, weights)
    linear, ridge = linear_alone(some)
    if best.error == 0.0:
        return RidgeChoice(0.0, best.linear_weight, ones, best.lowest, linear, rows)
    constant, share = _constant_alone(some), some.n / problem.n
    plain = (constant, linear) if len(weights) > 1 else (constant,)
    units = 1.0 / relevance(some, float(alphas[best.best_row]), best.linear_weight)
    adapted = _best_grid(QuadraticProblem(some.X / units, some.y, some.terms), alphas, weights)
    for grid, rivals, margin in ((adapted, (*plain, best.lowest), _ADAPTED_MARGIN), (best, plain, 1.0)):
        if all(is_clear(rival, grid.lowest, margin) for rival in rivals):
            alpha, unit = float(alphas[grid.best_row] * share), units if grid is adapted else ones
            return RidgeChoice(alpha, grid.linear_weight, unit, grid.lowest, linear, rows)
    if len(weights) > 1 and is_clear(constant, linear):
        return RidgeChoice(float(alphas[-1]), float(alphas[-1] / (ridge * share)), ones, linear, linear, rows)
    return RidgeChoice(float(alphas[-1]), best.linear_weight, ones, constant, linear, rows)


def relevance(problem, alpha, linear_weight):
    """What every input contributes to the best fit with a given ridge, relative to the one that contributes most.

    Inputs that contribute little are penalised the more in these units: the adaptive ridge, whose fits are better where
    some inputs do not matter.

    Parameters
    ----------
    problem : QuadraticProblem
    alpha, linear_weight : float

    Returns
    -------
    ndarray of shape (d,)
        ``sqrt(b_j^2 + 2 sum_k M_jk^2)`` over the largest, the standard deviation of an input's part for Gaussian
        inputs; at least .05.

    References
    ----------
    H. Zou, "The adaptive lasso and its oracle properties", JASA 2006, for ridges from a first fit.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.landscape.problem import LossTerms, QuadraticProblem
    >>> from skident.landscape.ridge import relevance
    >>> X = np.random.default_rng(0).standard_normal((60, 3))
    >>> problem = QuadraticProblem(X, X[:, 0] + X[:, 1] ** 2, LossTerms(fit_intercept=True, fit_linear=True))
    >>> print(relevance(problem, 1e-6, 1.0).round(2).tolist())
    [0.71, 1.0, 0.05]
    """
    problem = QuadraticProblem(problem.X, problem.y, replace(problem.terms, alpha=alpha, linear_weight=linear_weight))
    M = solve_convex(problem).M
    b = problem.side_terms(M)[0]
    shares = np.sqrt(b**2 + 2.0 * np.sum(M**2, axis=0))
    return np.maximum(shares / shares.max(), _LEAST_RELEVANT) if shares.max() > 0 else np.ones(problem.d)


def linear_alone(problem):
    """Leave-one-out errors of linear and constant terms with their best ridge.

    Parameters
    ----------
    problem : QuadraticProblem
        Columns of X should have comparable units.

    Returns
    -------
    squares : ndarray of shape (n,)
    ridge : float
    """
    U, S, _ = np.linalg.svd(problem.linear_inputs / np.sqrt(problem.n), full_matrices=False)
    kept = S**2 > 1e-13 * S[0] ** 2
    squares = _squared_errors(U[:, kept], S[kept] ** 2, problem, _LINEAR_RIDGES)
    i = int(np.argmin(squares.mean(axis=1)))
    return squares[i], _LINEAR_RIDGES[i]


def is_clear(rival, squares, margin=1.0):
    """Whether squared errors are smaller than a rival's on the same rows, by more than chance.

    Parameters
    ----------
    rival, squares : ndarray of shape (n,)
    margin : float, default=1
        In standard errors of the mean difference; 10 / n more, as these are themselves uncertain on a dozen rows.

    Returns
    -------
    bool
    """
    gain, n = rival - squares, len(rival)
    return bool(gain.mean() > (margin + _DOZEN / n) * gain.std(ddof=1) / np.sqrt(n))


@dataclass(frozen=True)
class _Grid:
    """Leave-one-out errors over ridges, with one weight of the linear terms.

    `squares` (alphas, n) are squared errors; `error` is the smallest mean over rows, that of `best_row`, and 0 where
    errors vanish with the ridge.
    """

    squares: np.ndarray
    linear_weight: float
    best_row: int
    error: float

    @property
    def lowest(self):
        """Squared errors (n,) with the best ridge."""
        return self.squares[self.best_row]


def _best_grid(problem, alphas, weights):
    """The grid with the smallest error; the first where errors vanish."""
    grids = (_grid(problem, alphas, float(weight)) for weight in weights)
    return best_of(grids, lambda grid: grid.error, enough=lambda errors: errors[-1] == 0.0)[0]


def _grid(problem, alphas, linear_weight):
    terms = replace(problem.terms.without_ridge(), linear_weight=linear_weight)
    system = QuadraticSystem(QuadraticProblem(problem.X, problem.y, terms))
    squares = _squared_errors(*system.left_vectors(), problem, alphas)
    means = squares.mean(axis=1)
    i = int(np.argmin(means))
    noiseless = means[0] <= _EXACT * 2.0 * problem.target_value
    return _Grid(squares, linear_weight, i, 0.0 if noiseless else float(means[i]))


def _some_rows(problem, rng):
    """As many rows as leave-one-out errors are affordable for."""
    rows = _MAX_SIZE if min(problem.n, problem.n_unknowns) > _MAX_SIZE else _MAX_ROWS
    return np.arange(problem.n) if problem.n <= rows else np.sort(rng.choice(problem.n, rows, replace=False))


def _constant_alone(problem):
    """Squared leave-one-out errors (n,) of the mean; of zero, where there is no constant term."""
    n, y = problem.n, problem.y
    return ((y - y.mean()) * (n / (n - 1))) ** 2 if problem.fit_intercept else y**2


def _squared_errors(U, values, problem, alphas):
    """Squared leave-one-out errors (alphas, n) of ridge on features with left singular vectors U (n, r).

    `values` (r,) are the squared singular values, over n as the loss is a mean.
    """
    n, intercept = problem.n, problem.fit_intercept
    target = problem.y - problem.y.mean() if intercept else problem.y
    # What the fit leaves and one less its leverage, as sums without cancellation: with little ridge both nearly vanish.
    left = alphas[:, None] / (values + alphas[:, None])
    projections, beyond, target_beyond = U.T @ target, np.zeros(n), np.zeros(n)
    if U.shape[1] < n - intercept:
        beyond = np.maximum(1.0 - np.sum(U * U, axis=1) - intercept / n, 0.0)
        target_beyond = target - U @ projections
    errors = (target_beyond + (left * projections) @ U.T) / np.maximum(beyond + left @ (U * U).T, 1e-300)
    return errors**2
