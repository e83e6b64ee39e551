"""
Auditing a deployed network
===========================

A classifier of digits with 25,216 parameters is saved in a file. Two copies are deployed: one in float32, and
one in which a single weight was changed by a thousandth, too little to change any predicted digit.
`NetworkVerifier` queries both at inputs chosen for every unit, and compares the outputs with those of the file
to within rounding. The first copy is the same; for the second it names the weight. The picture shows the
differences relative to their tolerance, and the share of the differences that a change of every single weight
would explain.
"""

import argparse
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

LAYER, ROW, UNIT = 1, 42, 17  # the weight that is changed


def explained(network, box, X):
    """Share of the squared differences on X that a change of a single weight explains, layer by layer."""
    effects = ParameterEffects(network, X, np.ones((len(X), network.n_outputs)))
    differences = box(X) - effects.outputs
    pairs = zip(effects.correlations(differences), effects.norms(), strict=True)
    return [(c / np.maximum(n, 1e-300))[:-1] ** 2 / np.sum(differences**2) for c, n in pairs]


def draw(verifiers, shares, output):
    """Draw the differences (left) and every weight of every layer (right), with a ring around a changed weight."""
    widths = [90, *(share.shape[1] for share in shares)]
    figure, (left, *maps) = plt.subplots(1, 4, figsize=(13, 4.8), layout="constrained", width_ratios=widths)
    for name, verifier in verifiers.items():
        excesses = np.sort(verifier.report_.excesses.ravel())
        left.plot(np.linspace(0, 100, len(excesses)), np.maximum(excesses, 1e-4), linewidth=2, label=name)
    left.axhline(1.0, color="0.4", linestyle="--")
    left.set(yscale="log", xlabel="outputs in ascending order, %", title="difference / tolerance")
    left.legend(loc="center", fontsize=9)
    for layer, (ax, share) in enumerate(zip(maps, shares, strict=True)):
        image = ax.imshow(share, cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        ax.set(title=f"layer {layer + 1}: {share.size} weights" if layer < 2 else "layer 3", xlabel="unit")
        for found in (d for d in verifiers["one weight changed"].differences_ if d.layer == layer):
            ax.plot(found.unit, found.row, "o", markersize=20, markerfacecolor="none", color="#D55E00")
            text, frame = f"{found.name}\n{found.known:.6f} on file\n{found.found:.6f} deployed", {"facecolor": "white"}
            ax.annotate(
                text, (found.unit, found.row), (20, -60), textcoords="offset points", color="#D55E00", bbox=frame
            )
    maps[0].set_ylabel("input of the layer")
    figure.colorbar(image, ax=maps, label="share of the differences that a change of this weight explains")
    figure.savefig(output, dpi=100)
    plt.close(figure)


@torch.no_grad()
def main(output="audit.png"):
    # The reference.
    X, digit = load_digits(return_X_y=True)
    X = X / 16.0
    classifier = MLPClassifier((150, 96), activation="tanh", max_iter=40, tol=1e-2, random_state=0).fit(X, digit)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.safetensors"
        FeedforwardNetwork.from_sklearn(classifier).save(path)
        network = FeedforwardNetwork.load(path)
    print(f"on file: {network}, {network.n_parameters} parameters")

    # The deployed models.
    single, double = network.to_torch(torch.float32), network.to_torch(torch.float64)
    double[2 * LAYER].weight[UNIT, ROW] *= 1.001
    boxes = {
        "float32": lambda X: single(torch.from_numpy(X).float()).numpy(),
        "one weight changed": lambda X: double(torch.from_numpy(X)).numpy(),
    }
    changed = boxes["one weight changed"]
    read = np.sum(changed(X).argmax(axis=1) != network(X).argmax(axis=1))
    print(f"predictions changed by the change: {read} of {len(X)}")

    # The audit.
    verifiers = {}
    for name, box in boxes.items():
        start = time.perf_counter()
        verifiers[name] = NetworkVerifier(box, network=network, random_state=0).fit(X)
        print(f"\n{name}, {time.perf_counter() - start:.1f} s\n{verifiers[name].report_}")
    draw(verifiers, explained(network, changed, X), output)
    print(f"\npicture: {output}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("--output", default="audit.png", help="where to write the picture")
    main(parser.parse_args().output)
