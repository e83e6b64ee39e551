"""The quadratic DenseNet of Allen-Zhu and Li (2020) as torch modules: the ordinary form and the distilled one."""

from __future__ import annotations

import math

import torch
from torch import nn

__all__ = ["DistilledQuadraticNet", "QuadraticDenseNet", "ScaledLogits", "TruncatedSquare"]


class TruncatedSquare(nn.Module):
    """``z^2`` up to ``|z| = bound``, constant ``2.2 bound^2`` from ``|z| = 2 bound`` on, smooth and monotone between.

    The derivative between is ``2 bound (1 - t)^3 (1 + 4 t + 9 t^2)`` with ``t = |z| / bound - 1``, so that the function
    has three continuous derivatives, all ``O(bound)``.

    Parameters
    ----------
    bound : float
        B' of Section 2.1; infinity is the plain square.

    Examples
    --------
    >>> import torch
    >>> from skident.hierarchical.modules import TruncatedSquare
    >>> print(round(TruncatedSquare(2.0)(torch.tensor(100.0)).item(), 4))
    8.8
    """

    def __init__(self, bound=math.inf):
        super().__init__()
        self.bound = float(bound)

    def forward(self, z):
        if math.isinf(self.bound):
            return z * z
        size = z.abs()
        t = (size / self.bound - 1.0).clamp(0.0, 1.0)
        grown = t + t**2 / 2 - 4 * t**4 + 4.6 * t**5 - 1.5 * t**6
        return size.clamp(max=self.bound) ** 2 + 2 * self.bound**2 * grown


class TiltedSquare(nn.Module):
    """``z + c z^2``, the activation of the paper's quadratic WideResNets (Appendix A.3, c = 0.1)."""

    def __init__(self, curvature):
        super().__init__()
        self.curvature = float(curvature)

    def forward(self, z):
        return z + self.curvature * z * z


class _LayerInputs(nn.Module):
    """``S_0 = x`` and ``S_1 = x^2 - E x^2``, and the inputs of a layer in the order of its connections."""

    def __init__(self, n_features, connections, moments, dtype):
        super().__init__()
        self.n_features = n_features
        self.connections = [tuple(sorted(J)) for J in connections]
        moments = torch.ones(n_features, dtype=dtype) if moments is None else torch.as_tensor(moments, dtype=dtype)
        self.register_buffer("moments", moments)

    def start(self, x):
        return {0: x, 1: x * x - self.moments}

    def gather(self, outputs, layer):
        return torch.cat([outputs[j] for j in self.connections[layer - 2]], dim=1)


class QuadraticDenseNet(_LayerInputs):
    """``F(x) = c + D [G_0, G_1] + sum_l alpha_l U_l G_l``, ``G_l = a(S_l)``, ``S_l = sum_{j in J_l} W_lj G_j + b_l``.

    ``G_0 = x``, ``G_1 = x^2 - E x^2``. With ``readout="sum"`` all entries of U_l are one and D is zero: the paper's
    eq. (1.1). With ``readout="linear"`` U_l and D are trained, and ``batch_norm=True`` puts a batch norm after every
    activation, as in Appendix A.3.

    Parameters
    ----------
    n_features : int
        d.
    widths : sequence of int
        ``(k_2, ..., k_L)``.
    connections : sequence of sequence of int
        ``(J_2, ..., J_L)``.
    n_outputs : int, default=1
        More than one only with ``readout="linear"``.
    alphas : sequence of float, default=None
        ``(alpha_2, ..., alpha_L)``; None is ``0.3 ** (l - 2)``.
    readout : {"sum", "linear"}, default="sum"
    direct : bool, default=None
        Whether there is a D; None: with linear readouts.
    curvature : float, default=None
        c of the activation ``z + c z^2``; None is ``z^2``.
    batch_norm : bool, default=False
    truncation : float, default=inf
        B' of the truncated square that the next layers see; the readout sees the plain one.
    moments : array-like of shape (d,), default=None
        ``E x^2``; None is one.
    dtype : torch.dtype, default=torch.float64
    generator : torch.Generator, default=None
        Of the initial weights, ``N(0, 1 / fan in)``; None is torch's global stream.

    Notes
    -----
    Source: Section 2 and Appendix A.3. Cost of a pass over n rows: ``O(n sum_l k_l sum_{j in J_l} k_j)``. Biases b_l
    start at zero.

    Examples
    --------
    >>> import torch
    >>> from skident.hierarchical.modules import QuadraticDenseNet
    >>> module = QuadraticDenseNet(5, (3, 2), ((0, 1), (0, 2)))
    >>> print(sum(p.numel() for p in module.weights))
    46
    """

    def __init__(
        self,
        n_features,
        widths,
        connections,
        *,
        n_outputs=1,
        alphas=None,
        readout="sum",
        direct=None,
        curvature=None,
        batch_norm=False,
        truncation=math.inf,
        moments=None,
        dtype=torch.float64,
        generator=None,
    ):
        super().__init__(n_features, connections, moments, dtype)
        if readout == "sum" and n_outputs != 1:
            raise ValueError(f"readout='sum' has one output, got n_outputs={n_outputs}; take readout='linear'.")
        self.widths, self.readout = tuple(widths), readout
        alphas = [0.3**i for i in range(len(widths))] if alphas is None else alphas
        self.register_buffer("alphas", torch.as_tensor(alphas, dtype=dtype))
        sizes = {0: n_features, 1: n_features, **dict(enumerate(self.widths, start=2))}
        fan_in = [sum(sizes[j] for j in J) for J in self.connections]

        def random(*shape):
            return torch.randn(*shape, dtype=dtype, generator=generator)

        self.weights = nn.ParameterList(nn.Parameter(random(k, q) / math.sqrt(q)) for k, q in zip(self.widths, fan_in))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(k, dtype=dtype)) for k in self.widths)
        self.offset = nn.Parameter(torch.zeros(n_outputs, dtype=dtype))
        if readout == "linear":
            self.readouts = nn.ParameterList(nn.Parameter(random(k, n_outputs) / math.sqrt(k)) for k in self.widths)
        self.direct = None
        if readout == "linear" if direct is None else direct:
            self.direct = nn.Parameter(torch.zeros(2 * n_features, n_outputs, dtype=dtype))
        self.activation = TruncatedSquare() if curvature is None else TiltedSquare(curvature)
        self.inner = TruncatedSquare(truncation) if math.isfinite(truncation) else None
        norms = [nn.BatchNorm1d(k, dtype=dtype) for k in self.widths] if batch_norm else [nn.Identity()] * len(widths)
        self.norms = nn.ModuleList(norms)
        self.batch_norm = batch_norm

    def hidden(self, x):
        """``({l: S_l}, {l: what the next layers see}, {l: what the readout sees})``, each (n, k_l)."""
        S, outputs, seen = {}, self.start(x), {}
        for layer, (W, b, norm) in enumerate(zip(self.weights, self.biases, self.norms), start=2):
            S[layer] = torch.addmm(b, self.gather(outputs, layer), W.T)
            seen[layer] = norm(self.activation(S[layer]))
            outputs[layer] = seen[layer] if self.inner is None else self.inner(S[layer])
        return S, outputs, seen

    def combine(self, outputs, seen):
        """(n, n_outputs) from what `hidden` gives."""
        total = self.offset
        if self.direct is not None:
            total = torch.addmm(total, torch.cat([outputs[0], outputs[1]], dim=1), self.direct)
        for i, (alpha, G) in enumerate(zip(self.alphas, seen.values())):
            total = total + alpha * (G.sum(dim=1, keepdim=True) if self.readout == "sum" else G @ self.readouts[i])
        return total

    def forward(self, x):
        """(n, d) to (n, n_outputs)."""
        _, outputs, seen = self.hidden(x)
        return self.combine(outputs, seen)

    def blocks(self):
        """``((kind, layer), parameter)`` in the order in which the solvers flatten them."""
        groups = {"weights": self.weights, "biases": self.biases}
        if self.readout == "linear":
            groups |= {"readouts": self.readouts}
        named = [((kind, layer), p) for kind, group in groups.items() for layer, p in enumerate(group, start=2)]
        if self.direct is not None:
            named.append((("direct", 0), self.direct))
        return [*named, (("offset", 0), self.offset)]

    @torch.no_grad()
    def scale_output_(self, factor):
        """Multiply F by a positive factor; with ``readout="sum"`` that scales all S_l by its square root."""
        for parameter in (self.offset, *([] if self.direct is None else [self.direct])):
            parameter *= factor
        if self.readout == "linear":
            for U in self.readouts:
                U *= factor
            return self
        root, d = math.sqrt(factor), self.n_features
        for W, b, J in zip(self.weights, self.biases, self.connections):
            b *= root
            start = 0
            for j in J:
                size = d if j < 2 else self.widths[j - 2]
                W[:, start : start + size] *= root if j < 2 else 1.0 / root
                start += size
        return self


class ScaledLogits(nn.Module):
    """``v (x_0 + F(x))`` with x_0 the first column: the argument of the cross-entropy of Theorem 4.

    Parameters
    ----------
    net : nn.Module
        F, (n, d) to (n, 1).
    offset_column : bool, default=True
        Whether the inputs begin with x_0; else the module is ``v F(x)``.

    Attributes
    ----------
    sharpness : float
        v, one at the start.
    """

    def __init__(self, net, offset_column=True):
        super().__init__()
        self.net, self.offset_column, self.sharpness = net, offset_column, 1.0

    def forward(self, x):
        if not self.offset_column:
            return self.sharpness * self.net(x)
        return self.sharpness * (x[:, :1] + self.net(x[:, 1:]))


def _well_conditioned_rows(k, dtype, generator, n_draws=100):
    """R (k (k + 1) / 2, k): of some Gaussian draws the one whose squares ``(R z)^2`` span the quadratic forms best.

    The squares of a single draw can be nearly dependent, and then no descent gets anywhere.
    """
    i, j = torch.triu_indices(k, k)
    R = torch.randn(n_draws, k * (k + 1) // 2, k, dtype=dtype, generator=generator)
    R = R / torch.linalg.vector_norm(R, dim=2, keepdim=True)
    weights = torch.where(i == j, 1.0, math.sqrt(2.0)).to(dtype)
    smallest = torch.linalg.svdvals(R[:, :, i] * R[:, :, j] * weights)[:, -1]
    return R[int(smallest.argmax())]


class DistilledQuadraticNet(_LayerInputs):
    """The re-parameterised learner of eqs. (2.1) and (2.2): wide W_l for training, small K_l that distil them.

    ``S_l = sum_{j >= 2} K_{l,j} s(R_j S_j) + sum_{j < 2} K_{l,j} S_j`` with k_l units and
    ``F(x) = c + sum_l alpha_l Sum(sigma(W_l [s(R_j S_j), S_0, S_1]))`` with m units a layer; s is the truncated square,
    the R_l of shape ``(k_l (k_l + 1) / 2, k_l)`` stay as drawn. Layers are added one by one (`open_layer`) and get
    their K_l later (`distill`), since k_l is not known before.

    Parameters
    ----------
    n_features, connections, alphas, moments, dtype, generator
        As for `QuadraticDenseNet`; `connections` of all L - 1 layers, whether open or not.
    n_units : int, default=30
        m.
    truncation : float, default=inf
        B'.

    Attributes
    ----------
    widths : list of int
        k_l of the layers distilled so far.
    W, K : nn.ParameterList
        Of the open and of the distilled layers.
    weights3, weights4, weights5, weights6 : list of float
        lambda_3, ..., lambda_6 a layer, all zero at the start.

    Notes
    -----
    Source: Section 2.1, 2.2 and Algorithm 1. Cost of a pass over n rows: ``O(n m sum_l q_l)`` with q_l the inputs of a
    layer, those of the regularisers ``O(m q_l^2)``.

    Examples
    --------
    >>> import torch
    >>> from skident.hierarchical.modules import DistilledQuadraticNet
    >>> net = DistilledQuadraticNet(4, ((0, 1), (0, 2)), alphas=(1.0, 0.3), n_units=10)
    >>> net.open_layer()
    2
    >>> print(net.W[0].numel())
    80
    """

    def __init__(
        self,
        n_features,
        connections,
        *,
        alphas,
        n_units=30,
        truncation=math.inf,
        moments=None,
        dtype=torch.float64,
        generator=None,
    ):
        super().__init__(n_features, connections, moments, dtype)
        self.n_units, self.widths, self.dtype, self.generator = n_units, [], dtype, generator
        self.register_buffer("alphas", torch.as_tensor(alphas, dtype=dtype))
        self.W, self.K = nn.ParameterList(), nn.ParameterList()
        self.truncated, self.square = TruncatedSquare(truncation), TruncatedSquare()
        self.offset = nn.Parameter(torch.zeros(1, dtype=dtype))
        L = len(self.connections)
        self.weights3, self.weights4, self.weights5, self.weights6 = ([0.0] * L for _ in range(4))

    def sizes(self, layer):
        """Number of inputs by index j of a layer's connections; those of layer j >= 2 are ``k_j (k_j + 1) / 2``."""
        return [
            self.n_features if j < 2 else self.widths[j - 2] * (self.widths[j - 2] + 1) // 2
            for j in self.connections[layer - 2]
        ]

    def open_layer(self, scale=1e-3):
        """Add ``W_l`` of the next layer, ``N(0, scale^2)``; the layers below must be distilled. Returns l."""
        layer = len(self.W) + 2
        if layer > len(self.widths) + 2:
            raise ValueError(f"layer {layer} needs the features of layer {layer - 1}, which is not distilled yet.")
        shape = self.n_units, sum(self.sizes(layer))
        W = scale * torch.randn(*shape, dtype=self.dtype, generator=self.generator)
        self.W.append(nn.Parameter(W.to(self.offset.device)))
        return layer

    def distill(self, layer, K):
        """Set ``K_l`` of shape (k_l, q_l) and draw R_l, Gaussian with rows of norm one."""
        if layer != len(self.K) + 2 or layer > len(self.W) + 1:
            raise ValueError(f"the next layer to distil is {len(self.K) + 2}, got {layer}.")
        k = K.shape[0]
        R = _well_conditioned_rows(k, self.dtype, self.generator)
        self.register_buffer(f"R_{layer}", R.to(self.offset.device))
        self.widths.append(k)
        self.K.append(nn.Parameter(K.detach().clone()))

    def hidden(self, x):
        """``({l: S_l}, {l: inputs of layer l})`` of the open layers; S_l where distilled."""
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
            total = total + alpha * self.square(A @ W.T).sum(dim=1, keepdim=True)
        return total

    def penalty(self):
        """``Reg(W, K)`` of Section 2.2; layers without K_l have the last term only."""
        total = 0.0 * self.offset.sum()
        for i, W in enumerate(self.W):
            total = total + self.weights6[i] * (W**2).sum()
            if i >= len(self.K):
                continue
            K, previous = self.K[i], self.previous(i + 2)
            gap = K.T @ K - W.T @ W
            total = total + self.weights6[i] * (K**2).sum() + self.weights5[i] * (gap**2).sum()
            total = total + self.weights4[i] * (gap[previous][:, previous] ** 2).sum()
            total = total + self.weights3[i] * (gap[previous][:, ~previous] ** 2).sum()
        return total

    def previous(self, layer):
        """Which inputs of a layer come from the layer before it, as a mask (q_l,)."""
        flags = [j == layer - 1 for j in self.connections[layer - 2]]
        sizes = torch.tensor(self.sizes(layer), device=self.offset.device)
        return torch.repeat_interleave(torch.tensor(flags, device=self.offset.device), sizes)

    def forward(self, x):
        """``(F(x), Reg)``: what the training objective needs."""
        return self.predict(x), self.penalty()

    @torch.no_grad()
    def scale_output_(self, factor):
        """Multiply F by a positive factor, and all S_l by its square root."""
        root = math.sqrt(factor)
        self.offset *= factor
        for layer, J in enumerate(self.connections[: len(self.W)], start=2):
            factors = torch.tensor([root if j < 2 else 1.0 / root for j in J], dtype=self.dtype)
            columns = torch.repeat_interleave(factors, torch.tensor(self.sizes(layer))).to(self.offset.device)
            for matrices in (self.W, self.K):
                if layer - 2 < len(matrices):
                    matrices[layer - 2] *= columns
        return self
