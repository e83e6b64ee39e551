import numpy as np
import pytest
import torch

from skident import NetworkIdentifier
from skident.identification.piecewise.shallow.network import find_relu_network
from skident.network import FeedforwardNetwork, leaky_relu
from skident.oracle import NotIdentified, Oracle


def planted(D, K, slope, seed):
    rng = np.random.RandomState(seed)
    weights = [rng.standard_normal((D, K)) / np.sqrt(D), rng.standard_normal((K, 1)) / np.sqrt(K)]
    return FeedforwardNetwork(weights, [0.5 * rng.standard_normal(K), rng.standard_normal(1)], leaky_relu(slope))


@pytest.mark.parametrize(
    ("D", "K", "slope"), [(10, 5, 0.01), (10, 10, 0.2), (30, 30, 0.3), (15, 8, -0.4), (12, 9, 0.0)]
)
def test_the_slope_is_found(D, K, slope):
    truth = planted(D, K, slope, 0)
    X = np.random.RandomState(1).standard_normal((300, D))
    identifier = NetworkIdentifier(lambda X: truth(X), activation="leaky_relu", random_state=0).fit(X)
    network = identifier.network_
    assert network.layer_widths == (K, 1) and identifier.report_.exact
    assert abs(network.activations[0].negative_slope - slope) < 1e-11
    assert np.abs(network(X) - truth(X)).max() < 1e-11


@pytest.mark.parametrize(("D", "K", "slope"), [(3, 8, 0.1), (2, 20, 0.4), (4, 25, -0.3)])
def test_more_units_than_equations(D, K, slope):
    truth = planted(D, K, slope, 0)
    oracle = Oracle(truth, D, derivatives="finite_difference")
    found = find_relu_network(oracle, leaky=True, rng=np.random.RandomState(0)).network
    assert found.layer_widths == (K, 1) and abs(found.activations[0].negative_slope - slope) < 1e-11
    U = np.random.RandomState(1).standard_normal((300, D))
    assert np.abs(found(U) - truth(U)).max() < 1e-11


def test_far_more_units_than_equations():
    oracle = Oracle(planted(2, 46, 0.1, 0), 2, derivatives="finite_difference")
    with pytest.raises(NotIdentified, match="not on which side of them the units are active") as info:
        find_relu_network(oracle, leaky=True, rng=np.random.RandomState(0))
    assert info.value.reason == "undecided"


def test_slopes_that_differ_from_unit_to_unit():
    network = planted(8, 5, 0.1, 0)
    box = lambda X: network(X)[:, 0] + 0.3 * np.maximum(X[:, 0] - 0.5, 0.0)  # noqa: E731
    with pytest.raises(NotIdentified, match="linear part of the outputs remains unexplained"):
        find_relu_network(Oracle(box, 8), leaky=True, rng=np.random.RandomState(0))


@pytest.mark.parametrize("layer", [torch.nn.LeakyReLU(0.2), torch.nn.PReLU(init=0.3)])
def test_of_torch(layer):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(9, 6), layer, torch.nn.Linear(6, 2)).double()
    X = np.random.RandomState(1).standard_normal((300, 9))
    identifier = NetworkIdentifier(module, random_state=0).fit(X)
    assert identifier.network_.activation == "leaky_relu" and identifier.report_.exact
    truth = FeedforwardNetwork.from_torch(module)
    assert np.abs(identifier.network_(X) - truth(X)).max() < 1e-12


@pytest.mark.parametrize(("sizes", "slope"), [((5, 6, 4, 1), 0.1), ((6, 5, 4, 2), 0.3)])
def test_two_hidden_layers_of_unknown_slope(sizes, slope):
    rng = np.random.RandomState(1)
    weights = [rng.standard_normal(shape) / np.sqrt(shape[0] / 2.0) for shape in zip(sizes[:-1], sizes[1:])]
    network = FeedforwardNetwork(weights, [0.3 * rng.standard_normal(m) for m in sizes[1:]], leaky_relu(slope))
    X = rng.standard_normal((200, sizes[0]))
    found = NetworkIdentifier(lambda X: network(X), activation="leaky_relu", random_state=0).fit(X)
    assert found.report_.exact and found.layer_widths_ == sizes[1:]
    assert abs(found.network_.activations[0].negative_slope - slope) < 1e-9
    fresh = 3.0 * rng.standard_normal((500, sizes[0]))
    assert np.abs(found.network_(fresh) - network(fresh)).max() < 1e-10 * np.abs(network(fresh)).max()
