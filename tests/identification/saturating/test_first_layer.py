import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.saturating.first_layer import find_first_layer
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, Oracle
from tests.rates import fewest_successes

DEPTHS = {1: (), 2: (3,), 3: (6, 3), 4: (7, 5, 3)}


def errors(network, first, oracle=None):
    """Direction and relative length errors of every true unit's nearest found one, and the match."""
    W = network.weights[0] if oracle is None else network.weights[0] * oracle.scale[:, None]
    lengths = np.linalg.norm(W, axis=0)
    T, F = W / lengths, first.directions
    match = np.abs(T.T @ F).argmax(axis=1)
    F = F[:, match] * np.sign(np.sum(T * F[:, match], axis=0))
    return (
        np.linalg.norm(F - T, axis=0).max(),
        np.abs(np.linalg.norm(first.weights, axis=0)[match] / lengths - 1).max(),
        match,
    )


def search(network, **options):
    oracle = Oracle(network, network.n_inputs)
    first = find_first_layer(oracle, activation=network.activation, rng=np.random.RandomState(0), **options)
    return first, oracle


def check(network, first, length_error=1e-2):
    direction, length, match = errors(network, first)
    m = network.layer_widths[0]
    assert first.weights.shape == (network.n_inputs, m) and sorted(match) == list(range(m))
    assert direction < 1e-6
    assert length < length_error


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("D", "m_1"), [(10, 6), (8, 8), (5, 12), (2, 5)])
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "erf"])
def test_linear_output(activation, depth, D, m_1, seed):
    output_activation = "identity" if depth > 1 else activation
    widths = (m_1, *DEPTHS[depth])
    network = make_network(
        (D, *widths), bias_scale=0.5, activation=activation, output_activation=output_activation, random_state=seed
    )
    first, _ = search(network)
    # With layers above, the length comes from a model of them; it only has to start the next stage.
    check(network, first, 1e-2 if depth <= 2 else np.inf)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "erf"])
def test_output_of_the_same_kind(activation, seed):
    network = make_network((8, 10, 6, 3), bias_scale=0.5, activation=activation, random_state=seed)
    check(network, search(network)[0], np.inf)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_any_length(scale):
    net = make_network((10, 14, 3), bias_scale=0.5, output_activation="identity", random_state=1)
    network = FeedforwardNetwork([scale * net.weights[0], net.weights[1]], net.biases, "tanh", "identity")
    check(network, search(network)[0])


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "erf"])
def test_hyperplanes_and_points(activation):
    """Two layers: the offsets too are determined, and every point sees its own unit only."""
    network = make_network(
        (6, 9, 2), bias_scale=0.5, activation=activation, output_activation="identity", random_state=0
    )
    first, _ = search(network)
    *_, match = errors(network, first)
    W, b = network.weights[0], network.biases[0]
    signs = np.sign(np.sum(W * first.weights[:, match], axis=0))
    np.testing.assert_allclose(signs * first.biases[match], b, atol=1e-3)
    z = np.abs(first.points[match] @ W + b)
    assert np.diag(z).max() < 2 and (z + 99 * np.eye(9)).min() > 20


def test_scaled_inputs():
    """The result is in the oracle's coordinates."""
    network = make_network((6, 8, 2), bias_scale=0.5, output_activation="identity", random_state=0)
    center, scale = np.array([5.0, -3.0, 0.0, 1.0, 2.0, 100.0]), np.array([1.0, 10.0, 0.1, 3.0, 0.5, 1.0])
    oracle = Oracle(network, 6, center=center, scale=scale)
    first = find_first_layer(oracle, rng=np.random.RandomState(0))
    direction, length, match = errors(network, first, oracle)
    assert sorted(match) == list(range(8)) and direction < 1e-6 and length < 1e-2
    signs = np.sign(np.sum(network.weights[0] * scale[:, None] * first.weights[:, match], axis=0))
    expected = network.biases[0] + network.weights[0].T @ center
    np.testing.assert_allclose(signs * first.biases[match], expected, atol=1e-2 * np.abs(expected).max())


def test_same_seed_same_result_and_queries():
    network = make_network((6, 8, 2), bias_scale=0.5, random_state=0)
    (first, oracle), (again, other) = search(network), search(network)
    np.testing.assert_array_equal(first.weights, again.weights)
    np.testing.assert_array_equal(first.biases, again.biases)
    assert oracle.n_queries == other.n_queries


def test_known_number_of_units_ends_the_search_early():
    network = make_network((10, 8, 2), bias_scale=0.5, random_state=0)
    (known, few), (unknown, many) = search(network, n_units=8), search(network)
    check(network, known, np.inf)
    assert few.n_queries < many.n_queries and known.n_circles < unknown.n_circles


def test_number_of_queries():
    network = make_network((20, 15, 3), bias_scale=0.5, random_state=0)
    calls = []
    first, oracle = search(network, callback=lambda *counts: calls.append(counts))
    assert oracle.n_queries < 5000
    assert len(calls) == first.n_circles and calls[-1] == (15, 15)


def test_units_that_overlap_are_told_apart_by_another_circle():
    """Nearly parallel units cross most circles close together."""
    net = make_network((5, 4, 2), bias_scale=0.5, output_activation="identity", random_state=0)
    W = net.weights[0].copy()
    W[:, 1] = W[:, 0] + 1e-2 * W[:, 2]
    network = FeedforwardNetwork([W, net.weights[1]], net.biases, "tanh", "identity")
    check(network, search(network)[0])


# -- nothing to find ---------------------------------------------------------------------------------------------------

NOT_SATURATING = {
    "relu": make_network((5, 8, 2), activation="relu", output_activation="identity", random_state=0),
    "softplus": make_network((5, 8, 2), activation="softplus", output_activation="identity", random_state=0),
    "sin": make_network((5, 8, 2), activation="sin", output_activation="identity", random_state=0),
    "linear": lambda X: X @ np.arange(1.0, 6.0),
    "quadratic": lambda X: X[:, 0] ** 2 + 2 * X[:, 1] ** 2,
    "noise": lambda X: np.random.RandomState(len(X)).standard_normal(len(X)),
}


@pytest.mark.parametrize("box", NOT_SATURATING)
def test_boxes_that_do_not_saturate(box):
    oracle = Oracle(NOT_SATURATING[box], 5)
    with pytest.raises(NotIdentified, match="the outputs change on .* does not saturate there"):
        find_first_layer(oracle, rng=np.random.RandomState(0))
    assert oracle.n_queries < 50_000


@pytest.mark.parametrize("n_units", [None, 3])
@pytest.mark.parametrize("value", [0.0, 1.0, 1e9])
def test_constant_box(value, n_units):
    oracle = Oracle(lambda X: np.full(len(X), value), 5)
    with pytest.raises(NotIdentified, match="do not change at all"):
        find_first_layer(oracle, n_units=n_units, rng=np.random.RandomState(0))
    assert oracle.n_queries < 50_000


@pytest.mark.parametrize("activation", ["relu", "softplus", "identity"])
def test_activation_that_does_not_saturate(activation):
    oracle = Oracle(lambda X: X[:, 0], 5)
    with pytest.raises(NotIdentified, match=f"activation='{activation}' does not saturate"):
        find_first_layer(oracle, activation=activation)
    assert oracle.n_queries == 0


def test_one_input():
    with pytest.raises(ValueError, match="at least 2 are needed"):
        find_first_layer(Oracle(lambda X: np.tanh(X[:, 0]), 1))


# -- noise -------------------------------------------------------------------------------------------------------------

NOISY_WIDTHS = {"two layers": (20, 20, 5), "three layers": (20, 16, 10, 5)}


def sines(net, first):
    """Sine of the angle of every found unit to the nearest true one, (m_1,)."""
    W = net.weights[0] / np.linalg.norm(net.weights[0], axis=0)
    nearest = W[:, np.abs(W.T @ first.directions).argmax(axis=0)]
    return np.linalg.norm(first.directions - nearest * np.sum(nearest * first.directions, axis=0), axis=0)


def in_single_precision(net):
    """The network as torch outputs in float32: inputs, weights and sums are rounded."""

    def box(X):
        y = X.astype(np.float32)
        for W, b, g in zip(net.weights, net.biases, net.activations):
            y = g(y @ W.astype(np.float32) + b.astype(np.float32))
        return y

    return box


def noisy_search(box, net, noise, n_units, seed):
    oracle = Oracle(box, net.n_inputs)
    first = find_first_layer(oracle, n_units=n_units, rng=np.random.RandomState(seed), noise=noise)
    assert sum(first.queries.values()) == oracle.n_queries - 8  # 8 rows for the range of the outputs
    assert first.weights.shape == net.weights[0].shape
    direction, _, match = errors(net, first)
    assert sorted(match) == list(range(net.layer_widths[0]))
    return direction, first, oracle


@pytest.mark.parametrize(("known", "seed"), [(True, 0), (False, 1)])
@pytest.mark.parametrize("relative", [1e-6, 1e-4, 1e-3])
@pytest.mark.parametrize("output_activation", ["tanh", "identity"])
@pytest.mark.parametrize("name", NOISY_WIDTHS)
def test_noise(name, output_activation, relative, known, seed):
    """An entry of a direction is off by about the noise over the step's height, and there are sqrt(20) times as much in
    all. Steps are some fraction of the outputs' range high, those of single units much less.
    """
    net = make_network(NOISY_WIDTHS[name], bias_scale=0.5, output_activation=output_activation, random_state=seed + 100)
    rng = np.random.RandomState(seed)
    noise = relative * np.ptp(net(rng.standard_normal((200, 20))), axis=0)
    box = lambda X: net(X) + noise * rng.standard_normal((len(X), 5))  # noqa: E731
    direction, first, oracle = noisy_search(box, net, noise, net.layer_widths[0] if known else None, seed)
    off = sines(net, first)
    assert np.median(off) < 50 * relative and direction < 500 * relative
    # It knows how good it is: a sum of 19 squares, and a few per cent of another unit's tail.
    ratio = off / (np.sqrt(19) * first.errors)
    assert ratio.max() < 4 and 0.5 < np.median(ratio) < 2
    assert oracle.n_queries < 7000


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", NOISY_WIDTHS)
def test_rounded_outputs(name, seed):
    net = make_network(NOISY_WIDTHS[name], bias_scale=0.5, random_state=seed)
    assert noisy_search(lambda X: net(X).round(6), net, 3e-7, net.layer_widths[0], seed)[0] < 1e-3


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", NOISY_WIDTHS)
def test_single_precision(name, seed):
    """The inputs are rounded to 6e-8 of the radius of some 4000: pre-activations are noisy by 1e-4."""
    net = make_network(NOISY_WIDTHS[name], bias_scale=0.5, random_state=seed)
    direction, first, _ = noisy_search(in_single_precision(net), net, 6e-8, net.layer_widths[0], seed)
    assert direction < 1e-2 and first.radius < 1e4


def test_units_that_cross_together_are_no_unit():
    """Two units whose steps overlap look like one sigmoid of medium direction through noise."""
    net = make_network((6, 2, 4), bias_scale=0.0, output_activation="identity", random_state=0)
    rng, seen = np.random.RandomState(0), []
    for _ in range(4):
        W = net.weights[0].copy()
        W[:, 1] = W[:, 0] + 0.05 * rng.standard_normal(6)
        pair = FeedforwardNetwork([W, net.weights[1]], net.biases, "tanh", "identity")
        box = lambda X, pair=pair: pair(X) + 1e-4 * rng.standard_normal((len(X), 4))  # noqa: E731
        first = find_first_layer(Oracle(box, 6), n_units=2, radius=20.0, rng=rng, noise=1e-4)
        seen.append(errors(pair, first)[0])
    assert max(seen) < 0.05


def test_noise_below_rounding_is_none():
    net = make_network((8, 6, 3), bias_scale=0.5, random_state=0)
    first, oracle = search(net)
    again = find_first_layer(Oracle(net, 8), noise=1e-18, rng=np.random.RandomState(1))
    assert again.errors is None and again.radius == first.radius
    assert errors(net, again)[0] < 1e-8


def test_queries_are_counted_by_stage():
    net = make_network((20, 15, 3), bias_scale=0.5, random_state=0)
    first, oracle = search(net, n_units=15)
    assert sum(first.queries.values()) == oracle.n_queries
    assert set(first.queries) == {"scan", "profile", "matching", "check", "norms"}
    assert first.queries["norms"] == 15 * 24 and first.queries["matching"] >= 15 * 19
    # 32 cells, then one query for every halving from pi / 32 to a width of 4 / (radius sqrt(2 / D)), and some more.
    assert first.queries["scan"] < 32 + 15 * 17


def test_overlapping_steps_come_apart_further_out():
    """One circle is mostly enough: only the steps that overlap are looked at again."""
    circles = []
    for seed in range(10):
        net = make_network((10, 30, 4), bias_scale=0.5, random_state=seed)
        first, _ = search(net, n_units=30, radius=300.0)
        check(net, first, np.inf)
        circles.append(first.n_circles)
    # 26 of 30 networks; the others took two or three.
    assert circles.count(1) >= fewest_successes(10, 26, 30) and max(circles) <= 3
