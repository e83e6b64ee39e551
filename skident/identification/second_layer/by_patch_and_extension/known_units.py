"""The known part of the network and its fits: all parameters, the newest units, one more first-layer unit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from skident.budget.constants import EXACT_RESIDUAL
from skident.fitting.downstream_of_known_units import DownstreamOfKnownUnits
from skident.linalg import lapack
from skident.network import Activation
from skident.optim import DenseJacobian, DenseNormalEquations, best_of, levenberg_marquardt
from skident.oracle import NotIdentified

from ...constants import MAX_CORRECTION, TIGHT_RANK_TOL
from ..downstream import preactivations_of

__all__ = [
    "TAILS",
    "KnownPatch",
    "KnownUnits",
    "NewUnit",
    "fit_new_unit",
    "refit_newest",
    "sensitivity",
    "weights_from_tail",
]

# Fits of all parameters.
_NORM_ERROR = 1e-6  # relative error of first-layer weight norms before a fit: those of tails are accurate to 1e-7
_FIT_DAMPING = 1e-6  # first damping of a fit from a rough start, relative to squared column norms
_REFINE_DAMPING = 1e-20  # first damping of a fit from a good start, by QR: directions known to 1e-10 move too
_MIN_GAIN = 0.1  # of the cost by a step; a smaller gain is the last one
# Fits of new units.
# Pre-activations of a tail, towards the unit's middle: saturated at the first, 3e-3 to 4e-2 from it at the last four.
TAILS = {"tanh": np.array([10.0, 3.2, 2.5, 2.15, 2.0]), "erf": np.array([5.5, 2.08, 1.75, 1.57, 1.48])}
_CORRECTION_GRID = np.linspace(-2.0, 2.0, 41)  # starts: hyperplanes are within 2 of the middle of their unit
_N_TRIED = 3  # budget of starts that are fitted
_LINE_TOL = 1e-7  # accuracy of a start on its line
_GOOD_RESIDUAL = 1e-4  # relative; no further start is tried
_NEW_UNIT_DAMPING = 1e-8  # first damping, relative to squared column norms: starts are accurate to a few digits
_REFIT_DAMPING = 1e-13  # same for units that are known accurately
_REFIT_STEPS = 2  # from there Gauss-Newton converges quadratically


@dataclass(frozen=True)
class KnownUnits:
    """``f = V^T g(W2^T g(z_K + corrections) + biases) + offset`` for known first-layer units K.

    `units` (k,), `corrections` (k,), `W2` (k, m_2), `biases` (m_2,) including the saturated units, `output_weights`
    (m_2, m_L), `offset` (m_L,).
    """

    activation: Activation
    units: np.ndarray
    corrections: np.ndarray
    W2: np.ndarray
    biases: np.ndarray
    output_weights: np.ndarray
    offset: np.ndarray

    def levels(self, outputs, chosen):
        """Pre-activations as known at which units ``units[chosen]`` have given outputs; all of shape (n, q)."""
        return preactivations_of(self.activation.name, outputs) - self.corrections[chosen]

    def inputs(self, Z):
        """Second-layer pre-activations (n, m_2) at first-layer pre-activations Z (n, m_1) as known."""
        return self.activation(Z[:, self.units] + self.corrections) @ self.W2 + self.biases

    def predict(self, Z):
        """Outputs (n, m_L)."""
        return self.activation(self.inputs(Z)) @ self.output_weights + self.offset

    def relative_residual(self, Z, Y):
        """Norm of the residuals of outputs Y relative to their deviations from the mean."""
        spread = max(np.linalg.norm(Y - Y.mean(axis=0)), np.finfo(float).tiny)
        return float(np.linalg.norm(self.predict(Z) - Y) / spread)

    def joined_by(self, unit, sign, weights, correction):
        """The same with one more unit of second-layer weights (m_2,), whose saturated output `biases` included."""
        return replace(
            self,
            units=np.append(self.units, unit),
            corrections=np.append(self.corrections, correction),
            W2=np.vstack([self.W2, weights]),
            biases=self.biases - sign * weights,
        )

    def fitted(self, Z, Y, max_iter):
        """All parameters except norms by least squares, from a start that need not be near."""
        problem = DownstreamOfKnownUnits(Z[:, self.units], Y, self.activation)
        options = {"max_iter": max_iter, "damping": _FIT_DAMPING, "target": EXACT_RESIDUAL**2 * problem.total}
        result = levenberg_marquardt(problem.cost, problem.linearize, self._vector(problem), **options)
        return self._from(problem, result.x)

    def refined(self, Z, Y, max_iter=2, check_deadline=lambda: None):
        """All parameters and norms by a few accurate steps; the factors (k,) of the norms come second.

        Norms have a prior, renewed at each step: an error of 1e-6 costs as much as one residual does at present.
        Without it norms would absorb errors of weights that are poorly determined, and errors grow from unit to unit.
        """
        problem = DownstreamOfKnownUnits(Z[:, self.units], Y, self.activation, norms_free=True)
        x, cost = self._vector(problem), np.inf
        for _ in range(max_iter):
            check_deadline()
            if problem.cost(x) <= EXACT_RESIDUAL**2 * problem.total or problem.cost(x) > (1.0 - _MIN_GAIN) * cost:
                break
            cost = problem.cost(x)
            prior = _NormPrior(problem, x)
            x = levenberg_marquardt(prior.cost, prior.linearize, x, max_iter=1, damping=_REFINE_DAMPING).x
        return self._from(problem, x), problem.split(x)[1]

    def _vector(self, problem):
        """All parameters as a vector of a problem."""
        V = np.vstack([self.output_weights, self.offset - problem.offset]) / problem.scale
        W = np.vstack([self.W2, self.biases])
        return problem.join(self.corrections, np.ones(len(self.units)), W, V)

    def _from(self, problem, x):
        """The same with the parameters of a vector of a problem."""
        corrections, _, W, V = problem.split(x)
        output_weights, offset = V[:-1] * problem.scale, V[-1] * problem.scale + problem.offset
        parts = {"W2": W[:-1], "biases": W[-1], "output_weights": output_weights, "offset": offset}
        return replace(self, corrections=corrections, **parts)


@dataclass(frozen=True)
class KnownPatch:
    """Units known at a point (D,) of a region: free ones have z about 0, all others the saturated outputs `signs`.

    `signs` (m_1,) are 0 for free units.
    """

    known: KnownUnits
    point: np.ndarray
    signs: np.ndarray


class _NormPrior:
    """Least squares of a problem at x with norm factors held near 1: see `KnownUnits.refined`."""

    def __init__(self, problem, x):
        self.problem, self.weight = problem, np.sqrt(problem.cost(x) / problem.Y.size) / _NORM_ERROR

    def _prior_residual(self, x):
        return self.weight * (self.problem.split(x)[1] - 1.0)

    def cost(self, x):
        return self.problem.cost(x) + float(np.sum(self._prior_residual(x) ** 2))

    def linearize(self, x):
        k = self.problem.n_known
        prior = np.zeros((k, len(x)))
        prior[:, k : 2 * k] = self.weight * np.eye(k)
        residual = np.append(self.problem.residual(x).ravel(), self._prior_residual(x))
        return DenseJacobian(np.vstack([self.problem.jacobian(x), prior]), residual)


@dataclass(frozen=True)
class NewUnit:
    """One more unit: second-layer weights (m_2,), bias correction, factor of its norm, relative residual."""

    weights: np.ndarray
    correction: float
    norm_factor: float
    residual: float


def sensitivity(known, Z):
    """Derivatives (n, m_L, m_2) of the outputs by second-layer pre-activations, at Z (n, m_1)."""
    slopes = known.activation.jet(known.inputs(Z), 1)[1]
    return slopes[:, None, :] * known.output_weights.T


def weights_from_tail(known, Z, Y, levels, sign):
    """A unit's second-layer weights (m_2,) by linear least squares, from where it is nearly saturated at `sign`.

    `Y` (n, n_levels, m_L) are outputs along lines on which the unit alone changes, to pre-activations `levels`, the
    first of which is saturated; Z (n, m_1) there. If only ``epsilon = h_b - s_b`` changes, f is a power series in it
    with linear term ``sum_j v_j g'(y_j) W_bj``: errors of what is known cancel in differences. For a tanh unit whose
    bias needs a correction, the result is ``exp(-2 sign correction)`` times the weights.
    """
    moved = known.activation(levels[1:]) - known.activation(levels[0])
    if not np.all(np.diff(np.sort(np.append(moved, 0.0))) > 0.0):  # the powers would be singular
        raise NotIdentified("second layer", "rank", "outputs of a unit do not differ across a wall.")
    powers = (moved[:, None] / moved[-1]) ** np.arange(1, len(moved) + 1)
    linear = lapack.inv(powers)[0] / moved[-1]
    slopes = np.einsum("l,nlm->nm", linear, Y[:, 1:] - Y[:, :1])
    J = sensitivity(known, Z).reshape(slopes.size, -1)
    norms = np.maximum(np.linalg.norm(J, axis=0), np.finfo(float).tiny)
    return lapack.lstsq(J / norms, slopes.ravel(), rcond=TIGHT_RANK_TOL)[0] / norms


def fit_new_unit(known, unit, Z, Y, weights, sign, correction=None):
    """The `NewUnit` by least squares on outputs Y (n, m_L) across its wall, Z (n, m_1).

    `weights` come from `weights_from_tail`; `known.biases` include the saturated output `sign`. The correction is
    fitted if it is not given, and the norm with it; starts are those corrections that explain most, each with the
    weights that have the same tail.
    """
    changes = Y - known.predict(Z)
    size = max(float(np.linalg.norm(changes)), np.finfo(float).tiny)
    fixed = () if correction is None else (-2, -1)
    problem = _NewUnitsProblem(known, known.inputs(Z), Z[:, [unit]], Y, np.array([sign]), size, fixed)
    starts = [np.append(weights, (correction, 1.0))] if fixed else _starts(problem, weights, sign)
    options = {"max_iter": 40, "damping": _NEW_UNIT_DAMPING, "ftol": 1e-3}
    fits = (levenberg_marquardt(problem.cost, problem.linearize, start, **options) for start in starts)
    best, _ = best_of(fits, lambda fit: fit.cost, lambda costs: min(costs) < _GOOD_RESIDUAL**2)
    return NewUnit(best.x[:-2], float(best.x[-2]), float(best.x[-1]), float(np.sqrt(best.cost)))


def _starts(problem, weights, sign):
    """Starts (m_2 + 2,) with the corrections that explain most, best first, each with weights of the same tail."""

    def with_correction(d):
        return np.append(weights * np.exp(2.0 * sign * d), (d, 1.0))

    def cost(d):
        return problem.cost(with_correction(d))

    grid, spacing, starts = _CORRECTION_GRID, _CORRECTION_GRID[1] - _CORRECTION_GRID[0], []
    for d in grid[np.argsort([cost(d) for d in grid])[:_N_TRIED]]:
        options = {"bounds": (d - spacing, d + spacing), "method": "bounded", "options": {"xatol": _LINE_TOL}}
        found = minimize_scalar(cost, **options)
        starts.append((found.fun, found.x))
    return [with_correction(d) for _, d in sorted(starts)]


def refit_newest(known, Z, Y, signs):
    """The same with weights and corrections of the newest units by least squares on Y (n, m_L).

    `signs` (r,) are the saturated outputs with which they joined: inputs at these outputs do not change.
    """
    r = len(signs)
    t = Z[:, known.units[-r:]]
    old = known.W2[-r:]
    base = known.inputs(Z) - (known.activation(t + known.corrections[-r:]) - signs) @ old
    size = max(float(np.linalg.norm(Y - Y.mean(axis=0))), np.finfo(float).tiny)
    problem = _NewUnitsProblem(known, base, t, Y, signs, size, fixed=(-1,))
    x0 = np.column_stack([old, known.corrections[-r:], np.ones(r)]).ravel()
    options = {"max_iter": _REFIT_STEPS, "damping": _REFIT_DAMPING}
    new = levenberg_marquardt(problem.cost, problem.linearize, x0, **options).x.reshape(r, -1)
    W2, corrections = np.vstack([known.W2[:-r], new[:, :-2]]), np.append(known.corrections[:-r], new[:, -2])
    return replace(known, W2=W2, corrections=corrections, biases=known.biases - signs @ (new[:, :-2] - old))


class _NewUnitsProblem:
    """``|V^T g(base + (g(r t + d) - signs) W) + offset - Y|^2 / size^2`` by (W, d, r) of new units: (units, m_2 + 2).

    `base` (n, m_2) are inputs with these units saturated at `signs`, `t` (n, units) their pre-activations as known;
    `fixed` columns of the parameters do not move.
    """

    def __init__(self, known, base, t, Y, signs, size, fixed=()):
        self.activation, self.V, self.Y = known.activation, known.output_weights, Y - known.offset
        self.base, self.t, self.signs, self.size, self.fixed = base, t, signs, size, list(fixed)

    def _split(self, x):
        new = x.reshape(len(self.signs), -1)
        return new[:, :-2], new[:, -2], new[:, -1]

    def cost(self, x):
        W, corrections, factors = self._split(x)
        if not np.abs(corrections).max() < MAX_CORRECTION:
            return np.inf
        moved = self.activation(self.t * factors + corrections) - self.signs
        return float(np.sum((self.activation(self.base + moved @ W) @ self.V - self.Y) ** 2)) / self.size**2

    def linearize(self, x):
        W, corrections, factors = self._split(x)
        h, slope = self.activation.jet(self.t * factors + corrections, 1)
        moved = h - self.signs
        g, slopes = self.activation.jet(self.base + moved @ W, 1)
        by_input = slopes[:, None, :] * self.V.T / self.size
        by_weights = moved[:, None, :, None] * by_input[:, :, None, :]
        by_correction = ((by_input @ W.T) * slope[:, None])[..., None]
        J = np.concatenate([by_weights, by_correction, by_correction * self.t[:, None, :, None]], axis=3)
        J[..., self.fixed] = 0.0
        J = J.reshape(self.Y.size, -1)
        A = J.T @ J
        A.flat[:: len(A) + 1] += np.diag(A) == 0.0  # fixed parameters get a step of 0
        return DenseNormalEquations(A, J.T @ ((g @ self.V - self.Y) / self.size).ravel())
