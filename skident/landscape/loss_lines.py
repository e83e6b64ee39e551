"""The loss of a quadratic network along a line of hidden weights: a quartic polynomial."""

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import REAL_ROOT

from .problem import QuadraticProblem
from .quadratic_form import check_point, quadratic_form, weight_gradient

_N_STEPS = 101  # points of a plotted line


@dataclass(frozen=True)
class LossLine:
    """The loss along a line through a point."""

    steps: np.ndarray  # (m,), positions along the direction, which has unit norm; 0 is the point
    losses: np.ndarray  # (m,)
    direction: str  # "escape direction" or "steepest descent"


def loss_quartic(problem, W, v, direction):
    """Coefficients ``c_0, ..., c_4`` of the loss at ``W + t direction``, a polynomial of degree four in t."""
    M, cross, M2 = quadratic_form(W, v), W.T @ (v[:, None] * direction), quadratic_form(direction, v)
    M1 = cross + cross.T
    value, gradient = problem.value_and_gradient(M)
    H1, H2 = problem.hessian_product(M1), problem.hessian_product(M2)
    slopes = [np.sum(gradient * M1), np.sum(gradient * M2) + 0.5 * np.sum(M1 * H1), np.sum(M2 * H1)]
    return np.array([value, *slopes, 0.5 * np.sum(M2 * H2)])


def quartic_minimum(coefficients):
    """Minimizer t and minimum of a quartic ``c_0, ..., c_4`` that is bounded below."""
    roots = np.roots((coefficients * np.arange(5))[:0:-1])
    steps = np.append(roots[np.abs(roots.imag) <= REAL_ROOT * np.abs(roots)].real, 0.0)
    values = np.polyval(coefficients[::-1], steps)
    best = int(np.argmin(values))
    return float(steps[best]), float(values[best])


def loss_line(certificate, W, X, y, radius=None):
    """The loss along a certificate's escape direction or its gradient, whichever leads lower.

    From ``-radius`` to `radius`; None is twice as far as the minimum. Quadratic units only.
    """
    if certificate.activation != "quadratic":
        raise ValueError(f"losses along a line are those of quadratic units, not {certificate.activation} ones.")
    W, v, X, y = check_point(W, certificate.output_weights, X, y)
    problem = QuadraticProblem(X, y, certificate.terms)
    gradient = problem.value_and_gradient(quadratic_form(W, v))[1]
    directions = {
        "steepest descent": -weight_gradient(W, v, gradient),
        "escape direction": certificate.escape_direction,
    }
    directions = {name: U / max(np.linalg.norm(U), 1e-300) for name, U in directions.items() if U is not None}
    quartics = {name: loss_quartic(problem, W, v, U) for name, U in directions.items()}
    lowest = {name: quartic_minimum(c) for name, c in quartics.items()}
    name = min(lowest, key=lambda name: lowest[name][1])
    reach = 2.0 * abs(lowest[name][0]) or 1.0 if radius is None else radius
    steps = np.linspace(-1.0, 1.0, _N_STEPS) * reach
    return LossLine(steps, np.polyval(quartics[name][::-1], steps), name)
