"""
Can the weights of a trained scikit-learn regressor be read off its `predict`?
==============================================================================

A tanh `MLPRegressor` with eight hidden units is trained on the diabetes data. `NetworkIdentifier` is then handed its
`predict` and the name of the activation, and nothing else: not the weights, not the gradients, not the number of hidden
units. It asks for the answers at inputs of its own choice and gives a network back. Hidden units have no order of their
own, and flipping the signs of a tanh unit's weights on both sides changes nothing, so the two networks are aligned
before they are compared.
"""

import argparse
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import scale

from skident import NetworkIdentifier
from skident.inspection import WeightRecoveryDisplay
from skident.network import FeedforwardNetwork


def main(output="recovered_mlp.png"):
    # The owner's side: data, training, and `predict` made public.
    X, y = load_diabetes(return_X_y=True)
    X, y = scale(X), scale(y)
    mlp = MLPRegressor(
        hidden_layer_sizes=(8,), activation="tanh", solver="lbfgs", alpha=1.0, max_iter=2000, random_state=0
    ).fit(X, y)
    print(f"trained: {mlp.n_iter_} iterations, R^2 = {mlp.score(X, y):.3f} on the training data")

    # The other side: ask, and identify. X only says around where, and in which units, the inputs live.
    start = time.perf_counter()
    identifier = NetworkIdentifier(mlp.predict, activation="tanh", random_state=0).fit(X)
    seconds = time.perf_counter() - start
    found = identifier.network_
    print(f"found: {found.n_inputs} inputs, layers of {found.layer_widths} units, {found.n_parameters} parameters")
    print(f"asked: {identifier.n_queries_} rows in {seconds:.2f} s")
    print(f"relative maximum error on fresh inputs: {identifier.report_.relative_max_error:.1e}")

    # Both sides together: every weight and shift against the truth.
    truth = FeedforwardNetwork.from_sklearn(mlp)
    aligned = found.align_to(truth)
    for i in range(truth.n_layers):
        print(f"coefs_[{i}]: worst absolute error {np.abs(aligned.weights[i] - mlp.coefs_[i]).max():.1e}")
        print(f"intercepts_[{i}]: worst absolute error {np.abs(aligned.biases[i] - mlp.intercepts_[i]).max():.1e}")

    display = WeightRecoveryDisplay.from_networks(truth, found)
    display.ax_.set_title("Weights of an MLPRegressor, recovered from predict")
    display.figure_.savefig(output, dpi=100)
    plt.close(display.figure_)
    print(f"picture: {output}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("--output", default="recovered_mlp.png", help="where to write the picture")
    main(parser.parse_args().output)
