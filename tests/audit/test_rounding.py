"""Tolerances hold for evaluations in any order of sums and in single precision, and are not far too wide."""

import numpy as np
import pytest
import torch
from torch import nn

from skident.audit.rounding import rounding_of_outputs
from skident.network import FeedforwardNetwork


def random_network(seed, activation):
    rng = np.random.RandomState(seed)
    sizes = [rng.randint(2, 200), *rng.randint(2, 120, size=rng.randint(1, 4)), rng.randint(1, 4)]
    weights = [rng.standard_normal((n, m)) * np.sqrt(2 / n) for n, m in zip(sizes, sizes[1:])]
    return FeedforwardNetwork(weights, [0.3 * rng.standard_normal(m) for m in sizes[1:]], activation), rng


def long_answers(network, X):
    """In long double precision, or what there is."""
    Y = X.astype(np.longdouble)
    for W, b, g in zip(network.weights, network.biases, network.activations):
        Z = Y @ W.astype(np.longdouble) + b
        Y = np.tanh(Z) if g.name == "tanh" else np.maximum(Z, 0) if g.name == "relu" else Z
    return Y


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("seed", range(10))
def test_double_precision(activation, seed):
    network, rng = random_network(seed, activation)
    X = 2.0 * rng.standard_normal((200, network.n_inputs))
    tolerance = 8.0 * rounding_of_outputs(network, X, single=False)
    gap = np.abs(network(X) - long_answers(network, X)).astype(float)
    ratio = gap / tolerance
    assert ratio.max() < 0.5
    assert np.sqrt(np.mean(ratio**2)) > 2e-4  # within 5000 times of what rounding does


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("seed", range(10))
def test_single_precision_with_sums_in_order(activation, seed):
    network, rng = random_network(seed, activation)
    X = 2.0 * rng.standard_normal((20, network.n_inputs))
    tolerance = 8.0 * rounding_of_outputs(network, X, single=True)
    Y = X.astype(np.float32)
    for W, b, g in zip(network.weights, network.biases, network.activations):
        terms = Y[:, :, None] * W.astype(np.float32)
        Y = g(np.cumsum(terms, axis=1, dtype=np.float32)[:, -1] + b.astype(np.float32)).astype(np.float32)
    assert np.max(np.abs(Y - network(X)) / tolerance) < 0.7


@pytest.mark.parametrize("seed", range(12))
def test_gelu_and_softplus_as_torch_computes_them(seed):
    """Where gelu is nearly 0 from below its brackets cancel; softplus is linear from 20 on, unless told otherwise."""
    rng = np.random.RandomState(seed)
    for activation, layer in (("gelu", nn.GELU()), ("softplus", nn.Softplus())):
        sizes = [5, rng.randint(1, 4), 1]
        weights = [4.0 * rng.standard_normal((n, m)) / np.sqrt(n) for n, m in zip(sizes, sizes[1:])]
        network = FeedforwardNetwork(weights, [0.3 * rng.standard_normal(m) for m in sizes[1:]], activation)
        module = network.to_torch(torch.float64)
        module[1] = layer
        X = 3.0 * rng.standard_normal((300, 5))
        for dtype in (torch.float64, torch.float32):
            with torch.no_grad():
                gap = np.abs(module.to(dtype)(torch.from_numpy(X).to(dtype)).double().numpy() - network(X))
            own = rounding_of_outputs(network, X, single=False)
            tolerance = 8.0 * np.hypot(own, rounding_of_outputs(network, X, single=dtype == torch.float32))
            assert np.max(gap / tolerance) < 1.0
