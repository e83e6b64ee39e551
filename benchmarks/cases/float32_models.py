"""Torch networks with outputs in float32 or coarser: as initialized or trained, and the same weights in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer

from skident.network import FeedforwardNetwork

MODULES = {
    "relu": torch.nn.ReLU,
    "tanh": torch.nn.Tanh,
    "gelu": torch.nn.GELU,
    "silu": torch.nn.SiLU,
    "softplus": torch.nn.Softplus,
}
N_SAMPLES, N_EPOCHS, BATCH, LEARNING_RATE = 2000, 60, 100, 3e-3
SMALL_NOISE, LARGE_NOISE = 1e-3, 1e-2  # standard deviations over the outputs' standard deviation


@dataclass(frozen=True)
class Case:
    """A model by its widths (inputs first), hidden activation, training, output format and whether it has a softmax."""

    widths: tuple[int, ...]
    activation: str
    trained: bool = False
    outputs: str = "float32"
    softmax: bool = False
    breast_cancer: bool = False  # samples of these data instead of planted ones

    @property
    def name(self):
        """Activation, widths, training and format in one line."""
        trained = "trained" if self.trained else "initialized"
        softmax = ", softmax" if self.softmax else ""
        coarse = "" if self.outputs == "float32" else f", {self.outputs}"
        return f"{self.activation} {'-'.join(map(str, self.widths))}{softmax}, {trained}{coarse}"


def samples(widths, seed, softmax=False):
    """Inputs (n, D) and targets: a sum of products and squares of four directions, or classes of equal size."""
    D, n_outputs = widths[0], widths[-1]
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((N_SAMPLES, D))
    Z = X @ rng.standard_normal((D, 4)) / np.sqrt(D)
    features = [np.sin(2.0 * Z[:, 0]) * Z[:, 1] + 0.5 * Z[:, 2] ** 2, np.abs(Z[:, 3]), Z[:, 0], np.tanh(3.0 * Z[:, 1])]
    Y = np.column_stack(features) @ rng.standard_normal((4, n_outputs))
    if softmax:
        Y = (Y - Y.mean(axis=0)) / Y.std(axis=0)
        return X.astype(np.float32), Y.argmax(axis=1)
    Y = (Y - Y.mean(axis=0)) / Y.std(axis=0) + 0.05 * rng.standard_normal(Y.shape)
    return X.astype(np.float32), Y.astype(np.float32)


def breast_cancer_samples():
    """Standardized inputs (569, 30) of scikit-learn's breast cancer data, and classes."""
    X, y = load_breast_cancer(return_X_y=True)
    return ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32), y


def torch_network(case, seed):
    """The torch network of a case, and inputs (500, D) in float64."""
    torch.set_num_threads(1)
    X, Y = breast_cancer_samples() if case.breast_cancer else samples(case.widths, seed, case.softmax)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = []
        for a, b in zip(case.widths[:-1], case.widths[1:], strict=True):
            layers += [torch.nn.Linear(a, b), MODULES[case.activation]()]
        network = torch.nn.Sequential(*layers[:-1])
        if case.trained:
            _train(network, torch.tensor(X), torch.tensor(Y), case.softmax)
    network.eval().requires_grad_(False)
    return network, X[:500].astype(float)


def _train(network, x, y, softmax):
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    loss = torch.nn.CrossEntropyLoss() if softmax else torch.nn.MSELoss()
    for _ in range(N_EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            loss(network(x[rows]), y[rows]).backward()
            optimizer.step()


def in_float64(network, activation):
    """The `FeedforwardNetwork` with the weights of a torch network; its outputs are the logits of a classifier."""
    linear = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
    weights = [layer.weight.detach().double().numpy().T.copy() for layer in linear]
    biases = [layer.bias.detach().double().numpy().copy() for layer in linear]
    return FeedforwardNetwork(weights, biases, activation, "identity")


def probabilities(logits):
    """Softmax of logits (n, k)."""
    P = np.exp(logits - logits.max(axis=1, keepdims=True))
    return P / P.sum(axis=1, keepdims=True)


class Callable32:
    """A torch network as a callable whose outputs are float32, rounded further, or noisy; counts rows in `n_rows`.

    `outputs`: "float32", "float16", "bfloat16", "2 decimals", "4 decimals", "noise 1e-3" or "noise 1e-2".
    """

    def __init__(self, network, outputs="float32", softmax=False, scale=1.0, seed=0):
        self.network, self.outputs, self.softmax, self.scale = network, outputs, softmax, scale
        self.n_rows, self._rng = 0, np.random.RandomState(seed)

    def __call__(self, X):
        """Outputs (n, m_L) at inputs (n, D)."""
        self.n_rows += len(X)
        with torch.no_grad():
            Y = self.network(torch.as_tensor(np.ascontiguousarray(X), dtype=torch.float32))
            Y = torch.softmax(Y, dim=1) if self.softmax else Y
        if self.outputs in ("float16", "bfloat16"):
            return Y.to(getattr(torch, self.outputs)).float().numpy()
        if self.outputs.endswith("decimals"):
            return Y.numpy().astype(float).round(int(self.outputs.split()[0]))
        if self.outputs.startswith("noise"):
            sigma = float(self.outputs.split()[1]) * self.scale
            return Y.numpy() + sigma * self._rng.standard_normal(Y.shape)
        return Y.numpy()


def black_box(case, seed):
    """The callable of a case, its inputs X (500, D), and the same weights in float64."""
    network, X = torch_network(case, seed)
    truth = in_float64(network, case.activation)
    return Callable32(network, case.outputs, case.softmax, truth(X).std(), seed), X, truth
