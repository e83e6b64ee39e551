"""Levenberg-Marquardt: damped Gauss-Newton steps from normal equations, a Jacobian, or products alone."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg
from array_api_compat import array_namespace, is_numpy_array

from skident.budget import MemoryLimitError, OutOfBudgetError, check_deadline
from skident.budget.constants import NORM_FLOOR

from .conjugate_gradients import conjugate_gradients

GROWTH = 2.0  # of the damping after a rejected step; doubled at every further one (Nielsen, 1999)
_LEAST_SHRINKAGE = 0.1  # of the damping after a step that the linear model predicted exactly
_MIN_DAMPING = 1e-15  # relative to the squared column norms: 4 eps, lower ones change nothing
_MAX_DAMPING = 1e8  # relative to the squared column norms: steps so damped do not move


@dataclass
class LeastSquaresResult:
    """Where a least-squares iteration ended.

    Attributes
    ----------
    x : array of shape (P,)
    cost : float
        ``sum(r ** 2)`` at `x`.
    n_iter : int
        Linearizations computed.
    status : {"target", "stationary", "stalled", "max_iter"}
        The cost reached `target`; its relative decrease fell below `ftol`; no damping gave a decrease (rounding, a
        singular problem, a start that is not finite); or stopped on the way, also by the deadline.
    history : list of float
        Cost at the start and after every accepted step.
    damping : float
        With which a further step would begin.
    """

    x: Any
    cost: float
    n_iter: int
    status: str
    history: list[float] = field(default_factory=list)
    damping: float = 0.0


class DenseNormalEquations:
    """``(J^T J, J^T r)`` with columns scaled to norm 1, solved by Cholesky.

    Parameters
    ----------
    matrix : array of shape (P, P)
        ``J^T J``, of a NumPy array the lower triangle; overwritten.
    gradient : array of shape (P,)
        ``J^T r``.
    uniform : bool, default=False
        Scale all columns alike: steps of parameters with little effect are then damped more.
    """

    def __init__(self, matrix, gradient, *, uniform=False):
        xp = array_namespace(gradient)
        diagonal = xp.sqrt(xp.linalg.diagonal(matrix))
        if uniform:
            diagonal = xp.ones_like(diagonal) * xp.sqrt(xp.mean(diagonal**2))
        top = float(xp.max(diagonal)) if diagonal.shape[0] else 1.0
        self.scale = xp.where(diagonal > NORM_FLOOR * top, diagonal, xp.ones_like(diagonal) * (top or 1.0))
        matrix /= self.scale[:, None]
        matrix /= self.scale[None, :]
        self.matrix, self.gradient = matrix, gradient

    def solve(self, damping):
        """The step ``-(J^T J + damping S^2)^-1 J^T r``, S the column norms, and the decrease that the model predicts.

        Parameters
        ----------
        damping : float

        Returns
        -------
        step : array of shape (P,)
        predicted : float

        Raises
        ------
        numpy.linalg.LinAlgError
            If the damped matrix is not positive definite to rounding; torch raises a RuntimeError.
        """
        xp = array_namespace(self.gradient)
        scaled_gradient = self.gradient / self.scale
        if is_numpy_array(self.matrix):
            A = self.matrix.copy()
            A.flat[:: A.shape[0] + 1] += damping
            check_deadline(len(A) ** 3 / 3.0)
            y = -_solve_positive_definite(A, scaled_gradient)
        else:
            eye = xp.eye(self.matrix.shape[0], dtype=self.matrix.dtype, device=self.matrix.device)
            y = -xp.linalg.solve(self.matrix + damping * eye, scaled_gradient)
        return y / self.scale, float(damping * (y @ y) - scaled_gradient @ y)


def _solve_positive_definite(A, b):
    """``A^-1 b`` from the lower triangle of A, which is overwritten; LAPACK itself, since small systems are many."""
    potrf, potrs = scipy.linalg.get_lapack_funcs(("potrf", "potrs"), (A, b))
    factor, failed = potrf(A.T, lower=False, clean=False, overwrite_a=True)
    if failed:
        raise np.linalg.LinAlgError("the damped matrix is not positive definite")
    return potrs(factor, b, lower=False)[0]


class DenseJacobian:
    """Jacobian (n, P) and residual (n,) solved by QR, for directions determined to less than the root of eps.

    Normal equations square the condition number. Steps are damped in units of `scale` (P,), or of the inverse norms of
    the columns. One factorization of ``(J, r)``, ``O(n P^2)``, and one of 2 P rows for every damping.

    >>> import numpy as np
    >>> from skident.optim import DenseJacobian
    >>> step, _ = DenseJacobian(
    ...     np.array([[1.0, 0.0], [0.0, 1e-10]]), np.array([1.0, 1e-10])
    ... ).solve(0.0)
    >>> print(step.round(6))
    [-1. -1.]
    """

    def __init__(self, jacobian, residual, scale=None):
        if scale is None:
            norms = np.linalg.norm(jacobian, axis=0)
            scale = 1.0 / np.where(norms > 0.0, norms, 1.0)
        self.scale = scale
        P = jacobian.shape[1]
        R = scipy.linalg.qr(np.column_stack([jacobian * scale, residual]), mode="r", check_finite=False)[0][: P + 1]
        self.triangle, self.right = R[:P, :P], R[:P, P]
        self.gradient = (self.triangle.T @ self.right) / scale

    def solve(self, damping):
        """The step and the predicted decrease, as `DenseNormalEquations.solve`; LinAlgError if singular."""
        n, P = self.triangle.shape
        check_deadline(4.0 * P**3)
        both = np.zeros((n + P, P + 1))
        both[:n, :P], both[:n, P] = self.triangle, self.right
        both[n:, :P].flat[:: P + 1] = np.sqrt(damping)
        R = scipy.linalg.qr(both, mode="r", overwrite_a=True, check_finite=False)[0]
        if not np.abs(np.diag(R)[:P]).min() > 0.0:
            raise np.linalg.LinAlgError("the damped Jacobian is singular")
        y = -scipy.linalg.solve_triangular(R[:P, :P], R[:P, P], check_finite=False)
        change = self.triangle @ y
        return y * self.scale, -float(change @ change + 2.0 * change @ self.right)


class KrylovNormalEquations:
    """``J^T J`` known by its products, solved by preconditioned conjugate gradients.

    Parameters
    ----------
    product : callable
        ``v -> J^T (J v)``, (P,) to (P,).
    gradient : array of shape (P,)
        ``J^T r``.
    diagonal : array of shape (P,)
        Of ``J^T J``, the scale of the damping.
    preconditioner : callable
        ``preconditioner(damping)`` returns ``v -> M^-1 v`` with ``M`` close to ``J^T J + damping diag``.
    tol : float, default=1e-2
        Relative residual at which the inner iteration ends.
    max_iter : int, default=400
        Inner iterations at most.
    """

    def __init__(self, product, gradient, diagonal, preconditioner, *, tol=1e-2, max_iter=400):
        self.product, self.gradient, self.diagonal = product, gradient, diagonal
        self.preconditioner, self.tol, self.max_iter = preconditioner, tol, max_iter

    def solve(self, damping):
        """Approximate damped step and predicted decrease, as `DenseNormalEquations.solve`.

        Parameters
        ----------
        damping : float

        Returns
        -------
        step : array of shape (P,)
        predicted : float
        """
        solution = conjugate_gradients(
            lambda v: self.product(v) + damping * self.diagonal * v,
            -self.gradient,
            precondition=self.preconditioner(damping),
            tol=self.tol,
            max_iter=self.max_iter,
        )
        x, r = solution.x, solution.residual
        # 2 g.x + x.A.x with A x = -g - r, less the damping's part: what the undamped model loses.
        damped = damping * float((self.diagonal * x) @ x)
        return x, -float(self.gradient @ x) + float(r @ x) + damped


def levenberg_marquardt(cost, linearize, x0, *, max_iter=100, target=0.0, ftol=1e-14, damping=1e-3, callback=None):
    """Minimize ``sum(r(x) ** 2)`` by damped Gauss-Newton steps.

    Parameters
    ----------
    cost : callable
        ``x -> sum(r(x) ** 2)``, float; a value that is not finite counts as a rejected step.
    linearize : callable
        ``x ->`` an object whose ``solve(damping)`` gives a step and the predicted decrease, like
        `DenseNormalEquations`, `DenseJacobian`, `KrylovNormalEquations` or `FactoredNormalEquations`.
    x0 : array of shape (P,)
    max_iter : int, default=100
        Linearizations at most.
    target : float, default=0
        Stop when the cost is at most this.
    ftol : float, default=1e-14
        Stop when two accepted steps in a row lower the cost by less than this fraction.
    damping : float, default=1e-3
        First damping, relative to the squared column norms of J. A step rejected at 1e8 ends the iteration.
    callback : callable, default=None
        ``callback(n_iter, cost)`` after every accepted step; returning True stops with status ``max_iter``.

    Returns
    -------
    LeastSquaresResult

    Notes
    -----
    The damping follows the ratio of actual to predicted decrease (Nielsen, 1999), so that it vanishes near a solution
    with zero residual and the last steps converge quadratically.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.optim import DenseNormalEquations, levenberg_marquardt
    >>> r = lambda x: np.array([x[0] - 1, 10 * (x[1] - x[0] ** 2)])
    >>> J = lambda x: np.array([[1.0, 0.0], [-20 * x[0], 10.0]])
    >>> result = levenberg_marquardt(
    ...     lambda x: float(r(x) @ r(x)),
    ...     lambda x: DenseNormalEquations(J(x).T @ J(x), J(x).T @ r(x)),
    ...     np.array([-1.2, 1.0]),
    ... )
    >>> print(round(float(result.x[1]), 6))
    1.0
    """
    x, value = x0, float(cost(x0))
    history, quiet, n_iter = [value], 0, 0
    if value <= target or not math.isfinite(value):
        return LeastSquaresResult(x, value, 0, "target" if value <= target else "stalled", history, damping)
    for n_iter in range(1, max_iter + 1):
        try:
            check_deadline()
            new, trial, next_damping = _decrease(cost, linearize(x), x, value, damping)
        except MemoryLimitError:
            raise
        except OutOfBudgetError:
            break
        if new is None:
            return LeastSquaresResult(x, value, n_iter, "stalled", history, damping)
        quiet = quiet + 1 if (value - trial) / value < ftol else 0
        x, value, damping = new, trial, next_damping
        history.append(value)
        stop = callback is not None and callback(n_iter, value)
        if value <= target or quiet == 2:
            return LeastSquaresResult(x, value, n_iter, "target" if value <= target else "stationary", history, damping)
        if stop:
            break
    return LeastSquaresResult(x, value, n_iter, "max_iter", history, damping)


def _decrease(cost, model, x, value, damping):
    """The first lower point as the damping grows, its cost and the next damping; three times None if there is none."""
    growth, damping = GROWTH, min(damping, _MAX_DAMPING)
    while damping <= _MAX_DAMPING:
        step, predicted = _try_solve(model, damping)
        new = x + step if step is not None else x
        trial = float(cost(new)) if step is not None else math.inf
        if math.isfinite(trial) and trial < value:
            ratio = (value - trial) / predicted if predicted > 0 else -1.0
            return new, trial, float(damping_after(damping, ratio))
        damping, growth = damping * growth, growth * 2.0
    return None, None, None


def _try_solve(model, damping):
    """The model's step, or None if the damped matrix is not positive definite to rounding."""
    try:
        step, predicted = model.solve(damping)
    except (np.linalg.LinAlgError, RuntimeError, ZeroDivisionError):
        return None, 0.0
    xp = array_namespace(step)
    return (step, predicted) if bool(xp.all(xp.isfinite(step))) else (None, 0.0)


def damping_after(damping, ratio):
    """The damping after an accepted step, given the ratio of actual to predicted decrease; floats or arrays (b,).

    ``damping max(1/10, 1 - (2 ratio - 1)^3)``: a tenth if the model was right, up to twice if the cost hardly fell, so
    that the last steps to a zero residual converge quadratically.
    Source: H. B. Nielsen (1999), Damping parameter in Marquardt's method, with 1/10 for his 1/3.
    """
    # Capped: a ratio far above 1 (a prediction lost in rounding) says no more than 2, and its cube overflows.
    ratio = np.minimum(ratio, 2.0)
    return np.maximum(damping * np.maximum(_LEAST_SHRINKAGE, 1.0 - (2.0 * ratio - 1.0) ** 3), _MIN_DAMPING)


def give_up_when_slow(patience, good):
    """A callback that stops an iteration whose cost is above `good` and has not halved within `patience` steps.

    Parameters
    ----------
    patience : int
    good : float

    Returns
    -------
    callable
        ``callback(n_iter, cost)``, True if the iteration should end.
    """
    costs = []

    def callback(_, cost):
        costs.append(cost)
        return len(costs) > patience and cost > good and cost > 0.5 * costs[-1 - patience]

    return callback
