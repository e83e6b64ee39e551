import numpy as np
import pytest

from skident.datasets import make_network
from skident.fitting.random_starts import StartLimits
from skident.identification.saturating import downstream
from skident.identification.saturating.biases import find_first_biases
from skident.identification.saturating.downstream import (
    cached_sampler,
    fit_downstream,
    fit_smallest_downstream,
    query_interior,
    query_vertices,
)
from skident.identification.saturating.first_layer import FirstLayer, find_first_layer
from skident.network import Architecture, FeedforwardNetwork, get_activation
from skident.oracle import NotIdentified, Oracle, probabilities_from_logits


def known_first_layer(network):
    """The first layer as the saturation search would hand it on."""
    W, b = network.weights[0], network.biases[0]
    return FirstLayer(W, b, np.zeros((W.shape[1], W.shape[0])), 1e5, 1, 0)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "erf"])
@pytest.mark.parametrize("sizes", [(7, 5, 2), (4, 9, 2)])
def test_outputs_at_vertices(sizes, activation):
    """Units at their limits, more units than inputs or fewer."""
    network = make_network(sizes, activation=activation, output_activation="identity", random_state=0)
    g = get_activation(activation)
    oracle = Oracle(network, sizes[0])
    H, Y = query_vertices(oracle, known_first_layer(network), g, 40, np.random.RandomState(0))
    assert H.shape[1] == sizes[1] and set(np.unique(H)) == set(g.limits)
    np.testing.assert_allclose(Y, H @ network.weights[1] + network.biases[1], atol=1e-12)
    assert oracle.n_queries == len(H) <= 40


@pytest.mark.parametrize("seed", range(5))
def test_vertices_distinguish_nearly_parallel_units(seed):
    """Random far inputs alone are on the same side of both."""
    network, rng = make_network((4, 8, 1), output_activation="identity", random_state=seed), np.random.RandomState(seed)
    W, b, V = network.weights[0].copy(), network.biases[0], network.weights[1]
    W[:, 1] = 0.5 * W[:, 0] + 3e-3 * rng.standard_normal(4)
    oracle = Oracle(lambda X: np.tanh(X @ W + b) @ V, 4)
    first = find_first_layer(oracle, n_units=8, rng=rng)
    H, _ = query_vertices(oracle, first, get_activation("tanh"), 60, rng)
    assert np.linalg.matrix_rank(np.column_stack([H, np.ones(len(H))])) == 9


def test_all_vertices_of_a_small_cube():
    network = make_network((5, 3, 2), random_state=0)
    H, _ = query_vertices(
        Oracle(network, 5), known_first_layer(network), get_activation("tanh"), 500, np.random.RandomState(0)
    )
    assert H.shape == (8, 3) and len(np.unique(H, axis=0)) == 8


def test_a_classifier_that_is_certain_wherever_units_are_saturated():
    """No logit is precise there: an array without rows was reduced."""
    network = make_network((5, 3, 2), output_activation="identity", random_state=0)
    steep = FeedforwardNetwork([network.weights[0], 1e4 * network.weights[1]], network.biases, "tanh", "identity")
    oracle = Oracle(lambda X: probabilities_from_logits(steep(X)), 5, response="predict_proba")
    with pytest.raises(NotIdentified, match="logits"):
        query_vertices(oracle, known_first_layer(network), get_activation("tanh"), 500, np.random.RandomState(0))


def test_outputs_where_the_first_layer_moves():
    network = make_network((7, 5, 2), output_activation="identity", bias_scale=0.5, random_state=0)
    oracle = Oracle(network, 7)
    H, Y = query_interior(oracle, known_first_layer(network), get_activation("tanh"), 40, np.random.RandomState(0))
    np.testing.assert_allclose(Y, H @ network.weights[1] + network.biases[1], atol=1e-12)
    assert oracle.n_queries == 40 and 0.3 < np.std(np.arctanh(H)) < 3.0


def test_a_cached_sampler_sample_asks_for_new_rows_only():
    sizes = []

    def query(n):
        sizes.append(n)
        return np.full((n, 2), len(sizes)), np.zeros((n, 1))

    sample = cached_sampler(query)
    assert [len(sample(n)[0]) for n in (10, 4, 25)] == [10, 4, 25]
    assert sizes == [10, 15] and sample(12)[0][9:, 0].tolist() == [1, 2, 2]


@pytest.mark.parametrize(("sizes", "output"), [((8, 6, 4, 2), "tanh"), ((6, 8, 3), "identity")])
def test_the_rest_of_a_network(sizes, output, rng):
    """Exact wherever the first layer is saturated."""
    network = make_network(sizes, output_activation=output, random_state=0)
    oracle = Oracle(network, sizes[0])
    first = find_first_layer(oracle, n_units=sizes[1], rng=np.random.RandomState(0))
    architecture = Architecture(sizes[1:], "tanh", output)
    found, residual = fit_downstream(oracle, first, "vertices", architecture, np.random.RandomState(0))
    assert residual < 1e-9
    far = 1e6 * rng.standard_normal((200, sizes[0]))
    far = far[np.abs(far @ network.weights[0] + network.biases[0]).min(axis=1) > 1e3]
    np.testing.assert_allclose(found(far), network(far), atol=1e-7)


def searched(network, oracle, rng):
    first = find_first_layer(oracle, n_units=network.layer_widths[0], rng=rng)
    exact, n_next, _ = find_first_biases(oracle, first, "tanh", rng)
    return first, exact, n_next


def test_one_output_from_the_interior(rng):
    """Two hidden layers and one output: the case in which vertices leave too many local minima."""
    network = make_network((8, 6, 4, 1), bias_scale=0.5, output_activation="identity", random_state=0)
    oracle, state = Oracle(lambda X: network(X), 8), np.random.RandomState(0)
    _, exact, n_next = searched(network, oracle, state)
    assert n_next == 4
    found, residual = fit_downstream(oracle, exact, "interior", Architecture((6, 4, 1)), state, StartLimits(tol=1e-6))
    assert residual < 1e-6
    U = rng.standard_normal((200, 8))
    np.testing.assert_allclose(found(U), network(U), atol=1e-4 * np.abs(network(U)).max())


def test_a_poor_network_where_time_is_over_before_a_start_comes_near():
    network = make_network((8, 6, 6, 1), bias_scale=0.5, output_activation="identity", random_state=0)
    oracle, state = Oracle(lambda X: network(X), 8), np.random.RandomState(0)
    first = find_first_layer(oracle, n_units=6, rng=state)
    found, residual = fit_downstream(
        oracle, first, "vertices", Architecture((6, 6, 1)), state, StartLimits(deadline=0.0)
    )
    assert found is None or residual > 1e-2


def test_everything_at_once_from_a_stem(rng):
    """A second layer as wide as the first, where gradients tell no shifts."""
    network = make_network((6, 4, 4, 2), bias_scale=0.3, output_activation="identity", random_state=0)
    oracle, state = Oracle(lambda X: network(X), 6), np.random.RandomState(0)
    first, _, n_next = searched(network, oracle, state)
    assert n_next is None
    found, residual = fit_downstream(oracle, first, "stem", Architecture((4, 4, 2)), state)
    U = rng.standard_normal((200, 6))
    assert residual < 1e-9
    np.testing.assert_allclose(found(U), network(U), atol=1e-6)


@pytest.mark.parametrize("region", ["vertices", "interior", "stem"])
def test_smallest_network_downstream(region):
    network = make_network((8, 6, 4, 3), bias_scale=0.3, random_state=0)
    oracle, state = Oracle(lambda X: network(X), 8), np.random.RandomState(0)
    first, exact, n_next = searched(network, oracle, state)
    first, n_next = (exact, n_next) if region == "interior" else (first, None)
    at_least = Architecture((6, n_next or 1, 3), "tanh", "tanh")
    search = StartLimits(8, tol=1e-6)
    found, residual = fit_smallest_downstream(
        oracle, first, region, at_least, state, exact=() if n_next is None else (1,), search=search
    )
    assert residual < 1e-6 and found.layer_widths == (6, 4, 3)


def test_where_every_start_is_given_up_there_is_no_network(monkeypatch):
    network = make_network((6, 5, 4, 3), output_activation="identity", random_state=0)
    monkeypatch.setattr(downstream, "fit_from_random_starts", lambda *args, **options: (None, np.inf))
    architecture = Architecture((5, 4, 3), "tanh", "identity")
    found, residual = fit_downstream(
        Oracle(network, 6), known_first_layer(network), "vertices", architecture, np.random.RandomState(0)
    )
    assert found is None and residual == np.inf


@pytest.mark.parametrize("seed", range(3))
def test_a_steep_classifier_with_more_units_than_inputs(seed):
    """From nothing but probabilities."""
    network = make_network((3, 5, 3, 3), bias_scale=0.5, output_activation="identity", random_state=seed)
    truth = FeedforwardNetwork([3.0 * W for W in network.weights], network.biases, "tanh", "identity")
    box = lambda X: probabilities_from_logits(truth(X))  # noqa: E731
    oracle, rng = Oracle(box, 3, response="predict_proba"), np.random.RandomState(seed)
    first = find_first_layer(oracle, n_units=5, rng=rng)
    found, residual = fit_downstream(oracle, first, "stem", Architecture((5, 3, 3), "tanh", "identity"), rng)
    U = rng.standard_normal((300, 3))
    assert residual < 1e-6 and np.abs(probabilities_from_logits(found(U)) - box(U)).max() < 1e-5
