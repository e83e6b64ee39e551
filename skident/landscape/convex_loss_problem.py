"""Convex losses over quadratic forms: minimizers of the form, of linear and of constant terms, by damped Newton steps.

Layouts: `X` (n, d), `y` (n,), `M` and other matrices of the space of forms symmetric (d, d); features Phi (n, p).
"""

import functools
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from skident.budget.constants import NULL_EIGENVALUE
from skident.linalg import smat, svec_outer

from .problem import NO_TERMS

_MOST_FEATURES = 2**29  # entries of the features (budget): 4 GB
_MOST_STEPS = 400  # Newton steps (budget); 10 to 30 are usual
_SLOPE_ROUNDINGS = 8.0  # times eps and the slopes' scale: a gradient that rounding hides
_MOST_DAMPING = 1e12  # the largest; beyond, no step lowers the loss by more than rounding
_DAMPING_FACTOR = 10.0  # between steps that fail or succeed


@dataclass(frozen=True)
class GeneralizedLinear:
    """``mean w loss(Phi params + offset, y) + alpha / 2 |params|^2``, the last `n_free` params without ridge."""

    loss: object
    y: np.ndarray
    features: np.ndarray
    alpha: float
    n_free: int
    offset: np.ndarray | float = 0.0
    weights: np.ndarray | float = 1.0  # of the samples, with mean one

    @functools.cached_property
    def ridge(self):
        """Ridge of each parameter, (p,)."""
        ridge = np.full(self.features.shape[1], self.alpha)
        ridge[len(ridge) - self.n_free :] = 0.0
        return ridge

    def outputs(self, params):
        """Outputs f (n,)."""
        return self.features @ params + self.offset

    def value(self, params):
        """The objective."""
        with np.errstate(over="ignore", invalid="ignore"):
            losses = self.loss.value(self.outputs(params), self.y)
        return float((self.weights * losses).mean() + 0.5 * (self.ridge @ params**2))


def minimize_glm(problem, start=None, max_iter=_MOST_STEPS):
    """Parameters (p,) at the minimum of a `GeneralizedLinear`, and the losses after each step.

    Newton steps with Levenberg's damping. They end when the gradient is rounding, or no step lowers the loss.
    """
    Phi, n, eps = problem.features, len(problem.y), np.finfo(float).eps
    params = np.zeros(Phi.shape[1]) if start is None else start
    value, damping, history = problem.value(params), NULL_EIGENVALUE, []
    sizes = np.abs(Phi)
    for _ in range(max_iter if len(params) else 0):
        f = problem.outputs(params)
        slope = problem.weights * problem.loss.slope(f, problem.y)
        gradient = Phi.T @ slope / n + problem.ridge * params
        rounding = sizes.T @ np.abs(slope) / n + problem.ridge * np.abs(params)
        if (np.abs(gradient) <= _SLOPE_ROUNDINGS * eps * rounding).all():
            break
        hessian = (Phi * (problem.weights * problem.loss.curvature(f, problem.y) / n)[:, None]).T @ Phi
        hessian[np.diag_indices_from(hessian)] += problem.ridge
        step, other, damping = _lower(problem, params, value, gradient, (hessian, damping))
        if step is None:
            break
        params, value = params + step, other
        history.append(value)
    return params, history


def _lower(problem, params, value, gradient, model):
    """A damped step that does not raise the loss, the loss after it, and the next damping; step None without one."""
    hessian, damping = model
    unit = float(np.trace(hessian)) / len(hessian) + float(np.mean(problem.features**2)) * 1e-3
    scale = np.maximum(np.diag(hessian), unit)
    while damping <= _MOST_DAMPING:
        damped = hessian + np.diag(damping * scale)
        factor, failed = scipy.linalg.lapack.dpotrf(damped, lower=1)
        if failed == 0:
            step = -scipy.linalg.cho_solve((factor, True), gradient)
            other = problem.value(params + step)
            if other < value:
                return step, other, max(damping / _DAMPING_FACTOR, NULL_EIGENVALUE)
            if damping <= NULL_EIGENVALUE and other <= value * (1.0 + 4.0 * np.finfo(float).eps):
                # At the rounding of the loss the gradient still decides; one more step if it falls by half.
                moved = params + step
                slope = problem.weights * problem.loss.slope(problem.outputs(moved), problem.y)
                after = problem.features.T @ slope / len(slope) + problem.ridge * moved
                if np.linalg.norm(after) <= 0.5 * np.linalg.norm(gradient):
                    return step, other, damping
                return None, value, damping
        damping *= _DAMPING_FACTOR
    return None, value, damping


class ConvexLossProblem:
    """A convex loss of a quadratic form on data, with optimal constant and linear terms.

    Minimized over symmetric M, and over b and c if requested::

        f(M) = min_{b, c}  1/n sum_i loss(x_i^T M x_i + b . x_i + c, y_i)
                           + alpha/2 (||M||_F^2 + ||b||^2 / linear_weight)

    With `weights` (n,) of mean one, the losses and their derivatives have these factors.
    """

    def __init__(self, X, y, loss, terms=NO_TERMS, weights=None):
        self.X, self.y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        self.loss, self.terms, self.weights = loss, terms, 1.0 if weights is None else weights
        self.n, self.d = self.X.shape
        self.q = self.d * (self.d + 1) // 2
        self.alpha = float(terms.alpha)
        self.root = np.sqrt(float(terms.linear_weight)) if terms.fit_linear else 0.0

    @property
    def n_unknowns(self):
        """``d (d + 1) / 2``, with linear terms d more."""
        return self.q + (self.d if self.terms.fit_linear else 0)

    @functools.cached_property
    def side_features(self):
        """Features of the linear terms, and a constant column if there is an intercept."""
        linear = [self.root * self.X] if self.terms.fit_linear else []
        return np.hstack([*linear, np.ones((self.n, int(self.terms.fit_intercept)))])

    @functools.cached_property
    def features(self):
        """Features (n, p) of all terms."""
        if self.n * self.n_unknowns > _MOST_FEATURES:
            raise ValueError(
                f"{self.n} samples with {self.n_unknowns} unknowns make {8e-9 * self.n * self.n_unknowns:.1f} GB of "
                f"features; at most {8e-9 * _MOST_FEATURES:.1f} GB are formed. Reduce the columns, for example by PCA, "
                "or fit a subset of the samples."
            )
        return np.hstack([svec_outer(self.X), self.side_features])

    def forms(self, M):
        """``x_i^T M x_i`` of each sample, (n,)."""
        return np.einsum("ij,ij->i", self.X @ M, self.X)

    def adjoint(self, u):
        """``1/n sum_i w_i u_i x_i x_i^T`` (d, d)."""
        R = (self.X * (self.weights * u / self.n)[:, None]).T @ self.X
        return 0.5 * (R + R.T)

    def split(self, side):
        """Linear terms b (d,), and the constant c, of the parameters of the side features."""
        b = self.root * side[: self.d] if self.terms.fit_linear else np.zeros(self.d)
        return b, float(side[-1]) if self.terms.fit_intercept else 0.0

    def side_params(self, M):
        """Optimal parameters of the side features for a given M."""
        parts = (self.loss, self.y, self.side_features, self.alpha, int(self.terms.fit_intercept))
        return minimize_glm(GeneralizedLinear(*parts, self.forms(M), self.weights))[0]

    def side_terms(self, M):
        """The optimal linear terms b (d,) and constant c for a given M."""
        return self.split(self.side_params(M))

    def value(self, M):
        """f(M)."""
        return self.at(M).value

    def at(self, M):
        """The loss and its derivatives at M, a `LossPoint`."""
        return LossPoint(self, M, self.side_params(M))

    @functools.cached_property
    def null_point(self):
        """The point M = 0: the scale of losses, slopes and curvatures."""
        return self.at(np.zeros((self.d, self.d)))

    @property
    def null_value(self):
        """f(0): the loss of the optimal linear and constant terms alone."""
        return self.null_point.value

    @functools.cached_property
    def null_gradient_norm(self):
        """Spectral norm of the gradient at M = 0: the scale of gradients."""
        return float(np.abs(np.linalg.eigvalsh(self.null_point.gradient)).max(initial=0.0))

    @functools.cached_property
    def gradient_rounding(self):
        """Gradients below this are zero to rounding of the slopes."""
        sizes = np.abs(self.loss.slope(np.zeros(self.n), self.y)) * np.sum(self.X**2, axis=1)
        return 10.0 * float(np.finfo(float).eps * np.mean(sizes))

    @functools.cached_property
    def target_value(self):
        """Loss of the best constant (of 0 without intercept): the scale of losses."""
        free = int(self.terms.fit_intercept)
        constant = GeneralizedLinear(self.loss, self.y, np.ones((self.n, free)), 0.0, free, weights=self.weights)
        return constant.value(minimize_glm(constant)[0])

    @functools.cached_property
    def _reduced(self):
        """Penalized features, and a matrix to all parameters: the features' row space if samples are fewer."""
        Phi = self.features[:, : self.n_unknowns]
        if self.n >= self.n_unknowns:
            return Phi, None
        values, vectors = np.linalg.eigh(Phi @ Phi.T)
        kept = values > NULL_EIGENVALUE * max(float(values[-1]), 0.0)
        roots = np.sqrt(values[kept])
        return vectors[:, kept] * roots, Phi.T @ (vectors[:, kept] / roots)

    def system(self, alpha=None):
        """The same problem as a `GeneralizedLinear`, for another ridge if one is given."""
        n_free, alpha = int(self.terms.fit_intercept), self.alpha if alpha is None else alpha
        features = np.hstack([self._reduced[0], np.ones((self.n, n_free))])
        return GeneralizedLinear(self.loss, self.y, features, alpha, n_free, weights=self.weights)

    def unpack(self, params):
        """M (d, d) and the parameters of the side features, of the parameters of `system`."""
        features, back = self._reduced
        main, free = params[: features.shape[1]], params[features.shape[1] :]
        main = main if back is None else back @ main
        return smat(main[: self.q], self.d), np.concatenate([main[self.q :], free])

    def minimize(self, start=None):
        """The minimizing M (d, d), and the losses after each step; `start` are parameters of `system`."""
        params, history = minimize_glm(self.system(), start)
        return self.unpack(params)[0], history


class LossPoint:
    """Loss, gradient and second derivative of a `ConvexLossProblem` at one M, side terms optimal."""

    def __init__(self, problem, M, side):
        self.problem, self.M, self.side = problem, M, side
        self.outputs = problem.forms(M) + problem.side_features @ side
        self.slopes = problem.loss.slope(self.outputs, problem.y)
        penalized = side[: len(side) - int(problem.terms.fit_intercept)]
        ridge = 0.5 * problem.alpha * (float(np.sum(M * M)) + float(penalized @ penalized))
        self.value = float((problem.weights * problem.loss.value(self.outputs, problem.y)).mean()) + ridge
        self.gradient = problem.adjoint(self.slopes) + problem.alpha * M

    def hessian_product(self, N):
        """The second derivative of f applied to a symmetric matrix."""
        problem, S = self.problem, self.problem.side_features
        weights, forms = problem.loss.curvature(self.outputs, problem.y), problem.forms(N)
        if S.shape[1]:
            weighted = S * (problem.weights * weights / problem.n)[:, None]
            ridge = np.full(S.shape[1], problem.alpha)
            ridge[len(ridge) - int(problem.terms.fit_intercept) :] = 0.0
            hessian = weighted.T @ S + np.diag(ridge)
            forms = forms - S @ np.linalg.lstsq(hessian, weighted.T @ forms, rcond=None)[0]
        return problem.adjoint(weights * forms) + problem.alpha * N
