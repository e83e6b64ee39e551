"""Variable projection: separable least squares ``min_{x, C} ||Phi(x) C - Y||`` with the coefficients C eliminated."""

from typing import NamedTuple

import numpy as np

from skident.budget.constants import FEW_ROUNDINGS

from .batched_levenberg_marquardt import BatchedNormalEquations
from .levenberg_marquardt import DenseNormalEquations

# Smallest diagonal entry of R, relative to the largest, from which columns are independent: far above rounding. Below,
# singular values decide.
_INDEPENDENT = 1e-6
_DIFFERENCE_STEP = 1e-7  # of a parameter of order one: about the root of eps, where truncation and rounding balance


class LinearFit(NamedTuple):
    """A least-squares fit of columns Phi (..., n, K), of least norm if Phi is rank deficient.

    `coefficients` C (..., K, m), `residual` ``Phi C - Y`` (..., n, m), and `basis` (..., n, K): orthonormal columns
    that span those of Phi, columns of zeros for the rank that Phi lacks.
    """

    coefficients: np.ndarray
    residual: np.ndarray
    basis: np.ndarray

    def project_out(self, changes):
        """Subtract from changes (..., n, P) their projection on the columns of Phi."""
        return changes - self.basis @ (np.swapaxes(self.basis, -1, -2) @ changes)


def fit_coefficients(Phi, Y, rank_tol=FEW_ROUNDINGS):
    """Minimize ``||Phi C - Y||`` over C, for one matrix Phi or a batch of them.

    Parameters
    ----------
    Phi : ndarray of shape (..., n, K)
    Y : ndarray of shape (..., n, m)
    rank_tol : float, default=1e-14
        Singular values of Phi below this part of the largest one count as zero: columns that agree to fewer digits are
        distinguished, and share their work where they agree to more.

    Returns
    -------
    LinearFit

    Notes
    -----
    A QR factorization, and singular values of its triangular factor: ``O(n K (K + m))`` for every matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.optim import fit_coefficients
    >>> t = np.arange(4.0)
    >>> fit = fit_coefficients(np.column_stack([np.ones(4), t, t]), (1.0 + 3.0 * t)[:, None])
    >>> print(fit.coefficients.round(6).ravel())
    [1.  1.5 1.5]
    """
    Q, R = np.linalg.qr(Phi)
    diagonal = np.abs(np.diagonal(R, axis1=-2, axis2=-1))
    if R.shape[-2] == R.shape[-1] and np.all(diagonal.min(-1) > _INDEPENDENT * diagonal.max(-1)):
        coefficients = np.linalg.solve(R, np.swapaxes(Q, -1, -2) @ Y)
        return LinearFit(coefficients, Phi @ coefficients - Y, Q)
    U, s, Vt = np.linalg.svd(R, full_matrices=False)
    kept = s > rank_tol * s[..., :1]
    basis = (Q @ U) * kept[..., None, :]
    inverse = np.where(kept, 1.0 / np.where(kept, s, 1.0), 0.0)
    coefficients = np.swapaxes(Vt, -1, -2) @ (inverse[..., None] * (np.swapaxes(basis, -1, -2) @ Y))
    return LinearFit(coefficients, Phi @ coefficients - Y, basis)


class SeparableProblem:
    """``min_C ||Phi(x) C - Y||^2`` as a function of x (P,), each entry of which moves one column of Phi.

    ``columns(x)`` gives Phi (n, K) and the derivatives (n, P): column ``moved[k]`` by ``x[k]``. The Jacobian is
    Kaufman's, ``P dPhi C`` with P the projector off the columns of Phi. Its Gram matrix over all outputs Y (n, m) is
    ``(D^T D) o (C C^T)`` with D the projected derivatives: ``O(n P (P + K))`` per step, however many outputs there are.
    Source: Golub and Pereyra (1973), Kaufman (1975).

    >>> import numpy as np
    >>> from skident.optim import SeparableProblem, levenberg_marquardt
    >>> t = np.linspace(0.0, 1.0, 30)[:, None]
    >>> def decays(x):
    ...     return np.exp(-t * x), -t * np.exp(-t * x)
    >>> problem = SeparableProblem(
    ...     decays, decays(np.array([1.0, 9.0]))[0] @ [[2.0], [3.0]], np.arange(2)
    ... )
    >>> print(
    ...     levenberg_marquardt(problem.cost, problem.linearize, np.array([0.5, 4.0])).x.round(
    ...         6
    ...     )
    ... )
    [1. 9.]
    """

    def __init__(self, columns, Y, moved, rank_tol=FEW_ROUNDINGS):
        self.columns, self.Y, self.moved, self.rank_tol = columns, Y, np.asarray(moved), rank_tol

    def fit(self, x):
        """The `LinearFit` with the best coefficients."""
        return fit_coefficients(self.columns(x)[0], self.Y, self.rank_tol)

    def cost(self, x):
        """Sum of squared residuals; infinite if a column is not finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            Phi = self.columns(x)[0]
            if not np.isfinite(Phi).all():
                return np.inf
            return float(np.sum(fit_coefficients(Phi, self.Y, self.rank_tol).residual ** 2))

    def linearize(self, x):
        """The Gauss-Newton model."""
        Phi, slopes = self.columns(x)
        fit = fit_coefficients(Phi, self.Y, self.rank_tol)
        D, C = fit.project_out(slopes), fit.coefficients[self.moved]
        return DenseNormalEquations((D.T @ D) * (C @ C.T), np.sum((D.T @ fit.residual) * C, axis=1))


class BatchedSeparableProblem:
    """B problems ``min_C ||Phi(x_b) C - Y_b||^2`` in few parameters each, for `batched_levenberg_marquardt`.

    ``columns(x (B, P))`` gives Phi (B, n, K), whose derivatives are central differences of size `step`; Y is (n, m), or
    (B, n, m) with one for each problem. `longest` bounds the steps, see `BatchedNormalEquations`.

    >>> import numpy as np
    >>> from skident.optim import BatchedSeparableProblem, Ending, batched_levenberg_marquardt
    >>> t = np.linspace(0.0, 1.0, 30)
    >>> problem = BatchedSeparableProblem(
    ...     lambda x: np.exp(-x * t)[:, :, None], 5.0 * np.exp(-3.0 * t)[:, None]
    ... )
    >>> print(
    ...     batched_levenberg_marquardt(problem, np.array([[1.0], [7.0]]), Ending())
    ...     .x.round(6)
    ...     .ravel()
    ... )
    [3. 3.]
    """

    def __init__(self, columns, Y, *, step=_DIFFERENCE_STEP, longest=None, rank_tol=FEW_ROUNDINGS):
        self.columns, self.Y, self.step, self.longest, self.rank_tol = columns, Y, step, longest, rank_tol

    def take(self, index):
        """The problems of some indices."""
        Y = self.Y if self.Y.ndim == 2 else self.Y[index]
        return BatchedSeparableProblem(self.columns, Y, step=self.step, longest=self.longest, rank_tol=self.rank_tol)

    def move(self, x, steps):
        """Parameters after a step."""
        return x + steps

    def cost(self, x):
        """Sums of squared residuals (B,); infinite if a column is not finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            Phi = self.columns(x)
        finite = np.isfinite(Phi).all(axis=(1, 2))
        Phi = np.where(finite[:, None, None], Phi, 0.0)
        cost = np.sum(fit_coefficients(Phi, self.Y, self.rank_tol).residual ** 2, axis=(1, 2))
        return np.where(finite, cost, np.inf)

    def linearize(self, x):
        """The Gauss-Newton models, with Kaufman's Jacobian."""
        fit = fit_coefficients(self.columns(x), self.Y, self.rank_tol)
        changes = [
            (self.columns(x + self.step * e) - self.columns(x - self.step * e)) @ fit.coefficients / (2.0 * self.step)
            for e in np.eye(x.shape[1])
        ]
        J = np.stack([fit.project_out(change).reshape(len(x), -1) for change in changes], axis=1)
        gradient = (J @ fit.residual.reshape(len(x), -1, 1))[..., 0]
        return BatchedNormalEquations(J @ np.swapaxes(J, 1, 2), gradient, longest=self.longest)
