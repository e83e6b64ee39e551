"""Perceptrons and residual networks of torch, with units permuted, flipped and rescaled by hand."""

from __future__ import annotations

import copy

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import nn


def perceptron(widths, activation):
    layers = [part for n, m in zip(widths, widths[1:]) for part in (nn.Linear(n, m), activation())]
    return nn.Sequential(*layers[:-1])


class Block(nn.Module):
    """Two 3 x 3 convolutions with batch norm, a 1 x 1 one beside them where sizes change."""

    def __init__(self, n, m, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m)
        self.conv2, self.norm2 = nn.Conv2d(m, m, 3, 1, 1, bias=False), nn.BatchNorm2d(m)
        changes = [nn.Conv2d(n, m, 1, stride, bias=False), nn.BatchNorm2d(m)] if (n, stride) != (m, 1) else []
        self.shortcut = nn.Sequential(*changes)

    def forward(self, x):
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


class ResNet(nn.Module):
    """Stages of three blocks each; widths (16, 32, 64) are ResNet-20."""

    def __init__(self, widths):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0])
        sizes = [widths[0], *(m for m in widths for _ in range(3))]
        strides = [2 if k and k % 3 == 0 else 1 for k in range(len(sizes) - 1)]
        self.blocks = nn.Sequential(*(Block(n, m, s) for n, m, s in zip(sizes, sizes[1:], strides)))
        self.head = nn.Linear(sizes[-1], 10)

    def forward(self, x):
        return self.head(self.blocks(torch.relu(self.norm(self.conv(x)))).mean((2, 3)))


class BareStream(nn.Module):
    """Two residual blocks of 50 units on a stream of 30 with uninformative ends: samuela/git-re-basin, thread 8."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(1, 30), nn.Linear(30, 1, bias=False)
        self.up, self.down = (nn.ModuleList(nn.Linear(n, m) for _ in range(2)) for n, m in ((30, 50), (50, 30)))
        for name, one in self.named_parameters():
            (nn.init.ones_ if name.startswith(("first", "last")) else nn.init.normal_)(one)

    def forward(self, x):
        x = self.first(x)
        for up, down in zip(self.up, self.down):
            x = x + down(torch.relu(up(x)))
        return self.last(x)


def random_network(build, seed):
    """In float64: weights as torch draws them, biases and norm layers random, variances positive."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = build().double().eval()
        with torch.no_grad():
            for name, tensor in network.state_dict().items():
                if tensor.is_floating_point() and tensor.ndim == 1 and not isinstance(network, BareStream):
                    noise = torch.randn_like(tensor)
                    is_gain = name.endswith("weight")
                    tensor.copy_(0.5 + noise.abs() if "var" in name else 0.3 * noise + is_gain)
    return network


class Disguise:
    """Random permutations; scales between e^-2 and e^2 or so, and signs, unless `permute_only`."""

    def __init__(self, seed, permute_only=False):
        self.rng, self.permute_only = np.random.default_rng(seed), permute_only

    def _units(self, m, signs):
        order = torch.from_numpy(self.rng.permutation(m))
        if self.permute_only:
            return order, torch.ones(m, dtype=torch.float64)
        factor = self.rng.choice([-1.0, 1.0], m) if signs else np.exp(self.rng.normal(size=m))
        return order, torch.from_numpy(factor)

    @torch.no_grad()
    def perceptron(self, network):
        network = copy.deepcopy(network)
        for k in range(0, len(network) - 2, 2):
            order, factor = self._units(network[k].out_features, isinstance(network[k + 1], nn.Tanh))
            network[k].weight[:] = network[k].weight[order] * factor[:, None]
            network[k].bias[:] = network[k].bias[order] * factor
            network[k + 2].weight[:] = network[k + 2].weight[:, order] / factor
        return network

    def _layer(self, conv, norm, before, after):
        """Convolution and batch norm between units (order, factor); in front of the norm any sign and scale."""
        (order, factor), m = after, len(conv.weight)
        c = self._units(m, True)[1] * self._units(m, False)[1]
        conv.weight[:] = conv.weight[order] * c[:, None, None, None]
        if before is not None:
            conv.weight[:] = conv.weight[:, before[0]] / before[1][:, None, None]
        old = norm.running_var[order]
        gain = factor / c * torch.sqrt((c**2 * old + norm.eps) / (old + norm.eps))
        norm.running_mean[:], norm.running_var[:] = c * norm.running_mean[order], c**2 * old
        norm.weight[:], norm.bias[:] = gain * norm.weight[order], factor * norm.bias[order]

    @torch.no_grad()
    def residual(self, network):
        network = copy.deepcopy(network)
        stream = self._units(len(network.conv.weight), False)
        self._layer(network.conv, network.norm, None, stream)
        for block in network.blocks:
            before, inner = stream, self._units(len(block.conv1.weight), False)
            if len(block.shortcut):
                stream = self._units(len(block.conv2.weight), False)
                self._layer(*block.shortcut, before, stream)
            self._layer(block.conv1, block.norm1, before, inner)
            self._layer(block.conv2, block.norm2, inner, stream)
        network.head.weight[:] = network.head.weight[:, stream[0]] / stream[1]
        return network

    @torch.no_grad()
    def bare_stream(self, network):
        network = copy.deepcopy(network)
        order, factor = self._units(30, False)
        network.first.weight[:], network.first.bias[:] = network.first.weight[order] * factor[:, None], factor
        network.last.weight[:] = network.last.weight[:, order] / factor
        for up, down in zip(network.up, network.down):
            inner, c = self._units(50, False)
            up.weight[:] = up.weight[inner][:, order] * c[:, None] / factor
            down.weight[:] = down.weight[order][:, inner] * factor[:, None] / c
            up.bias[:], down.bias[:] = up.bias[inner] * c, down.bias[order] * factor
        return network


# -- weight matching as it was published -------------------------------------------------------------------------------


def _residual_places(name):
    """The groups of units along the first two axes of a parameter of a `ResNet` of one stage, or of a `BareStream`."""
    block, _, leaf = name.rpartition(".")[0].rpartition(".")
    if block in ("up", "down"):
        inner = f"inner {leaf}"
        return (inner, "stream") if block == "up" else ("stream", inner)
    inner = f"inner {block}"
    places = {"conv1": (inner, "stream"), "norm1": (inner,), "conv2": ("stream", inner), "head": (None, "stream")}
    return places.get(leaf, (None, "stream") if leaf == "last" else ("stream", None))


def weight_matching(network, other, seed):
    """Algorithm 1 of Ainsworth et al. (2023), PermutationCoordinateDescent, for a `ResNet` of one stage or a stream.

    From the order as it is; groups in random order, until no permutation changes. Returns the largest difference left.
    """
    A, B = ({name: p.detach().numpy() for name, p in n.named_parameters()} for n in (network, other))
    places = {name: _residual_places(name)[: p.ndim] for name, p in A.items()}
    sizes = {g: A[name].shape[axis] for name, groups in places.items() for axis, g in enumerate(groups) if g}
    orders = {group: np.arange(m) for group, m in sizes.items()}

    def moved(name, but=None):
        array = B[name]
        for axis, group in enumerate(places[name]):
            array = array if group in (None, but) else array.take(orders[group], axis)
        return array

    rng, changed = np.random.default_rng(seed), True
    while changed:
        changed = False
        for group in rng.permutation(list(sizes)):
            gain = 0.0
            for name in (name for name, groups in places.items() if group in groups):
                rows = [np.moveaxis(C, places[name].index(group), 0) for C in (A[name], moved(name, but=group))]
                gain = gain + rows[0].reshape(sizes[group], -1) @ rows[1].reshape(sizes[group], -1).T
            order = linear_sum_assignment(gain, maximize=True)[1]
            old = gain[np.arange(len(order)), orders[group]].sum()
            if gain[np.arange(len(order)), order].sum() > old + 1e-12:
                orders[group], changed = order, True
    return max(np.abs(moved(name) - A[name]).max() for name in A)
