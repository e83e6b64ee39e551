"""The quadratic DenseNet of Allen-Zhu and Li (2020) as a torch module, and its activations."""

import math

import numpy as np
import torch
from torch import nn


class TruncatedSquare(nn.Module):
    """``z^2`` up to ``|z| = bound``, constant ``2.2 bound^2`` from ``|z| = 2 bound`` on, smooth and monotone between.

    B' = `bound` of Section 2.1; infinity is the plain square. Between, the derivative is ``2 bound (1 - t)^3 (1 + 4 t +
    9 t^2)`` with ``t = |z| / bound - 1``, so that three derivatives are continuous, all ``O(bound)``.
    """

    def __init__(self, bound=math.inf):
        super().__init__()
        self.bound = float(bound)

    def forward(self, z):
        """The truncated square, elementwise."""
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
        """The activation, elementwise."""
        return z + self.curvature * z * z


class LayerInputs(nn.Module):
    """Inputs of the layers in both forms: ``G_0 = x``, ``G_1 = x^2 - E x^2``, concatenated along connections.

    `connections` are ``(J_2, ..., J_L)``; `moments` (d,) are ``E x^2``, None is one.
    """

    def __init__(self, n_features, connections, moments, dtype):
        super().__init__()
        self.n_features = n_features
        self.connections = [tuple(sorted(J)) for J in connections]
        moments = torch.ones(n_features, dtype=dtype) if moments is None else torch.as_tensor(moments, dtype=dtype)
        self.register_buffer("moments", moments)

    def start(self, x):
        """``{0: G_0, 1: G_1}``, each (n, d)."""
        return {0: x, 1: x * x - self.moments}

    def gather(self, outputs, layer):
        """The inputs of a layer (n, q_l), concatenated in the order of its connections."""
        return torch.cat([outputs[j] for j in self.connections[layer - 2]], dim=1)

    def by_connection(self, matrices):
        """``{l: {j: W_{l,j}}}``: the matrices (k_l, q_l) of layers 2, 3, ... as arrays split by connection."""
        result = {}
        for layer, W in enumerate(matrices, start=2):
            blocks = np.split(W.detach().cpu().numpy().astype(np.float64), np.cumsum(self.sizes(layer))[:-1], axis=1)
            result[layer] = dict(zip(self.connections[layer - 2], blocks))
        return result


class QuadraticDenseNet(LayerInputs):
    """``F(x) = c + D [G_0, G_1] + sum_l alpha_l U_l G_l``, ``G_l = a(S_l)``, ``S_l = sum_{j in J_l} W_lj G_j + b_l``.

    ``G_0 = x``, ``G_1 = x^2 - E x^2``. With ``readout="sum"`` D is zero and the entries of U_l are fixed signs, all one
    in the paper's eq. (1.1), +-1 in its footnote 7. With ``readout="linear"`` U_l and D are trained, and
    ``batch_norm=True`` puts a batch norm after each activation, as in Appendix A.3.

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
    moments : array-like of shape (d,), default=None
        ``E x^2``; None is one.
    dtype : torch.dtype, default=torch.float64
    generator : torch.Generator, default=None
        Of the initial weights, ``N(0, 1 / fan in)``; None is torch's global stream.

    Attributes
    ----------
    input_noise : float
        Standard deviation of Gaussian noise on x in training mode, initially 0.
    signs : list of tensor of shape (k_l,)
        Entries of U_l in the sum form, initially one.
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
        self.batch_norm, self.input_noise = batch_norm, 0.0
        self._draw_weights(n_outputs, dtype, generator)
        self.register_buffer("all_signs", torch.ones(sum(self.widths), dtype=dtype))
        self.direct = None
        if readout == "linear" if direct is None else direct:
            self.direct = nn.Parameter(torch.zeros(2 * n_features, n_outputs, dtype=dtype))
        self.activation = TruncatedSquare() if curvature is None else TiltedSquare(curvature)
        norms = [nn.BatchNorm1d(k, dtype=dtype) for k in self.widths] if batch_norm else [nn.Identity()] * len(widths)
        self.norms = nn.ModuleList(norms)

    def _draw_weights(self, n_outputs, dtype, generator):
        """Draw weights and linear readouts from ``N(0, 1 / fan in)``; biases and offset are zero."""

        def random(*shape):
            return torch.randn(*shape, dtype=dtype, generator=generator)

        fan_in = [sum(self.sizes(layer)) for layer in range(2, len(self.widths) + 2)]
        self.weights = nn.ParameterList(nn.Parameter(random(k, q) / math.sqrt(q)) for k, q in zip(self.widths, fan_in))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(k, dtype=dtype)) for k in self.widths)
        self.offset = nn.Parameter(torch.zeros(n_outputs, dtype=dtype))
        if self.readout == "linear":
            self.readouts = nn.ParameterList(nn.Parameter(random(k, n_outputs) / math.sqrt(k)) for k in self.widths)

    def sizes(self, layer):
        """Entries ``k_j`` of each connection j in ``J_l`` of layer l."""
        return [self.n_features if j < 2 else self.widths[j - 2] for j in self.connections[layer - 2]]

    def layer_weights(self):
        """The weights ``{l: {j: W_{l,j}}}``, arrays (k_l, k_j)."""
        return self.by_connection(self.weights)

    @property
    def signs(self):
        """The signs of each layer's units in the sum, views of `all_signs`, each (k_l,)."""
        return list(self.all_signs.split(self.widths))

    def hidden(self, x):
        """``S_l``, and the outputs of all layers from l = 0; (n, k_l) by l."""
        S, outputs = {}, self.start(x)
        for layer, (W, b, norm) in enumerate(zip(self.weights, self.biases, self.norms), start=2):
            S[layer] = torch.addmm(b, self.gather(outputs, layer), W.T)
            outputs[layer] = norm(self.activation(S[layer]))
        return S, outputs

    def combine(self, outputs):
        """F (n, n_outputs) from the outputs of all layers."""
        total = self.offset
        if self.direct is not None:
            total = torch.addmm(total, torch.cat([outputs[0], outputs[1]], dim=1), self.direct)
        for i, alpha in enumerate(self.alphas):
            readout = self.signs[i][:, None] if self.readout == "sum" else self.readouts[i]
            total = total + alpha * (outputs[i + 2] @ readout)
        return total

    def forward(self, x):
        """F(x), (n, n_outputs)."""
        if self.training and self.input_noise > 0:
            x = x + self.input_noise * torch.randn_like(x)
        return self.combine(self.hidden(x)[1])

    def predict(self, x):
        """F(x), the method that both forms of the network share."""
        return self(x)

    def squared(self, x):
        """What each layer squares: ``S_l`` (n, k_l) by l."""
        return self.hidden(x)[0]

    def blocks(self):
        """Pairs ((kind, layer), parameter) in the order in which the solvers flatten them.

        Kinds are weights, biases, readouts, direct and offset; the last two have layer 0.
        """
        groups = {"weights": self.weights, "biases": self.biases}
        if self.readout == "linear":
            groups |= {"readouts": self.readouts}
        named = [((kind, layer), p) for kind, group in groups.items() for layer, p in enumerate(group, start=2)]
        if self.direct is not None:
            named.append((("direct", 0), self.direct))
        return [*named, (("offset", 0), self.offset)]

    @torch.no_grad()
    def scale_output_(self, factor):
        """Multiply F by a positive factor, in place; with readout="sum" all S_l scale by its square root."""
        for parameter in (self.offset, *([] if self.direct is None else [self.direct])):
            parameter *= factor
        if self.readout == "linear":
            for U in self.readouts:
                U *= factor
            return self
        root = math.sqrt(factor)
        for layer, (W, b, J) in enumerate(zip(self.weights, self.biases, self.connections), start=2):
            b *= root
            start = 0
            for j, size in zip(J, self.sizes(layer)):
                W[:, start : start + size] *= root if j < 2 else 1.0 / root
                start += size
        return self
