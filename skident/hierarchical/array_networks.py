"""Quadratic DenseNets in NumPy: outputs, gradients and Jacobians of one network, or of many on the same samples."""

import numpy as np
import torch
from scipy.linalg.blas import dsyrk

from skident.budget.constants import CHUNK_ENTRIES

_NETWORKS_AT_ONCE = 20  # 1,000 samples of their features fit into the cache


class ArrayNetworks:
    """`QuadraticDenseNet` for C parameter vectors (C, P) on samples x (n, d), without torch.

    Parameters have the order of `QuadraticDenseNet.blocks`. Arrays of features have the shape (C, k_l, n), outputs (C,
    o, n). Small networks take most of their time in calls: autograd takes several times as long, and C networks share
    each call.
    """

    def __init__(self, module, x):
        self.widths, self.alphas = module.widths, [float(a) for a in module.alphas]
        self.linear, self.curvature = module.readout == "linear", getattr(module.activation, "curvature", None)
        self.moments = module.moments.cpu().numpy()
        self.signs = None if self.linear else [signs.cpu().numpy() for signs in module.signs]
        self.inputs = self.inputs_of(x)
        self.d = module.n_features
        self._locate(module)

    def inputs_of(self, x):
        """``[x, x^2 - E x^2]`` (2 d, n) of inputs (n, d)."""
        x = np.asarray(x)
        return np.ascontiguousarray(np.concatenate([x, x * x - self.moments], axis=1).T)

    def _locate(self, module):
        """Slices of the blocks in a parameter vector, and of the connections in the weights."""
        self.places, start = {}, 0
        for name, p in module.blocks():
            self.places[name] = slice(start, start + p.numel())
            start += p.numel()
        self.size, self.n_outputs = start, len(module.offset)  # P, o
        layers = range(2, len(self.widths) + 2)
        self.sizes = [module.sizes(layer) for layer in layers]  # by connection
        self.n_inputs, self.shared, self.hidden = [], [], []
        for layer, J in enumerate(module.connections, start=2):
            starts = np.cumsum([0, *self.sizes[layer - 2]])
            self.n_inputs.append(int(starts[-1]))
            first = 0 if 0 in J else self.d  # x and x^2 are neighboring rows of `inputs`: their weights are one matrix
            self.shared.append(slice(first, first + self.d * sum(j < 2 for j in J)))
            self.hidden.append([(j - 2, slice(starts[i], starts[i + 1])) for i, j in enumerate(J) if j >= 2])

    def weights(self, params):
        """The weights of all layers, each (C, k_l, q_l)."""
        shapes = zip(self.widths, self.n_inputs)
        return [params[:, self.places["weights", i]].reshape(-1, k, q) for i, (k, q) in enumerate(shapes, start=2)]

    def _readouts(self, params, i):
        """U_l (C, k_l, o) times alpha_l, of layer i + 2; None for the sum form."""
        if not self.linear:
            return None
        U = params[:, self.places["readouts", i + 2]].reshape(len(params), self.widths[i], self.n_outputs)
        return self.alphas[i] * U

    def features(self, params, inputs=None):
        """``S_l``, ``G_l`` and the outputs, of the samples or of other `inputs` (2 d, n)."""
        inputs, C = self.inputs if inputs is None else inputs, len(params)
        S, G, F = [], [], params[:, self.places["offset", 0], None]
        for i, W in enumerate(self.weights(params)):
            rows = inputs[self.shared[i]]
            flat = W[:, :, : len(rows)].reshape(C * self.widths[i], len(rows))
            s = (flat @ rows).reshape(C, self.widths[i], -1) + params[:, self.places["biases", i + 2], None]
            for j, columns in self.hidden[i]:
                s += W[:, :, columns] @ G[j]
            S.append(s)
            G.append(s * s if self.curvature is None else s + self.curvature * s * s)
            U = self._readouts(params, i)
            F = F + (self.alphas[i] * self.signs[i][None] @ G[-1] if U is None else U.transpose(0, 2, 1) @ G[-1])
        if ("direct", 0) in self.places:
            D = params[:, self.places["direct", 0]].reshape(C, 2 * self.d, self.n_outputs)
            F = F + D.transpose(0, 2, 1) @ inputs
        return S, G, F

    def middle_output(self, params, x):
        """Interquartile mean (n,) of the outputs of several networks (m, P) on inputs (n, d); one output.

        Far from the samples, polynomials of some networks are larger than those of all others together.
        """
        m, inputs = len(params), self.inputs_of(x)
        outputs = np.empty((m, len(x)))
        for start in range(0, m, _NETWORKS_AT_ONCE):
            part = slice(start, start + _NETWORKS_AT_ONCE)
            outputs[part] = self.features(params[part], inputs)[2][:, 0]
        outputs.sort(axis=0)
        return outputs[m // 4 : m - m // 4].mean(axis=0)

    def deltas(self, params, S, factors):
        """``sum_o factors_o dF_o / dS_l``, each (C, k_l, n), for factors (C, o, n)."""
        W, result = self.weights(params), [None] * len(S)
        for i in reversed(range(len(S))):
            U = self._readouts(params, i)
            back = self.alphas[i] * self.signs[i][:, None] * factors if U is None else U @ factors
            for m in range(i + 1, len(S)):
                for j, columns in self.hidden[m]:
                    if j == i:
                        back = back + W[m][:, :, columns].transpose(0, 2, 1) @ result[m]
            result[i] = 2.0 * S[i] * back if self.curvature is None else (1.0 + 2.0 * self.curvature * S[i]) * back
        return result

    def loss_and_gradient(self, params, y, w):
        """``sum w (F - y)^2`` (C,) of sums of squares and half its gradient (C, P), for y (n,) and w (C, n)."""
        S, G, F = self.features(params)
        errors = F[:, 0] - y
        weighted, gradient = w * errors, np.empty_like(params)
        for i, delta in enumerate(self.deltas(params, S, weighted[:, None, :])):
            rows, (C, k, _) = self.inputs[self.shared[i]], delta.shape
            part = [(delta.reshape(C * k, -1) @ rows.T).reshape(C, k, -1)]
            part += [delta @ G[j].transpose(0, 2, 1) for j, _ in self.hidden[i]]
            gradient[:, self.places["weights", i + 2]] = np.concatenate(part, axis=2).reshape(C, -1)
            gradient[:, self.places["biases", i + 2]] = delta.sum(axis=2)
        gradient[:, -1] = weighted.sum(axis=1)
        return np.einsum("cn,cn->c", weighted, errors), gradient

    def jacobian(self, params, part, trained):
        """Outputs (o, m) and derivatives (o, T, m) by the blocks `trained`, of one network (P,) on samples `part`."""
        inputs, params = self.inputs[:, part], params[None]
        S, G, F = self.features(params, inputs)
        sizes = [self.places[name].stop - self.places[name].start for name in trained]
        J = np.zeros((self.n_outputs, sum(sizes), inputs.shape[1]))
        for o in range(self.n_outputs):
            factors = np.zeros_like(F)
            factors[:, o] = 1.0
            deltas, start = self.deltas(params, S, factors), 0
            for (kind, layer), size in zip(trained, sizes):
                block = J[o, start : start + size]
                if kind == "weights":
                    rows = [inputs[self.shared[layer - 2]], *[G[j][0] for j, _ in self.hidden[layer - 2]]]
                    rows = np.concatenate(rows) if len(rows) > 1 else rows[0]
                    delta = deltas[layer - 2][0]
                    np.multiply(delta[:, None, :], rows[None], out=block.reshape(len(delta), *rows.shape))
                elif kind == "biases":
                    block[:] = deltas[layer - 2][0]
                elif kind == "offset":
                    block[o] = 1.0
                else:
                    rows = inputs if kind == "direct" else self.alphas[layer - 2] * G[layer - 2][0]
                    block.reshape(len(rows), self.n_outputs, -1)[:, o] = rows
                start += size
        return F[0], J

    def normal_equations(self, params, y, w, trained):
        """``J^T w^2 J`` (T, T) and ``J^T w^2 (F - y)`` (T,) of one network, for y (n, o) and factors w (n,).

        Only the lower triangle of the matrix is computed.
        """
        size = sum(self.places[name].stop - self.places[name].start for name in trained)
        matrix, gradient = np.zeros((size, size), order="F"), np.zeros(size)
        chunk = max(1, CHUNK_ENTRIES // max(1, size * self.n_outputs))
        for start in range(0, len(y), chunk):
            part = slice(start, start + chunk)
            F, J = self.jacobian(params, part, trained)
            weights = 1.0 if w is None else w[part]
            J *= weights
            for o in range(self.n_outputs):
                matrix = dsyrk(1.0, J[o].T, beta=1.0, c=matrix, trans=1, overwrite_c=1)
                gradient += J[o] @ (weights * (F[o] - y[part, o]))
        return matrix.T, gradient

    def params_of(self, module):
        """The parameter vector (P,) of a module."""
        return np.concatenate([p.detach().cpu().numpy().ravel() for _, p in module.blocks()])

    @torch.no_grad()
    def assign(self, params, module):
        """Assign a parameter vector (P,) to a module."""
        for name, p in module.blocks():
            p.copy_(torch.as_tensor(params[self.places[name]]).reshape(p.shape))
