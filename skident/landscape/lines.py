"""The loss of a quadratic network along a line of hidden weights: a quartic, known by its five coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .checks import check_point
from .problem import QuadraticProblem
from .units import form_of, weight_gradient

__all__ = ["LossLine", "line_out", "lines_loss", "lowest_point"]

_N_STEPS = 101


@dataclass(frozen=True)
class LossLine:
    """The loss along a line through a point.

    Attributes
    ----------
    steps : ndarray of shape (m,)
        Positions along the direction, which has unit norm; 0 is the point.
    losses : ndarray of shape (m,)
    direction : {"escape direction", "steepest descent"}
    """

    steps: np.ndarray
    losses: np.ndarray
    direction: str


def lines_loss(problem, W, v, direction):
    """Coefficients of the loss at ``W + t direction``, a polynomial of degree four in t.

    Parameters
    ----------
    problem : QuadraticProblem
    W : ndarray of shape (k, d)
    v : ndarray of shape (k,)
    direction : ndarray of shape (k, d)

    Returns
    -------
    ndarray of shape (5,)
        ``c_0, ..., c_4``.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.landscape.lines import lines_loss
    >>> from skident.landscape.problem import QuadraticProblem
    >>> problem = QuadraticProblem(np.array([[1.0]]), np.array([1.0]))
    >>> print(lines_loss(problem, np.zeros((1, 1)), np.ones(1), np.ones((1, 1))))
    [ 0.5  0.  -1.   0.   0.5]
    """
    M, cross, M2 = form_of(W, v), W.T @ (v[:, None] * direction), form_of(direction, v)
    M1 = cross + cross.T
    value, gradient = problem.value_and_gradient(M)
    H1, H2 = problem.hessian_product(M1), problem.hessian_product(M2)
    slopes = [np.sum(gradient * M1), np.sum(gradient * M2) + 0.5 * np.sum(M1 * H1), np.sum(M2 * H1)]
    return np.array([value, *slopes, 0.5 * np.sum(M2 * H2)])


def lowest_point(coefficients):
    """Where a quartic is lowest.

    Parameters
    ----------
    coefficients : ndarray of shape (5,)
        ``c_0, ..., c_4``, of a polynomial that is bounded below.

    Returns
    -------
    t, value : float

    Examples
    --------
    >>> import numpy as np
    >>> from skident.landscape.lines import lowest_point
    >>> t, value = lowest_point(np.array([1.0, -2.0, 1.0, 0.0, 0.0]))
    >>> print(round(t, 12), round(value, 12))
    1.0 0.0
    """
    roots = np.roots((coefficients * np.arange(5))[:0:-1])
    steps = np.append(roots[np.abs(roots.imag) <= 1e-6 * np.abs(roots)].real, 0.0)
    values = np.polyval(coefficients[::-1], steps)
    best = int(np.argmin(values))
    return float(steps[best]), float(values[best])


def line_out(certificate, W, X, y, radius=None):
    """The loss along a certificate's escape direction or along its gradient, whichever leads lower.

    Parameters
    ----------
    certificate : LandscapeCertificate
        Of quadratic units with the hidden weights W, on these data.
    W : array-like of shape (k, d)
    X : array-like of shape (n, d)
    y : array-like of shape (n,)
    radius : float, default=None
        How far along the direction; None is twice as far as the lowest point.

    Returns
    -------
    LossLine

    Raises
    ------
    ValueError
        If the certificate is about other units than quadratic ones, or the arrays do not fit it.
    """
    if certificate.activation != "quadratic":
        raise ValueError(f"losses along a line are those of quadratic units, not {certificate.activation} ones.")
    W, v, X, y = check_point(W, certificate.output_weights, X, y)
    problem = QuadraticProblem(X, y, certificate.terms)
    gradient = problem.value_and_gradient(form_of(W, v))[1]
    ways = {"steepest descent": -weight_gradient(W, v, gradient), "escape direction": certificate.escape_direction}
    ways = {name: U / max(np.linalg.norm(U), 1e-300) for name, U in ways.items() if U is not None}
    quartics = {name: lines_loss(problem, W, v, U) for name, U in ways.items()}
    lowest = {name: lowest_point(c) for name, c in quartics.items()}
    name = min(lowest, key=lambda way: lowest[way][1])
    reach = 2.0 * abs(lowest[name][0]) or 1.0 if radius is None else radius
    steps = np.linspace(-1.0, 1.0, _N_STEPS) * reach
    return LossLine(steps, np.polyval(quartics[name][::-1], steps), name)
