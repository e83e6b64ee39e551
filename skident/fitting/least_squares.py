"""Least squares over all parameters of a feedforward network, with its structured Gauss-Newton matrix."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skident.budget import check_deadline, memory_allows, require_memory
from skident.budget import chunk_bytes as default_chunk_bytes
from skident.network.calculus import forward, forward_jets, output_sensitivities
from skident.optim import (
    DenseNormalEquations,
    FactoredNormalEquations,
    KeptFactor,
    KrylovNormalEquations,
    all_threads,
    levenberg_marquardt,
    one_thread,
)

from .preconditioners import KroneckerBlock, UnitBlocks

__all__ = ["NetworkLeastSquares", "minimise", "weighted_problem"]

_WIDE = 200  # numbers that a layer reads from which blocks of single units cost more than they save
_COPIES = 2  # the matrix and its factor
_PASSES = 4  # arrays of every layer's size that a tangent and an adjoint pass hold: values, slopes and their changes
_SMALL = 1500  # parameters up to which BLAS threads can cost more than they bring


def minimise(problem, theta, **options):
    """`levenberg_marquardt` on a `NetworkLeastSquares`, with all threads only where products are large.

    Small products and the thin ones of conjugate gradients gain nothing from a second thread, and lose a factor of ten
    and more when the machine has other work; scikit-learn limits threads in the same way.

    Parameters
    ----------
    problem : NetworkLeastSquares
    theta : ndarray of shape (P,)
    **options
        Of `levenberg_marquardt`.

    Returns
    -------
    LeastSquaresResult
    """
    thin = problem.n_parameters <= _SMALL or problem.n_parameters > max(problem.dense_limit, problem.factor_limit)
    rows_of_jacobian = problem.Y.size
    with one_thread() if thin else all_threads(2.0 * rows_of_jacobian * problem.n_parameters**2):
        return levenberg_marquardt(problem.cost, problem.linearise, theta, **options)


class NetworkLeastSquares:
    """``sum_n ||f(u_n; theta) - y_n||^2`` as a function of all weights and shifts.

    Parameters
    ----------
    shapes : list of (int, int)
        ``(m_{l-1}, m_l)`` of every layer.
    activations : list of Activation
        One a layer.
    U : ndarray of shape (n, D)
    Y : ndarray of shape (n, m_L)
    dense_limit : int, default=3000
        Up to this many parameters P the Gauss-Newton matrix is formed (memory ``16 P^2`` bytes); beyond it is applied
        by forward and backward passes and solved by conjugate gradients, in memory ``O(n m + sum_l m_l m_{l-1}^2)``.
    factor_limit : int, default=0
        Up to this many it is formed once, and again only where it has changed too much: its Cholesky factor
        preconditions the conjugate gradients of all steps. For starts near a solution.
    inner_tol : float, default=1e-2
        Relative residual at which conjugate gradients stop.
    chunk_bytes : int, default=None
        Bound on temporaries that grow with n; by default `skident.budget.chunk_bytes`.

    Notes
    -----
    With ``y~ = (y, 1)`` what layer l reads and ``B_l[p, j] = d f_p / d z_j``, the Gauss-Newton matrix between weights
    (i, j) of layer l and (i', j') of layer k is ``sum_n y~_i y~'_i' sum_p B_l[p, j] B_k[p, j']``: one matrix product of
    ``n x (m_{l-1} m_{k-1})`` with ``n x (m_l m_k)``. Forming it costs ``O(n P^2)``, m_L times less than from
    the Jacobian's ``n m_L`` rows. Parameters are ordered by layer, ``(m_{l-1} + 1, m_l)`` row by row, shifts last.
    """

    def __init__(
        self,
        shapes,
        activations,
        U,
        Y,
        *,
        dense_limit=3000,
        factor_limit=0,
        inner_tol=1e-2,
        chunk_bytes=None,
    ):
        self.shapes, self.activations, self.U, self.Y = shapes, activations, U, Y
        self.dense_limit, self.factor_limit = dense_limit, factor_limit
        self.inner_tol, self.chunk_bytes = inner_tol, chunk_bytes or default_chunk_bytes()
        self._kept = KeptFactor()
        sizes = [(a + 1) * c for a, c in shapes]
        self.offsets = np.concatenate([[0], np.cumsum(sizes)])

    @property
    def n_parameters(self):
        """P."""
        return int(self.offsets[-1])

    @property
    def _matrix_bytes(self):
        return _COPIES * 8 * self.n_parameters**2

    def flatten(self, weights, biases):
        """Weights and shifts as one vector.

        Parameters
        ----------
        weights, biases : sequences of L ndarrays

        Returns
        -------
        ndarray of shape (P,)
        """
        return np.concatenate([np.vstack([W, b]).ravel() for W, b in zip(weights, biases, strict=True)])

    def unflatten(self, theta):
        """A vector as weights and shifts.

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        weights, biases : lists of L ndarrays
            Views of theta.
        """
        blocks = self._blocks(theta)
        return [B[:-1] for B in blocks], [B[-1] for B in blocks]

    def _blocks(self, theta):
        return [
            theta[s:e].reshape(a + 1, c)
            for s, e, (a, c) in zip(self.offsets[:-1], self.offsets[1:], self.shapes, strict=True)
        ]

    def residual(self, theta):
        """``f(u_n; theta) - y_n``.

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        ndarray of shape (n, m_L)
            Infinite or NaN where the network overflows.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return forward(*self.unflatten(theta), self.activations, self.U) - self.Y

    def cost(self, theta):
        """Sum of squared residuals.

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        float
        """
        return float(np.sum(self.residual(theta) ** 2))

    def linearise(self, theta):
        """The Gauss-Newton model at theta.

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        DenseNormalEquations, FactoredNormalEquations or KrylovNormalEquations
            By the number of parameters, and by what memory allows. Factored ones share the factor that this problem
            keeps.

        Raises
        ------
        OutOfBudgetError
            If the time or the memory of this computation does not suffice (`skident.budget`).
        """
        formed = memory_allows(self._matrix_bytes)
        if formed and self.n_parameters <= self.dense_limit:
            return DenseNormalEquations(*self.normal_equations(theta))
        product, gradient = self._products(theta)
        if formed and self.n_parameters <= self.factor_limit:
            return FactoredNormalEquations(product, gradient, lambda: self.normal_equations(theta)[0], self._kept)
        return self._krylov(theta, product, gradient)

    def normal_equations(self, theta):
        """Gauss-Newton matrix and gradient, accumulated over chunks of rows.

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        A : ndarray of shape (P, P)
            ``J^T J``.
        g : ndarray of shape (P,)
            ``J^T r``.

        Raises
        ------
        OutOfBudgetError
            If the time or the memory of this computation does not suffice (`skident.budget`).
        """
        P = self.n_parameters
        require_memory(self._matrix_bytes, f"the Gauss-Newton matrix of {P} parameters")
        A, g = np.zeros((P, P)), np.zeros(P)
        widest = max(a * c for a in [s[0] + 1 for s in self.shapes] for c in [s[0] + 1 for s in self.shapes])
        widest += max(s[1] for s in self.shapes) ** 2
        rows = max(1, self.chunk_bytes // (8 * widest))
        for first in range(0, len(self.U), rows):
            self._accumulate(theta, slice(first, first + rows), A, g)
        # Only blocks on and above the diagonal were filled.
        for k in range(len(self.shapes)):
            s, e = self.offsets[k : k + 2]
            A[e:, s:e] = A[s:e, e:].T
        return A, g

    def _accumulate(self, theta, rows, A, g):
        reads, sensitivities, residual = self._passes(theta, rows)
        n = len(residual)
        for k, (yk, Bk) in enumerate(zip(reads, sensitivities, strict=True)):
            sk, ek = self.offsets[k : k + 2]
            g[sk:ek] += (yk.T @ np.einsum("npj,np->nj", Bk, residual)).ravel()
            for q in range(k, len(reads)):
                yq, Bq = reads[q], sensitivities[q]
                sq, eq = self.offsets[q : q + 2]
                width, overlaps = Bk.shape[2], (np.swapaxes(Bk, 1, 2) @ Bq).reshape(n, -1)
                tile = max(1, self.chunk_bytes // (8 * width * (eq - sq)))
                for i in range(0, yk.shape[1], tile):
                    check_deadline(2.0 * n * tile * width * (eq - sq))
                    products = (yk[:, i : i + tile, None] * yq[:, None, :]).reshape(n, -1)
                    block = (products.T @ overlaps).reshape(-1, yq.shape[1], width, Bq.shape[2])
                    rows = slice(sk + i * width, min(sk + (i + tile) * width, ek))
                    A[rows, sq:eq] += block.transpose(0, 2, 1, 3).reshape(-1, eq - sq)

    def _passes(self, theta, rows):
        """What layers read, extended by 1; output sensitivities; residual; for some rows."""
        weights, biases = self.unflatten(theta)
        inputs, jets = forward_jets(weights, biases, self.activations, self.U[rows], order=1)
        sensitivities, _ = output_sensitivities(weights, jets)
        ones = np.ones((len(inputs[0]), 1))
        return [np.hstack([y, ones]) for y in inputs], sensitivities, jets[-1][0] - self.Y[rows]

    def _products(self, theta):
        """``v -> J^T (J v)`` by a tangent and an adjoint pass, and ``J^T r``."""
        sizes = [2 * self.shapes[0][0], *(_PASSES * c for _, c in self.shapes)]
        require_memory(
            8 * len(self.U) * sum(sizes), f"a fit of {self.n_parameters} parameters to {len(self.U)} samples"
        )
        weights, biases = self.unflatten(theta)
        inputs, jets = forward_jets(weights, biases, self.activations, self.U, order=1)
        residual = jets[-1][0] - self.Y
        slopes = [jet[1] for jet in jets]
        ones = np.ones((len(self.U), 1))
        reads = [np.hstack([y, ones]) for y in inputs]

        def tangent(v):
            dy = 0.0
            for layer, dW in enumerate(self._blocks(v)):
                dz = reads[layer] @ dW
                if layer:
                    dz += dy @ weights[layer]
                dy = slopes[layer] * dz
            return dy

        def adjoint(r):
            out = [None] * len(weights)
            for layer in range(len(weights) - 1, -1, -1):
                dz = slopes[layer] * r
                out[layer] = (reads[layer].T @ dz).ravel()
                r = dz @ weights[layer].T
            return np.concatenate(out)

        return lambda v: adjoint(tangent(v)), adjoint(residual)

    def _krylov(self, theta, product, gradient):
        """Matrix-free model, preconditioned by one block a unit, or one a layer where that reads much."""
        layers = self._layer_blocks(theta)
        diagonal = np.concatenate([layer.diagonal().ravel() for layer in layers])
        diagonal = np.maximum(diagonal, 1e-14 * diagonal.max())

        def preconditioner(damping):
            solvers = [layer.solver(damping, D) for layer, D in zip(layers, self._blocks(diagonal), strict=True)]
            return lambda v: np.concatenate(
                [solve(V).ravel() for solve, V in zip(solvers, self._blocks(v), strict=True)]
            )

        return KrylovNormalEquations(product, gradient, diagonal, preconditioner, tol=self.inner_tol)

    def _layer_blocks(self, theta):
        """Diagonal blocks of ``J^T J``, or what is close to them, layer by layer."""
        layers = [(KroneckerBlock if a > _WIDE else UnitBlocks)(a + 1, c) for a, c in self.shapes]
        rows = max(1, self.chunk_bytes // (8 * max(self.Y.shape[1] * c + 2 * a for a, c in self.shapes)))
        for first in range(0, len(self.U), rows):
            reads, sensitivities, _ = self._passes(theta, slice(first, first + rows))
            for layer, y, B in zip(layers, reads, sensitivities, strict=True):
                layer.add(y, B)
        return layers


def weighted_problem(network, U, Y, weight, *, dense_limit=3000, factor_limit=0):
    """Least squares of ``weight * (f(u) - y)``.

    Parameters
    ----------
    network : FeedforwardNetwork
        Shapes and activations.
    U : ndarray of shape (n, D)
    Y : ndarray of shape (n, m_L)
    weight : float or ndarray of shape (m_L,)
    dense_limit, factor_limit : int, default=3000, 0
        See `NetworkLeastSquares`.

    Returns
    -------
    NetworkLeastSquares
    """
    shapes = [W.shape for W in network.weights]
    output = network.activations[-1]
    weighted = replace(output, jet=lambda z, order: tuple(weight * d for d in output.jet(z, order)))
    activations = [*network.activations[:-1], weighted]
    limits = {"dense_limit": dense_limit, "factor_limit": factor_limit}
    return NetworkLeastSquares(shapes, activations, U, weight * Y, **limits)
