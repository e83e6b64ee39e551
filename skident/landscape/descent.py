"""Descent on the hidden weights of a quadratic network that leaves every saddle."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.optimize

from skident.optim import conjugate_gradients

from .convex import least_squares_size, solve_convex
from .lines import lines_loss, lowest_point
from .units import UnitSigns, factorise, form_of, weight_gradient

__all__ = [
    "DescentResult",
    "block_escape",
    "descend",
    "form_hessian_product",
    "newton_step",
    "null_vectors",
]

# Singular values of a block of hidden weights below this share of its size count as a missing rank.
_NULL = 1e-4
# L-BFGS steps after which it is asked how many more there would be, and how many more are too many.
_CHUNK, _PATIENCE = 100, 150
_MEMORY = 20


@dataclass
class DescentResult:
    """Where a descent ended.

    Attributes
    ----------
    W : ndarray of shape (k, d)
    value : float
        The loss, ridge included.
    n_iter : int
        Steps: of L-BFGS, out of saddles, and finishing ones.
    n_escapes : int
        Saddles left.
    status : {"converged", "stuck", "max_iter"}
        ``converged``: the gradient with respect to ``M = W^T D_v W`` has no part left that any unit could follow;
        ``stuck``: there is such a part but no unit free to follow it, which fewer than d units of a sign allow.
    history : list of float
        Loss at the start and after every step.
    """

    W: np.ndarray
    value: float
    n_iter: int
    n_escapes: int
    status: str
    history: list[float] = field(default_factory=list)


def descend(problem, W, v, *, tol=1e-11, max_iter=5000, max_escapes=50, max_dense=6000):
    """Minimise the loss of ``sum_l v_l (w_l . x)^2`` over the hidden weights, from any start, saddles included.

    L-BFGS runs until it stands still. Where the gradient with respect to M still has eigenvectors of a sign that units
    could follow, all of them are given to units that do nothing yet (`block_escape`), and L-BFGS runs on.

    Parameters
    ----------
    problem : QuadraticProblem
    W : ndarray of shape (k, d)
        Start; 0 will do.
    v : ndarray of shape (k,)
        Output weights, fixed; units with v = 0 stay as they are.
    tol : float, default=1e-11
        Spectral norm at which the rest of the gradient with respect to M counts as none, relative to its norm at M = 0.
    max_iter, max_escapes : int
        Bounds on L-BFGS steps and on escapes.
    max_dense : int, default=6000
        Largest order of a matrix to be factorised in the finish, see Notes.

    Returns
    -------
    DescentResult

    Notes
    -----
    With d units of each sign every symmetric M is in reach and the loss depends on M alone. Adding ``c^2 I`` to both
    ``W_+^T D W_+`` and ``-W_-^T D W_-`` changes nothing, and far along this line the loss is quadratic in W too. So
    where L-BFGS would need many more steps, which happens when the data nearly determine M, conjugate gradients finish
    in M, from the point reached. O(n d^2) a step.

    References
    ----------
    Soltanolkotabi, Javanmard, Lee (2017), "Theoretical insights into the optimization landscape of over-parameterized
    shallow neural networks", Theorems 2.1, 2.2 and their proofs (the directions a b^T).

    Examples
    --------
    >>> import numpy as np
    >>> from skident.landscape.problem import QuadraticProblem
    >>> from skident.landscape.descent import descend
    >>> X = np.random.default_rng(0).standard_normal((20, 3))
    >>> problem = QuadraticProblem(X, X[:, 0] * X[:, 1])
    >>> result = descend(problem, np.zeros((6, 3)), np.array([1.0, 1, 1, -1, -1, -1]))
    >>> print(result.status, result.n_escapes, result.value < 1e-16)
    converged 1 True
    """
    alive = np.flatnonzero(v)
    roots, signs = np.sqrt(np.abs(v[alive]))[:, None], np.sign(v[alive])
    path = _Path(problem, roots * W[alive], signs, tol)
    complete = all(np.sum(signs == s) >= problem.d for s in (1, -1))
    finish = complete and least_squares_size(problem) <= max_dense
    n_escapes, status = 0, "max_iter"
    while path.n_iter < max_iter:
        settled = path.run(min(_CHUNK, max_iter - path.n_iter) if finish else max_iter - path.n_iter)
        if settled:
            path.polish_form() if complete else path.polish()
        if path.converged:
            status = "converged"
            break
        if settled:
            if n_escapes == max_escapes or not path.escape():
                status = "stuck"
                break
            n_escapes += 1
        elif finish and path.n_iter < max_iter and path.steps_left() > _PATIENCE:
            path.finish()
            status = "converged" if path.converged else "stuck"
            break
    W = np.array(W, dtype=np.float64)
    W[alive] = path.W / roots
    return DescentResult(W, path.history[-1], path.n_iter, n_escapes, status, path.history)


class _Path:
    """A descent under way, in coordinates in which all output weights are 1 or -1."""

    def __init__(self, problem, W, signs, tol):
        self.problem, self.W, self.signs = problem, W, signs
        self.allowed = UnitSigns.of(signs)
        steepest = problem.steepest
        self.limit = max(tol * steepest, problem.gradient_rounding)
        # A loss over its slope is a size of M, so its root one of W: the unit in which a gradient is small or is not.
        self.gradient_limit = 0.1 * self.limit * np.sqrt(problem.null_value / steepest if steepest > 0 else 0.0)
        self.n_iter, self.history = 0, [self._value_and_slope(W.ravel())[0]]

    def _value_and_slope(self, flat):
        W = flat.reshape(self.W.shape)
        value, gradient = self.problem.value_and_gradient(form_of(W, self.signs))
        return value, weight_gradient(W, self.signs, gradient).ravel()

    @property
    def converged(self):
        gradient = self.problem.value_and_gradient(form_of(self.W, self.signs))[1]
        left = self.allowed.wrong_part(np.linalg.eigvalsh(gradient))
        slope = np.linalg.norm(self.W @ gradient, 2) if self.W.size else 0.0
        return bool(np.abs(left).max(initial=0.0) <= self.limit and slope <= 10.0 * max(self.gradient_limit, 0.0))

    def run(self, max_iter):
        """L-BFGS; whether it stood still in the end."""
        slope = self._value_and_slope(self.W.ravel())[1]
        if not slope.any():
            return True

        def note(intermediate_result):
            self.history.append(float(intermediate_result.fun))

        options = {"maxcor": _MEMORY, "maxiter": max_iter, "maxfun": 2 * max_iter + 20, "ftol": 0.0}
        options["gtol"] = self.gradient_limit / np.sqrt(self.W.size)
        found = scipy.optimize.minimize(
            self._value_and_slope, self.W.ravel(), jac=True, method="L-BFGS-B", options=options, callback=note
        )
        self.W = found.x.reshape(self.W.shape)
        before, after = np.linalg.norm(slope), np.linalg.norm(found.jac)
        self.rate = np.log(before / after) / max(1, found.nit) if 0 < after < before else 0.0
        self.left = np.log(max(after, 1e-300) / max(self.gradient_limit, 1e-300))
        self.n_iter += max(1, int(found.nit))
        return found.status != 1  # 1: the bound on steps

    def steps_left(self):
        """How many more steps L-BFGS would need at the rate of its last run."""
        return self.left / self.rate if self.rate > 0 else np.inf

    def polish_form(self, near=1e-3, max_iter=60):
        """Near the end, with units enough for every M, the last digits by conjugate gradients in M.

        There the loss is a convex quadratic and well conditioned wherever L-BFGS has come to rest.
        """
        M = form_of(self.W, self.signs)
        value, gradient = self.problem.value_and_gradient(M)
        if not 1e-4 * self.limit < np.linalg.norm(gradient, 2) <= near * self.problem.steepest:
            return
        M = M + newton_step(self.problem.hessian_product, gradient, max_iter)
        new_value, new_gradient = self.problem.value_and_gradient(M)
        if np.linalg.norm(new_gradient) < 0.5 * np.linalg.norm(gradient) and new_value <= value * (1.0 + 1e-12):
            self.W = factorise(M, self.signs)[0]
            self.n_iter += 1
            self.history.append(new_value)

    def polish(self, max_steps=8):
        """Newton steps while they make the slope smaller: losses alone tell a minimum to half the digits only.

        The Hessian has a null space (rotations of the units among themselves), in which conjugate gradients stay still.
        """
        flat = self.W.ravel()
        value, slope = self._value_and_slope(flat)
        for _ in range(max_steps):
            if not np.linalg.norm(slope) > 1e-3 * self.gradient_limit:
                break
            step = newton_step(self._hessian_product(flat), slope)
            new_value, new_slope = self._value_and_slope(flat + step)
            # To rounding the loss must not rise: a saddle attracts Newton steps too.
            if not np.linalg.norm(new_slope) < 0.5 * np.linalg.norm(slope) or new_value > value * (1.0 + 1e-12):
                break
            flat, value, slope = flat + step, new_value, new_slope
            self.n_iter += 1
            self.history.append(value)
        self.W = flat.reshape(self.W.shape)

    def _hessian_product(self, flat):
        W = flat.reshape(self.W.shape)
        gradient = self.problem.value_and_gradient(form_of(W, self.signs))[1]
        return lambda u: form_hessian_product(self.problem, W, self.signs, gradient, u.reshape(W.shape)).ravel()

    def escape(self):
        """Leave a saddle; whether there was a way."""
        gradient = self.problem.value_and_gradient(form_of(self.W, self.signs))[1]
        direction = block_escape(self.W, self.signs, gradient, self.limit)
        if direction is None:
            return False
        W = self.W + lowest_point(lines_loss(self.problem, self.W, self.signs, direction))[0] * direction
        value = self._value_and_slope(W.ravel())[0]
        if not value < self.history[-1]:
            return False
        self.W = W
        self.n_iter += 1
        self.history.append(value)
        return True

    def finish(self):
        """The minimum over all M, from here."""
        solution = solve_convex(self.problem, start=form_of(self.W, self.signs))
        if solution.value < self.history[-1]:
            self.W = factorise(solution.M, self.signs)[0]
            self.n_iter += max(1, solution.n_iter)
            self.history.append(solution.value)


def form_hessian_product(problem, W, v, gradient, U):
    """Second derivative of the loss in W, applied to a direction.

    ``2 D_v U G + 2 D_v W H[W^T D_v U + U^T D_v W]`` with the gradient G and the constant second derivative H of the
    loss with respect to M. Its quadratic form is eq. (6.4) of the paper with 4/n instead of the second 2/n, which is
    what finite differences give.

    Parameters
    ----------
    problem : QuadraticProblem
    W : ndarray of shape (k, d)
    v : ndarray of shape (k,)
    gradient : ndarray of shape (d, d)
        G, at ``form_of(W, v)``.
    U : ndarray of shape (k, d)

    Returns
    -------
    ndarray of shape (k, d)
    """
    D = v[:, None]
    cross = W.T @ (D * U)
    return 2.0 * D * (U @ gradient + W @ problem.hessian_product(cross + cross.T))


def newton_step(product, slope, max_iter=200, tol=1e-10):
    """``-H^+ slope`` by conjugate gradients, as far as the curvature is positive.

    Parameters
    ----------
    product : callable
        ``u -> H u`` for a symmetric H, arrays shaped like `slope`.
    slope : ndarray of any shape
    max_iter : int, default=200
    tol : float, default=1e-10
        Residual, relative to the slope, at which it ends.

    Returns
    -------
    ndarray of the slope's shape
    """
    solution = conjugate_gradients(
        lambda v: np.ravel(product(v.reshape(slope.shape))), -np.ravel(slope), tol=tol, max_iter=max_iter
    )
    return solution.x.reshape(slope.shape)


def null_vectors(W, v, tol=_NULL):
    """Orthonormal vectors a with ``W^T D_v a = 0``.

    Parameters
    ----------
    W : ndarray of shape (k, d)
    v : ndarray of shape (k,)
    tol : float, default=1e-4
        Singular values of ``D_v W`` below this share of the largest count as 0.

    Returns
    -------
    ndarray of shape (k, k - rank)
        The vectors as columns.
    """
    weighted = v[:, None] * W
    U, S, _ = np.linalg.svd(weighted, full_matrices=True)
    rank = int(np.sum(S > tol * S[0])) if len(S) and S[0] > 0 else 0
    return U[:, rank:]


def block_escape(W, signs, gradient, limit=0.0):
    """One direction that pairs every useful eigenvector of the gradient with a unit that does nothing.

    At a saddle the gradient ``G`` with respect to M has eigenvectors b with ``W b = 0``. For a null vector a
    (``W^T D a = 0``, supported on units of one sign) the direction ``a b^T`` has curvature
    ``2 (a^T D a) (b^T G b)`` and no slope (eqs. 6.11 and 6.12 of the paper), and different pairs do not interact, so
    all are taken at once, with the roots of the eigenvalues as weights.

    Parameters
    ----------
    W : ndarray of shape (k, d)
    signs : ndarray of shape (k,)
        1 or -1.
    gradient : ndarray of shape (d, d)
    limit : float, default=0
        Eigenvalues of at most this magnitude are left alone.

    Returns
    -------
    ndarray of shape (k, d) or None
        None where no unit is free or no eigenvector is useful.
    """
    values, vectors = np.linalg.eigh(gradient)
    direction = np.zeros_like(W)
    for sign in (1.0, -1.0):
        units = np.flatnonzero(signs == sign)
        order = np.argsort(sign * values, kind="stable")
        order = order[sign * values[order] < -limit]
        if not len(units) or not len(order):
            continue
        free = null_vectors(W[units], np.ones(len(units)))
        pairs = min(free.shape[1], len(order))
        scaled = np.sqrt(np.abs(values[order[:pairs]]))[:, None] * vectors[:, order[:pairs]].T
        direction[units] += free[:, :pairs] @ scaled
    return direction if direction.any() else None
