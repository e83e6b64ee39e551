"""Torch modules of many kinds whose units can be moved: what they are made of, and inputs for them."""

import torch
import torch.nn.functional as F
from torch import nn

from skident.network.torch_activations import Erf, Quadratic, Sin


def mlp(activation, widths=(5, 7, 6, 3)):
    layers = []
    for n, m in zip(widths, widths[1:]):
        layers += [nn.Linear(n, m), activation()]
    return nn.Sequential(*layers[:-1])


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions with batch norm, a 1 x 1 one beside them where sizes change."""

    def __init__(self, n, m, stride, activation):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m)
        self.conv2, self.norm2 = nn.Conv2d(m, m, 3, 1, 1, bias=False), nn.BatchNorm2d(m)
        self.activation = activation()
        changes = [nn.Conv2d(n, m, 1, stride, bias=False), nn.BatchNorm2d(m)] if (n, stride) != (m, 1) else []
        self.shortcut = nn.Sequential(*changes)

    def forward(self, x):
        inner = self.activation(self.norm1(self.conv1(x)))
        return self.activation(self.norm2(self.conv2(inner)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, widths=(6, 8), n_blocks=2, activation=nn.ReLU):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0])
        self.activation = activation()
        sizes = [widths[0], *(m for m in widths for _ in range(n_blocks))]
        strides = [2 if k and k % n_blocks == 0 else 1 for k in range(len(sizes) - 1)]
        blocks = [ResidualBlock(n, m, s, activation) for n, m, s in zip(sizes, sizes[1:], strides)]
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(sizes[-1], 3)

    def forward(self, x):
        x = self.blocks(self.activation(self.norm(self.conv(x))))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class PreActivation(nn.Module):
    """The stream passes no activation, only norm layers read it; one gate a channel."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(6) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(6, 6, 3, padding=1) for _ in range(2))
        self.squeeze, self.excite, self.head = nn.Linear(6, 4), nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        x = self.conv(x)
        for norm, conv in zip(self.norms, self.convs):
            y = conv(torch.relu(norm(x)))
            gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(y.mean((2, 3))))))
            x = x + y * gate.view(y.size(0), 6, 1, 1)
        return self.head(torch.tanh(self.norms[-1](x)).mean(dim=[2, 3]))


class Dense(nn.Module):
    """Everything so far, the inputs too, is concatenated; norm layers behind the concatenation."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.conv3 = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(6, 5, 1), nn.Conv2d(9, 4, 1)
        self.norm, self.head = nn.BatchNorm2d(9), nn.Linear(9 * 4, 3)

    def forward(self, x):
        one = F.leaky_relu(self.conv1(x), 0.2)
        two = torch.relu(self.conv2(torch.cat([x, one], 1)))
        both = torch.cat([two, one], dim=1)
        three = self.conv3(torch.relu(self.norm(both)))
        both = torch.cat([two, one + three], 1)
        return self.head(torch.flatten(F.max_pool2d(both, 4), 1))


class Shared(nn.Module):
    """One layer used twice, one weight read by name, numbers added and multiplied."""

    def __init__(self):
        super().__init__()
        self.first, self.again, self.last = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.weight = nn.Parameter(torch.randn(6, 6))

    def forward(self, x):
        x = torch.tanh(self.first(x))
        for _ in range(2):
            x = torch.tanh(self.again(x) * 0.5)
        x = x - torch.tanh(F.linear(x, self.weight))
        return self.last(F.gelu(x + 0.1) / 2)


class Tied(nn.Module):
    """The last layer's weights are the first one's, the other way round."""

    def __init__(self):
        super().__init__()
        self.table, self.inner, self.out = nn.Embedding(9, 6), nn.Linear(6, 6), nn.Linear(6, 9)
        self.out.weight = self.table.weight

    def forward(self, x):
        x = self.table(x)
        return self.out(x + torch.relu(self.inner(x)))


class Mixer(nn.Module):
    """A stream with layer norm, and convolutions over its rows."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm1, self.norm2 = nn.Linear(4, 6), nn.LayerNorm(6), nn.RMSNorm(6)
        self.up, self.down, self.conv = nn.Linear(6, 8), nn.Linear(8, 6), nn.Conv1d(6, 6, 3, padding=1, groups=6)
        self.gate = nn.Parameter(torch.full((1,), 0.3))
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = self.embed(x)
        x = x + self.down(F.gelu(self.up(self.norm1(x))))
        x = x + self.gate * self.conv(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.norm2(x))


class Views(nn.Module):
    """How images are flattened in older code."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 5, 3, padding=1)
        self.norm, self.dense, self.head = nn.BatchNorm1d(5 * 16), nn.Linear(5 * 16, 6), nn.Linear(6, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x[:, :, ::1])), 2)
        x = F.avg_pool2d(F.relu(self.conv2(F.pad(x, (1, 1, 1, 1)))), 2)[:, :, :2, :2].contiguous()
        x = F.interpolate(x, size=(4, 4))
        x = F.relu(self.norm(x.view(x.size(0), -1)))
        return self.head(F.relu(self.dense(x.view(-1, 5 * 16))))


class SharedNorm(nn.Module):
    """A norm layer that the inputs go through too, and one whose weight is read besides."""

    def __init__(self):
        super().__init__()
        self.norm, self.other = nn.BatchNorm1d(5), nn.BatchNorm1d(6)
        self.first, self.second, self.last = nn.Linear(5, 5), nn.Linear(5, 6), nn.Linear(6, 3)
        self.inner, self.outer = nn.Linear(6, 4), nn.Linear(4, 6)

    def forward(self, x):
        x = torch.tanh(self.norm(self.first(self.norm(x))))
        x = torch.tanh(self.other(self.second(x)))
        return self.last(x + self.outer(torch.relu(self.inner(x)))) + self.other.weight[:3]


def separable(activation):
    """Depthwise and pointwise convolutions."""
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), activation(), nn.Conv2d(6, 6, 3, groups=6, bias=False),
        nn.BatchNorm2d(6), activation(), nn.Conv2d(6, 5, 1), activation(), nn.Conv2d(5, 5, 3, groups=5), activation(),
        nn.AdaptiveMaxPool2d(2) if activation is nn.ReLU else nn.AvgPool2d(2), nn.Flatten(), nn.Linear(20, 3),
    )  # fmt: skip


def convolutional(norm):
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), norm(6), nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.Dropout(0.5), nn.Conv2d(6, 4, 2), norm(4),
        nn.Tanh(), nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 3),
    )  # fmt: skip


def autoencoder():
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, stride=2), nn.PReLU(5), nn.ConvTranspose2d(5, 4, 3, stride=2), nn.InstanceNorm2d(4),
        nn.Tanh(), nn.Upsample(scale_factor=2), nn.ConvTranspose2d(4, 4, 3), nn.GroupNorm(1, 4), nn.SiLU(),
        nn.Conv2d(4, 2, 1),
    )  # fmt: skip


def without_affine(m):
    return nn.BatchNorm2d(m, affine=False)


def without_statistics(m):
    return nn.BatchNorm2d(m, track_running_stats=False)


def instance_norm(m):
    return nn.InstanceNorm2d(m, affine=True)


ACTIVATIONS = [nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.Tanh, nn.Hardtanh, nn.Sigmoid, nn.GELU, nn.ELU, Sin, Erf, Quadratic]
ROWS, IMAGES = (5,), (2, 8, 8)
# name: builder, shape of an input
CASES = {f"mlp {activation.__name__}": (lambda a=activation: mlp(a), ROWS) for activation in ACTIVATIONS}
CASES |= {
    "batch norm behind linear": (
        lambda: nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)),
        ROWS,
    ),
    "linear only": (lambda: nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 4), nn.Linear(4, 3)), ROWS),
    "residual relu": (ResNet, IMAGES),
    "residual tanh": (lambda: ResNet(activation=nn.Tanh), IMAGES),
    "pre-activation with gates": (PreActivation, IMAGES),
    "concatenation": (Dense, IMAGES),
    "shared": (Shared, ROWS),
    "shared norm": (SharedNorm, ROWS),
    "tied": (Tied, None),
    "layer norm": (Mixer, (7, 4)),
    "views": (Views, (2, 8, 8)),
    "separable relu": (lambda: separable(nn.ReLU), IMAGES),
    "separable tanh": (lambda: separable(nn.Tanh), IMAGES),
    "separable relu6": (lambda: separable(nn.ReLU6), IMAGES),
    "convolutions, batch norm": (lambda: convolutional(nn.BatchNorm2d), IMAGES),
    "convolutions, batch norm without weights": (lambda: convolutional(without_affine), IMAGES),
    "convolutions, batch norm without statistics": (lambda: convolutional(without_statistics), IMAGES),
    "convolutions, instance norm": (lambda: convolutional(instance_norm), IMAGES),
    "convolutions, no norm": (lambda: convolutional(nn.Identity), IMAGES),
    "autoencoder": (autoencoder, (2, 9, 9)),
}


def random_module(case, seed):
    """A module in float64 and evaluation mode, every tensor random: norm layers too, variances positive."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = (CASES[case][0] if isinstance(case, str) else case)().double().eval()
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point() and tensor.ndim <= 1:
                noise = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
                tensor.copy_(0.5 + noise.abs() if "var" in name else 0.6 * noise)
    return module


def inputs(case, seed, n=4):
    generator = torch.Generator().manual_seed(seed)
    shape = CASES[case][1]
    if shape is None:
        return torch.randint(9, (n, 6), generator=generator)
    return torch.randn((n, *shape), generator=generator, dtype=torch.float64)
