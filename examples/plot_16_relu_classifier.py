"""
Recovering scikit-learn's default classifier
============================================

scikit-learn trains `MLPClassifier()` with default parameters, 100 ReLU units, on the
breast cancer data. `NetworkIdentifier` queries its probabilities. The log-odds are
linear between the units' hyperplanes; across a hyperplane their gradient jumps by a
multiple of that unit's weights. Log-odds are exact only if the second probability is
small, so every output is used with its own accuracy. The picture shows a slice through
the inputs: the probabilities, and the lines along which the recovered and the true
units become active.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import scale

from skident import NetworkIdentifier
from skident.network import FeedforwardNetwork

REACH, N_GRID = 6.0, 300


def slice_through(X, rng):
    """Points (N_GRID, N_GRID, D) of a plane through the data's mean, and its axis."""
    plane = np.linalg.qr(rng.standard_normal((X.shape[1], 2)))[0]
    t = np.linspace(-REACH, REACH, N_GRID)
    return X.mean(axis=0) + t[:, None, None] * plane[:, 1] + t[None, :, None] * plane[
        :, 0
    ], t


# %%
# Train the model.
X, malignant = load_breast_cancer(return_X_y=True)
X = scale(X)
classifier = MLPClassifier(random_state=0).fit(X, malignant)
print(
    f"trained: {classifier.n_iter_} iterations, accuracy "
    f"{classifier.score(X, malignant):.3f} on the training data"
)

# %%
# Recover the network from its probabilities, with an unknown number of units.
start = time.perf_counter()
identifier = NetworkIdentifier(
    classifier.predict_proba,
    response_method="predict_proba",
    activation="relu",
    random_state=0,
).fit(X)
seconds = time.perf_counter() - start
found = identifier.network_
print(
    f"recovered: {found.n_inputs} inputs, layers of {found.layer_widths} units, "
    f"exact: {identifier.report_.exact}"
)
print(f"{identifier.n_queries_:,} queries in {seconds:.2f} s")

# %%
# Compare both.
fresh = np.concatenate(
    [X, 3.0 * np.random.default_rng(1).standard_normal((5000, X.shape[1]))]
)
gap = np.abs(identifier.predict_proba(fresh) - classifier.predict_proba(fresh)).max()
print(f"maximum error of a probability on {len(fresh)} inputs: {gap:.1e}")
truth = FeedforwardNetwork.from_sklearn(classifier).canonical()
aligned = found.align_to(truth)
for i, (recovered, true) in enumerate(zip(aligned.weights, truth.weights, strict=True)):
    print(
        f"weights of layer {i + 1}: maximum absolute error "
        f"{np.abs(recovered - true).max():.1e}"
    )

# %%
# Left the probability on a slice; right the lines activation boundaries, true ones
# below recovered ones.
points, t = slice_through(X, np.random.default_rng(0))
flat = points.reshape(-1, X.shape[1])
# units are linear on the plane, so that their boundaries are straight lines
corners = points[[0, 0, -1, -1], [0, -1, 0, -1]]
figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4.6), layout="constrained", sharex=True, sharey=True
)
seen = classifier.predict_proba(flat)[:, 1].reshape(N_GRID, N_GRID)
image = left.imshow(
    seen,
    origin="lower",
    extent=(-REACH, REACH, -REACH, REACH),
    cmap="RdBu",
    vmin=0,
    vmax=1,
)
figure.colorbar(image, ax=left, label="predict_proba")
left.set_title("queried: probabilities", fontsize=11)
for network, style in (
    (truth, {"colors": "#999999", "linewidths": 2.5}),
    (aligned, {"colors": "#0072B2"}),
):
    Z = corners @ network.weights[0] + network.biases[0]
    for z in Z.T.reshape(-1, 2, 2):
        if z.min() < 0 < z.max():
            right.contour(
                t[[0, -1]], t[[0, -1]], z, levels=[0.0], **{"linewidths": 0.7, **style}
            )
right.set_title("activation boundaries: true gray, recovered blue", fontsize=11)
for ax in (left, right):
    ax.set(aspect="equal", xlabel="along a random direction")
left.set_ylabel("along another one")
figure.savefig("relu_classifier.png", dpi=200)
