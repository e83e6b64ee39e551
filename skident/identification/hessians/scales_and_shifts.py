"""Network completion: scales and shifts from projections on the entangled weights (eq. (18))."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skident.budget import chunk_bytes as default_chunk_bytes
from skident.network import Architecture
from skident.network.calculus import forward, forward_jets, output_sensitivities
from skident.optim import DenseNormalEquations, levenberg_marquardt

__all__ = ["CompletionProblem", "mixing_matrices", "solve_completion"]


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


@dataclass(frozen=True)
class CompletionProblem:
    """Eq. (18) in the features: which numbers are fixed, which are free.

    The network is ``y_1 = g(T_1 z + tau_1)``, ``y_{l+1} = g(T_{l+1} C_l^T R_l y_l + tau_{l+1})`` with diagonal T, R.
    Its parameters are one vector omega of P numbers, of which `slices` tells the parts.

    Parameters
    ----------
    architecture : Architecture
        Of all layers, in the features.
    mixings : list of ndarray of shape (m_l, m_{l+1})
        The fixed C_l: L - 1 of them; or L - 2, and then the last layer's weights are all free instead of
        ``R_{L-1} C_{L-1} T_L``.
    """

    architecture: Architecture
    mixings: list[np.ndarray]

    @property
    def widths(self):
        """``(m_1, ..., m_L)``."""
        return self.architecture.widths

    @cached_property
    def activations(self):
        """One `Activation` a layer."""
        return self.architecture.activations

    @property
    def free_readout(self):
        """Whether the last layer's weights are all free."""
        return len(self.mixings) == len(self.widths) - 2

    @cached_property
    def slices(self):
        """Where omega holds what: T, tau, R (layer by layer) and W, the free readout, by ``(name, layer)``."""
        sizes, slices, start = [], {}, 0
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
            slices[key] = slice(start, start + size)
            start += size
        return slices

    @cached_property
    def n_parameters(self):
        """P."""
        return max(where.stop for where in self.slices.values())

    def initial(self, scales=None, shifts=None, units=None):
        """Where a search starts: ``T = R = 1, tau = 0``, the paper's start, but for what is given.

        Parameters
        ----------
        scales, shifts : ndarray of shape (m_1,), default=None
            First-layer T and tau.
        units : list of ndarray of shape (m_l,), default=None
            What y_l is worth in the features, for the first layers: ``R_l = units_l``, ``T_l = 1 / units_l``.

        Returns
        -------
        ndarray of shape (P,)
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
        """The same parameters with a free readout set by least squares on the last hidden layer.

        Parameters
        ----------
        omega : ndarray of shape (P,)
        Z : ndarray of shape (n, m_1)
            First block of features.
        Y : ndarray of shape (n, m_L)

        Returns
        -------
        ndarray of shape (P,)
            `omega` itself where the readout is not free.
        """
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
        """The parameters layer by layer.

        Parameters
        ----------
        omega : ndarray of shape (P,)

        Returns
        -------
        dict
            ``{"scales": [T_l], "shifts": [tau_l], "rescales": [R_l]}``, and ``"readout"`` (m_{L-1}, m_L) where it is
            free.
        """
        names = {"T": "scales", "tau": "shifts", "R": "rescales"}
        lists = {name: [omega[w] for (kind, _), w in self.slices.items() if kind == k] for k, name in names.items()}
        if self.free_readout:
            lists["readout"] = omega[self.slices["W", len(self.widths) - 1]].reshape(self.widths[-2:])
        return lists

    def from_lists(self, lists):
        """The inverse of `to_lists`.

        Parameters
        ----------
        lists : dict

        Returns
        -------
        ndarray of shape (P,)
        """
        omega = np.zeros(self.n_parameters)
        names = {"T": "scales", "tau": "shifts", "R": "rescales"}
        for (kind, layer), where in self.slices.items():
            omega[where] = np.ravel(lists["readout"]) if kind == "W" else lists[names[kind]][layer]
        return omega

    def layers(self, omega):
        """Weights and shifts of the network on the first block's features.

        Parameters
        ----------
        omega : ndarray of shape (P,)

        Returns
        -------
        weights : list of ndarray of shape (m_{l-1}, m_l)
            The first one is diagonal, (m_1, m_1).
        biases : list of ndarray of shape (m_l,)
        """
        L = len(self.widths)
        biases = [omega[self.slices["tau", layer]] for layer in range(L)]
        weights = [np.diag(omega[self.slices["T", 0]])]
        for layer, C in enumerate(self.mixings):
            weights.append(omega[self.slices["R", layer]][:, None] * C * omega[self.slices["T", layer + 1]])
        if self.free_readout:
            weights.append(omega[self.slices["W", L - 1]].reshape(self.widths[-2], self.widths[-1]))
        return weights, biases

    def residual(self, omega, Z, Y):
        """``f(z_n; omega) - y_n``.

        Parameters
        ----------
        omega : ndarray of shape (P,)
        Z : ndarray of shape (n, m_1)
        Y : ndarray of shape (n, m_L)

        Returns
        -------
        ndarray of shape (n, m_L)
            Not finite where the network overflows.
        """
        weights, biases = self.layers(omega)
        y = Z
        with np.errstate(over="ignore", invalid="ignore"):
            for W, b, g in zip(weights, biases, self.activations, strict=True):
                y = g(y @ W + b)
        return y - Y

    def normal_equations(self, omega, Z, Y, chunk_bytes=None):
        """Gram matrix and gradient of the residual r by omega, over chunks of rows.

        Parameters
        ----------
        omega : ndarray of shape (P,)
        Z : ndarray of shape (n, m_1)
        Y : ndarray of shape (n, m_L)
        chunk_bytes : int, default=None
            Memory for a chunk's Jacobian J.

        Returns
        -------
        A : ndarray of shape (P, P)
            ``J^T J``.
        g : ndarray of shape (P,)
            ``J^T r``.
        """
        A, g = np.zeros((self.n_parameters,) * 2), np.zeros(self.n_parameters)
        chunk_bytes = chunk_bytes or default_chunk_bytes()
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


def solve_completion(problem, Z, Y, omega, *, max_iter=200, tol=1e-14):
    """Levenberg-Marquardt on eq. (18).

    Parameters
    ----------
    problem : CompletionProblem
    Z : ndarray of shape (n, m_1)
        First block of features.
    Y : ndarray of shape (n, m_L)
    omega : ndarray of shape (P,)
        Start.
    max_iter : int, default=200
    tol : float, default=1e-14
        Relative root mean square misfit that counts as solved.

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
    )
