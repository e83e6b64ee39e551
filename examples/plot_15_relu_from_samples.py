"""
Recovering a ReLU network from samples
======================================

`TensorReLURegressor` receives samples of a ReLU network with ten hidden units and
twenty inputs, with noise of a tenth of their standard deviation; the number of units is
not given. The first picture compares the true weights, biases and output weights with
those recovered from 10,000 samples. The second picture shows the error against the
number of samples: the tensors alone, the polished network, the published algorithm, and
least squares initialized at the true network.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from skident import TensorReLURegressor
from skident.datasets import make_relu_network
from skident.metrics import unit_matching_error

# sphinx_gallery_thumbnail_number = 2

D, M, NOISE = 20, 10, 0.1
METHODS = {
    "literal algorithm": {"method": "literal"},
    "tensors alone": {"polish": False},
    "polished": {},
}


def relative_error(reg, network, X):
    truth = network(X)[:, 0]
    return np.mean((reg.predict(X) - truth) ** 2) / np.var(truth)


def draw_units(ax, reg, network):
    """True against recovered parameters, units in the order of the true ones."""
    match = unit_matching_error(network, reg.network_)
    found, true = reg.network_, network
    order, signs = match.permutation, match.signs
    pairs = {
        "weights": (true.weights[0], found.weights[0][:, order] * signs),
        "biases": (true.biases[0], found.biases[0][order] * signs),
        "output weights": (true.weights[1], found.weights[1][order]),
    }
    for (name, (x, y)), marker in zip(pairs.items(), "o^s"):
        ax.plot(np.ravel(x), np.ravel(y), marker, markersize=4, alpha=0.7, label=name)
    ax.axline((0, 0), slope=1, color="0.6", linewidth=0.8, zorder=0)
    ax.set(
        xlabel="true",
        ylabel="recovered",
        title=f"{reg.n_units_} units from {D} inputs, width unknown",
    )
    ax.legend()
    return match


def draw_errors(ax, sizes):
    fresh = np.random.RandomState(1).standard_normal((5000, D))
    curves = {name: [] for name in METHODS}
    for n in sizes:
        X, y, network = make_relu_network(n, D, M, noise=NOISE, random_state=0)
        for name, options in METHODS.items():
            with warnings.catch_warnings():
                # the literal algorithm's units are noise, and fit warns
                warnings.simplefilter("ignore")
                reg = TensorReLURegressor(n_units=M, random_state=0, **options).fit(
                    X, y
                )
            curves[name].append(relative_error(reg, network, fresh))
    for (name, errors), marker in zip(curves.items(), "vso"):
        ax.loglog(sizes, errors, marker=marker, label=name)
    ax.loglog(
        sizes,
        [NOISE**2 * M * (D + 1) / n for n in sizes],
        "--",
        color="0.5",
        label="parameters x noise variance / samples",
    )
    ax.set(
        xlabel="samples",
        ylabel="mean squared error / variance",
        title=f"noise {NOISE:.0%}",
    )
    ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
    ax.tick_params(axis="x", which="minor", labelbottom=False)
    ax.legend()
    return curves


# %%
# Recover the network from 10,000 samples.
X, y, network = make_relu_network(10_000, D, M, noise=NOISE, random_state=0)
reg = TensorReLURegressor(random_state=0).fit(X, y)
figure, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
match = draw_units(ax, reg, network)
print(f"recovered units: {reg.n_units_}, R^2 on the samples {reg.score(X, y):.4f}")
print(
    f"largest errors: weights {match.weights:.3f}, biases {match.biases:.3f}, output "
    f"{match.output_weights:.3f}"
)
figure.savefig("relu_units.png", dpi=200)

# %%
# The error against the number of samples.
sizes = (3000, 10_000, 30_000)
figure, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
for name, errors in draw_errors(ax, sizes).items():
    print(f"{name}: " + ", ".join(f"{e:.1e}" for e in errors))
figure.savefig("relu_from_samples.png", dpi=200)
