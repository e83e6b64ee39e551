"""
Accuracy against queries, and the Cramer-Rao bound
==================================================

Outputs that are rounded or noisy leave an error in every recovered network. No unbiased
estimate from the same queries has a smaller one than the Cramer-Rao bound, which falls
with the root of the number of queries. Two networks with two hidden layers (10-16-8-1,
tanh and ReLU) are fitted to more and more outputs in bfloat16, with two decimals and
with noise of 1 %, from parameters within 1e-4 of the true ones: the picture compares
the error on held-out inputs with the bound. Rounding is not noise, but averages like
it: 100 queries per parameter give six times the accuracy of 3. With 3 queries per
parameter, the bound of the ReLU network is above the errors: of units that hardly any
query activates it knows nothing, but the start does.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from skident.datasets import make_network
from skident.fitting.robust_polish import robust_polish
from skident.fitting.standard_errors import parameter_jacobian

WIDTHS = (10, 16, 8, 1)
PER_PARAMETER = (3, 10, 30, 100)
NOISE = 1e-2  # standard deviation of the noise over that of the outputs
UNIFORM = 12.0**-0.5  # standard deviation of a rounding error over the spacing
BFLOAT16 = 2.0**-7  # spacing of bfloat16 numbers at 1


def bfloat16(Y, scale, rng):
    """Outputs rounded to bfloat16, and the standard deviation of the error of each."""
    std = UNIFORM * BFLOAT16 * 2.0 ** np.floor(np.log2(np.abs(Y)))
    return torch.tensor(Y).to(torch.bfloat16).double().numpy(), std


def two_decimals(Y, scale, rng):
    """Outputs with two decimals, and the standard deviation of the error of each."""
    return Y.round(2), np.full(Y.shape, UNIFORM * 1e-2)


def noisy(Y, scale, rng):
    """Outputs with Gaussian noise, and the standard deviation of the error of each."""
    return Y + NOISE * scale * rng.standard_normal(Y.shape), np.full(
        Y.shape, NOISE * scale
    )


def perturbed(network, rng):
    """The network with every parameter changed by about 1e-4 of its size."""
    parts = [
        [a * (1.0 + 1e-4 * rng.standard_normal(a.shape)) for a in p]
        for p in (network.weights, network.biases)
    ]
    return network.with_parameters(*parts)


def bound(network, U, std, F):
    """Cramer-Rao bound of errors at inputs F, from outputs at U with errors `std`."""
    J = parameter_jacobian(network, U) / std
    information = J.T @ J
    diagonal = np.diag(information)
    size = np.where(
        diagonal > 0, 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 0.0
    )
    values, vectors = np.linalg.eigh(information * size * size[:, None])
    # the scales of ReLU units are free, and all of a unit that is never active
    kept = values > 1e-11 * values[-1]
    variance = np.sum(
        (parameter_jacobian(network, F) * size @ vectors[:, kept]) ** 2 / values[kept],
        axis=1,
    )
    return np.sqrt(variance.mean())


def curve(network, degrade, rng):
    """Errors and bounds, over the outputs' spread, of fits to more and more outputs."""
    F = rng.standard_normal((1000, WIDTHS[0]))
    scale, points = network(F).std(), []
    for n in PER_PARAMETER:
        U = rng.standard_normal((n * network.n_parameters, WIDTHS[0]))
        Y, std = degrade(network(U), scale, rng)
        fitted = robust_polish(perturbed(network, rng), U, Y, std).network
        error = np.sqrt(np.mean((fitted(F) - network(F)) ** 2))
        points.append((len(U), error / scale, bound(network, U, std, F) / scale))
    return np.array(points).T


# %%
# Fit both networks to outputs of three kinds.
curves = {}
for activation in ("tanh", "relu"):
    rng = np.random.RandomState(0)
    network = make_network(
        WIDTHS,
        activation=activation,
        bias_scale=0.5,
        output_activation="identity",
        random_state=0,
    )
    curves[activation] = [
        curve(network, degrade, rng) for degrade in (bfloat16, two_decimals, noisy)
    ]
    ratios = np.concatenate([error / least for _, error, least in curves[activation]])
    print(f"{activation}: error over bound {ratios.min():.2f} to {ratios.max():.2f}")

# %%
# Draw errors as points and bounds as lines, one panel per activation.
names, colors = (
    ("bfloat16", "two decimals", "noise of 1 %"),
    ("#009E73", "#0072B2", "#D55E00"),
)
figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True, layout="constrained")
for ax, (activation, found) in zip(axes, curves.items(), strict=True):
    for (queries, error, least), name, color in zip(found, names, colors, strict=True):
        ax.loglog(queries, least, color=color, label=f"{name}: bound")
        ax.loglog(queries, error, "o", color=color, label=f"{name}: error")
    ax.set(title=f"{activation} {'-'.join(map(str, WIDTHS))}", xlabel="queries")
axes[0].set_ylabel("error over the outputs' standard deviation")
axes[0].legend(fontsize="small")
figure.savefig("cramer_rao.png", dpi=200)
