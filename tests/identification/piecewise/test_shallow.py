"""Networks with one hidden layer of ReLU or leaky ReLU units."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import scale
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils._testing import ignore_warnings

from skident import NetworkIdentifier
from skident.identification.piecewise.shallow.network import find_relu_network
from skident.metrics import parameter_error
from skident.network import FeedforwardNetwork, leaky_relu
from skident.oracle import BlackBoxError, NotIdentified, Oracle


def planted_network(sizes, seed):
    """Gaussian weights N(0, 1) / sqrt(fan in), biases of standard deviation 0.5."""
    rng = np.random.RandomState(seed)
    weights = [rng.standard_normal((a, b)) / np.sqrt(a) for a, b in zip(sizes, sizes[1:])]
    return FeedforwardNetwork(weights, [0.5 * rng.standard_normal(b) for b in sizes[1:]], "relu")


def changed(network, W=None, b=None, c=None):
    """A network with one hidden layer and other weights, biases or outgoing weights."""
    weights = [network.weights[0] if W is None else W, network.weights[1] if c is None else c]
    return FeedforwardNetwork(weights, [network.biases[0] if b is None else b, network.biases[1]], "relu")


def search(box, n_inputs, seed=0, **options):
    oracle = Oracle(box, n_inputs, derivatives="finite_difference")
    return find_relu_network(oracle, rng=np.random.RandomState(seed), **options).network, oracle


def error(oracle, network, seed=0):
    """Worst error over the largest output on held-out inputs."""
    U = np.random.RandomState(seed).standard_normal((500, oracle.n_inputs))
    Y = oracle(U)
    return np.abs(network(U) - Y).max() / np.abs(Y).max()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sizes", [(20, 10, 1), (10, 15, 1), (5, 8, 3), (2, 12, 1), (1, 4, 1), (4, 1, 2)])
def test_planted(sizes, seed, known):
    truth = planted_network(sizes, seed)
    network, oracle = search(truth, sizes[0], seed, n_units=sizes[1] if known else None)
    n_queries = oracle.n_queries
    assert network.layer_widths == sizes[1:] and n_queries < 3000
    # DeepProbe are exact to rounding; parameters lose the condition of two nearly parallel units.
    assert error(oracle, network) < 1e-12 and parameter_error(truth, network) < 1e-8


def test_more_units_than_can_be_tried():
    """50 units and 10 equations for their signs."""
    truth = planted_network((10, 50, 1), 0)
    network, oracle = search(truth, 10)
    assert error(oracle, network) < 1e-12 and parameter_error(truth, network) < 1e-8 and oracle.n_queries < 8000


@pytest.mark.parametrize("sizes", [(300, 20, 1), (200, 24, 4)])
def test_many_inputs_take_few_queries(sizes):
    """Too large to be polished: about one query a parameter for gradients, and more where these are poor."""
    truth = planted_network(sizes, 0)
    network, oracle = search(truth, sizes[0])
    assert oracle.n_queries < 4 * truth.n_parameters
    assert network.layer_widths == sizes[1:] and error(oracle, network) < 1e-9


@ignore_warnings
def test_trained_by_sklearn():
    X, y = load_diabetes(return_X_y=True)
    mlp = MLPRegressor(hidden_layer_sizes=(10,), solver="lbfgs", max_iter=200, random_state=0).fit(X, scale(y))
    oracle = Oracle(mlp, 10, center=X.mean(axis=0), scale=X.std(axis=0))
    network = find_relu_network(oracle, n_units=10, rng=np.random.RandomState(0)).network
    assert network.layer_widths == (10, 1) and error(oracle, network) < 1e-12


def test_initialised_by_torch():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(20, 10), torch.nn.ReLU(), torch.nn.Linear(10, 2))
    network, oracle = search(module, 20)
    assert network.layer_widths == (10, 2) and error(oracle, network) < 1e-12
    assert oracle.n_derivatives == 0


def test_same_seed_same_network_and_a_count():
    truth, counts = planted_network((6, 5, 1), 0), []
    first, _ = search(truth, 6, callback=counts.append)
    assert counts == [5, 5] and first == search(truth, 6)[0]


BASE = planted_network((4, 5, 1), 0)
W, B, C = BASE.weights[0], BASE.biases[0], BASE.weights[1]


def with_unit(array, index, value):
    array = array.copy()
    array[..., index] = value
    return array


FOUND = {
    "parallel units": (changed(BASE, W=with_unit(W, 1, 2.0 * W[:, 0])), 5),
    "opposite units": (changed(BASE, W=with_unit(W, 1, -W[:, 0])), 5),
    "nearly equal units": (changed(BASE, W=with_unit(W, 1, W[:, 0] + 1e-4 * W[:, 1]), b=with_unit(B, 1, B[0])), 5),
    "equal units": (changed(BASE, W=with_unit(W, 1, W[:, 0]), b=with_unit(B, 1, B[0])), 4),
    "a unit without weights": (changed(BASE, W=with_unit(W, 1, 0.0)), 4),
    "a unit without effect": (changed(BASE, c=with_unit(C.T, 1, 0.0).T), 4),
    "a faint unit": (changed(BASE, c=with_unit(C.T, 1, 1e-7).T), 5),
    "a unit that is far away and active": (changed(BASE, b=with_unit(B, 1, 1e5)), 5),
    "a unit that is far away and silent": (changed(BASE, b=with_unit(B, 1, -1e7)), 4),
    "no biases": (changed(BASE, b=np.zeros(5)), 5),
    "axes": (FeedforwardNetwork([np.eye(4), np.ones((4, 1))], [np.arange(4.0), [0.0]], "relu"), 4),
    "tiny weights": (changed(BASE, W=1e-6 * W), 5),
    "large weights": (changed(BASE, W=1e6 * W), 5),
    "an offset": (FeedforwardNetwork(BASE.weights, [B, [1e4]], "relu"), 5),
}


@pytest.mark.parametrize("name", FOUND)
def test_found_with_as_many_units_as_matter(name):
    truth, width = FOUND[name]
    network, oracle = search(truth, 4)
    # Tiny weights and far hyperplanes show at distances of 1e5 and more, with the rounding of outputs there.
    assert network.layer_widths == (width, 1) and error(oracle, network) < 1e-9


def test_outputs_of_different_units():
    truth, scales = planted_network((4, 5, 3), 0), [1e-6, 1.0, 1e6]
    network, oracle = search(lambda X: truth(X) * scales, 4)
    U = np.random.RandomState(0).standard_normal((100, 4))
    assert np.all(np.abs(network(U) - oracle(U)).max(axis=0) < 1e-12 * np.ptp(oracle(U), axis=0))


def test_fewer_units_than_said():
    network, _ = search(BASE, 4, n_units=8)
    assert network.layer_widths == (5, 1)


def test_black_box_that_cannot_be_queried_far_away():
    def box(X):
        if np.abs(X).max() > 100:
            raise RuntimeError("too far")
        return BASE(X)

    with pytest.raises(BlackBoxError, match=r"too far.*standard deviations from the center"):
        search(box, 4)
    network, oracle = search(box, 4, reach=10.0)
    assert error(oracle, network) < 1e-12
    with pytest.raises(NotIdentified, match="linear skip connection"):
        search(lambda X: box(X) + X[:, :1], 4, reach=10.0, linear=False)


A = np.random.RandomState(0).standard_normal((6, 4))
POINTS = np.random.RandomState(1).standard_normal((300, 6))
REFUSED = {
    "constant": [lambda X: np.full(len(X), 3.0)],
    "linear": [lambda X: X @ A],
    "smooth": [lambda X: np.tanh(X @ A).sum(axis=1)],
    "noisy": [lambda X: planted_network((6, 5, 1), 0)(X).round(9)],
    "steps": [
        DecisionTreeRegressor(random_state=0).fit(POINTS, POINTS[:, 0] ** 2),
        lambda X: np.maximum(X @ A, 0.0).sum(axis=1) + (X[:, 0] > 0.3),
    ],
    "bent": [
        planted_network((6, 8, 6, 1), 0),
        planted_network((6, 20, 10, 3), 0),
        lambda X: (X @ A).max(axis=1),
        lambda X: planted_network((6, 5, 1), 0)(np.clip(X, -5, 5)),
    ],
    "signs": [
        lambda X: planted_network((6, 5, 1), 0)(X)[:, 0] + X[:, 0],
        lambda X: np.where(X @ A > 0, X @ A, 0.1 * X @ A).sum(axis=1),
        lambda X: np.abs(X @ A).sum(axis=1),
    ],
    "crowded": [lambda X: planted_network((6, 5, 1), 0)(X)[:, 0] + 1e-4 * np.sin(X[:, 0])],
}
SAID = {
    "constant": "a constant function without activation boundaries",
    "linear": "a linear function without activation boundaries",
    "smooth": "bend everywhere",
    "noisy": "noise or rounding .* hides the activation boundaries",
    "steps": "jump within|do not change at all",
    "bent": "boundaries end, bend or change",
    "signs": "linear part of the outputs remains unexplained",
    "crowded": "bend at more than 200 places",
}


@pytest.mark.parametrize(("seen", "box"), [(seen, box) for seen in REFUSED for box in REFUSED[seen]])
def test_refused(seen, box):
    oracle = Oracle(box, 6, derivatives="finite_difference")
    with pytest.raises(NotIdentified, match=SAID[seen]) as info:
        find_relu_network(oracle, max_units=200, linear=False, rng=np.random.RandomState(0))
    assert info.value.reason == seen and oracle.n_queries < 10_000


def test_clipped_units_are_pairs_whose_signs_are_undetermined():
    box = lambda X: np.clip(X @ A, -1, 1).sum(axis=1)  # noqa: E731
    X = np.random.RandomState(0).standard_normal((200, 6))
    found = NetworkIdentifier(box, activation="relu", random_state=0).fit(X)
    assert found.layer_widths_ == (2 * A.shape[1], 1) and found.report_.exact and not found.report_.determined
    assert f"the signs of {2 * A.shape[1]} units" in found.report_.undetermined


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("k", [3, 4, 6])
def test_units_whose_weights_cancel_have_no_signs(k, equal, given):
    """Flipping units with ``sum_i a_i w_i = 0`` gives the same function; one more unit keeps its sign."""
    rng = np.random.default_rng(k)
    a = np.append(np.ones(k) if equal else rng.choice([-1.0, 1.0], k) * rng.uniform(0.5, 2.0, k), 1.0)
    W = rng.standard_normal((6, k + 1))
    W[:, k - 1] = -(W[:, : k - 1] @ a[: k - 1]) / a[k - 1]
    truth = FeedforwardNetwork([W, a[:, None]], [rng.uniform(-1, 1, k + 1), np.zeros(1)], "relu")
    widths = (k + 1, 1) if given else "auto"
    X = rng.standard_normal((200, 6))
    found = NetworkIdentifier(lambda X: truth(X), activation="relu", layer_widths=widths, random_state=0).fit(X)
    assert found.layer_widths_ == (k + 1, 1) and np.abs(found.network_(X) - truth(X)).max() < 1e-11
    assert found.report_.exact and not found.report_.determined and f"signs of {k} units" in found.report_.undetermined


def test_more_units_than_said():
    with pytest.raises(NotIdentified, match=r"3 hidden units, but 5 .* set layer_widths=\(5, 1\)") as info:
        search(BASE, 4, n_units=3)
    assert info.value.reason == "units"


def test_too_many_signs_are_left_undetermined():
    with pytest.raises(NotIdentified, match="80 hyperplanes were detected, but not on which side") as info:
        search(planted_network((1, 80, 1), 0), 1)
    assert info.value.reason == "undecided"


def planted_leaky(D, K, slope, seed):
    rng = np.random.RandomState(seed)
    weights = [rng.standard_normal((D, K)) / np.sqrt(D), rng.standard_normal((K, 1)) / np.sqrt(K)]
    return FeedforwardNetwork(weights, [0.5 * rng.standard_normal(K), rng.standard_normal(1)], leaky_relu(slope))


@pytest.mark.parametrize(
    ("D", "K", "slope"), [(10, 5, 0.01), (10, 10, 0.2), (30, 30, 0.3), (15, 8, -0.4), (12, 9, 0.0)]
)
def test_the_slope_is_found(D, K, slope):
    truth = planted_leaky(D, K, slope, 0)
    X = np.random.RandomState(1).standard_normal((300, D))
    identifier = NetworkIdentifier(lambda X: truth(X), activation="leaky_relu", random_state=0).fit(X)
    network = identifier.network_
    assert network.layer_widths == (K, 1) and identifier.report_.exact
    assert abs(network.activations[0].negative_slope - slope) < 1e-11
    assert np.abs(network(X) - truth(X)).max() < 1e-11


@pytest.mark.parametrize(("D", "K", "slope"), [(3, 8, 0.1), (2, 20, 0.4), (4, 25, -0.3)])
def test_more_units_than_equations(D, K, slope):
    truth = planted_leaky(D, K, slope, 0)
    oracle = Oracle(truth, D, derivatives="finite_difference")
    found = find_relu_network(oracle, leaky=True, rng=np.random.RandomState(0)).network
    assert found.layer_widths == (K, 1) and abs(found.activations[0].negative_slope - slope) < 1e-11
    U = np.random.RandomState(1).standard_normal((300, D))
    assert np.abs(found(U) - truth(U)).max() < 1e-11


def test_far_more_units_than_equations():
    oracle = Oracle(planted_leaky(2, 46, 0.1, 0), 2, derivatives="finite_difference")
    with pytest.raises(NotIdentified, match="not on which side of them the units are active") as info:
        find_relu_network(oracle, leaky=True, rng=np.random.RandomState(0))
    assert info.value.reason == "undecided"


def test_slopes_that_differ_from_unit_to_unit():
    network = planted_leaky(8, 5, 0.1, 0)
    box = lambda X: network(X)[:, 0] + 0.3 * np.maximum(X[:, 0] - 0.5, 0.0)  # noqa: E731
    with pytest.raises(NotIdentified, match="linear part of the outputs remains unexplained"):
        find_relu_network(Oracle(box, 8), leaky=True, linear=False, rng=np.random.RandomState(0))
    found = find_relu_network(Oracle(box, 8), leaky=True, rng=np.random.RandomState(0))
    X = np.random.RandomState(1).standard_normal((300, 8))
    assert found.n_skips == 2 and np.abs(found.network(X)[:, 0] - box(X)).max() < 1e-12


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
    held_out = 3.0 * rng.standard_normal((500, sizes[0]))
    assert np.abs(found.network_(held_out) - network(held_out)).max() < 1e-10 * np.abs(network(held_out)).max()
