"""The distilled quadratic DenseNet of Algorithm 1 as a torch module, and its training objectives."""

import math

import torch
from torch import nn

from .modules import LayerInputs, TruncatedSquare


class DistilledQuadraticNet(LayerInputs):
    """The re-parameterized learner of eqs. (2.1) and (2.2): wide W_l for training, small K_l that distill them.

    ``S_l = sum_{j >= 2} K_{l,j} s(R_j S_j) + sum_{j < 2} K_{l,j} S_j`` with k_l units and ``F(x) = c + sum_l alpha_l
    sum_i p_i sigma(W_l [s(R_j S_j), S_0, S_1])_i`` with m = `n_units` units per layer and p = 1 or, if `signed`, +1 and
    -1 in turn (footnote 7); s is the truncated square with bound B' = `truncation`, the R_l of shape ``(k_l (k_l + 1) /
    2, k_l)`` stay as drawn. Layers are added one by one
    (`open_layer`) and get their K_l later (`distill`), since k_l is unknown before. Other parameters as for
    `QuadraticDenseNet`; `connections` of all L - 1 layers, whether open or not. Cost of a pass over n samples: ``O(n m
    sum_l q_l)`` with q_l inputs of layer l; of the regularizers ``O(m q_l^2)``.
    """

    readout = "sum"

    def __init__(
        self,
        n_features,
        connections,
        *,
        alphas,
        n_units=30,
        signed=False,
        truncation=math.inf,
        moments=None,
        dtype=torch.float64,
        generator=None,
    ):
        super().__init__(n_features, connections, moments, dtype)
        self.n_units, self.widths, self.dtype, self.generator = n_units, [], dtype, generator
        self.register_buffer("alphas", torch.as_tensor(alphas, dtype=dtype))
        self.register_buffer("wide_signs", (1.0 - 2.0 * signed * (torch.arange(n_units) % 2)).to(dtype))
        self.W, self.K, self.signs = nn.ParameterList(), nn.ParameterList(), []
        self.truncated, self.square = TruncatedSquare(truncation), TruncatedSquare()
        self.offset = nn.Parameter(torch.zeros(1, dtype=dtype))
        L = len(self.connections)
        self.weights3, self.weights4, self.weights5, self.weights6 = ([0.0] * L for _ in range(4))

    def sizes(self, layer):
        """Entries of each connection of layer l: d for j < 2, else ``k_j (k_j + 1) / 2``, j in ``J_l``."""
        return [
            self.n_features if j < 2 else self.widths[j - 2] * (self.widths[j - 2] + 1) // 2
            for j in self.connections[layer - 2]
        ]

    def open_layer(self, scale=1e-3):
        """Add ``W_l`` of the next layer, drawn from ``N(0, scale^2)``; return l."""
        layer = len(self.W) + 2
        if layer > len(self.widths) + 2:
            raise ValueError(f"layer {layer} needs the features of layer {layer - 1}, which is not distilled yet.")
        shape = self.n_units, sum(self.sizes(layer))
        W = scale * torch.randn(*shape, dtype=self.dtype, generator=self.generator)
        self.W.append(nn.Parameter(W.to(self.offset.device)))
        return layer

    def distill(self, layer, K, signs):
        """Set ``K_l`` (k_l, q_l) and signs (k_l,) of the next layer, and draw R_l with rows of norm one."""
        if layer != len(self.K) + 2 or layer > len(self.W) + 1:
            raise ValueError(f"the next layer to distill is {len(self.K) + 2}, got {layer}.")
        k = K.shape[0]
        R = _well_conditioned_rows(k, self.dtype, self.generator)
        self.register_buffer(f"R_{layer}", R.to(self.offset.device))
        self.widths.append(k)
        self.K.append(nn.Parameter(K.detach().clone()))
        self.signs.append(signs)

    def hidden(self, x):
        """``S_l`` (n, k_l) of the distilled layers, and the inputs (n, q_l) of the open layers, both by l."""
        S, outputs, inputs = {}, self.start(x), {}
        for i in range(len(self.W)):
            layer = i + 2
            inputs[layer] = self.gather(outputs, layer)
            if i < len(self.K):
                S[layer] = inputs[layer] @ self.K[i].T
                outputs[layer] = self.truncated(S[layer] @ getattr(self, f"R_{layer}").T)
        return S, inputs

    def predict(self, x):
        """F(x), (n, 1)."""
        _, inputs = self.hidden(x)
        total = self.offset.expand(len(x), 1)
        for alpha, W, A in zip(self.alphas, self.W, inputs.values()):
            total = total + alpha * self.square(A @ W.T) @ self.wide_signs[:, None]
        return total

    def squared(self, x):
        """What open layer l squares, by l: ``W_l`` times its inputs and, if distilled, ``S_l``; (n, m + k_l)."""
        S, inputs = self.hidden(x)
        wide = {layer: A @ W.T for W, (layer, A) in zip(self.W, inputs.items())}
        return {layer: torch.cat([Z, S[layer]], dim=1) if layer in S else Z for layer, Z in wide.items()}

    def layer_weights(self):
        """``{l: {j: K_{l,j}}}`` of the distilled layers; (k_l, d) for j < 2, else (k_l, k_j (k_j + 1) / 2)."""
        return self.by_connection(self.K)

    def form(self, layer):
        """``W_l^T diag(p) W_l``, (q_l, q_l): what layer l adds is its quadratic form."""
        W = self.W[layer - 2]
        return W.T @ (self.wide_signs[:, None] * W)

    def penalty(self):
        """``Reg(W, K)`` of Section 2.2, of signed products; layers without K_l have the last term only."""
        total = 0.0 * self.offset.sum()
        for i, W in enumerate(self.W):
            total = total + self.weights6[i] * (W**2).sum()
            if i >= len(self.K):
                continue
            K, previous = self.K[i], self.previous(i + 2)
            gap = K.T @ (self.signs[i][:, None] * K) - self.form(i + 2)
            total = total + self.weights6[i] * (K**2).sum() + self.weights5[i] * (gap**2).sum()
            total = total + self.weights4[i] * (gap[previous][:, previous] ** 2).sum()
            total = total + self.weights3[i] * (gap[previous][:, ~previous] ** 2).sum()
        return total

    def previous(self, layer):
        """Which inputs (q_l,) of layer l come from the layer before it."""
        flags = [j == layer - 1 for j in self.connections[layer - 2]]
        sizes = torch.tensor(self.sizes(layer), device=self.offset.device)
        return torch.repeat_interleave(torch.tensor(flags, device=self.offset.device), sizes)

    def forward(self, x):
        """F(x), (n, 1), and the penalty."""
        return self.predict(x), self.penalty()

    @torch.no_grad()
    def scale_output_(self, factor):
        """Multiply F by a positive factor, and all S_l by its square root, in place."""
        root = math.sqrt(factor)
        self.offset *= factor
        for layer, J in enumerate(self.connections[: len(self.W)], start=2):
            factors = torch.tensor([root if j < 2 else 1.0 / root for j in J], dtype=self.dtype)
            columns = torch.repeat_interleave(factors, torch.tensor(self.sizes(layer))).to(self.offset.device)
            for matrices in (self.W, self.K):
                if layer - 2 < len(matrices):
                    matrices[layer - 2] *= columns
        return self


class SharpenedNet(nn.Module):
    """``(v (x_0 + F(x)), v Reg)`` for inputs ``(x_0, x)`` (n, 1 + d): logits of Theorem 4; v = `sharpness`."""

    def __init__(self, net):
        super().__init__()
        self.net, self.sharpness = net, 1.0

    def forward(self, x):
        """Logits (n, 1) and penalty."""
        F, penalty = self.net(x[:, 1:])
        return self.sharpness * (x[:, :1] + F), self.sharpness * penalty


class _Penalized(nn.Module):
    """A mean of losses plus a penalty; `reduction` is "mean", or "none" for the losses with penalty (n, 1)."""

    def __init__(self, reduction="mean"):
        super().__init__()
        self.reduction = reduction

    def _reduced(self, losses):
        """The losses, or their mean."""
        return losses if self.reduction == "none" else losses.mean()


class PenalizedSquares(_Penalized):
    """``mean (F - y)^2 + Reg``."""

    def forward(self, output, y):
        """The objective for an output ``(F, Reg)`` and y (n, 1)."""
        F, penalty = output
        return self._reduced((F - y) ** 2) + penalty


class PenalizedLogistic(_Penalized):
    """``mean log(1 + exp(-y z)) + Reg`` for y in {-1, 1}."""

    def forward(self, output, y):
        """The objective for an output ``(z, Reg)`` and y (n, 1)."""
        z, penalty = output
        return self._reduced(nn.functional.softplus(-y * z)) + penalty


def _well_conditioned_rows(k, dtype, generator, n_draws=100):
    """R (k (k + 1) / 2, k): the Gaussian draw whose squares ``(R z)^2`` span the quadratic forms best.

    The squares of a single draw can be nearly dependent, and then gradient descent makes no progress.
    """
    i, j = torch.triu_indices(k, k)
    R = torch.randn(n_draws, k * (k + 1) // 2, k, dtype=dtype, generator=generator)
    R = R / torch.linalg.vector_norm(R, dim=2, keepdim=True)
    weights = torch.where(i == j, 1.0, math.sqrt(2.0)).to(dtype)
    smallest = torch.linalg.svdvals(R[:, :, i] * R[:, :, j] * weights)[:, -1]
    return R[int(smallest.argmax())]
