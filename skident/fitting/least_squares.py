"""Least squares over all parameters of a network by Levenberg-Marquardt, with its structured Gauss-Newton matrix."""

import time
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from skident.budget import check_deadline, memory_allows, require_memory
from skident.budget import chunk_bytes as default_chunk_bytes
from skident.budget.constants import FEW_ROUNDINGS, MIN_DAMPING
from skident.linalg import lapack
from skident.network import change_outputs, output_scaling
from skident.network.calculus import (
    flatten_parameters,
    forward,
    forward_jets,
    output_sensitivities,
    unflatten_parameters,
)
from skident.optim import (
    DenseNormalEquations,
    FactoredNormalEquations,
    KeptFactor,
    KrylovNormalEquations,
    all_threads,
    levenberg_marquardt,
    one_thread,
)

_KRONECKER_FAN_IN = 200  # inputs of a layer from which blocks of single units cost more than they save
_DENSE_COPIES = 2  # in memory at a time: the matrix and its factor
_PASS_ARRAYS = 4  # arrays of a layer's size that tangent and adjoint passes hold: values, slopes and their changes
_JACOBIAN_COPIES = 2  # of a block's Jacobian in memory: its layers, and all of them together
_THIN_PARAMETERS = 1500  # parameters up to which a second BLAS thread can cost more than it brings
_EXACT_COST = 1e-29  # of the cost of the outputs themselves: rounding, (15 eps)^2
_MIN_SCALE = 1e-7  # of the largest root of a diagonal entry: about the root of eps, for columns that are 0


def minimize(problem, params, **options):
    """`levenberg_marquardt` on a `NetworkLeastSquares`, with several BLAS threads only where products are large.

    Small products, and the thin ones of conjugate gradients, gain nothing from a second thread, and lose a factor of
    ten when the machine has other work; scikit-learn limits threads in the same way.
    """
    thin = problem.n_parameters <= _THIN_PARAMETERS
    thin = thin or problem.n_parameters > max(problem.dense_limit, problem.factor_limit)
    jacobian_rows = problem.Y.size
    with one_thread() if thin else all_threads(2.0 * jacobian_rows * problem.n_parameters**2):
        return levenberg_marquardt(problem.cost, problem.linearize, params, **options)


class NetworkLeastSquares:
    """``sum_n ||f(u_n; params) - y_n||^2`` as a function of all weights and biases.

    Layers have `shapes` (m_{l-1}, m_l) and one of `activations` each; samples are U (n, D) and Y (n, m_L). Up to
    `dense_limit` parameters P, the Gauss-Newton matrix is formed in ``16 P^2`` bytes. Beyond, it is applied by forward
    and backward passes, and systems are solved by conjugate gradients to the relative residual `inner_tol`, in memory
    ``O(n m + sum_l m_l m_{l-1}^2)``. Up to `factor_limit`, the Cholesky factor of one step, ``8 P^2`` bytes,
    preconditions further steps, which suits starts near a solution, in `single` precision if outputs are not exact.
    `chunk_bytes` bounds temporaries that grow with n.

    With ``y~ = (y, 1)`` the inputs of layer l and ``B_l[p, j] = d f_p / d z_j``, the entry between weights (i, j) of
    layer l and (i', j') of layer k is ``sum_n y~_i y~'_i' sum_p B_l[p, j] B_k[p, j']``: a product of matrices
    ``n x (m_{l-1} m_{k-1})`` and ``n x (m_l m_k)``. It costs ``O(n P^2)``, m_L times less than from the Jacobian.
    Parameters are ordered by layer, ``(m_{l-1} + 1, m_l)`` row by row, biases last. With `row_weights`, (n, 1) or
    (n, m_L), every residual is multiplied by its weight.
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
        row_weights=None,
        single=False,
    ):
        self.single = single
        self.row_weights = np.ones((1, 1)) if row_weights is None else row_weights
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
        return 8 * self.n_parameters**2

    def flatten(self, weights, biases):
        """Weights and biases as a vector (P,)."""
        return flatten_parameters(weights, biases)

    def unflatten(self, params):
        """A vector (P,) as lists of weights and of biases: views."""
        return unflatten_parameters(params, self.shapes)

    def _blocks(self, params):
        return [
            params[s:e].reshape(a + 1, c)
            for s, e, (a, c) in zip(self.offsets[:-1], self.offsets[1:], self.shapes, strict=True)
        ]

    def residual(self, params):
        """``f(u_n; params) - y_n`` (n, m_L); not finite if the network overflows."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.row_weights * (forward(*self.unflatten(params), self.activations, self.U) - self.Y)

    def cost(self, params):
        """Sum of squared residuals."""
        return float(np.sum(self.residual(params) ** 2))

    def linearize(self, params):
        """The Gauss-Newton model: dense, factored (with the factor this problem keeps) or matrix-free."""
        if self.n_parameters <= self.dense_limit and memory_allows(_DENSE_COPIES * self._matrix_bytes):
            return DenseNormalEquations(*self.normal_equations(params))
        product, gradient = self._products(params)
        if self.n_parameters <= self.factor_limit and memory_allows(self._matrix_bytes):
            return FactoredNormalEquations(product, gradient, lambda: self._matrix(params), self._kept)
        return self._krylov(params, product, gradient)

    def _matrix(self, params):
        return self.normal_equations(params, single=self.single)[0]

    def normal_equations(self, params, *, single=False):
        """Gauss-Newton matrix ``J^T J`` (P, P) and gradient ``J^T r`` (P,), summed over blocks of samples.

        With `single`, the matrix of one output is rounded to single precision: half the time, for a preconditioner.
        """
        P, single = self.n_parameters, single and self.Y.shape[1] == 1
        require_memory(self._matrix_bytes, f"the Gauss-Newton matrix of {P} parameters")
        A, g = np.zeros((P, P), dtype=np.float32 if single else float), np.zeros(P)
        widest = max(a * c for a in [s[0] + 1 for s in self.shapes] for c in [s[0] + 1 for s in self.shapes])
        widest += max(s[1] for s in self.shapes) ** 2
        widest = max(widest, _JACOBIAN_COPIES * P) if self.Y.shape[1] == 1 else widest
        block_size = max(1, self.chunk_bytes // (8 * widest))
        for first in range(0, len(self.U), block_size):
            self._accumulate(params, slice(first, first + block_size), A, g)
        # Only blocks on and above the diagonal were filled.
        for k in range(len(self.shapes)):
            s, e = self.offsets[k : k + 2]
            A[e:, s:e] = A[s:e, e:].T
        return A, g

    def _accumulate(self, params, block, A, g):
        reads, sensitivities, residual = self._passes(params, block)
        n = len(residual)
        if residual.shape[1] == 1:  # the symmetric product of the Jacobian takes half the operations of the blocks
            J = np.concatenate([(y[:, :, None] * B).reshape(n, -1) for y, B in zip(reads, sensitivities)], axis=1)
            check_deadline(n * J.shape[1] ** 2)
            g += J.T @ residual[:, 0]
            J = J.astype(A.dtype, copy=False)
            A += J.T @ J
            return
        for k, (yk, Bk) in enumerate(zip(reads, sensitivities, strict=True)):
            sk, ek = self.offsets[k : k + 2]
            g[sk:ek] += (yk.T @ np.einsum("npj,np->nj", Bk, residual)).ravel()
            for q in range(k, len(reads)):
                yq, Bq = reads[q], sensitivities[q]
                sq, eq = self.offsets[q : q + 2]
                width, overlaps = Bk.shape[2], (np.swapaxes(Bk, 1, 2) @ Bq).reshape(n, -1)
                tile = min(yk.shape[1], max(1, self.chunk_bytes // (8 * width * (eq - sq))))
                for i in range(0, yk.shape[1], tile):
                    check_deadline(2.0 * n * tile * width * (eq - sq))
                    products = (yk[:, i : i + tile, None] * yq[:, None, :]).reshape(n, -1)
                    part = (products.T @ overlaps).reshape(-1, yq.shape[1], width, Bq.shape[2])
                    rows = slice(sk + i * width, min(sk + (i + tile) * width, ek))
                    A[rows, sq:eq] += part.transpose(0, 2, 1, 3).reshape(-1, eq - sq)

    def _passes(self, params, block):
        """Inputs of all layers with a column of ones, output sensitivities and residual, on a block of samples."""
        weights, biases = self.unflatten(params)
        inputs, jets = forward_jets(weights, biases, self.activations, self.U[block], order=1)
        sensitivities, _ = output_sensitivities(weights, jets)
        ones = np.ones((len(inputs[0]), 1))
        weight = self.row_weights if len(self.row_weights) == 1 else self.row_weights[block]
        sensitivities = [weight[:, :, None] * B for B in sensitivities]
        return [np.hstack([y, ones]) for y in inputs], sensitivities, weight * (jets[-1][0] - self.Y[block])

    def _products(self, params):
        """``v -> J^T (J v)`` by a tangent and an adjoint pass, and ``J^T r``."""
        sizes = [2 * self.shapes[0][0], *(_PASS_ARRAYS * c for _, c in self.shapes)]
        require_memory(
            8 * len(self.U) * sum(sizes), f"a fit of {self.n_parameters} parameters to {len(self.U)} samples"
        )
        weights, biases = self.unflatten(params)
        inputs, jets = forward_jets(weights, biases, self.activations, self.U, order=1)
        residual = self.row_weights * (jets[-1][0] - self.Y)
        slopes = [jet[1] for jet in jets]
        ones = np.ones((len(self.U), 1))
        reads = [np.hstack([y, ones]) for y in inputs]

        def tangent(v):
            dy = 0.0
            for layer, dW in enumerate(self._blocks(v)):
                dz = self._moved(layer, reads[layer], dW)
                if layer:
                    dz += dy @ weights[layer]
                dy = slopes[layer] * dz
            return self.row_weights * dy

        def adjoint(r):
            r = self.row_weights * r
            out = [None] * len(weights)
            for layer in range(len(weights) - 1, -1, -1):
                dz = slopes[layer] * r
                out[layer] = self._gathered(layer, reads[layer], dz)
                r = dz @ weights[layer].T
            return np.concatenate(out)

        return lambda v: adjoint(tangent(v)), adjoint(residual)

    def _moved(self, layer, reads, dW):
        """Changes (n, m_l) of pre-activations of inputs y~ by changes of a layer's parameters."""
        return reads @ dW

    def _gathered(self, layer, reads, dz):
        """The adjoint of `_moved`, as a vector."""
        return (reads.T @ dz).ravel()

    def _krylov(self, params, product, gradient):
        """Matrix-free model, preconditioned by one block per unit, or one per layer of large fan-in."""
        layers = self._layer_blocks(params)
        diagonal = np.concatenate([layer.diagonal().ravel() for layer in layers])
        diagonal = np.maximum(diagonal, FEW_ROUNDINGS * diagonal.max())

        def preconditioner(damping):
            solvers = [layer.solver(damping, D) for layer, D in zip(layers, self._blocks(diagonal), strict=True)]
            return lambda v: np.concatenate(
                [solve(V).ravel() for solve, V in zip(solvers, self._blocks(v), strict=True)]
            )

        return KrylovNormalEquations(product, gradient, diagonal, preconditioner, tol=self.inner_tol)

    def _layer_blocks(self, params):
        """Diagonal blocks of ``J^T J``, or approximations of them, layer by layer."""
        layers = [(KroneckerBlock if a > _KRONECKER_FAN_IN else UnitBlocks)(a + 1, c) for a, c in self.shapes]
        block_size = max(1, self.chunk_bytes // (8 * max(self.Y.shape[1] * c + 2 * a for a, c in self.shapes)))
        for first in range(0, len(self.U), block_size):
            reads, sensitivities, _ = self._passes(params, slice(first, first + block_size))
            for layer, y, B in zip(layers, reads, sensitivities, strict=True):
                layer.add(y, B)
        return layers


class ScaledFirstLayer(NetworkLeastSquares):
    """The same for a first layer ``u -> s * u + b`` with as many units as inputs: 2 m_1 parameters, not (D + 1) m_1.

    Inputs u are products of samples and known directions of weights. `unflatten` gives s as a diagonal matrix.
    """

    def __init__(self, shapes, *args, **options):
        super().__init__([(0, 2 * shapes[0][1]), *shapes[1:]], *args, **options)

    def flatten(self, weights, biases):
        """As that of any network, whose first weights are a diagonal matrix."""
        rest = flatten_parameters(weights[1:], biases[1:])
        return np.concatenate([np.diag(weights[0]), biases[0], rest])

    def unflatten(self, params):
        """A vector (P,) as lists of weights and of biases."""
        m = self.shapes[0][1] // 2
        weights, biases = unflatten_parameters(params[2 * m :], self.shapes[1:])
        return [np.diag(params[:m]), *weights], [params[m : 2 * m], *biases]

    def _passes(self, params, block):
        reads, sensitivities, residual = super()._passes(params, block)
        u, B = reads[0][:, :-1], sensitivities[0]
        first = np.concatenate([u[:, None, :] * B, B], axis=2)
        return [reads[0][:, -1:], *reads[1:]], [first, *sensitivities[1:]], residual

    def _moved(self, layer, reads, dW):
        if layer:
            return super()._moved(layer, reads, dW)
        scales, biases = dW.reshape(2, -1)
        return reads[:, :-1] * scales + biases

    def _gathered(self, layer, reads, dz):
        if layer:
            return super()._gathered(layer, reads, dz)
        return np.concatenate([np.sum(reads[:, :-1] * dz, axis=0), dz.sum(axis=0)])


def weighted_problem(network, U, Y, weight, *, scaled_first=False, dense_limit=3000, factor_limit=0):
    """Least squares of ``weight * (f(u) - y)``, with the network's shapes and one weight, or one per output (m_L,).

    `scaled_first`: that of a `ScaledFirstLayer`; limits are those of `NetworkLeastSquares`.
    """
    shapes = [W.shape for W in network.weights]
    output = network.activations[-1]
    weighted = replace(output, jet=lambda z, order: tuple(weight * d for d in output.jet(z, order)))
    activations = [*network.activations[:-1], weighted]
    limits = {"dense_limit": dense_limit, "factor_limit": factor_limit}
    problem = ScaledFirstLayer if scaled_first else NetworkLeastSquares
    return problem(shapes, activations, U, weight * Y, **limits)


@dataclass(frozen=True)
class Stopping:
    """When a fit ends; residuals are root mean squares relative to those of the outputs."""

    max_iter: int = 100  # steps at most
    target: float = 1e-10  # residual that is low enough
    patience: int = 12  # steps
    gain: float = 0.7  # the fit is given up when `patience` steps have not lowered the cost to this fraction
    ftol: float = 1e-4  # it ends when two steps in a row lower the cost by less than this fraction
    deadline: float = np.inf  # of `time.perf_counter`, after which no step is made

    def watch(self, total):
        """The callback ``stop(n_iter, cost)`` of `minimize`; `total` is the cost of the outputs themselves."""
        costs = []

        def stop(_, cost):
            costs.append(cost)
            late = time.perf_counter() > self.deadline
            slow = len(costs) > self.patience and cost > self.gain * costs[-1 - self.patience]
            return late or cost < self.target**2 * total or slow

        return stop


def fit_network(network, U, Y, stopping=None, *, dense_limit=2000, inner_tol=1e-2, scaled_first=False):
    """Minimize ``sum_np (f_p(u_n) - Y_np)^2`` over all parameters from one start, a network.

    Returns the fitted network and its relative root mean square residual; relative to the standard deviations of Y if
    the output is linear. With `scaled_first`, the first weights are a diagonal matrix and stay one.
    """
    stopping = Stopping() if stopping is None else stopping
    offset, scale = output_scaling(Y, network.output_activation)
    start, Y = change_outputs(network, -offset / scale, 1.0 / scale), (Y - offset) / scale
    shapes = [W.shape for W in network.weights]
    kind = ScaledFirstLayer if scaled_first else NetworkLeastSquares
    problem = kind(shapes, network.activations, U, Y, dense_limit=dense_limit, inner_tol=inner_tol)
    total = max(float(np.sum(Y**2)), np.finfo(float).tiny)
    result = minimize(
        problem,
        problem.flatten(start.weights, start.biases),
        max_iter=stopping.max_iter,
        target=_EXACT_COST * total,
        ftol=stopping.ftol,
        callback=stopping.watch(total),
    )
    fitted = network.with_parameters(*problem.unflatten(result.x))
    return change_outputs(fitted, offset, scale), float(np.sqrt(result.cost / total))


class UnitBlocks:
    """The blocks ``sum_n y~ y~^T sum_p B[p, j]^2``, one per unit j of a layer with inputs y~ and sensitivities B.

    ``n_reads = m_{l-1} + 1`` and ``n_units = m_l``; ``8 n_units n_reads^2`` bytes, and as many for the inverses.
    """

    def __init__(self, n_reads, n_units):
        self.blocks = np.zeros((n_units, n_reads, n_reads))

    def add(self, reads, sensitivities):
        """Add samples: inputs y~ = (y, 1) (n, n_reads) and sensitivities d f / d z (n, m_L, n_units)."""
        for block, weight in zip(self.blocks, np.einsum("npj,npj->jn", sensitivities, sensitivities), strict=True):
            block += (reads * weight[:, None]).T @ reads

    def diagonal(self):
        """The diagonal of ``J^T J``, (n_reads, n_units)."""
        return np.einsum("jii->ij", self.blocks)

    def solver(self, damping, diagonal):
        """The map ``V -> M^-1 V`` of arrays (n_reads, n_units), with ``damping * diagonal`` added to the blocks."""
        damped, index = self.blocks.copy(), np.arange(self.blocks.shape[1])
        damped[:, index, index] += (damping + MIN_DAMPING) * diagonal.T
        inverses = np.stack([_inverse(M) for M in damped])
        return lambda V: np.einsum("jik,kj->ij", inverses, V)


def _inverse(M):
    factor = lapack.cho_factor(M, lower=True, check_finite=False)
    return scipy.linalg.cho_solve(factor, np.eye(len(M)), check_finite=False)


class KroneckerBlock:
    """``sum_n y~ y~^T`` times ``sum_np B_p B_p^T``, over n: the block if inputs and sensitivities were independent.

    The methods are those of `UnitBlocks`, which cost m_l times as much for a layer of large fan-in, and neglect the
    coupling of units. With both factors scaled to unit diagonal, their eigenvalues a and c give those of the damped
    product, ``a c + damping``, so every damping costs the same two decompositions.
    Source: Martens and Grosse (2015), Optimizing Neural Networks with Kronecker-factored Approximate Curvature.
    """

    def __init__(self, n_reads, n_units):
        self.reads, self.units = np.zeros((n_reads, n_reads)), np.zeros((n_units, n_units))
        self.squares = np.zeros((n_reads, n_units))

    def add(self, reads, sensitivities):
        """Add samples, as `UnitBlocks.add`."""
        self.reads += reads.T @ reads
        self.units += np.tensordot(sensitivities, sensitivities, axes=((0, 1), (0, 1)))
        self.squares += (reads**2).T @ np.sum(sensitivities**2, axis=1)

    def diagonal(self):
        """The diagonal of ``J^T J``, (n_reads, n_units)."""
        return self.squares

    def solver(self, damping, diagonal):
        """The map ``V -> M^-1 V`` of arrays (n_reads, n_units), as `UnitBlocks.solver`."""
        (a, Qa), (c, Qc) = _scaled_eigenvalues(self.reads), _scaled_eigenvalues(self.units)
        values, scale = np.outer(a, c) + damping + MIN_DAMPING, np.sqrt(diagonal)
        return lambda V: (Qa @ ((Qa.T @ (V / scale) @ Qc) / values) @ Qc.T) / scale


def _scaled_eigenvalues(M):
    """Eigenvalues, at least 0, and eigenvectors of a matrix scaled to unit diagonal."""
    scale = np.sqrt(np.diag(M))
    scale = np.maximum(scale, _MIN_SCALE * scale.max() + np.finfo(float).tiny)
    values, vectors = lapack.eigh(M / scale[:, None] / scale)
    return np.maximum(values, 0.0), vectors
