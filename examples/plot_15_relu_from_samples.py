"""
Recovering a ReLU network from samples
======================================

`TensorReLURegressor` receives samples of a ReLU network with ten hidden units and twenty inputs, with noise of
a tenth of their standard deviation; the number of units is not given. The left picture compares the true
weights, biases and output weights with those recovered from 10,000 samples. The right picture shows the error
against the number of samples: the tensors alone, the polished network, the published algorithm, and least
squares initialized at the true network.
"""

import argparse
import warnings

import matplotlib.pyplot as plt
import numpy as np

from skident import TensorReLURegressor
from skident.datasets import make_relu_network
from skident.metrics import unit_matching_error

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
    """True against recovered parameters, every recovered unit at the place of its true one."""
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
    ax.set(xlabel="true", ylabel="recovered", title=f"{reg.n_units_} units from {D} inputs, width unknown")
    ax.legend()
    return match


def draw_errors(ax, sizes):
    fresh = np.random.RandomState(1).standard_normal((5000, D))
    curves = {name: [] for name in METHODS}
    for n in sizes:
        X, y, network = make_relu_network(n, D, M, noise=NOISE, random_state=0)
        for name, options in METHODS.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the literal algorithm's units are noise, and fit says so
                reg = TensorReLURegressor(n_units=M, random_state=0, **options).fit(X, y)
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
    ax.set(xlabel="samples", ylabel="mean squared error / variance", title=f"noise {NOISE:.0%}")
    ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
    ax.tick_params(axis="x", which="minor", labelbottom=False)
    ax.legend()
    return curves


def main(output="relu_from_samples.png", sizes=(3000, 10_000, 30_000)):
    X, y, network = make_relu_network(10_000, D, M, noise=NOISE, random_state=0)
    reg = TensorReLURegressor(random_state=0).fit(X, y)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    match = draw_units(left, reg, network)
    print(f"recovered units: {reg.n_units_}, R^2 on the samples {reg.score(X, y):.4f}")
    print(f"largest errors: weights {match.weights:.3f}, biases {match.biases:.3f}, output {match.output_weights:.3f}")
    for name, errors in draw_errors(right, sizes).items():
        print(f"{name}: " + ", ".join(f"{e:.1e}" for e in errors))
    figure.savefig(output, dpi=100)
    plt.close(figure)
    print(f"picture: {output}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("--output", default="relu_from_samples.png", help="where to write the picture")
    main(parser.parse_args().output)
