"""Gauss-Newton steps by conjugate gradients, preconditioned by the Cholesky factor of an earlier step."""

import numpy as np
import scipy.linalg

from skident.budget import check_deadline
from skident.budget.constants import NORM_FLOOR, NULL_EIGENVALUE

from .conjugate_gradients import conjugate_gradients
from .damped_cholesky import factor_in_place

_MIN_DAMPING_SINGLE = 1e-6  # `NULL_EIGENVALUE` in single precision
_STALE_DAMPING = 10.0  # factor by which the damping may exceed that of the factor


class KeptFactor:
    """The Cholesky factor of a damped matrix ``J^T J``, kept until it is replaced: ``8 P^2`` bytes.

    One triangle of the array holds the factor, the other one the matrix, which further dampings need.
    """

    def __init__(self):
        self.scale = self._matrix = self._diagonal = None
        self._damping = 0.0

    @property
    def empty(self):
        """Whether there is no matrix yet."""
        return self._matrix is None

    def take(self, matrix):
        """Keep another matrix ``J^T J`` (P, P), its columns scaled to norm 1; it is overwritten."""
        diagonal = np.sqrt(np.diag(matrix).astype(float))
        self.scale = np.where(diagonal > NORM_FLOOR * diagonal.max(), diagonal, diagonal.max() or 1.0)
        matrix /= self.scale[:, None]
        matrix /= self.scale
        self._matrix, self._diagonal, self._damping = np.asfortranarray(matrix.T), np.diag(matrix).copy(), 0.0

    def drop(self):
        """Release the array."""
        self.scale = self._matrix = self._diagonal = None

    def factor_for(self, damping):
        """Factor the kept matrix, unless the damping of its factor is not far below this one."""
        if self._damping and damping <= _STALE_DAMPING * self._damping:
            return
        if not np.isfinite(self._matrix).all():
            raise np.linalg.LinAlgError("the matrix to be factored is not finite")
        least = _MIN_DAMPING_SINGLE if self._matrix.dtype == np.float32 else NULL_EIGENVALUE
        check_deadline(len(self._matrix) ** 3 / 3.0)
        self._damping = 0.0
        self._damping = factor_in_place(self._matrix, self._diagonal, max(damping, least))

    def solve(self, v):
        """``(J^T J + damping S^2)^-1 v`` with the kept matrix, its column norms S and its damping."""
        scaled = (v / self.scale).astype(self._matrix.dtype, copy=False)
        return scipy.linalg.cho_solve((self._matrix, False), scaled, check_finite=False) / self.scale


class FactoredNormalEquations:
    """``J^T J`` known by its `product` ``v -> J^T (J v)``, with the factor of a matrix close to it as preconditioner.

    Near a solution J hardly changes, so one factor of ``O(P^3)`` suffices for all steps, which share `kept`, with a few
    products each. If conjugate gradients need `few` products to reach the residual `tol`, relative and in the factor's
    norm, ``form()`` makes the matrix ``J^T J`` and replaces it.

    >>> import numpy as np
    >>> from skident.optim import FactoredNormalEquations, KeptFactor
    >>> J = np.array([[2.0, 1.0], [0.0, 1.0], [1.0, 3.0]])
    >>> model = FactoredNormalEquations(
    ...     lambda v: J.T @ (J @ v), J.T @ np.ones(3), lambda: J.T @ J, KeptFactor()
    ... )
    >>> print(model.solve(0.0)[0].round(6))
    [-0.266667 -0.333333]
    """

    def __init__(self, product, gradient, form, kept, *, tol=1e-4, few=25):
        self.product, self.gradient, self.form, self.kept = product, gradient, form, kept
        self.tol, self.few = tol, few

    def solve(self, damping):
        """Damped step and predicted decrease, as `DenseNormalEquations.solve`."""
        formed = self.kept.empty
        if formed:
            self.kept.take(self.form())
        solution, squares = self._solution(damping)
        if solution.n_products >= self.few and not formed:
            self.kept.drop()  # one matrix of this size at a time, not two
            self.kept.take(self.form())
            solution, squares = self._solution(damping)
        x, r = solution.x, solution.residual
        return x, float((r - self.gradient) @ x) + damping * float((squares * x) @ x)

    def _solution(self, damping):
        self.kept.factor_for(damping)
        squares = self.kept.scale**2
        solution = conjugate_gradients(
            lambda v: self.product(v) + damping * squares * v,
            -self.gradient,
            precondition=self.kept.solve,
            tol=self.tol,
            own_norm=True,
            max_iter=self.few,
        )
        return solution, squares
