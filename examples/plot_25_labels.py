"""
Recovering a classifier from its labels
=======================================

A scikit-learn perceptron with ten ReLU units is trained on the breast cancer data.
`NetworkIdentifier` gets nothing but its `predict`: two labels. The decision boundary is
piecewise flat, and bends where it crosses the hyperplane of a unit. From points on the
boundary, located by bisection, follow all hyperplanes and the logit, up to one positive
factor. The picture shows a plane through the samples: the true boundary, the recovered
one, and the units' hyperplanes; beside it the true logit against the recovered one.
"""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import scale

from skident import NetworkIdentifier
from skident.network import FeedforwardNetwork

GRID = 400  # points per side of the picture


def logit(model, X):
    """Logit of the second class of a perceptron at X (n, D)."""
    return FeedforwardNetwork.from_sklearn(model)(X)[:, 0]


def plane_through(X, y, half):
    """Points (GRID^2, D) of a plane through the classes' means, and its axis."""
    means = [X[y == c].mean(axis=0) for c in (0, 1)]
    first = (means[1] - means[0]) / np.linalg.norm(means[1] - means[0])
    second = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][1]
    second -= first * (first @ second)
    second /= np.linalg.norm(second)
    axis = np.linspace(-half, half, GRID)
    A, B = np.meshgrid(axis, axis)
    return X.mean(axis=0) + A.reshape(-1, 1) * first + B.reshape(-1, 1) * second, axis


# %%
# Train a perceptron on standardized data.
X, y = load_breast_cancer(return_X_y=True)
X = scale(X)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)
    model = MLPClassifier((10,), max_iter=300, random_state=1).fit(X, y)
print(f"trained: accuracy {model.score(X, y):.3f}")

# %%
# Recover it from its labels.
start = time.perf_counter()
identifier = NetworkIdentifier(
    model.predict, response_method="labels", random_state=0
).fit(X)
print(f"{identifier.n_queries_:,} labels in {time.perf_counter() - start:.1f} s")
print(identifier.report_)

# %%
# Compare both far from the samples too.
points = 3.0 * np.random.default_rng(0).standard_normal((100_000, X.shape[1]))
true, found = logit(model, points), identifier.decision_function(points)
factor = (true @ found) / (found @ found)
print(
    f"equal labels: {np.mean(model.predict(points) == identifier.predict(points)):.6f}"
)
print(
    "logits, up to a factor: largest relative error "
    f"{np.abs(factor * found - true).max() / true.std():.1e}"
)

# %%
# Draw the boundaries in a plane, and true against recovered logits.
figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 5.2), layout="constrained")
points, axis = plane_through(X, y, 12.0)
true, found = logit(model, points), identifier.decision_function(points)
left.contourf(
    axis,
    axis,
    (true > 0).reshape(GRID, GRID),
    levels=[-0.5, 0.5, 1.5],
    colors=["#CFE2F3", "#FCE5CD"],
)
hidden = points @ identifier.network_.weights[0] + identifier.network_.biases[0]
for z in hidden.T:
    left.contour(
        axis, axis, z.reshape(GRID, GRID), levels=[0.0], colors="0.6", linewidths=0.8
    )
left.contour(
    axis, axis, true.reshape(GRID, GRID), levels=[0.0], colors="#D55E00", linewidths=5
)
left.contour(
    axis, axis, found.reshape(GRID, GRID), levels=[0.0], colors="black", linewidths=1.2
)
lines = [
    plt.Line2D([], [], color="#D55E00", linewidth=5),
    plt.Line2D([], [], color="black", linewidth=1.2),
    plt.Line2D([], [], color="0.6", linewidth=0.8),
]
left.legend(
    lines,
    ["true boundary", "recovered boundary", "hyperplanes of the units"],
    fontsize=9,
    loc="upper left",
)
left.set(
    xlabel="direction of the class means",
    ylabel="principal direction",
    title="A plane of the inputs",
)
factor = (true @ found) / (found @ found)
right.plot(true, factor * found, ".", markersize=2)
right.axline((0.0, 0.0), slope=1.0, color="0.6", linewidth=1)
right.set(
    xlabel="logit of the perceptron",
    ylabel="recovered, times one factor",
    title="Logits, from labels alone",
)
figure.savefig("labels.png", dpi=200)
