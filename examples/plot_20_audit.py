"""
Auditing a deployed network
===========================

A classifier of digits with 25,216 parameters is saved in a file. Two copies are
deployed: one in float32, and one in which a single weight was changed by a thousandth,
too little to change any predicted digit. `NetworkVerifier` queries both at inputs
chosen for every unit, and compares the outputs with those of the file to within
rounding. The first copy is the same; for the second it names the weight. The
pictures show the differences relative to their tolerance, and the share of them that a
change of a single weight would explain.
"""

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from skident import NetworkVerifier
from skident.audit.parameters import ParameterEffects
from skident.network import FeedforwardNetwork

# sphinx_gallery_thumbnail_number = 2

LAYER, ROW, UNIT = 1, 42, 17  # the weight that is changed


def explained(network, box, X):
    """Share of the squared differences on X that a change of each weight explains."""
    effects = ParameterEffects(network, X, np.ones((len(X), network.n_outputs)))
    differences = box(X) - effects.outputs
    pairs = zip(effects.correlations(differences), effects.norms(), strict=True)
    return [
        (c / np.maximum(n, 1e-300))[:-1] ** 2 / np.sum(differences**2) for c, n in pairs
    ]


# %%
# The reference, read from its file.
X, digit = load_digits(return_X_y=True)
X = X / 16.0
classifier = MLPClassifier(
    (150, 96), activation="tanh", max_iter=40, tol=1e-2, random_state=0
).fit(X, digit)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.safetensors"
    FeedforwardNetwork.from_sklearn(classifier).save(path)
    network = FeedforwardNetwork.load(path)
print(f"on file: {network}, {network.n_parameters} parameters")

# %%
# The deployed models.
single, double = network.to_torch(torch.float32), network.to_torch(torch.float64)
with torch.no_grad():
    double[2 * LAYER].weight[UNIT, ROW] *= 1.001
boxes = {
    "float32": lambda X: single(torch.from_numpy(X).float()).detach().numpy(),
    "one weight changed": lambda X: double(torch.from_numpy(X)).detach().numpy(),
}
changed = boxes["one weight changed"]
read = np.sum(changed(X).argmax(axis=1) != network(X).argmax(axis=1))
print(f"predictions changed by the change: {read} of {len(X)}")

# %%
# The audit.
verifiers = {}
for name, box in boxes.items():
    start = time.perf_counter()
    verifiers[name] = NetworkVerifier(box, network=network, random_state=0).fit(X)
    print(f"\n{name}, {time.perf_counter() - start:.1f} s\n{verifiers[name].report_}")

# %%
# The differences, over what rounding allows: all below 1 for the float32 copy.
figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
for name, verifier in verifiers.items():
    excesses = np.sort(verifier.report_.excesses.ravel())
    share = np.linspace(0, 100, len(excesses))
    ax.plot(share, np.maximum(excesses, 1e-4), linewidth=2, label=name)
ax.axhline(1.0, color="0.4", linestyle="--", label="tolerance")
ax.set(yscale="log", xlabel="outputs in ascending order, %")
ax.set_ylabel("difference / tolerance")
ax.set_title("Differences between a deployed model and its file")
ax.legend()
figure.savefig("audit.png", dpi=200)

# %%
# Why the changed weight is known: it explains all differences, and no other one of the
# 25,216 explains more than a part of them.
ranked = sorted(
    (
        (share[row, unit], f"weights[{layer}][{row}, {unit}]")
        for layer, share in enumerate(explained(network, changed, X))
        for row, unit in np.ndindex(share.shape)
    ),
    reverse=True,
)[:10]
figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
colors = ["#D55E00"] + ["0.6"] * (len(ranked) - 1)
bars = ax.barh(
    [name for _, name in ranked], [100 * share for share, _ in ranked], color=colors
)
ax.bar_label(bars, fmt="%.1f", padding=3)
ax.invert_yaxis()
ax.set(xlim=(0, 112), xlabel="differences that a change of this weight explains, %")
ax.set_title("The ten weights that explain the differences best")
figure.savefig("audit_weights.png", dpi=200)
