"""Polish and validation of deep networks, and the boundaries beside wrong outputs."""

import numpy as np
import pytest

from skident.identification.units.readout import Readout, point_pool
from skident.identification.units.validation import (
    extend_samples,
    polish,
    sample_where_units_change,
    scaled_errors,
    untested_points,
    validate_readout,
)
from skident.network import FeedforwardNetwork


def test_polish_restores_a_network(planted):
    net = planted((6, 7, 5, 1), 1)
    probe = net.probe()
    unit, shift = (
        probe.output_error * net.oracle.output_scale,
        net.network(np.zeros((1, 6)))[0] / net.oracle.output_scale,
    )
    shift = probe.query(np.zeros((1, 6)))[0][0] - shift / probe.output_error
    weights = [w * (1.0 + 1e-8 * net.rng.standard_normal(w.shape)) for w in net.network.weights]
    weights[2] = weights[2] / unit
    rough = FeedforwardNetwork(weights, [*net.network.biases[:2], net.network.biases[2] / unit + shift], "relu")
    X = net.rng.standard_normal((300, 6))
    F = probe.query(X)[0]
    polished = polish(probe, rough, net.rng, extend_samples(probe, None, 100, net.rng))
    before, after = (np.abs(f(X) - F).max() for f in (rough, polished))
    assert after < 1e-4 * before


def test_weights_that_do_not_matter_are_looked_at_where_they_are_next_to(planted):
    net = planted((6, 7, 5, 1), 2)
    probe, weights, biases = net.probe(), net.network.weights, [b.copy() for b in net.network.biases]
    biases[1][3] = -25.0
    network, X = FeedforwardNetwork(weights, biases, "relu"), net.rng.standard_normal((2000, 6))
    points = untested_points(probe, network, X, net.rng)

    def third(P):
        H = np.maximum(P @ weights[0] + biases[0], 0.0)
        return (H @ weights[1] + biases[1])[:, 3], H

    assert third(X)[0].max() < 0.0 and 40 <= len(points) <= 300
    near, H = third(points)
    assert np.median(near) > np.max(third(X)[0]) and np.all((H > 0).sum(axis=0) >= 20)
    biases[1][3] = 0.0
    everywhere = FeedforwardNetwork(weights, biases, "relu")
    assert len(untested_points(probe, everywhere, X, net.rng)) <= 100


def test_a_network_without_a_unit_is_not_polished(planted):
    """Held-out samples show it before any query of the polish."""
    net = planted((6, 7, 5, 1), 1)
    probe, (*weights, out) = net.probe(), net.network.weights
    held_out = extend_samples(probe, None, 100, net.rng)
    n, lacking = net.oracle.n_queries, net.network.with_parameters([*weights, 2.0 * out], net.network.biases)
    assert polish(probe, lacking, net.rng, held_out) is lacking and net.oracle.n_queries == n


def test_the_pool_reaches_boundaries_far_from_the_center(planted):
    net = planted((6, 7, 5, 1), 1)
    W, b = net.network.weights[0], -16.0 * np.linalg.norm(net.network.weights[0], axis=0)
    Z = point_pool(net.probe(), [(W, b)], 2000, (1.0, 3.0), net.rng) @ W + b
    assert np.all(Z[:2000] < 0.0) and np.all((Z > 0.0).sum(axis=0) > 200)


def test_what_is_exact_is_not_polished(planted):
    net = planted((6, 7, 5, 1), 0)
    probe = net.probe()
    unit, shift = (
        probe.output_error * net.oracle.output_scale,
        net.network(np.zeros((1, 6)))[0] / net.oracle.output_scale,
    )
    shift = probe.query(np.zeros((1, 6)))[0][0] - shift / probe.output_error
    weights = [*net.network.weights[:2], net.network.weights[2] / unit]
    right = FeedforwardNetwork(weights, [*net.network.biases[:2], net.network.biases[2] / unit + shift], "relu")
    held_out = extend_samples(probe, None, 100, net.rng)
    assert polish(probe, right, net.rng, held_out) is right
    rough = FeedforwardNetwork([weights[0] * (1.0 + 1e-9), *weights[1:]], right.biases, "relu")
    assert polish(probe, rough, net.rng, held_out) is not rough


@pytest.fixture
def right(planted):
    net = planted((6, 7, 5, 1), 1)
    probe, shift = net.probe(), net.network(np.zeros((1, 6)))[0] / net.oracle.output_scale
    unit = probe.output_error * net.oracle.output_scale
    shift = probe.query(np.zeros((1, 6)))[0][0] - shift / probe.output_error
    W, b = net.network.weights, net.network.biases
    return net, probe, FeedforwardNetwork([*W[:2], W[2] / unit], [*b[:2], b[2] / unit + shift], "relu")


def perturbed(network, size, rng):
    weights = [w * (1.0 + size * rng.standard_normal(w.shape)) for w in network.weights]
    return FeedforwardNetwork(weights, network.biases, "relu")


def with_pair(network, v, size):
    """A linear part in the last hidden layer."""
    W, b = network.weights, network.biases
    out = size * np.abs(W[2]).max()
    weights = [W[0], np.hstack([W[1], v, -v]), np.vstack([W[2], [[out]], [[-out]]])]
    return FeedforwardNetwork(weights, [b[0], np.append(b[1], [0.0, 0.0]), b[2]], "relu")


def test_a_linear_part_that_makes_up_for_weights_is_left_out(right):
    net, probe, network = right
    rough, v = perturbed(network, 1e-7, net.rng), net.rng.standard_normal((7, 1))
    readout = Readout(with_pair(rough, v, 1e-7), 1.0, 1.0, np.zeros(5), v, rough)
    validation = validate_readout(probe, readout, None, 400, np.zeros((0, probe.n_inputs)), net.rng)
    assert validation.wrong_share == 0.0 and len(validation.X) >= 400 and validation.linear.shape == (7, 0)
    assert validation.network.layer_widths == (7, 5, 1)


def test_what_no_polish_repairs_stays_wrong(right):
    net, probe, network = right
    lacking = FeedforwardNetwork(
        [network.weights[0], network.weights[1][:, 1:], network.weights[2][1:]],
        [network.biases[0], network.biases[1][1:], network.biases[2]],
        "relu",
    )
    readout = Readout(lacking, 0.7, 0.7, np.zeros(4), np.zeros((7, 0)))
    validation = validate_readout(probe, readout, None, 400, np.zeros((0, probe.n_inputs)), net.rng)
    assert validation.wrong_share > 0.1 and validation.network.layer_widths == (7, 4, 1)


def in_probe_units(net, probe):
    unit = probe.output_error * net.oracle.output_scale
    shift = probe.query(np.zeros((1, net.network.n_inputs)))[0][0]
    network, zero = net.network, net.network(np.zeros((1, net.network.n_inputs)))[0]
    weights, biases = list(network.weights), list(network.biases)
    return [*weights[:-1], weights[-1] / unit], [*biases[:-1], (biases[-1] - zero) / unit + shift]


def test_a_unit_that_random_outputs_hardly_show_is_missed_nowhere(planted):
    net = planted((30, 4, 3, 1), 1)
    weights, biases = ([v.copy() for v in part] for part in (net.network.weights, net.network.biases))
    weights[1][:, 0], biases[1][0] = 1.0, -25.0
    net.set(weights, biases)
    probe, rng = net.probe(), np.random.RandomState(0)
    weights, biases = in_probe_units(net, probe)
    right = FeedforwardNetwork(weights, biases, "relu")
    lacking = [weights[0], weights[1][:, 1:], weights[2][1:]]
    wrong = FeedforwardNetwork(lacking, [biases[0], biases[1][1:], biases[2]], "relu")
    rows = rng.standard_normal((50, 30))
    shown, anywhere = sample_where_units_change(probe, wrong, rows, 600, rng), extend_samples(probe, None, 600, rng)
    assert 500 < len(shown.X) <= 900 and scaled_errors(probe, right, shown)[1].max() < 1.0
    shares = [np.mean(scaled_errors(probe, wrong, samples)[1] > 1.0) for samples in (shown, anywhere)]
    assert shares[0] > 5.0 * shares[1] and shares[0] > 0.02
    assert len(sample_where_units_change(probe, right, rows[:0], 600, rng).X) > 200


def test_points_between_and_beyond_rows(planted):
    net = planted((4, 5, 3, 1), 2)
    probe, rng = net.probe(), np.random.RandomState(0)
    rows = np.array([[100.0, 0.0, 0.0, 0.0], [100.0, 1.0, 0.0, 0.0]])
    X = sample_where_units_change(probe, net.network, rows, 300, rng).X
    beside = X[np.abs(X[:, 0] - 100.0) < 1e-9]
    assert len(beside) >= 100 and beside[:, 1].min() < -0.5 and beside[:, 1].max() > 1.5


def test_a_rare_unit_of_the_second_layer_shows_where_few_units_are_active(planted):
    """One weight opposes all others: hardly a random point has the unit active, some per cent of these samples do."""
    net = planted((12, 10, 6, 1), 3)
    (W, V, out), (b, c, last) = ([v.copy() for v in part] for part in (net.network.weights, net.network.biases))
    V[:, 0], V[0, 0], c[0] = -1.0, 0.5, 0.0
    b *= 0.1
    net.set([W, V, out], [b, c, last])
    lacking = FeedforwardNetwork([W, V[:, 1:], out[1:]], [b, c[1:], last], "relu")
    rng = np.random.RandomState(0)
    shown = sample_where_units_change(net.probe(), lacking, np.zeros((0, 12)), 800, rng).X
    few, anywhere = (net.pre_activations(X)[1][:, 0] > 0 for X in (shown, 3.0 * rng.standard_normal((20_000, 12))))
    assert few.sum() >= 5 and few.mean() > 5.0 * anywhere.mean()
