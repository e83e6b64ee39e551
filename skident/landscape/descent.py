"""Descent on the hidden weights of a quadratic network that escapes every saddle."""

from dataclasses import dataclass, field

import numpy as np
import scipy.optimize

from skident.budget.constants import CONSTANT_TOL, LBFGS_MEMORY, LEAST_DIVISOR, NO_EFFECT, PROGRESS
from skident.optim import conjugate_gradients

from .convex_solver import least_squares_size, solve_convex
from .curvature import form_hessian_product, null_vectors
from .loss_lines import loss_quartic, quartic_minimum
from .quadratic_form import OutputSigns, factorize, quadratic_form, weight_gradient

_CHUNK = 100  # L-BFGS steps between two estimates of the remaining number
_MAX_REMAINING = 150  # estimated remaining L-BFGS steps from which conjugate gradients in M are faster
_SLOPE_MARGIN = 0.1  # of the gradient's limit, for L-BFGS, so that it stops below it
_NEAR_MINIMUM = 1e-3  # gradient relative to that at M = 0, from which a Newton step in M converges
_AT_MINIMUM = 1e-4  # gradient relative to its limit, below which no polishing is needed
_POLISHED = 1e-3  # slope relative to its limit, below which no polishing is needed
_DENSE_WEIGHTS = 400  # weights up to which Newton steps factorize the Hessian: its products take milliseconds (budget)


@dataclass
class DescentResult:
    """The end point of a descent."""

    W: np.ndarray  # (k, d)
    value: float  # the loss, ridge included
    n_iter: int  # steps: of L-BFGS, out of saddles, and final ones
    n_escapes: int  # saddles left
    status: str  # "converged": no unit can follow a part of the gradient in M; "stuck": no unit is free to; "max_iter"
    history: list[float] = field(default_factory=list)  # loss at the start and after each step


def descend(problem, W, v, *, tol=1e-11, max_iter=5000, max_escapes=50, max_dense=6000):
    """Minimize the loss of ``sum_l v_l (w_l . x)^2`` over the hidden weights, from any start, saddles included.

    L-BFGS runs to a stationary point. If the gradient with respect to M has eigenvectors of a sign that units can
    follow, they are assigned to units without effect (`block_escape`), and L-BFGS continues. It has converged if the
    remaining gradient, relative to that at M = 0, is at most `tol`; with fewer than d units of a sign it may be
    "stuck".

    With d units of each sign every symmetric M is attainable and the loss depends on M alone. Adding ``c^2 I`` to both
    ``W_+^T D W_+`` and ``-W_-^T D W_-`` changes nothing, and far along this line the loss is quadratic in W too. So if
    L-BFGS would need many more steps, which happens if the data nearly determine M, conjugate gradients finish in M,
    from the current point (factorizing a matrix of order at most `max_dense`). O(n d^2) per step.

    Source: Soltanolkotabi, Javanmard, Lee (2017), Theorems 2.1, 2.2 and their proofs (the directions a b^T).
    """
    active = np.flatnonzero(v)
    roots, signs = np.sqrt(np.abs(v[active]))[:, None], np.sign(v[active])
    state = _Descent(problem, roots * W[active], signs, tol)
    complete = all(np.sum(signs == s) >= problem.d for s in (1, -1))
    finish = complete and least_squares_size(problem) <= max_dense
    n_escapes, status = 0, "max_iter"
    while state.n_iter < max_iter:
        settled = state.run(min(_CHUNK, max_iter - state.n_iter) if finish else max_iter - state.n_iter)
        if settled:
            state.polish_in_form() if complete else state.polish_in_weights()
        if state.converged:
            status = "converged"
            break
        if settled:
            if n_escapes == max_escapes or not state.escape():
                status = "stuck"
                break
            n_escapes += 1
        elif finish and state.n_iter < max_iter and state.steps_left() > _MAX_REMAINING:
            state.finish()
            status = "converged" if state.converged else "stuck"
            break
    W = np.array(W, dtype=np.float64)
    W[active] = state.W / roots
    return DescentResult(W, state.history[-1], state.n_iter, n_escapes, status, state.history)


class _Descent:
    """A descent in progress, in coordinates in which all output weights are 1 or -1."""

    def __init__(self, problem, W, signs, tol):
        self.problem, self.W, self.signs = problem, W, signs
        self.allowed = OutputSigns.of(signs)
        null_gradient_norm = problem.null_gradient_norm
        self.limit = max(tol * null_gradient_norm, problem.gradient_rounding)
        # Loss over slope is a scale of M, so its root is one of W: the scale of gradients with respect to W.
        self.gradient_limit = (
            _SLOPE_MARGIN
            * self.limit
            * np.sqrt(problem.null_value / null_gradient_norm if null_gradient_norm > 0 else 0.0)
        )
        self.n_iter, self.history = 0, [self._value_and_slope(W.ravel())[0]]

    def _value_and_slope(self, flat):
        """Loss and gradient with respect to the flattened W."""
        W = flat.reshape(self.W.shape)
        value, gradient = self.problem.value_and_gradient(quadratic_form(W, self.signs))
        return value, weight_gradient(W, self.signs, gradient).ravel()

    @property
    def converged(self):
        """Whether neither the gradient in M nor that in W has a part left that units can follow."""
        gradient = self.problem.value_and_gradient(quadratic_form(self.W, self.signs))[1]
        left = self.allowed.descent_part(np.linalg.eigvalsh(gradient))
        slope = np.linalg.norm(self.W @ gradient, 2) if self.W.size else 0.0
        return bool(np.abs(left).max(initial=0.0) <= self.limit and slope <= 10.0 * max(self.gradient_limit, 0.0))

    def run(self, max_iter):
        """Run L-BFGS; whether it reached a stationary point."""
        slope = self._value_and_slope(self.W.ravel())[1]
        if not slope.any():
            return True

        def note(intermediate_result):
            self.history.append(float(intermediate_result.fun))

        options = {"maxcor": LBFGS_MEMORY, "maxiter": max_iter, "maxfun": 2 * max_iter + 20, "ftol": 0.0}
        options["gtol"] = self.gradient_limit / np.sqrt(self.W.size)
        result = scipy.optimize.minimize(
            self._value_and_slope, self.W.ravel(), jac=True, method="L-BFGS-B", options=options, callback=note
        )
        self.W = result.x.reshape(self.W.shape)
        before, after = np.linalg.norm(slope), np.linalg.norm(result.jac)
        self.rate = np.log(before / after) / max(1, result.nit) if 0 < after < before else 0.0
        self.left = np.log(max(after, LEAST_DIVISOR) / max(self.gradient_limit, LEAST_DIVISOR))
        self.n_iter += max(1, int(result.nit))
        return result.status != 1  # 1: the bound on steps

    def steps_left(self):
        """Estimated number of further L-BFGS steps at the rate of its last run."""
        return self.left / self.rate if self.rate > 0 else np.inf

    def polish_in_form(self, max_iter=60):
        """Newton step in M near the end, if there are enough units for every M: the last digits.

        There the loss is a convex quadratic, and well conditioned where L-BFGS has converged.
        """
        M = quadratic_form(self.W, self.signs)
        value, gradient = self.problem.value_and_gradient(M)
        if (
            not _AT_MINIMUM * self.limit
            < np.linalg.norm(gradient, 2)
            <= _NEAR_MINIMUM * self.problem.null_gradient_norm
        ):
            return
        M = M + newton_step(self.problem.hessian_product, gradient, max_iter)
        new_value, new_gradient = self.problem.value_and_gradient(M)
        if np.linalg.norm(new_gradient) < PROGRESS * np.linalg.norm(gradient) and new_value <= value * (
            1.0 + CONSTANT_TOL
        ):
            self.W = factorize(M, self.signs)[0]
            self.n_iter += 1
            self.history.append(new_value)

    def polish_in_weights(self, max_steps=8):
        """Newton steps in W while they reduce the slope: losses alone determine a minimum to half the digits only.

        The Hessian has a null space (rotations of the units among themselves), which the steps do not enter.
        """
        flat = self.W.ravel()
        value, slope = self._value_and_slope(flat)
        for _ in range(max_steps):
            if not np.linalg.norm(slope) > _POLISHED * self.gradient_limit:
                break
            product = self._hessian_product(flat)
            step = (_dense_newton_step if flat.size <= _DENSE_WEIGHTS else newton_step)(product, slope)
            new_value, new_slope = self._value_and_slope(flat + step)
            if not np.linalg.norm(new_slope) < PROGRESS * np.linalg.norm(slope) or new_value > value * (
                1.0 + CONSTANT_TOL
            ):
                break
            flat, value, slope = flat + step, new_value, new_slope
            self.n_iter += 1
            self.history.append(value)
        self.W = flat.reshape(self.W.shape)

    def _hessian_product(self, flat):
        """The Hessian product at flattened W."""
        W = flat.reshape(self.W.shape)
        gradient = self.problem.value_and_gradient(quadratic_form(W, self.signs))[1]
        return lambda u: form_hessian_product(self.problem, W, self.signs, gradient, u.reshape(W.shape)).ravel()

    def escape(self):
        """Leave a saddle; whether the loss decreased."""
        gradient = self.problem.value_and_gradient(quadratic_form(self.W, self.signs))[1]
        direction = block_escape(self.W, self.signs, gradient, self.limit)
        if direction is None:
            return False
        W = self.W + quartic_minimum(loss_quartic(self.problem, self.W, self.signs, direction))[0] * direction
        value = self._value_and_slope(W.ravel())[0]
        if not value < self.history[-1]:
            return False
        self.W = W
        self.n_iter += 1
        self.history.append(value)
        return True

    def finish(self):
        """Continue with the minimizer over all M nearest to here."""
        solution = solve_convex(self.problem, start=quadratic_form(self.W, self.signs))
        if solution.value < self.history[-1]:
            self.W = factorize(solution.M, self.signs)[0]
            self.n_iter += max(1, solution.n_iter)
            self.history.append(solution.value)


def polished_form(problem, M, sign):
    """M (d, d) with eigenvalues of one sign after Newton steps in its factor: a minimizer to the last digits.

    The rank does not change, so M must be close to a minimizer of the loss over matrices of this sign.
    """
    values, V = np.linalg.eigh(sign * M)
    kept = values > NO_EFFECT * max(values[-1], 0.0)
    if not kept.any():
        return M
    descent = _Descent(problem, (V[:, kept] * np.sqrt(values[kept])).T, np.full(np.sum(kept), sign), tol=0.0)
    descent.gradient_limit = 0.0
    descent.polish_in_weights()
    return quadratic_form(descent.W, descent.signs)


def _dense_newton_step(product, slope):
    """``-H^+ slope`` from the matrix H of ``product(u) = H u``, without directions of no or negative curvature."""
    H = np.array([product(unit) for unit in np.eye(len(slope))])
    values, V = np.linalg.eigh((H + H.T) / 2)
    kept = values > NO_EFFECT * max(values[-1], 0.0)
    return -(V[:, kept] / values[kept]) @ (V[:, kept].T @ slope)


def newton_step(product, slope, max_iter=200, tol=1e-10):
    """``-H^+ slope`` by conjugate gradients on ``product(u) = H u``, as far as the curvature is positive."""
    solution = conjugate_gradients(
        lambda v: np.ravel(product(v.reshape(slope.shape))), -np.ravel(slope), tol=tol, max_iter=max_iter
    )
    return solution.x.reshape(slope.shape)


def block_escape(W, signs, gradient, limit=0.0):
    """One direction (k, d) that pairs each descending eigenvector of the gradient with a unit without effect; or None.

    At a saddle the gradient ``G`` with respect to M has eigenvectors b with ``W b = 0``. For a null vector a (``W^T D a
    = 0``, supported on units of one sign) the direction ``a b^T`` has curvature ``2 (a^T D a) (b^T G b)`` and zero
    slope (eqs. 6.11 and 6.12 of the paper). Different pairs do not interact, so all are taken at once, weighted with
    the roots of the eigenvalues; those of magnitude up to `limit` are left out.
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
