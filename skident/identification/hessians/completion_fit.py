"""Network completion from several starts, in standardized features and outputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.fitting.linear_units import reflection_slope
from skident.linalg import column_units
from skident.optim import SeparableProblem, best_of, levenberg_marquardt
from skident.oracle import NotIdentified

from .completion_problem import FTOL, solve_completion

__all__ = ["Completed", "best_completion", "completion_starts", "fit_hidden_layer"]

# Relative residual below which a start has ended in the right valley. Entangled weights of deeper networks are
# approximate, and so is their best residual; the directions of one hidden layer are exact.
_GOOD_RESIDUAL = 1e-2
_GOOD_RESIDUAL_ONE_LAYER = 1e-6  # the same for one hidden layer
_SPREAD_ONE_LAYER = 0.5  # standard deviation of the starts' pre-activations: units far from linear, none saturated


@dataclass(frozen=True)
class Completed:
    """A solution of eq. (18): weights (m_{l-1}, m_l), the first diagonal, and biases (m_l,), on the features as given.

    `history` is the objective step by step, `stopped` whether it ended for lack of steps, `residual` the relative root
    mean square at the end, in the units of the search.
    """

    weights: list[np.ndarray]
    biases: list[np.ndarray]
    history: list[float]
    n_iter: int
    stopped: bool = False
    residual: float | None = None


def _has_one_hidden_layer(problem):
    """Whether the outputs are free linear combinations of one hidden layer: variable projection solves that."""
    return problem.free_readout and len(problem.widths) == 2 and problem.activations[-1].name == "identity"


def completion_starts(problem, blocks, given, n_starts, rng):
    """Starts (scales (m_1,), biases (m_1,), output scales per block or None) for features (n, m_l) in `blocks`.

    The given start (scales, biases), or else the paper's ``T = R = 1, tau = 0`` (not for one hidden layer); then
    centered pre-activations of unit variance; then the same with random scales. `n_starts` in all.
    """
    m, one_layer = problem.widths[0], _has_one_hidden_layer(problem)
    if given is not None:
        yield *given, None
    elif not one_layer:
        yield np.ones(m), np.zeros(m), None
    stds = [column_units(Z)[1] for Z in blocks]
    for k in range(n_starts - (given is not None or not one_layer)):
        factors = 1.0 if k == 0 else np.exp(rng.standard_normal(m))
        scales = (_SPREAD_ONE_LAYER if one_layer else 1.0) / stds[0] * factors
        yield scales, -scales * blocks[0].mean(axis=0), [1.0 / scales, *stds[1:]]


def best_completion(problem, Z, Y, starts, *, max_iter, tol, log):
    """The best `Completed` of several starts by Levenberg-Marquardt, until one ends with a small residual.

    Features Z (n, m_1) of the first block, outputs Y (n, m_L); `max_iter` steps per start, which stops at the relative
    residual `tol`. Raises NotIdentified if no start gives finite outputs.
    """
    units = _Units.of(problem, Z, Y)
    U, V = units.standardized(Z, Y)
    total = max(np.sum(V**2), np.finfo(float).tiny)
    good = max(_GOOD_RESIDUAL_ONE_LAYER if _has_one_hidden_layer(problem) else _GOOD_RESIDUAL, 2.0 * tol)

    def solutions():
        for scales, biases, output_scales in starts:
            start = scales * units.std, biases + scales * units.mean, output_scales
            weights, biases, result = _solve(problem, U, V, start, max_iter, tol)
            log.say(f"{result.n_iter} steps, relative residual {np.sqrt(result.cost / total):.2e}")
            yield weights, biases, result

    (weights, biases, result), _ = best_of(
        solutions(),
        cost=lambda solution: solution[2].cost,
        enough=lambda costs: np.sqrt(costs[-1] / total) < good,
    )
    if not np.isfinite(result.cost):
        raise NotIdentified("completion", "diverged", "no start gives finite outputs; scale the features.")
    residual, stopped = float(np.sqrt(result.cost / total)), result.status == "max_iter" and result.n_iter >= max_iter
    return Completed(*units.undo(weights, biases), result.history, max(1, result.n_iter), stopped, residual)


def _solve(problem, U, V, start, max_iter, tol):
    """Weights, biases and the solver's result from one start."""
    scales, biases, output_scales = start
    if _has_one_hidden_layer(problem):
        return fit_hidden_layer(U, V, problem.activations[0], scales, biases, max_iter=max_iter, tol=tol)
    params = problem.with_readout(problem.initial(scales, biases, output_scales), U, V)
    result = solve_completion(problem, U, V, params, max_iter=max_iter, tol=tol)
    return *problem.layers(result.x), result


def fit_hidden_layer(Z, Y, activation, scales, biases, *, max_iter=200, tol=1e-14):
    """Weights, biases and solver's result of one hidden layer on features Z (n, m), linear outputs Y (n, m_L).

    Minimizes ``min_c sum_n ||y_n - c_0 - sum_i c_i g(a_i z_ni + b_i)||^2`` over scales a and biases b by variable
    projection. Directions have no sign, but softplus, gelu, silu and relu units do: ``g(z) - g(-z) = z``. For them a
    first round has the features themselves as columns too, which absorb the lines of wrong signs; then signs are
    corrected. `tol` is relative to the standard deviation of Y.
    """
    m, fixed = Z.shape[1], np.ones((len(Z), 1))
    target = tol**2 * float(np.sum((Y - Y.mean(axis=0)) ** 2))

    def separable(fixed):
        def columns(x):
            value, slope = activation.jet(Z * x[:m] + x[m:], 1)[:2]
            return np.hstack([fixed, value]), np.hstack([slope * Z, slope])

        return SeparableProblem(columns, Y, np.tile(fixed.shape[1] + np.arange(m), 2))

    def minimized(problem, start):
        options = {"max_iter": max_iter, "target": target, "ftol": FTOL}
        return levenberg_marquardt(problem.cost, problem.linearize, start, **options)

    x = np.concatenate([scales, biases])
    if np.isclose(reflection_slope(activation), 1.0):
        problem = separable(np.hstack([fixed, Z]))
        x = minimized(problem, x).x
        x = _without_reflections(x, problem.fit(x).coefficients, m)
    problem = separable(fixed)
    result = minimized(problem, x)
    coefficients = problem.fit(result.x).coefficients
    return [np.diag(result.x[:m]), coefficients[1:]], [result.x[m:], coefficients[0]], result


def _without_reflections(x, coefficients, m):
    """The same units, reflected if that removes their line ``-a c z`` from the coefficients of (1, Z, units)."""
    line, c = coefficients[1 : 1 + m], coefficients[1 + m :]
    reflected = np.linalg.norm(line + x[:m, None] * c, axis=1) < np.linalg.norm(line, axis=1)
    return x * np.tile(np.where(reflected, -1.0, 1.0), 2)


@dataclass(frozen=True)
class _Units:
    """Mean and standard deviation of every feature of the first block, and of every output."""

    mean: np.ndarray
    std: np.ndarray
    offset: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, problem, Z, Y):
        # A linear last layer absorbs any offset and scale, but starts have outputs of order one.
        linear = problem.activations[-1].name == "identity"
        return cls(*column_units(Z), *(column_units(Y) if linear else (0.0, 1.0)))

    def standardized(self, Z, Y):
        return (Z - self.mean) / self.std, (Y - self.offset) / self.scale

    def undo(self, weights, biases):
        """Weights and biases of the network on features and outputs as given."""
        first = weights[0] / self.std[:, None]
        weights, biases = [first, *weights[1:]], [biases[0] - self.mean @ first, *biases[1:]]
        return [*weights[:-1], weights[-1] * self.scale], [*biases[:-1], biases[-1] * self.scale + self.offset]
