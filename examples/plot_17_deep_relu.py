"""
Recovering a ReLU network of unknown depth
==========================================

scikit-learn trains an `MLPRegressor` with three hidden layers of ReLU units on the
diabetes data. `NetworkIdentifier` queries `predict`; depth and widths are not given.
Activation boundaries of the first layer are hyperplanes. A unit of the second layer has
one facet in every linear region of the first layer; skident follows these facets from
region to region until the unit's weights are determined, and continues layer by layer.
The signs of the units solve a linear system. The picture shows a slice through the
inputs with the activation boundaries of every layer, true and recovered.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import scale

from skident import NetworkIdentifier
from skident.network import FeedforwardNetwork

REACH, N_GRID = 4.0, 200
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def pre_activations(network, X):
    """Pre-activations of every hidden unit, layer by layer."""
    Zs = []
    for W, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
        Zs.append(X @ W + b)
        X = np.maximum(Zs[-1], 0.0)
    return Zs


# %%
# Train the model.
X, y = load_diabetes(return_X_y=True)
X, y = scale(X), scale(y)
regressor = MLPRegressor(
    hidden_layer_sizes=(16, 8, 4), max_iter=1000, random_state=1
).fit(X, y)
print(
    f"trained: {regressor.n_iter_} iterations, R^2 = {regressor.score(X, y):.3f} on "
    "the training data"
)

# %%
# Recover the network.
start = time.perf_counter()
identifier = NetworkIdentifier(
    regressor.predict, activation="relu", random_state=0
).fit(X)
seconds = time.perf_counter() - start
report, found = identifier.report_, identifier.network_
print(
    f"recovered: {found.n_inputs} inputs, layers of {found.layer_widths} units, "
    f"exact: {report.exact}"
)
print(f"{identifier.n_queries_:,} queries in {seconds:.1f} s")
print(f"explained: {report.explained:.2%} of {report.explained_of} further outputs")

# %%
# Compare both. A unit that is always active or always inactive is not identifiable.
fresh = 3.0 * np.random.default_rng(1).standard_normal((20_000, X.shape[1]))
truth = FeedforwardNetwork.from_sklearn(regressor)
moving = [
    int(np.sum((Z.min(axis=0) < 0) & (Z.max(axis=0) > 0)))
    for Z in pre_activations(truth, fresh)
]
print(f"true units that change their activity: {moving}")
outputs = regressor.predict(fresh)
gap = (
    np.abs(identifier.predict(fresh) - outputs).max()
    / np.abs(outputs - outputs.mean()).max()
)
print(f"relative maximum error on {len(fresh)} inputs from N(0, 9 I): {gap:.1e}")

# %%
# Draw the outputs on a slice, and the activation boundaries of every network.
networks = {"true": truth, "recovered": found}
plane = np.linalg.qr(np.random.default_rng(1).standard_normal((X.shape[1], 2)))[0]
t = np.linspace(-REACH, REACH, N_GRID)
flat = (
    X.mean(axis=0) + t[:, None, None] * plane[:, 1] + t[None, :, None] * plane[:, 0]
).reshape(-1, X.shape[1])
figure, panels = plt.subplots(
    1, 3, figsize=(12, 4.4), layout="constrained", sharex=True, sharey=True
)
outputs = regressor.predict(flat).reshape(N_GRID, N_GRID)
panels[0].imshow(
    outputs, origin="lower", extent=(-REACH, REACH, -REACH, REACH), cmap="viridis"
)
panels[0].set_title("queried: predict")
for ax, (name, network) in zip(panels[1:], networks.items(), strict=True):
    for layer, Z in enumerate(pre_activations(network, flat)):
        for z in Z.T.reshape(-1, N_GRID, N_GRID):
            if z.min() < 0 < z.max():
                ax.contour(t, t, z, levels=[0.0], colors=COLORS[layer], linewidths=1.0)
        ax.plot(
            [], [], color=COLORS[layer], label=f"layer {layer + 1}, {Z.shape[1]} units"
        )
    ax.set_title(f"activation boundaries: {name}")
    ax.legend(loc="lower right", fontsize=8)
for ax in panels:
    ax.set(aspect="equal", xlabel="along a random direction")
panels[0].set_ylabel("along another one")
figure.savefig("deep_relu.png", dpi=200)
