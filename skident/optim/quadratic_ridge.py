"""How much ridge a quadratic form needs: leave-one-out errors over a grid, from one eigendecomposition each."""

from __future__ import annotations

import numpy as np

from .quadratic_convex import QuadraticSystem
from .quadratic_problem import QuadraticProblem

__all__ = ["leave_one_out_ridge"]

ALPHAS = np.logspace(-8, 3, 45)
LINEAR_WEIGHTS = (1.0, 10.0, 100.0, 1000.0)
# More rows or unknowns than this are not worth their eigendecompositions.
_MAX_ROWS, _MAX_SIZE = 5000, 1000
_EXACT = 1e-10


def leave_one_out_ridge(problem, rng, *, alphas=None, linear_weights=LINEAR_WEIGHTS):
    """Ridge and weight of the linear terms with the smallest mean squared leave-one-out error.

    Parameters
    ----------
    problem : QuadraticProblem
        Its own alpha and linear_weight are not read. Columns of X should have comparable units.
    rng : RandomState
        Draws rows where there are too many: 5000, or 1000 where there are over 1000 unknowns too; the ridge found is
        then scaled to all rows, as the best one falls like 1/n.
    alphas : array-like, default=None
        None is 45 values from 1e-8 to 1e3.
    linear_weights : sequence of float, default=(1, 10, 100, 1000)
        Tried only with linear terms.

    Returns
    -------
    alpha : float
        0 where the leave-one-out error vanishes with the ridge (below 1e-10 of the variance): data without noise.
    linear_weight : float

    Notes
    -----
    The error of row i is ``r_i / (1 - h_ii)`` with the diagonal of the smoothing matrix.
    Cost O(s^3 + n s^2) a weight, s = min(n, unknowns) at most 1000.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.optim import QuadraticProblem, leave_one_out_ridge
    >>> X = np.random.default_rng(0).standard_normal((60, 3))
    >>> exact = QuadraticProblem(X, X[:, 0] * X[:, 1], fit_intercept=True)
    >>> print(leave_one_out_ridge(exact, np.random.RandomState(0)))
    (0.0, 1.0)
    """
    alphas = np.asarray(ALPHAS if alphas is None else alphas, dtype=np.float64)
    n_all, options = problem.n, {"fit_intercept": problem.fit_intercept, "fit_linear": problem.fit_linear}
    rows = _MAX_SIZE if min(n_all, problem.n_unknowns) > _MAX_SIZE else _MAX_ROWS
    X, y = problem.X, problem.y
    if n_all > rows:
        some = np.sort(rng.choice(n_all, rows, replace=False))
        X, y = X[some], y[some]
    if len(X) < 3:
        return 1.0, float(linear_weights[0])
    best = (np.inf, 1.0, 1.0)
    for weight in linear_weights if problem.fit_linear else linear_weights[:1]:
        system = QuadraticSystem(QuadraticProblem(X, y, linear_weight=weight, **options))
        errors, variance = _errors(system, alphas)
        i = int(np.argmin(errors))
        best = min(best, (errors[i], alphas[i] * len(X) / n_all, float(weight)))
        if errors[0] <= _EXACT * variance:
            return 0.0, float(weight)
    return float(best[1]), best[2]


def _errors(system, alphas):
    """Mean squared leave-one-out errors, one per alpha, and the variance of y."""
    U, values = system.left_vectors()
    n, intercept = len(U), system.problem.fit_intercept
    target = system.target * np.sqrt(n)
    # What the fit leaves and one less its leverage, as sums without cancellation: with little ridge both nearly vanish.
    left = alphas[:, None] / (values + alphas[:, None])
    projections, beyond = U.T @ target, np.zeros(n)
    if U.shape[1] < n - intercept:
        beyond = np.maximum(1.0 - np.sum(U * U, axis=1) - intercept / n, 0.0)
        target_beyond = target - U @ projections
    else:
        target_beyond = np.zeros(n)
    errors = (target_beyond + (left * projections) @ U.T) / np.maximum(beyond + left @ (U * U).T, 1e-300)
    errors = np.mean(errors**2, axis=1)
    return errors, float(np.mean(target**2))
