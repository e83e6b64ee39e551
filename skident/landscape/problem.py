"""Least squares over quadratic forms: what a shallow network with quadratic units can say, and its loss.

A network ``x -> sum_l v_l (w_l . x)^2`` is the quadratic form of ``M = W^T D_v W``, and its loss is a convex function
of M. Layouts: `X` (n, d), `y` (n,), `M` and other matrices of the forms' space symmetric (d, d).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from numbers import Real

import numpy as np

from .offsets import exact_offsets

__all__ = ["NO_TERMS", "LossTerms", "QuadraticProblem"]

# Singular values of the inputs below this many roundings of the largest count as zero.
_RANK_ROUNDINGS = 20.0


@dataclass(frozen=True)
class LossTerms:
    """What the loss of a quadratic network has beside the quadratic form: constant and linear terms, and a ridge.

    Attributes
    ----------
    alpha : float, default=0
        Ridge, not negative.
    fit_intercept, fit_linear : bool, default=False
        Whether there are a constant c and linear terms b, at their best for every M; otherwise they are 0.
    linear_weight : float, default=1
        How much less b is penalised than M.

    Raises
    ------
    ValueError
        If alpha is not a finite number >= 0, or the weight not a finite one > 0.
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
        """The same terms, none of them penalised.

        Returns
        -------
        LossTerms
        """
        return LossTerms(fit_intercept=self.fit_intercept, fit_linear=self.fit_linear)


NO_TERMS = LossTerms()


class QuadraticProblem:
    """The loss of a quadratic form on data, constant and linear terms being at their best.

    Minimised over symmetric M, and over b and c where they are asked for::

        f(M) = min_{b, c}  1/(2n) sum_i (x_i^T M x_i + b . x_i + c - y_i)^2
                           + alpha/2 (||M||_F^2 + ||b||^2 / linear_weight)

    This is a convex quadratic function; without b, c and alpha it is eq. (1.4) of [1]_ at ``M = W^T D_v W``.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    terms : LossTerms, default=LossTerms()
        alpha and linear_weight, and whether c and b are fitted; otherwise they are 0.

    Attributes
    ----------
    n, d : int
    alpha, linear_weight, fit_intercept, fit_linear
        As in `terms`.
    y : ndarray of shape (n,)
        Less `y_offset`, exactly: the intercept makes the loss independent of it, so that rounding bounds refer to how
        much y varies.
    y_offset : float
        A large mean of y, 0 without intercept.

    Notes
    -----
    Every method costs O(n d^2), the first linear term an SVD of X once.

    References
    ----------
    .. [1] M. Soltanolkotabi, A. Javanmard, J. D. Lee, "Theoretical insights into the optimization landscape of
       over-parameterized shallow neural networks", 2017 (revised 2022).

    Examples
    --------
    >>> import numpy as np
    >>> from skident.landscape.problem import QuadraticProblem
    >>> problem = QuadraticProblem(np.array([[1.0], [2.0]]), np.array([3.0, 12.0]))
    >>> print(problem.value(np.array([[3.0]])))
    0.0
    """

    def __init__(self, X, y, terms=NO_TERMS):
        self.X, self.terms = np.asarray(X, dtype=np.float64), terms
        self.n, self.d = self.X.shape
        self.alpha, self.linear_weight = float(terms.alpha), float(terms.linear_weight)
        self.fit_intercept, self.fit_linear = bool(terms.fit_intercept), bool(terms.fit_linear)
        y = np.asarray(y, dtype=np.float64)
        self.y_offset = float(exact_offsets(y[:, None])[0]) if self.fit_intercept and self.n else 0.0
        self.y = y - self.y_offset

    @property
    def n_unknowns(self):
        """``d (d + 1) / 2``, with linear terms d more."""
        return self.d * (self.d + 1) // 2 + (self.d if self.fit_linear else 0)

    @functools.cached_property
    def means(self):
        """Column means of X where an intercept removes them, else zeros (d,)."""
        return self.X.mean(axis=0) if self.fit_intercept else np.zeros(self.d)

    @functools.cached_property
    def linear_inputs(self):
        """X as the linear terms see it: centred where there is an intercept."""
        return self.X - self.means

    @functools.cached_property
    def _linear_svd(self):
        """``X_c / sqrt(n) = U S Vt`` without the directions that are zero to rounding, and ``S / (S^2 + ridge)``."""
        U, S, Vt = np.linalg.svd(self.linear_inputs / np.sqrt(self.n), full_matrices=False)
        size = max(S[0] if len(S) else 0.0, np.sqrt(np.mean(self.X**2)))
        kept = _RANK_ROUNDINGS * max(self.X.shape) * np.finfo(float).eps * size < S
        U, S, Vt = U[:, kept], S[kept], Vt[kept]
        return U, S / (S**2 + self.alpha / self.linear_weight), Vt

    def forms(self, M):
        """``x_i^T M x_i`` of every row.

        Parameters
        ----------
        M : ndarray of shape (d, d)
            Symmetric.

        Returns
        -------
        ndarray of shape (n,)
        """
        return np.einsum("ij,ij->i", self.X @ M, self.X)

    def side_terms(self, M):
        """The best linear terms and the best constant for a given M.

        Parameters
        ----------
        M : ndarray of shape (d, d)
            Symmetric.

        Returns
        -------
        b : ndarray of shape (d,)
        c : float
        """
        b, c = self._side_terms(self.forms(M) - self.y)
        return b, c + self.y_offset

    def _side_terms(self, error):
        mean = error.mean() if self.fit_intercept else 0.0
        b = np.zeros(self.d)
        if self.fit_linear:
            U, filtered, Vt = self._linear_svd
            b = -Vt.T @ (filtered * (U.T @ ((error - mean) / np.sqrt(self.n))))
        return b, -float(mean) - float(self.means @ b)

    def remaining(self, error):
        """What the best linear and constant terms leave of an error.

        Parameters
        ----------
        error : ndarray of shape (n,)
            Outputs without these terms less targets.

        Returns
        -------
        residual : ndarray of shape (n,)
        b : ndarray of shape (d,)
            The best linear terms.
        """
        b = np.zeros(self.d)
        if self.fit_intercept:
            error = error - error.mean()
        if self.fit_linear:
            # Twice: where the terms take away most of the error, the first pass leaves its rounding behind.
            for _ in range(2 if self.alpha == 0 else 1):
                step, _ = self._side_terms(error)
                error, b = error + self.linear_inputs @ step, b + step
        if self.fit_intercept:
            error = error - error.mean()
        return error, b

    def residual(self, M):
        """``x_i^T M x_i + b . x_i + c - y_i`` with the best b and c.

        Parameters
        ----------
        M : ndarray of shape (d, d)
            Symmetric.

        Returns
        -------
        ndarray of shape (n,)
        """
        return self.remaining(self.forms(M) - self.y)[0]

    def adjoint(self, u):
        """``1/n sum_i u_i x_i x_i^T``, the adjoint of `forms` over n.

        Parameters
        ----------
        u : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (d, d)
            Exactly symmetric.
        """
        R = (self.X * (u / self.n)[:, None]).T @ self.X
        return 0.5 * (R + R.T)

    def value(self, M):
        """f(M).

        Parameters
        ----------
        M : ndarray of shape (d, d)
            Symmetric.

        Returns
        -------
        float
        """
        return self._value(M, *self.remaining(self.forms(M) - self.y))

    def _value(self, M, residual, b):
        loss = 0.5 * float(residual @ residual) / self.n
        return loss + 0.5 * self.alpha * (float(np.sum(M * M)) + float(b @ b) / self.linear_weight)

    def value_and_gradient(self, M):
        """f(M) and its gradient ``R + alpha M``, where ``R = 1/n sum_i r_i x_i x_i^T`` (eq. 6.5 of [1]_).

        Parameters
        ----------
        M : ndarray of shape (d, d)
            Symmetric.

        Returns
        -------
        value : float
        gradient : ndarray of shape (d, d)
        """
        residual, b = self.remaining(self.forms(M) - self.y)
        gradient = self.adjoint(residual)
        return self._value(M, residual, b), gradient + self.alpha * M if self.alpha else gradient

    def hessian_product(self, N):
        """The second derivative of f, which is the same everywhere, applied to a matrix.

        Parameters
        ----------
        N : ndarray of shape (d, d)
            Symmetric.

        Returns
        -------
        ndarray of shape (d, d)
        """
        return self.adjoint(self.remaining(self.forms(N))[0]) + self.alpha * N

    @functools.cached_property
    def null_value(self):
        """f(0): the loss of the best linear and constant terms alone."""
        return self.value(np.zeros((self.d, self.d)))

    @functools.cached_property
    def target_value(self):
        """Loss of the best constant (of 0 without intercept): the unit in which losses are small or are not."""
        y = self.y - self.y.mean() if self.fit_intercept else self.y
        return 0.5 * float(y @ y) / self.n

    @functools.cached_property
    def steepest(self):
        """Spectral norm of the gradient at M = 0: the unit in which gradients are small or are not."""
        gradient = self.value_and_gradient(np.zeros((self.d, self.d)))[1]
        return float(np.abs(np.linalg.eigvalsh(gradient)).max(initial=0.0))

    @functools.cached_property
    def gradient_rounding(self):
        """Gradients below this are zero to rounding of the targets, less their offset likewise."""
        size = np.sqrt(np.mean(self.y**2)) * np.mean(np.sum(self.X**2, axis=1))
        return 10.0 * float(np.finfo(float).eps * size)

    @functools.cached_property
    def rounding(self):
        """Losses below this are zero to rounding of the targets, less their offset where there is an intercept."""
        return (4.0 * np.finfo(float).eps) ** 2 * float(self.y @ self.y) / self.n
