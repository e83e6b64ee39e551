"""How much ridge a quadratic form needs: leave-one-out errors over a grid, from one eigendecomposition each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.optim import best_of

from .convex import QuadraticSystem
from .problem import QuadraticProblem

__all__ = ["leave_one_out_ridge"]

ALPHAS = np.logspace(-8, 3, 45)
LINEAR_WEIGHTS = (1.0, 10.0, 100.0, 1000.0)
# Ridges of linear terms alone, for the model that a quadratic part has to beat.
_LINEAR_RIDGES = np.logspace(-5, 3, 33)
# More rows or unknowns than this are not worth their eigendecompositions.
_MAX_ROWS, _MAX_SIZE = 5000, 1000
_EXACT = 1e-10


def leave_one_out_ridge(problem, rng, *, alphas=None, linear_weights=LINEAR_WEIGHTS):
    """Ridge and weight of the linear terms by leave-one-out errors, without a quadratic part unless it clearly helps.

    The pair with the smallest mean squared error is taken if that is below the error of the best simpler model by more
    than one standard error of the difference. Otherwise the simpler model is: linear and constant terms alone, which is
    the largest ridge with a linear weight that gives the linear terms their best one; with no choice of linear weight
    the largest ridge.

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
    alpha : float
        0 where the leave-one-out error vanishes with the ridge (below 1e-10 of the variance): data without noise.
    linear_weight : float

    Notes
    -----
    The error of row i is ``r_i / (1 - h_ii)`` with the diagonal of the smoothing matrix. On few rows the smallest of
    many such means is often small by chance, and a quadratic part fitted by chance extrapolates badly; so the margin.
    Cost O(s^3 + n s^2) a weight, s = min(n, unknowns) at most 1000.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.landscape.problem import LossTerms, QuadraticProblem
    >>> from skident.landscape.ridge import leave_one_out_ridge
    >>> X = np.random.default_rng(0).standard_normal((60, 3))
    >>> exact = QuadraticProblem(X, X[:, 0] * X[:, 1], LossTerms(fit_intercept=True))
    >>> print(leave_one_out_ridge(exact, np.random.RandomState(0)))
    (0.0, 1.0)
    """
    alphas = np.asarray(ALPHAS if alphas is None else alphas, dtype=np.float64)
    weights = linear_weights if problem.fit_linear else linear_weights[:1]
    some = _some_rows(problem, rng)
    if some.n < 3:
        return 1.0, float(weights[0])
    grids = (_grid(some, alphas, float(weight)) for weight in weights)
    best, errors = best_of(grids, lambda grid: grid.error, enough=lambda errors: errors[-1] == 0.0)
    if errors[-1] == 0.0:
        return 0.0, best.linear_weight
    share, i, largest = some.n / problem.n, best.best_row, float(alphas[-1])
    simple, simple_weight = best.squares[-1], best.linear_weight
    if len(weights) > 1:
        simple, ridge = _linear_alone(some)
        simple_weight = float(alphas[-1] / (ridge * share))
    gain = simple - best.squares[i]
    clear = gain.mean() > gain.std(ddof=1) / np.sqrt(some.n)
    return (float(alphas[i] * share), best.linear_weight) if clear else (largest, simple_weight)


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


def _grid(problem, alphas, linear_weight):
    terms = replace(problem.terms.without_ridge(), linear_weight=linear_weight)
    system = QuadraticSystem(QuadraticProblem(problem.X, problem.y, terms))
    squares = _squared_errors(*system.left_vectors(), problem, alphas)
    means = squares.mean(axis=1)
    i = int(np.argmin(means))
    noiseless = means[0] <= _EXACT * 2.0 * problem.target_value
    return _Grid(squares, linear_weight, i, 0.0 if noiseless else float(means[i]))


def _some_rows(problem, rng):
    """The problem on as many rows as leave-one-out errors are affordable for."""
    rows = _MAX_SIZE if min(problem.n, problem.n_unknowns) > _MAX_SIZE else _MAX_ROWS
    if problem.n <= rows:
        return problem
    some = np.sort(rng.choice(problem.n, rows, replace=False))
    return QuadraticProblem(problem.X[some], problem.y[some], problem.terms)


def _linear_alone(problem):
    """Squared leave-one-out errors (n,) of linear and constant terms with their best ridge, and that ridge."""
    U, S, _ = np.linalg.svd(problem.linear_inputs / np.sqrt(problem.n), full_matrices=False)
    kept = S**2 > 1e-13 * S[0] ** 2
    squares = _squared_errors(U[:, kept], S[kept] ** 2, problem, _LINEAR_RIDGES)
    i = int(np.argmin(squares.mean(axis=1)))
    return squares[i], _LINEAR_RIDGES[i]


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
