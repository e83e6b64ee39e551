"""
Compressing a trained network
=============================

A tanh `MLPRegressor` with 64 hidden units learns a smooth function of ten inputs.
`NetworkCompressor` removes one unit after another, distributes its contribution to the
others, and fits all parameters to the outputs of the trained network, as long as these
outputs stay within a tolerance. The pictures show error against size for five
tolerances, beside two other methods for the same size: keeping the units with the
largest weights, and training a smaller network on the outputs of the large one.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import scale

from skident import NetworkCompressor
from skident.network import FeedforwardNetwork

TOLERANCES = (0.01, 0.03, 0.1, 0.2, 0.3)


def relative_error(network, truth, X):
    """Root mean square, relative to the standard deviation of the true outputs."""
    outputs = truth(X)[:, 0]
    return np.sqrt(np.mean((network(X)[:, 0] - outputs) ** 2)) / outputs.std()


def largest_units(network, n_units):
    """The network with only those units whose weights are largest."""
    (W, V), (b, c) = network.weights, network.biases
    kept = np.argsort(np.linalg.norm(W, axis=0) * np.linalg.norm(V, axis=1))[-n_units:]
    return FeedforwardNetwork([W[:, kept], V[kept]], [b[kept], c], network.activation)


def distilled(network, n_units, X):
    """A network of that size, trained on the outputs of the large one."""
    mlp = MLPRegressor(
        hidden_layer_sizes=(n_units,),
        activation="tanh",
        solver="lbfgs",
        alpha=0.0,
        max_iter=3000,
        max_fun=10**5,
        tol=1e-3,
        random_state=0,
    )
    return FeedforwardNetwork.from_sklearn(mlp.fit(X, network(X)[:, 0]))


# %%
# A network with 64 hidden units, to be compressed.
X, y = make_friedman1(n_samples=1200, n_features=10, noise=0.1, random_state=0)
X, y = scale(X), scale(y)
X, fresh, y, fresh_y = X[:900], X[900:], y[:900], y[900:]
mlp = MLPRegressor(
    hidden_layer_sizes=64, activation="tanh", max_iter=500, random_state=0
)
mlp.fit(X, y)
network = FeedforwardNetwork.from_sklearn(mlp)
print(
    f"trained: {network.n_parameters} parameters, "
    f"R^2 = {mlp.score(fresh, fresh_y):.3f} on held-out samples"
)

# %%
# Compress it with one tolerance after another. Two other methods get the same number of
# units: training on the outputs of the large network, and keeping its largest units.
curves = {"compressed": [], "trained on its outputs": [], "largest units kept": []}
networks = {}
for tol in TOLERANCES:
    start = time.perf_counter()
    compressor = NetworkCompressor(FrozenEstimator(mlp), tol=tol, random_state=0).fit(X)
    seconds, n_units = time.perf_counter() - start, compressor.layer_widths_[0]
    networks[n_units] = compressor.network_
    print(
        f"tol {tol}: {n_units} units, {compressor.network_.n_parameters} parameters, "
        f"R^2 = {compressor.score(fresh, fresh_y):.3f}, {seconds:.1f} s"
    )
    others = {
        "compressed": compressor.network_,
        "trained on its outputs": distilled(network, n_units, X),
        "largest units kept": largest_units(network, n_units),
    }
    for name, other in others.items():
        error = relative_error(other, network, fresh)
        curves[name].append((n_units, error))
        print(f"    {name}: relative error {error:.1e} on held-out samples")

# %%
# Error by size. While many units remain, the compressed networks are more accurate than
# networks of their size that are trained on the outputs.
figure, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
for (name, points), marker in zip(curves.items(), "osv"):
    ax.loglog(*zip(*points), marker=marker, label=name)
ax.set(xlabel="hidden units left of 64", ylabel="error relative to the trained network")
units = sorted({n for points in curves.values() for n, _ in points})
ax.set_xticks(units, map(str, units))
ax.minorticks_off()
ax.set_title("Compressing a trained MLPRegressor")
ax.legend()
figure.savefig("compression.png", dpi=200)

# %%
# What is lost: outputs of the largest and of the smallest compressed network on
# held-out samples, against those of the trained one.
figure, panels = plt.subplots(
    1, 2, figsize=(8, 4), layout="constrained", sharex=True, sharey=True
)
for ax, n_units in zip(panels, (max(networks), min(networks))):
    ax.axline((0, 0), slope=1, color="0.7", linewidth=1, zorder=0)
    ax.plot(network(fresh)[:, 0], networks[n_units](fresh)[:, 0], "o", markersize=3)
    ax.set(xlabel="output of the trained network", title=f"{n_units} of 64 units")
panels[0].set_ylabel("output of the compressed network")
figure.savefig("compressed_outputs.png", dpi=200)
