"""Network completion: scales and biases from projections on the entangled weights (Fiedler et al., eq. (18))."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skident.budget import chunk_bytes as default_chunk_bytes
from skident.network import Architecture
from skident.network.calculus import forward, forward_jets, output_sensitivities
from skident.optim import DenseNormalEquations, levenberg_marquardt

__all__ = ["FTOL", "CompletionProblem", "mixing_matrices", "solve_completion"]

FTOL = 1e-6  # relative decrease of the cost that ends a completion: the polish that follows converges faster
_NAMES = {"T": "scales", "tau": "biases", "R": "rescales"}  # of the kinds of parameters


def mixing_matrices(blocks):
    """``C_l = V_l^+ V_{l+1}`` (m_l, m_{l+1}) by least squares between adjacent blocks ``Z_l = X V_l`` (n, m_l).

    ``V_{l+1} = V_l C_l`` (eq. (11)) gives ``Z_{l+1} = Z_l C_l``. The features are centered first.
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
    """Eq. (18) in the features: which numbers are fixed, and which are the P parameters.

    The network is ``y_1 = g(T_1 z + tau_1)``, ``y_{l+1} = g(T_{l+1} C_l^T R_l y_l + tau_{l+1})`` with diagonal T, R;
    tau are the biases (the paper's shifts). `mixings` are the fixed C_l (m_l, m_{l+1}): L - 1 of them; or L - 2, and
    then the last layer's weights are all free instead of ``R_{L-1} C_{L-1} T_L``.
    """

    architecture: Architecture
    mixings: list[np.ndarray]

    @property
    def widths(self):
        """``(m_1, ..., m_L)``."""
        return self.architecture.widths

    @cached_property
    def activations(self):
        """One `Activation` per layer."""
        return self.architecture.activations

    @property
    def free_readout(self):
        """Whether the last layer's weights are all free."""
        return len(self.mixings) == len(self.widths) - 2

    @cached_property
    def slices(self):
        """Slices of the parameter vector by ``(kind, layer)``: T, tau, R (layer by layer) and W, the free readout."""
        sizes, L = {}, len(self.widths)
        for layer, m in enumerate(self.widths):
            if layer < L - 1 or not self.free_readout:
                sizes["T", layer] = m
            sizes["tau", layer] = m
            if layer < len(self.mixings):
                sizes["R", layer] = m
        if self.free_readout:
            sizes["W", L - 1] = self.widths[-2] * self.widths[-1]
        ends = np.cumsum(list(sizes.values()))
        return {key: slice(int(end) - size, int(end)) for (key, size), end in zip(sizes.items(), ends)}

    @cached_property
    def n_parameters(self):
        """P."""
        return max(where.stop for where in self.slices.values())

    def initial(self, scales=None, biases=None, output_scales=None):
        """Parameters (P,) of the paper's start ``T = R = 1, tau = 0``, but for what is given.

        First-layer scales and biases (m_1,); `output_scales`, per layer (m_l,), are the factors of y_l in the features:
        ``R_l = output_scales_l``, ``T_l = 1 / output_scales_l``.
        """
        params = np.zeros(self.n_parameters)
        for (kind, layer), where in self.slices.items():
            params[where] = 1.0 if kind in "TR" else 0.0
            if output_scales is not None and kind in "TR" and layer < len(output_scales):
                params[where] = output_scales[layer] if kind == "R" else 1.0 / output_scales[layer]
        if scales is not None:
            params[self.slices["T", 0]] = scales
        if biases is not None:
            params[self.slices["tau", 0]] = biases
        return params

    def with_readout(self, params, Z, Y):
        """The parameters (P,) with a free readout set by least squares, features Z (n, m_1) and outputs Y (n, m_L)."""
        if not self.free_readout:
            return params
        weights, biases = self.layers(params)
        y = forward(weights[:-1], biases[:-1], self.activations[:-1], Z)
        solution = np.linalg.lstsq(np.hstack([y, np.ones((len(y), 1))]), Y, rcond=None)[0]
        params = params.copy()
        params[self.slices["W", len(self.widths) - 1]] = solution[:-1].ravel()
        params[self.slices["tau", len(self.widths) - 1]] = solution[-1]
        return params

    def to_lists(self, params):
        """The parameters layer by layer: "scales", "biases", "rescales", and "readout" (m_{L-1}, m_L) if it is free."""
        lists = {name: [params[w] for (kind, _), w in self.slices.items() if kind == k] for k, name in _NAMES.items()}
        if self.free_readout:
            lists["readout"] = params[self.slices["W", len(self.widths) - 1]].reshape(self.widths[-2:])
        return lists

    def from_lists(self, lists):
        """The inverse of `to_lists`."""
        params = np.zeros(self.n_parameters)
        for (kind, layer), where in self.slices.items():
            params[where] = np.ravel(lists["readout"]) if kind == "W" else lists[_NAMES[kind]][layer]
        return params

    def layers(self, params):
        """Weights (m_{l-1}, m_l), the first diagonal, and biases (m_l,) of the network on the first block."""
        L = len(self.widths)
        biases = [params[self.slices["tau", layer]] for layer in range(L)]
        weights = [np.diag(params[self.slices["T", 0]])]
        for layer, C in enumerate(self.mixings):
            weights.append(params[self.slices["R", layer]][:, None] * C * params[self.slices["T", layer + 1]])
        if self.free_readout:
            weights.append(params[self.slices["W", L - 1]].reshape(self.widths[-2], self.widths[-1]))
        return weights, biases

    def residual(self, params, Z, Y):
        """``f(z_n; params) - y_n`` (n, m_L); not finite if the network overflows."""
        weights, biases = self.layers(params)
        y = Z
        with np.errstate(over="ignore", invalid="ignore"):
            for W, b, g in zip(weights, biases, self.activations, strict=True):
                y = g(y @ W + b)
        return y - Y

    def normal_equations(self, params, Z, Y, chunk_bytes=None):
        """``J^T J`` (P, P) and ``J^T r`` (P,) of the residual r, over chunks of samples with `chunk_bytes` of J."""
        A, g = np.zeros((self.n_parameters,) * 2), np.zeros(self.n_parameters)
        chunk_bytes = chunk_bytes or default_chunk_bytes()
        n = max(1, chunk_bytes // (8 * (self.n_parameters + max(self.widths)) * self.widths[-1]))
        for first in range(0, len(Z), n):
            J, r = self._jacobian(params, Z[first : first + n], Y[first : first + n])
            A += J.T @ J
            g += J.T @ r
        return A, g

    def _jacobian(self, params, Z, Y):
        """Jacobian (n m_L, P) and residual (n m_L,)."""
        weights, biases = self.layers(params)
        inputs, jets = forward_jets(weights, biases, self.activations, Z, order=1)
        B, _ = output_sensitivities(weights, jets)
        n, m_out = Y.shape
        J = np.zeros((n, m_out, self.n_parameters))
        J[:, :, self.slices["T", 0]] = B[0] * Z[:, None, :]
        for layer in range(len(self.widths)):
            J[:, :, self.slices["tau", layer]] = B[layer]
        for layer, C in enumerate(self.mixings):
            R, T = params[self.slices["R", layer]], params[self.slices["T", layer + 1]]
            y = inputs[layer + 1]
            J[:, :, self.slices["T", layer + 1]] = B[layer + 1] * ((y * R) @ C)[:, None, :]
            back = (B[layer + 1] * T).reshape(n * m_out, -1) @ C.T
            J[:, :, self.slices["R", layer]] = back.reshape(n, m_out, -1) * y[:, None, :]
        if self.free_readout:
            outer = inputs[-1][:, None, :, None] * B[-1][:, :, None, :]
            J[:, :, self.slices["W", len(self.widths) - 1]] = outer.reshape(n, m_out, -1)
        return J.reshape(n * m_out, -1), (jets[-1][0] - Y).ravel()


def solve_completion(problem, Z, Y, params, *, max_iter=200, tol=1e-14):
    """Levenberg-Marquardt on eq. (18) from `params` (P,) to a relative residual `tol`; ``O(n m_L P^2)`` per step."""
    return levenberg_marquardt(
        lambda w: float(np.sum(problem.residual(w, Z, Y) ** 2)),
        lambda w: DenseNormalEquations(*problem.normal_equations(w, Z, Y)),
        params,
        max_iter=max_iter,
        target=tol**2 * float(np.sum(Y**2)),
        ftol=FTOL,
    )
