"""Least squares over quadratic forms: the loss of a shallow network with quadratic units.

A network ``x -> sum_l v_l (w_l . x)^2`` is the quadratic form of ``M = W^T D_v W``, and its loss is a convex function
of M. Layouts: `X` (n, d), `y` (n,), `M` and other matrices of the space of forms symmetric (d, d).
"""

import functools
from dataclasses import dataclass
from numbers import Real

import numpy as np

from skident.linalg import svd

_LARGE = 4.0  # means beyond this many standard deviations are offsets; below, subtracting them gains no digits
_SMALLEST = 1e-290  # standard deviation; below, its power of two would underflow
# Singular values of the inputs below this many roundings of the largest count as zero.
_RANK_ROUNDINGS = 20.0


def exact_offsets(X):
    """Offsets (d,) near the column means of X whose subtraction is exact in floating point (no entry is rounded).

    A constant column is its own offset. 0 if the mean is not large relative to the standard deviation, or an entry
    cannot be shifted exactly: such an entry, and with it the standard deviation, is as large as the mean.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        means, spread = X.mean(axis=0), X.std(axis=0)
        units = np.ldexp(1.0, np.frexp(np.maximum(spread, _SMALLEST))[1])
        # Few digits suffice for an offset, and make an exact difference more likely.
        offsets = np.where(
            (np.abs(means) > _LARGE * spread) & (spread > _SMALLEST), units * np.round(means / units), 0.0
        )
        offsets = np.where(np.ptp(X, axis=0) == 0.0, X[0], offsets)
        shifted = X - offsets
        virtual = shifted - X
        error = (X - (shifted - virtual)) + (-offsets - virtual)  # exactly the rounding error (Knuth's two-sum)
    return np.where((error == 0.0).all(axis=0), offsets, 0.0)


@dataclass(frozen=True)
class LossTerms:
    """Terms of a quadratic network's loss besides the quadratic form: constant and linear terms, and a ridge.

    Attributes
    ----------
    alpha : float, default=0
        Ridge, nonnegative.
    fit_intercept, fit_linear : bool, default=False
        Whether there are a constant c and linear terms b, optimal for each M; otherwise they are 0.
    linear_weight : float, default=1
        Factor by which b is penalized less than M.

    Raises
    ------
    ValueError
        If alpha is not a finite number >= 0, or linear_weight not a finite number > 0.
    """

    alpha: float = 0.0
    fit_intercept: bool = False
    fit_linear: bool = False
    linear_weight: float = 1.0

    def __post_init__(self):
        if not (isinstance(self.alpha, Real) and 0 <= self.alpha < np.inf):
            raise ValueError(f"alpha must be >= 0, got {self.alpha!r}.")
        if not (isinstance(self.linear_weight, Real) and 0 < self.linear_weight < np.inf):
            raise ValueError(f"linear_weight must be > 0, got {self.linear_weight!r}.")

    def without_ridge(self):
        """The same terms, unpenalized.

        Returns
        -------
        LossTerms
        """
        return LossTerms(fit_intercept=self.fit_intercept, fit_linear=self.fit_linear)


NO_TERMS = LossTerms()


class QuadraticProblem:
    """The loss of a quadratic form on data, with optimal constant and linear terms.

    Minimized over symmetric M, and over b and c if requested::

        f(M) = min_{b, c}  1/(2n) sum_i (x_i^T M x_i + b . x_i + c - y_i)^2
                           + alpha/2 (||M||_F^2 + ||b||^2 / linear_weight)

    This is a convex quadratic function; without b, c and alpha it is eq. (1.4) of Soltanolkotabi, Javanmard, Lee (2017,
    revised 2022) at ``M = W^T D_v W``. With `weights` (n,) of mean one, sample i has its weight as a factor in all sums
    over samples. With an intercept, `y` is stored minus a large mean `y_offset`, exactly: the
    loss does not depend on it, and rounding bounds then refer to the variation of y. Every method costs O(n d^2), the
    first use of linear terms an SVD of X.
    """

    def __init__(self, X, y, terms=NO_TERMS, weights=None):
        self.X, self.terms, self.weights = np.asarray(X, dtype=np.float64), terms, weights
        self.n, self.d = self.X.shape
        self.alpha, self.linear_weight = float(terms.alpha), float(terms.linear_weight)
        self.fit_intercept, self.fit_linear = bool(terms.fit_intercept), bool(terms.fit_linear)
        y = np.asarray(y, dtype=np.float64)
        self.y_offset = float(exact_offsets(y[:, None])[0]) if self.fit_intercept and self.n else 0.0
        self.y = y - self.y_offset

    def changed(self, X=None, y=None, terms=None, rows=slice(None)):
        """The problem with other inputs, targets (without offset) or terms, or with some of the samples."""
        weights = None if self.weights is None else self.weights[rows] / self.weights[rows].mean()
        X, y, terms = (old if new is None else new for new, old in ((X, self.X), (y, self.y), (terms, self.terms)))
        return QuadraticProblem(X[rows], y[rows], terms, weights)

    @functools.cached_property
    def roots(self):
        """Square roots of the weights, (n,): factors of the residuals."""
        return np.ones(self.n) if self.weights is None else np.sqrt(self.weights)

    def centered(self, u):
        """u (n, ...) minus its weighted mean if there is an intercept."""
        return u - np.average(u, axis=0, weights=self.weights) if self.fit_intercept else u

    def weighted(self, u):
        """u (n,) times the weights."""
        return u if self.weights is None else self.weights * u

    @property
    def n_unknowns(self):
        """``d (d + 1) / 2``, with linear terms d more."""
        return self.d * (self.d + 1) // 2 + (self.d if self.fit_linear else 0)

    @functools.cached_property
    def means(self):
        """Column means of X if an intercept removes them, else zeros (d,)."""
        return np.average(self.X, axis=0, weights=self.weights) if self.fit_intercept else np.zeros(self.d)

    @functools.cached_property
    def linear_inputs(self):
        """The inputs of the linear terms: X, centered if there is an intercept."""
        return self.X - self.means

    @functools.cached_property
    def _linear_svd(self):
        """``sqrt(w / n) X_c = U S Vt`` without directions that are zero to rounding, and ``S / (S^2 + ridge)``."""
        U, S, Vt = svd(self.linear_inputs * (self.roots / np.sqrt(self.n))[:, None], full_matrices=False)
        size = max(S[0] if len(S) else 0.0, np.sqrt(np.mean(self.X**2)))
        kept = _RANK_ROUNDINGS * max(self.X.shape) * np.finfo(float).eps * size < S
        U, S, Vt = U[:, kept], S[kept], Vt[kept]
        return U, S / (S**2 + self.alpha / self.linear_weight), Vt

    def forms(self, M):
        """``x_i^T M x_i`` of each sample, (n,)."""
        return np.einsum("ij,ij->i", self.X @ M, self.X)

    def side_terms(self, M):
        """The optimal linear terms b (d,) and constant c for a given M."""
        b, c = self._side_terms(self.forms(M) - self.y)
        return b, c + self.y_offset

    def _side_terms(self, error):
        """The same for a given error (n,), without `y_offset`."""
        mean = np.average(error, weights=self.weights) if self.fit_intercept else 0.0
        b = np.zeros(self.d)
        if self.fit_linear:
            U, filtered, Vt = self._linear_svd
            b = -Vt.T @ (filtered * (U.T @ (self.roots * (error - mean) / np.sqrt(self.n))))
        return b, -float(mean) - float(self.means @ b)

    def remaining(self, error):
        """Residual (n,) of an error after the optimal linear and constant terms, and these linear terms (d,)."""
        error, b = self.centered(error), np.zeros(self.d)
        if self.fit_linear:
            # Twice: where the terms take away most of the error, the first pass leaves its rounding behind.
            for _ in range(2 if self.alpha == 0 else 1):
                step, _ = self._side_terms(error)
                error, b = error + self.linear_inputs @ step, b + step
        return self.centered(error), b

    def residual(self, M):
        """``x_i^T M x_i + b . x_i + c - y_i`` with optimal b and c, (n,)."""
        return self.remaining(self.forms(M) - self.y)[0]

    def adjoint(self, u):
        """``1/n sum_i w_i u_i x_i x_i^T`` (d, d), the adjoint of `forms` over n; exactly symmetric."""
        R = (self.X * (self.weighted(u) / self.n)[:, None]).T @ self.X
        return 0.5 * (R + R.T)

    def value(self, M):
        """f(M)."""
        return self._value(M, *self.remaining(self.forms(M) - self.y))

    def _value(self, M, residual, b):
        """f(M) from the residual and the linear terms."""
        loss = 0.5 * float(residual @ self.weighted(residual)) / self.n
        return loss + 0.5 * self.alpha * (float(np.sum(M * M)) + float(b @ b) / self.linear_weight)

    def value_and_gradient(self, M):
        """f(M) and its gradient ``R + alpha M`` (d, d), ``R = 1/n sum_i r_i x_i x_i^T`` (eq. 6.5)."""
        residual, b = self.remaining(self.forms(M) - self.y)
        gradient = self.adjoint(residual)
        return self._value(M, residual, b), gradient + self.alpha * M if self.alpha else gradient

    def hessian_product(self, N):
        """The second derivative of f, which is constant, applied to a symmetric matrix."""
        return self.adjoint(self.remaining(self.forms(N))[0]) + self.alpha * N

    @functools.cached_property
    def null_value(self):
        """f(0): the loss of the optimal linear and constant terms alone."""
        return self.value(np.zeros((self.d, self.d)))

    @functools.cached_property
    def target_value(self):
        """Loss of the best constant (of 0 without intercept): the scale of losses."""
        y = self.centered(self.y)
        return 0.5 * float(y @ self.weighted(y)) / self.n

    @functools.cached_property
    def null_gradient_norm(self):
        """Spectral norm of the gradient at M = 0: the scale of gradients."""
        gradient = self.value_and_gradient(np.zeros((self.d, self.d)))[1]
        return float(np.abs(np.linalg.eigvalsh(gradient)).max(initial=0.0))

    @functools.cached_property
    def gradient_rounding(self):
        """Gradients below this are zero to rounding of the targets."""
        size = np.sqrt(np.mean(self.y**2)) * np.mean(np.sum(self.X**2, axis=1))
        return 10.0 * float(np.finfo(float).eps * size)

    @functools.cached_property
    def rounding(self):
        """Losses below this are zero to rounding of the targets."""
        return (4.0 * np.finfo(float).eps) ** 2 * float(self.y @ self.weighted(self.y)) / self.n
