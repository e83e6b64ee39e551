"""One hidden layer of units with known directions: scales and shifts by variable projection."""

from __future__ import annotations

import numpy as np

from skident.network import FeedforwardNetwork
from skident.optim import DenseNormalEquations, levenberg_marquardt

__all__ = ["fit_ridge_units"]


def fit_ridge_units(Z, Y, activation, scales, shifts, *, max_iter=200, tol=1e-14):
    """Variable projection for one hidden layer with linear output and known directions.

    Minimises over scales a and shifts b, with the output weights eliminated by least squares,
    ``min_c sum_n ||y_n - c_0 - sum_i c_i g(a_i z_ni + b_i)||^2``.

    Parameters
    ----------
    Z : ndarray of shape (n, m)
        Projections on the directions.
    Y : ndarray of shape (n, m_L)
    activation : Activation
    scales, shifts : ndarray of shape (m,)
        Start.
    max_iter : int, default=200
        Levenberg-Marquardt steps at most.
    tol : float, default=1e-14
        Root mean square misfit, relative to the standard deviation of Y, that counts as solved.

    Returns
    -------
    network : FeedforwardNetwork
        m inputs, m hidden units, m_L outputs.
    result : LeastSquaresResult

    Notes
    -----
    Kaufman's Jacobian ``-P dPhi c`` with P the projector off the columns; its Gram matrix over all outputs is
    ``(D^T D) o (c c^T)``, so that a step costs ``O(n m^2)`` however many outputs there are.
    Directions have no sign, but softplus, gelu, silu and relu units do: ``g(z) - g(-z) = z``. For them a first round
    has the projections themselves as columns too, which takes up the lines of wrong signs; then the signs are mended.
    Source: Golub and Pereyra (1973), Kaufman (1975).
    """
    target = tol**2 * float(np.sum((Y - Y.mean(axis=0)) ** 2))
    problem = _RidgeProblem(Z, Y, activation, skip=_reflects_to_line(activation))
    result = problem.minimise(np.concatenate([scales, shifts]), max_iter, target)
    if problem.skip:
        start = problem.without_reflections(result.x)
        problem = _RidgeProblem(Z, Y, activation, skip=False)
        result = problem.minimise(start, max_iter, target)
    _, _, coefficients, _ = problem.solve(result.x)
    m = Z.shape[1]
    weights = [np.diag(result.x[:m]), coefficients[1:]]
    return FeedforwardNetwork(weights, [result.x[m:], coefficients[0]], activation.name, "identity"), result


def _reflects_to_line(activation):
    """Whether ``g(z) - g(-z) = z``, as for softplus, gelu, silu, relu: a unit with the wrong sign is off by a line."""
    z = np.array([0.3, 1.0, 2.5])
    return bool(np.allclose(activation(z) - activation(-z), z))


class _RidgeProblem:
    """``min_c ||Y - (1, [Z,] g(a Z + b)) c||`` as a function of ``w = (a, b)``; with ``skip``, Z has columns too."""

    def __init__(self, Z, Y, activation, skip):
        self.Z, self.Y, self.activation, self.skip = Z, Y, activation, skip
        self.fixed = np.hstack([np.ones((len(Z), 1)), Z]) if skip else np.ones((len(Z), 1))

    def solve(self, w):
        """Jet of the units, basis of all columns, their coefficients and the residual."""
        m = self.Z.shape[1]
        jet = self.activation.jet(self.Z * w[:m] + w[m:], 1)
        Phi = np.hstack([self.fixed, jet[0]])
        Q, R = np.linalg.qr(Phi)
        # Units that look alike on Z make R singular: the smallest solution then, not the largest.
        coefficients = np.linalg.lstsq(R, Q.T @ self.Y, rcond=1e-14)[0]
        return jet, Q, coefficients, Phi @ coefficients - self.Y

    def cost(self, w):
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.sum(self.solve(w)[3] ** 2)) if np.all(np.isfinite(w)) else np.inf

    def linearise(self, w):
        jet, Q, coefficients, residual = self.solve(w)
        D = np.hstack([jet[1] * self.Z, jet[1]])
        D -= Q @ (Q.T @ D)
        c = np.tile(coefficients[-self.Z.shape[1] :], (2, 1))
        gradient = np.sum((D.T @ residual) * c, axis=1)
        return DenseNormalEquations((D.T @ D) * (c @ c.T), gradient)

    def minimise(self, start, max_iter, target):
        return levenberg_marquardt(self.cost, self.linearise, start, max_iter=max_iter, target=target, ftol=1e-6)

    def without_reflections(self, w):
        """The same units, turned round where that takes their line ``-a c z`` out of the skip."""
        m = self.Z.shape[1]
        coefficients = self.solve(w)[2]
        line, c = coefficients[1 : 1 + m], coefficients[1 + m :]
        turned = np.linalg.norm(line + w[:m, None] * c, axis=1) < np.linalg.norm(line, axis=1)
        return w * np.tile(np.where(turned, -1.0, 1.0), 2)
