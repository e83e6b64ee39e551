"""Structure in the weights of a network: convolutions, zeros, networks side by side."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.network import FeedforwardNetwork

CASES = {
    "3x3": (lambda: nn.Conv2d(1, 4, 3), (1, 6, 6)),
    "5x5": (lambda: nn.Conv2d(1, 3, 5), (1, 8, 8)),
    "3x2, stride 2 and 1": (lambda: nn.Conv2d(1, 3, (3, 2), stride=(2, 1)), (1, 7, 5)),
    "stride 2": (lambda: nn.Conv2d(1, 4, 3, stride=2), (1, 9, 9)),
    "padding": (lambda: nn.Conv2d(1, 3, 3, padding=1), (1, 5, 5)),
    "two channels": (lambda: nn.Conv2d(2, 4, 3), (2, 5, 5)),
    "one axis": (lambda: nn.Conv1d(2, 3, 3), (2, 8)),
}


def network_of(name, seed=0, activation=nn.ReLU, *behind):
    make, shape = CASES[name]
    torch.manual_seed(seed)
    module = nn.Sequential(make(), activation(), *behind, nn.Flatten(), nn.LazyLinear(3)).double()
    module(torch.zeros(1, *shape, dtype=torch.float64))
    return module[0], FeedforwardNetwork.from_torch(module, input_shape=shape), shape


def error_of_kernels(layer, convolution):
    """Largest error of a weight or bias of a kernel, each kernel on its scale."""
    errors = []
    for kernel, bias in zip(layer.weight.detach().numpy(), layer.bias.detach().numpy(), strict=True):
        unit = kernel.flat[np.argmax(np.abs(kernel))]
        kernel = kernel.reshape(len(kernel), *convolution.kernels.shape[2:])
        gaps = np.abs(convolution.kernels - kernel / unit).max(axis=(1, 2, 3))
        errors.append(np.maximum(gaps, np.abs(convolution.biases - bias / unit)).min())
    return max(errors)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize("name", CASES)
def test_kernels_of_a_dense_layer(name, activation):
    layer, network, shape = network_of(name, 0, activation)
    axes = shape if len(shape) == 3 else (shape[0], 1, shape[1])
    for given in (axes, None):
        convolution = network.canonical().structure(given).convolution
        assert convolution.input_shape == axes
        assert convolution.stride[-1] == layer.stride[-1] and convolution.padding[-1] == layer.padding[-1]
        assert convolution.n_units == network.layer_widths[0]
        assert error_of_kernels(layer, convolution) < 1e-13


def test_average_pooling_shows_in_the_outgoing_weights():
    for size in (2, 4):
        _, network, shape = network_of("3x3", 0, nn.ReLU, nn.AvgPool2d(size))
        assert network.canonical().structure(shape).convolution.pooling == (size, size)
    assert str(network.structure()).endswith("3 x 3 on 1 x 6 x 6, stride 1, padding 0, average pooling 4 x 4")


def test_shared_weights_average_errors():
    """The errors of the kernels of the shared network are smaller than those of single units."""
    layer, network, shape = network_of("3x3")
    W = network.weights[0]
    noise = 1e-9 * np.random.RandomState(0).standard_normal(W.shape) * np.abs(W).max()
    noisy = network.with_parameters([W + noise, network.weights[1]], network.biases)
    structure = noisy.structure(shape)
    assert error_of_kernels(layer, structure.convolution) < 3e-9 < structure.convolution.spread
    assert np.abs(structure.network.weights[0] - W).max() < 0.8 * np.abs(noise).max()
    assert np.sum(structure.network.weights[0] != 0) == 9 * 64


def test_bad_input():
    _, network, _ = network_of("3x3")
    with pytest.raises(ValueError, match="input_shape=.5, 7. has 35 entries, but the network has 36 inputs"):
        network.structure((5, 7))
    with pytest.raises(ValueError, match="input_shape must have one to three axes, got .1, 1, 6, 6."):
        network.structure((1, 1, 6, 6))


def test_units_may_be_missing():
    _, network, shape = network_of("3x3")
    kept = np.delete(np.arange(64), [3, 40])
    W, V = network.weights
    fewer = FeedforwardNetwork([W[:, kept], V[kept]], [network.biases[0][kept], network.biases[1]], "relu")
    convolution = fewer.structure(shape).convolution
    assert convolution.output_shape == (4, 4, 4)
    assert convolution.n_units == 62


@pytest.mark.parametrize("shape", [(6, 8, 1), (36, 20, 3), (12, 12, 12, 2)])
def test_dense_networks_have_no_structure(shape):
    structure = make_network(shape, activation="relu", output_activation="identity", random_state=0).structure()
    assert structure.convolution is None and structure.n_networks == 1 and structure.sparsity[0] == 0
    assert str(structure) == "dense"


def test_sparse_layers():
    network = make_network((20, 10, 1), output_activation="identity", random_state=0)
    kept = np.random.RandomState(0).uniform(size=(20, 10)) < 0.2
    W = np.where(kept, network.weights[0], 1e-12)
    structure = network.with_parameters([W, network.weights[1]], network.biases).structure()
    assert structure.sparsity[0] == 1 - kept.mean()
    assert np.array_equal(structure.network.weights[0] != 0, kept)
    assert str(structure) == f"layer 1: {100 * structure.sparsity[0]:.0f} % of the weights are zero"


def side_by_side(networks):
    weights, biases = [], []
    for layer in range(networks[0].n_layers):
        parts = [network.weights[layer] for network in networks]
        if layer == 0:
            weights.append(np.hstack(parts))
        elif layer == networks[0].n_layers - 1:
            weights.append(np.vstack(parts) / len(networks))
        else:
            blocks = np.zeros((sum(len(p) for p in parts), sum(p.shape[1] for p in parts)))
            row = column = 0
            for part in parts:
                blocks[row : row + len(part), column : column + part.shape[1]] = part
                row, column = row + len(part), column + part.shape[1]
            weights.append(blocks)
        parts = [network.biases[layer] for network in networks]
        biases.append(np.mean(parts, axis=0) if layer == networks[0].n_layers - 1 else np.concatenate(parts))
    return FeedforwardNetwork(weights, biases, networks[0].activation)


def test_an_average_of_networks_is_taken_apart():
    networks = [make_network((5, 4, 3, 1), output_activation="identity", random_state=seed) for seed in range(3)]
    order = np.random.RandomState(0).permutation(12)
    mean = side_by_side(networks)
    W, V, U = mean.weights
    mixed = mean.with_parameters([W[:, order], V[order], U], [mean.biases[0][order], *mean.biases[1:]])
    structure = mixed.structure()
    assert structure.n_networks == 3
    assert sorted(sorted(order[block[0]]) for block in structure.blocks) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert "3 networks side by side, an average or a sum: 4-3, 4-3, 4-3" in str(structure)


def test_a_convolution_is_identified_and_recognized():
    layer, network, shape = network_of("two channels", 7)
    rows = np.random.RandomState(0).standard_normal((200, 50))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = NetworkIdentifier(lambda X: network(X), random_state=0).fit(rows)
    structure = found.network_.structure()
    assert error_of_kernels(layer, structure.convolution) < 1e-10
    deviation = np.abs(network(rows)).max()
    assert np.abs(structure.network(rows) - network(rows)).max() < 1e-11 * deviation
