"""Selection of the ridge of a quadratic form by leave-one-out errors over a grid, one eigendecomposition each."""

from dataclasses import dataclass, replace

import numpy as np

from skident.base.kernel_reference import is_significantly_better
from skident.budget.constants import LARGEST_ORDER, NOISE_FREE, NULL_EIGENVALUE, SCORE_ERRORS
from skident.linalg import svd
from skident.optim import best_of

from .convex_solver import QuadraticSystem, solve_convex

ALPHAS = np.logspace(-8, 3, 45)  # four per decade
LINEAR_WEIGHTS = (1.0, 10.0, 100.0, 1000.0)  # decades: linear terms penalized as much as quadratic ones, or less
# Ridges of linear terms alone, for the model that a quadratic part must beat.
_LINEAR_RIDGES = np.logspace(-5, 3, 33)
_MAX_SAMPLES = 5000  # of leave-one-out errors (budget)
_LEAST_RELEVANCE = 0.05  # relative to the largest; not tuned, of the order of the errors of a first fit


@dataclass(frozen=True)
class RidgeSelection:
    """Selected ridge and scales of the inputs, with their leave-one-out errors."""

    alpha: float  # 0 for data without noise: leave-one-out errors below 1e-10 of the variance
    linear_weight: float  # as of `QuadraticProblem`
    scales: np.ndarray  # (d,): the columns of X are to be divided by
    squares: np.ndarray  # (n,): squared leave-one-out errors on `rows`, times the weights of these samples
    linear_squares: np.ndarray  # (n,): those of linear and constant terms with their best ridge
    rows: np.ndarray  # (n,): indices of the samples used


def leave_one_out_ridge(problem, rng, *, alphas=None, linear_weights=LINEAR_WEIGHTS):
    """Select ridge, weight of the linear terms and scales of the inputs by leave-one-out errors, as simple as possible.

    In this order, the first that is better than all simpler ones by a standard error of the difference: the pair of
    ridge and linear weight with the smallest error after each input is multiplied by its share in a first fit
    (`relevance`; two standard errors, since the shares depend on all samples); that pair for unscaled inputs; linear
    and constant terms alone, which is the largest ridge with a linear weight that gives the linear terms their best
    one; the largest ridge. With a single linear weight there are no linear terms alone. Columns of X should have
    comparable scales; the problem's own alpha and linear_weight are ignored. `rng` draws samples if there are more than
    5000, or 1000 with over 1000 unknowns; the ridge is then rescaled to all samples, as the best one falls like 1/n.

    The error of sample i is ``r_i / (1 - h_ii)`` with the diagonal of the smoothing matrix. For few samples the
    smallest of many such means is often small by chance, and a quadratic part fitted by chance extrapolates badly;
    hence the margin. Cost O(s^3 + n s^2) per weight, twice, s = min(n, unknowns) at most 1000.
    """
    alphas = np.asarray(ALPHAS if alphas is None else alphas, dtype=np.float64)
    weights = linear_weights if problem.fit_linear else linear_weights[:1]
    rows = _subsample(problem, rng)
    subset = problem if len(rows) == problem.n else problem.changed(rows=rows)
    ones = np.ones(problem.d)
    if subset.n < 3:
        return RidgeSelection(1.0, float(weights[0]), ones, np.full(subset.n, np.nan), np.full(subset.n, np.nan), rows)
    best = _best_grid(subset, alphas, weights)
    linear, ridge = linear_errors(subset)
    if best.error == 0.0:
        return RidgeSelection(0.0, best.linear_weight, ones, best.lowest, linear, rows)
    constant, share = _constant_errors(subset), subset.n / problem.n
    simpler = (constant, linear) if len(weights) > 1 else (constant,)
    scales = 1.0 / relevance(subset, float(alphas[best.best_row]), best.linear_weight)
    adapted = _best_grid(subset.changed(X=subset.X / scales), alphas, weights)
    for grid, rivals, margin in ((adapted, (*simpler, best.lowest), SCORE_ERRORS), (best, simpler, 1.0)):
        if all(is_significantly_better(rival, grid.lowest, margin) for rival in rivals):
            alpha, scale = float(alphas[grid.best_row] * share), scales if grid is adapted else ones
            return RidgeSelection(alpha, grid.linear_weight, scale, grid.lowest, linear, rows)
    if len(weights) > 1 and is_significantly_better(constant, linear):
        return RidgeSelection(float(alphas[-1]), float(alphas[-1] / (ridge * share)), ones, linear, linear, rows)
    return RidgeSelection(float(alphas[-1]), best.linear_weight, ones, constant, linear, rows)


def relevance(problem, alpha, linear_weight):
    """Contribution of each input to the best fit with a given ridge, relative to the largest; at least .05.

    ``sqrt(b_j^2 + 2 sum_k M_jk^2)``, the standard deviation of an input's part for Gaussian inputs. Inputs that
    contribute little are penalized more in these units: the adaptive ridge, whose fits are better if some inputs are
    irrelevant (H. Zou, "The adaptive lasso and its oracle properties", JASA 2006).
    """
    problem = problem.changed(terms=replace(problem.terms, alpha=alpha, linear_weight=linear_weight))
    M = solve_convex(problem).M
    b = problem.side_terms(M)[0]
    shares = np.sqrt(b**2 + 2.0 * np.sum(M**2, axis=0))
    return np.maximum(shares / shares.max(), _LEAST_RELEVANCE) if shares.max() > 0 else np.ones(problem.d)


def linear_errors(problem):
    """Squared leave-one-out errors (n,) of linear and constant terms with their best ridge, and that ridge."""
    U, S, _ = svd(problem.linear_inputs * (problem.roots / np.sqrt(problem.n))[:, None], full_matrices=False)
    kept = S**2 > NULL_EIGENVALUE * S[0] ** 2
    squares = _squared_errors(U[:, kept], S[kept] ** 2, problem, _LINEAR_RIDGES)
    i = int(np.argmin(squares.mean(axis=1)))
    return squares[i], _LINEAR_RIDGES[i]


@dataclass(frozen=True)
class _Grid:
    """Squared leave-one-out errors over ridges, for one weight of the linear terms."""

    squares: np.ndarray  # (alphas, n)
    linear_weight: float
    best_row: int  # index of the best ridge
    error: float  # smallest mean; 0 if errors vanish with the ridge

    @property
    def lowest(self):
        """Squared errors (n,) with the best ridge."""
        return self.squares[self.best_row]


def _best_grid(problem, alphas, weights):
    """The grid with the smallest error; the first for which errors vanish."""
    grids = (_grid(problem, alphas, float(weight)) for weight in weights)
    return best_of(grids, lambda grid: grid.error, enough=lambda errors: errors[-1] == 0.0)[0]


def _grid(problem, alphas, linear_weight):
    """The `_Grid` of one linear weight."""
    terms = replace(problem.terms.without_ridge(), linear_weight=linear_weight)
    system = QuadraticSystem(problem.changed(terms=terms))
    squares = _squared_errors(*system.left_vectors(), problem, alphas)
    means = squares.mean(axis=1)
    i = int(np.argmin(means))
    noiseless = means[0] <= NOISE_FREE * 2.0 * problem.target_value
    return _Grid(squares, linear_weight, i, 0.0 if noiseless else float(means[i]))


def _subsample(problem, rng):
    """Indices of as many samples as leave-one-out errors are affordable for."""
    rows = LARGEST_ORDER if min(problem.n, problem.n_unknowns) > LARGEST_ORDER else _MAX_SAMPLES
    return np.arange(problem.n) if problem.n <= rows else np.sort(rng.choice(problem.n, rows, replace=False))


def _constant_errors(problem):
    """Squared leave-one-out errors (n,) of the mean, times the weights; of zero without constant term."""
    target = problem.roots * problem.centered(problem.y)
    return (target / (1.0 - problem.roots**2 / problem.n)) ** 2 if problem.fit_intercept else target**2


def _squared_errors(U, values, problem, alphas):
    """Squared leave-one-out errors (alphas, n) of ridge on features with left singular vectors U (n, r).

    They are multiplied by the weights of the samples. `values` (r,) are the squared singular values, over n as the loss
    is a mean.
    """
    n, intercept = problem.n, problem.fit_intercept
    target = problem.roots * problem.centered(problem.y)
    # Residual and one minus leverage as sums without cancellation: with little ridge both nearly vanish.
    shrinkage = alphas[:, None] / (values + alphas[:, None])
    projections, beyond, target_beyond = U.T @ target, np.zeros(n), np.zeros(n)
    if U.shape[1] < n - intercept:
        beyond = np.maximum(1.0 - np.sum(U * U, axis=1) - intercept * problem.roots**2 / n, 0.0)
        target_beyond = target - U @ projections
    errors = (target_beyond + (shrinkage * projections) @ U.T) / np.maximum(beyond + shrinkage @ (U * U).T, 1e-300)
    return errors**2
