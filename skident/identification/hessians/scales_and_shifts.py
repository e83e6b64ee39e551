"""Network completion: scales and shifts from projections on the entangled weights (eq. (18))."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from skident.network import FeedforwardNetwork
from skident.network.calculus import forward, forward_jets, output_sensitivities
from skident.optim import DenseNormalEquations, levenberg_marquardt

__all__ = ["CompletionProblem", "fit_ridge_units", "mixing_matrices", "solve_completion"]


def mixing_matrices(blocks):
    """``C_l = V_l^+ V_{l+1}`` by least squares between neighbouring blocks of features ``Z_l = X V_l``.

    Parameters
    ----------
    blocks : list of ndarray of shape (n, m_l)
        Projections on the entangled weights, layer by layer.

    Returns
    -------
    list of ndarray of shape (m_l, m_{l+1})

    Raises
    ------
    ValueError
        If there are fewer rows than a block has columns plus one.

    Notes
    -----
    ``V_{l+1} = V_l C_l`` (eq. (11)) gives ``Z_{l+1} = Z_l C_l``. An intercept takes up any centring of the features.
    """
    mixings = []
    for left, right in zip(blocks[:-1], blocks[1:], strict=True):
        if len(left) <= left.shape[1]:
            raise ValueError(
                f"{len(left)} samples do not determine how {left.shape[1]} features mix into the next layer's; "
                f"at least {left.shape[1] + 1} are needed. Give more rows of X."
            )
        left, right = left - left.mean(axis=0), right - right.mean(axis=0)
        mixings.append(np.linalg.lstsq(left, right, rcond=None)[0])
    return mixings


@dataclass
class CompletionProblem:
    """Eq. (18) in the features: which numbers are fixed, which are free.

    The network is ``y_1 = g(T_1 z + tau_1)``, ``y_{l+1} = g(T_{l+1} C_l^T R_l y_l + tau_{l+1})`` with diagonal T, R.
    With ``free_readout`` the last layer's weights are all free instead of ``R_{L-1} C_{L-1} T_L``.

    Parameters
    ----------
    widths : list of int
        ``m_1 .. m_L``.
    activations : list of Activation
    mixings : list of ndarray of shape (m_l, m_{l+1})
        L - 1 of them, or L - 2 with a free readout.
    free_readout : bool
    """

    widths: list[int]
    activations: list
    mixings: list[np.ndarray]
    free_readout: bool = False
    slices: dict = field(init=False)

    def __post_init__(self):
        sizes, self.slices, start = [], {}, 0
        L = len(self.widths)
        for layer, m in enumerate(self.widths):
            if layer < L - 1 or not self.free_readout:
                sizes.append((("T", layer), m))
            sizes.append((("tau", layer), m))
            if layer < len(self.mixings):
                sizes.append((("R", layer), m))
        if self.free_readout:
            sizes.append((("W", L - 1), self.widths[-2] * self.widths[-1]))
        for key, size in sizes:
            self.slices[key] = slice(start, start + size)
            start += size
        self.n_parameters = start

    def initial(self, scales=None, shifts=None, units=None):
        """Parameters with ``T = R = 1, tau = 0`` (the paper's start), or given first-layer scales and shifts.

        `units`, one array (m_l,) a block, are what y_l is worth in the features: ``R_l = units_l, T_l = 1 / units_l``.
        """
        omega = np.zeros(self.n_parameters)
        for (kind, layer), where in self.slices.items():
            omega[where] = 1.0 if kind in "TR" else 0.0
            if units is not None and kind in "TR" and layer < len(units):
                omega[where] = units[layer] if kind == "R" else 1.0 / units[layer]
        if scales is not None:
            omega[self.slices["T", 0]] = scales
        if shifts is not None:
            omega[self.slices["tau", 0]] = shifts
        return omega

    def with_readout(self, omega, Z, Y):
        """The same parameters with a free readout set by least squares on the last hidden layer."""
        if not self.free_readout:
            return omega
        weights, biases = self.layers(omega)
        y = forward(weights[:-1], biases[:-1], self.activations[:-1], Z)
        solution = np.linalg.lstsq(np.hstack([y, np.ones((len(y), 1))]), Y, rcond=None)[0]
        omega = omega.copy()
        omega[self.slices["W", len(self.widths) - 1]] = solution[:-1].ravel()
        omega[self.slices["tau", len(self.widths) - 1]] = solution[-1]
        return omega

    def to_lists(self, omega):
        """``{"scales": [T_l], "shifts": [tau_l], "rescales": [R_l], "readout": W}``."""
        names = {"T": "scales", "tau": "shifts", "R": "rescales"}
        lists = {name: [omega[w] for (kind, _), w in self.slices.items() if kind == k] for k, name in names.items()}
        if self.free_readout:
            lists["readout"] = omega[self.slices["W", len(self.widths) - 1]].reshape(self.widths[-2:])
        return lists

    def from_lists(self, lists):
        """The inverse of `to_lists`."""
        omega = np.zeros(self.n_parameters)
        names = {"T": "scales", "tau": "shifts", "R": "rescales"}
        for (kind, layer), where in self.slices.items():
            omega[where] = np.ravel(lists["readout"]) if kind == "W" else lists[names[kind]][layer]
        return omega

    def layers(self, omega):
        """Weights and shifts of the network on the first block's features: lists of L."""
        L = len(self.widths)
        biases = [omega[self.slices["tau", layer]] for layer in range(L)]
        weights = [np.diag(omega[self.slices["T", 0]])]
        for layer, C in enumerate(self.mixings):
            weights.append(omega[self.slices["R", layer]][:, None] * C * omega[self.slices["T", layer + 1]])
        if self.free_readout:
            weights.append(omega[self.slices["W", L - 1]].reshape(self.widths[-2], self.widths[-1]))
        return weights, biases

    def residual(self, omega, Z, Y):
        """``f(z_n; omega) - y_n``, (n, m_L)."""
        weights, biases = self.layers(omega)
        y = Z
        with np.errstate(over="ignore", invalid="ignore"):
            for W, b, g in zip(weights, biases, self.activations, strict=True):
                y = g(y @ W + b)
        return y - Y

    def normal_equations(self, omega, Z, Y, chunk_bytes=2**27):
        """``J^T J``, ``J^T r`` of the residual by omega, over chunks of rows."""
        A, g = np.zeros((self.n_parameters,) * 2), np.zeros(self.n_parameters)
        rows = max(1, chunk_bytes // (8 * (self.n_parameters + max(self.widths)) * self.widths[-1]))
        for first in range(0, len(Z), rows):
            J, r = self._jacobian(omega, Z[first : first + rows], Y[first : first + rows])
            A += J.T @ J
            g += J.T @ r
        return A, g

    def _jacobian(self, omega, Z, Y):
        """Jacobian (n m_L, P) and residual (n m_L,)."""
        weights, biases = self.layers(omega)
        inputs, jets = forward_jets(weights, biases, self.activations, Z, order=1)
        B, _ = output_sensitivities(weights, jets)
        n, m_out = Y.shape
        J = np.zeros((n, m_out, self.n_parameters))
        J[:, :, self.slices["T", 0]] = B[0] * Z[:, None, :]
        for layer in range(len(self.widths)):
            J[:, :, self.slices["tau", layer]] = B[layer]
        for layer, C in enumerate(self.mixings):
            R, T = omega[self.slices["R", layer]], omega[self.slices["T", layer + 1]]
            y = inputs[layer + 1]
            J[:, :, self.slices["T", layer + 1]] = B[layer + 1] * ((y * R) @ C)[:, None, :]
            back = (B[layer + 1] * T).reshape(n * m_out, -1) @ C.T
            J[:, :, self.slices["R", layer]] = back.reshape(n, m_out, -1) * y[:, None, :]
        if self.free_readout:
            outer = inputs[-1][:, None, :, None] * B[-1][:, :, None, :]
            J[:, :, self.slices["W", len(self.widths) - 1]] = outer.reshape(n, m_out, -1)
        return J.reshape(n * m_out, -1), (jets[-1][0] - Y).ravel()


def solve_completion(problem, Z, Y, omega, *, max_iter=200, tol=1e-14, callback=None):
    """Levenberg-Marquardt on eq. (18).

    Parameters
    ----------
    problem : CompletionProblem
    Z : ndarray of shape (n, m_1)
        First block of features.
    Y : ndarray of shape (n, m_L)
    omega : ndarray of shape (P,)
        Start.
    max_iter : int
    tol : float
        Relative root mean square misfit that counts as solved.
    callback : callable, default=None

    Returns
    -------
    LeastSquaresResult

    Notes
    -----
    ``P = 3 sum(m_l) - m_L`` unknowns; a step costs ``O(n m_L P^2)``.
    """
    return levenberg_marquardt(
        lambda w: float(np.sum(problem.residual(w, Z, Y) ** 2)),
        lambda w: DenseNormalEquations(*problem.normal_equations(w, Z, Y)),
        omega,
        max_iter=max_iter,
        target=tol**2 * float(np.sum(Y**2)),
        ftol=1e-6,
        callback=callback,
    )


def fit_ridge_units(Z, Y, activation, scales, shifts, *, max_iter=200, tol=1e-14, callback=None):
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
    max_iter, tol, callback
        See `solve_completion`.

    Returns
    -------
    network : FeedforwardNetwork
        m inputs, m hidden units, m_L outputs.
    result : LeastSquaresResult

    Notes
    -----
    Kaufman's Jacobian ``-P dPhi c`` with P the projector off the columns; its Gram matrix over all outputs is
    ``(D^T D) o (c c^T)``, so that a step costs ``O(n m^2)`` however many outputs there are.
    Directions have no sign, but softplus, gelu and relu units do: ``g(z) - g(-z) = z``. For them a first round has the
    projections themselves as columns too, which takes up the lines of wrong signs; then the signs are mended.
    Source: Golub and Pereyra (1973), Kaufman (1975).
    """
    total = float(np.sum((Y - Y.mean(axis=0)) ** 2))
    options = {"max_iter": max_iter, "target": tol**2 * total, "callback": callback}
    problem = _RidgeProblem(Z, Y, activation, skip=_reflects_to_line(activation))
    result = problem.minimise(np.concatenate([scales, shifts]), **options)
    if problem.skip:
        start = problem.without_reflections(result.x)
        problem = _RidgeProblem(Z, Y, activation, skip=False)
        result = problem.minimise(start, **options)
    _, _, coefficients, _ = problem.solve(result.x)
    m = Z.shape[1]
    weights = [np.diag(result.x[:m]), coefficients[1:]]
    return FeedforwardNetwork(weights, [result.x[m:], coefficients[0]], activation.name, "identity"), result


def _reflects_to_line(activation):
    """Whether ``g(z) - g(-z) = z``, as for softplus, gelu and relu: a unit with the wrong sign is off by a line."""
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

    def minimise(self, start, **options):
        return levenberg_marquardt(self.cost, self.linearise, start, ftol=1e-6, **options)

    def without_reflections(self, w):
        """The same units, turned round where that takes their line ``-a c z`` out of the skip."""
        m = self.Z.shape[1]
        coefficients = self.solve(w)[2]
        line, c = coefficients[1 : 1 + m], coefficients[1 + m :]
        turned = np.linalg.norm(line + w[:m, None] * c, axis=1) < np.linalg.norm(line, axis=1)
        return w * np.tile(np.where(turned, -1.0, 1.0), 2)
