"""The part of the network that is known: weights at some first-layer units, all others saturated as in one region."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.fitting.downstream_of_known_units import DownstreamOfKnownUnits
from skident.network import Activation
from skident.optim import DenseJacobian, levenberg_marquardt

from ..downstream import preactivations_of

__all__ = ["KnownPatch", "KnownUnits"]

_EXACT = 1e-15  # relative residual at which a fit ends: rounding of the outputs
_NORM_ERROR = 1e-6  # relative error of first-layer weight norms before a fit: those of tails are accurate to 1e-7
_FIT_DAMPING = 1e-6  # first damping of a fit from a rough start, relative to squared column norms
_REFINE_DAMPING = 1e-20  # first damping of a fit from a good start, by QR: directions known to 1e-10 move too
_MIN_GAIN = 0.1  # of the cost by a step; a smaller gain is the last one


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
        options = {"max_iter": max_iter, "damping": _FIT_DAMPING, "target": _EXACT**2 * problem.total}
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
            if problem.cost(x) <= _EXACT**2 * problem.total or problem.cost(x) > (1.0 - _MIN_GAIN) * cost:
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
