"""
Recovering a classifier from its probabilities
==============================================

scikit-learn trains a tanh `MLPClassifier` with ten hidden units on the digits.
`NetworkIdentifier` queries its probabilities, converts them into logits and recovers
the network of the logits; the number of units is not given. A softmax does not change
if one number is added to all its inputs, so the output weights are identifiable only up
to a vector common to all classes. `center_outputs` removes that vector from the true
weights before the comparison.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import scale

from skident import NetworkIdentifier
from skident.network import FeedforwardNetwork, center_outputs

# %%
# Train the model; only `predict_proba` is public.
X, digit = load_digits(return_X_y=True)
X = scale(X)
classifier = MLPClassifier((10,), activation="tanh", max_iter=1000, random_state=0).fit(
    X, digit
)
print(
    f"trained: {classifier.n_iter_} iterations, accuracy "
    f"{classifier.score(X, digit):.3f} on the training data"
)

# %%
# Recover the network of the logits.
start = time.perf_counter()
identifier = NetworkIdentifier(
    classifier.predict_proba,
    response_method="predict_proba",
    activation="tanh",
    random_state=0,
).fit(X)
seconds = time.perf_counter() - start
found = identifier.network_
print(f"recovered: {found.n_inputs} inputs, layers of {found.layer_widths} units")
print(f"{identifier.n_queries_:,} queries in {seconds:.2f} s")

# %%
# Compare both on held-out inputs, and weight by weight.
fresh = np.random.default_rng(1).standard_normal((5000, X.shape[1]))
gap = np.abs(identifier.predict_proba(fresh) - classifier.predict_proba(fresh)).max()
same = np.mean(identifier.predict(X) == classifier.predict(X))
print(
    f"maximum error of a probability on held-out inputs: {gap:.1e}; same digit on "
    f"{same:.1%} of the data"
)
truth = center_outputs(FeedforwardNetwork.from_sklearn(classifier))
aligned = found.align_to(truth)
for name in ("weights", "biases"):
    for i, (recovered, true) in enumerate(
        zip(getattr(aligned, name), getattr(truth, name), strict=True)
    ):
        print(
            f"{name} of layer {i + 1}: maximum absolute error "
            f"{np.abs(recovered - true).max():.1e}"
        )

# %%
# The hidden units' weights as images, true above recovered; below, the errors of all
# weights and biases.
n_units = truth.layer_widths[0]
figure = plt.figure(figsize=(9, 4.6), layout="constrained")
images, errors = figure.subfigures(2, 1, height_ratios=(3, 2))
panels = images.subplots(2, n_units, subplot_kw={"xticks": [], "yticks": []})
for row, (name, network) in enumerate((("true", truth), ("recovered", aligned))):
    panels[row, 0].set_ylabel(name)
    for unit in range(n_units):
        weights = network.weights[0][:, unit].reshape(8, 8)
        bound = np.abs(truth.weights[0][:, unit]).max()
        panels[row, unit].imshow(weights, cmap="RdBu", vmin=-bound, vmax=bound)
images.suptitle(
    "Weights of the hidden units over the pixels, recovered from predict_proba"
)
ax = errors.subplots()
gaps = [
    np.abs(a - b).ravel() for a, b in zip(aligned.weights, truth.weights, strict=True)
]
bins = np.geomspace(1e-18, 10 * max(gap.max() for gap in gaps), 40)
labels = [f"layer {layer + 1}, {gap.size} weights" for layer, gap in enumerate(gaps)]
# Errors of zero go into the first bin.
ax.hist(
    [np.maximum(gap, bins[0]) for gap in gaps],
    bins,
    stacked=True,
    color=("#0072B2", "#D55E00"),
    label=labels,
)
ax.set(
    xscale="log", xlabel="absolute error of a weight (0 on the left)", ylabel="weights"
)
ax.legend(frameon=False)
figure.savefig("classifier.png", dpi=200)
