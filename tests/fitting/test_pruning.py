"""What removing a unit costs, redundant units, pruning by an information criterion, and signs beside linear units."""

import numpy as np
import pytest

from skident.datasets import make_network
from skident.fitting.batched_fits import Prior, WeightedSamples, parameters_of
from skident.fitting.linear_units import choose_signs, reflection_slope, with_linear_units
from skident.fitting.pruning import redundant_units, removal_costs, remove_unit
from skident.fitting.scored_pruning import Scoring, prune_by_score, prune_to
from skident.network import Architecture, FeedforwardNetwork


def wider(network, layer, incoming, shift, outgoing):
    """The network with one more unit in a hidden layer."""
    weights, biases = list(network.weights), list(network.biases)
    weights[layer] = np.column_stack([weights[layer], incoming])
    biases[layer] = np.append(biases[layer], shift)
    weights[layer + 1] = np.vstack([weights[layer + 1], outgoing])
    return FeedforwardNetwork(weights, biases, network.activation, network.output_activation)


def superfluous(network, kind, layer):
    W, V = network.weights[layer], network.weights[layer + 1]
    b = network.biases[layer]
    return {
        "copy": wider(network, layer, W[:, 0], b[0], 0.5 * V[0]),
        "opposite copy": wider(network, layer, -W[:, 0], -b[0], V[1]),
        "no outgoing weights": wider(network, layer, W[:, 0] + W[:, 1], 0.3, 0.0 * V[0]),
        "constant": wider(network, layer, 0.0 * W[:, 0], 0.7, V[0]),
    }[kind]


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("kind", ["copy", "opposite copy", "no outgoing weights", "constant"])
def test_superfluous_units_cost_nothing_and_can_go(kind, layer, rng):
    network = make_network((6, 5, 4, 2), bias_scale=0.3, random_state=0)
    U = rng.standard_normal((100, 6))
    wide = superfluous(network, kind, layer)
    costs, takeovers = removal_costs(wide, U)
    # The ridge of 1e-10 on unit variances leaves errors of its square root in replacements, squared in costs.
    assert costs[layer][-1] < 1e-8
    assert all(c.min() > 1e-6 for k, c in enumerate(costs) if k != layer)
    smaller = remove_unit(wide, layer, len(costs[layer]) - 1, takeovers[layer][:, -1])
    assert smaller.layer_widths == network.layer_widths
    np.testing.assert_allclose(smaller(U), wide(U), atol=1e-7)


def test_costs_are_what_a_linear_layer_loses(rng):
    """With one hidden layer and linear output the prediction is exact: compare with least squares."""
    network = make_network((5, 4, 2), output_activation="identity", random_state=1)
    U = rng.standard_normal((300, 5))
    costs, takeovers = removal_costs(network, U)
    units = np.tanh(U @ network.weights[0] + network.biases[0])
    for j in range(4):
        others = np.column_stack([np.delete(units, j, axis=1), np.ones(300)])
        left = units[:, j] - others @ np.linalg.lstsq(others, units[:, j], rcond=None)[0]
        expected = np.mean(left**2) * np.sum(network.weights[1][j] ** 2)
        assert costs[0][j] == pytest.approx(expected, rel=1e-6)
        change = remove_unit(network, 0, j, takeovers[0][:, j])(U) - network(U)
        assert np.mean(np.sum(change**2, axis=1)) == pytest.approx(expected, rel=1e-6)


def with_layer(network, layer, change):
    """The network with one hidden layer's (incoming, shifts, outgoing) replaced."""
    weights, biases = [W.copy() for W in network.weights], [b.copy() for b in network.biases]
    weights[layer], biases[layer], weights[layer + 1] = change(weights[layer], biases[layer], weights[layer + 1])
    return FeedforwardNetwork(weights, biases, network.activation, network.output_activation)


CHANGES = {
    "none": (lambda W, b, V: (W, b, V), 0),
    "a double": (lambda W, b, V: (np.c_[W, W[:, 0]], np.r_[b, b[0]], np.r_[V, V[:1]]), 1),
    "a double turned round": (lambda W, b, V: (np.c_[W, -W[:, 0]], np.r_[b, -b[0]], np.r_[V, V[:1]]), 1),
    "no outgoing weights": (lambda W, b, V: (np.c_[W, W[:, 0] + W[:, 1]], np.r_[b, 1.0], np.r_[V, 0 * V[:1]]), 1),
    "no incoming weights": (lambda W, b, V: (np.c_[W, 0 * W[:, 0]], np.r_[b, 1.0], np.r_[V, V[:1]]), 1),
    "parallel, another shift": (lambda W, b, V: (np.c_[W, W[:, 0]], np.r_[b, b[0] + 0.1], np.r_[V, V[:1]]), 0),
}


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("name", CHANGES)
def test_counted_in_its_layer(name, layer):
    change, n_redundant = CHANGES[name]
    network = with_layer(make_network((6, 5, 4, 2), bias_scale=0.3, random_state=0), layer, change)
    expected = [0, 0]
    expected[layer] = n_redundant
    assert redundant_units(network) == expected


def test_one_layer_has_none():
    assert redundant_units(make_network((4, 2), random_state=0)) == []


U = np.random.RandomState(0).standard_normal((200, 3))
W, A = np.random.RandomState(1).standard_normal((3, 3)), np.array([[1.0], [-0.7], [0.5]])


def fitted(W, b, A, activation, noise=0.0):
    network = FeedforwardNetwork([W, A], [b, [0.0]], activation)
    Y = network(U) + noise * np.random.RandomState(2).standard_normal((200, 1))
    scoring = Scoring(WeightedSamples(U, Y), 1e-24 * float(np.sum(Y**2)))
    return scoring.refit(Architecture.of(network), parameters_of(network)[None]), scoring


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_copy_is_left_out_and_nothing_else(noise):
    doubled = np.concatenate([W, W[:, :1]], axis=1), np.concatenate([A, A[:1]])
    pruned = prune_by_score(*fitted(doubled[0], np.zeros(4), doubled[1], "tanh", noise))
    assert pruned.widths == (3, 1)


def test_two_sines_of_one_frequency_are_one():
    W2 = np.concatenate([W, W[:, 1:2]], axis=1)
    pruned = prune_by_score(*fitted(W2, np.array([0.0, 0.2, 0.4, 1.0]), np.concatenate([A, 3 * A[:1]]), "sin"))
    assert pruned.widths == (3, 1)


def test_widths_asked_for_are_reached_whatever_the_score():
    pruned = prune_to(*fitted(W, np.zeros(3), A, "tanh"), (2, 1))
    assert pruned.widths == (2, 1) and pruned.cost > 1e-6


def test_with_a_prior_fits_are_penalised_and_parameters_have_their_price():
    network = FeedforwardNetwork([W, A], [np.zeros(3), [0.0]], "tanh")
    architecture, x = Architecture.of(network), parameters_of(network)[None]
    scoring = Scoring(WeightedSamples(U, network(U)), 1.0, prior=Prior.like(network, 0.1))
    wanted = 0.1 * (np.sum(W**2) / np.median(np.mean(W**2, axis=0)) + np.sum(A**2) / np.mean(A**2))
    np.testing.assert_allclose(scoring.fits(architecture).cost(x), wanted)
    assert scoring.score(architecture, 5.0) == pytest.approx(5.0 / 0.1 + 2.5 * 16)


def test_the_score_counts_rows_and_parameters():
    scoring = Scoring(WeightedSamples(U, np.ones((200, 1))), 1.0)
    assert scoring.score(Architecture((2, 1)), 0.0) == pytest.approx(200 * np.log(1 / 200) + 11 * np.log(200))


@pytest.mark.parametrize(("name", "k"), [("softplus", 1), ("silu", 1), ("relu", 1), ("sin", 0), ("elu", 0)])
def test_what_is_odd_about_activations(name, k):
    assert reflection_slope(name) == pytest.approx(k, abs=1e-12)


@pytest.mark.parametrize("activation", ["softplus", "gelu"])
def test_sides_are_chosen_such_that_no_linear_part_is_left(activation):
    rng = np.random.RandomState(0)
    W, b, A, c = (rng.standard_normal(s) for s in ((5, 4), (4,), (4, 2), (2,)))
    truth = FeedforwardNetwork([W, A], [b, c], activation)
    turned = np.array([True, False, True, False])
    sign = np.where(turned, -1.0, 1.0)
    mixed = with_linear_units(Architecture((4, 2), activation))
    # g(z) = g(-z) + z: what the turned units lack
    weights = [np.concatenate([W * sign, W @ (A * turned[:, None])], axis=1), np.concatenate([A, np.eye(2)])]
    biases = [np.concatenate([b * sign, (b * turned) @ A]), c]
    U = rng.standard_normal((20, 5))
    wrong = FeedforwardNetwork(weights, biases, *mixed.names)
    np.testing.assert_allclose(wrong(U), truth(U), atol=1e-12)
    same, more = choose_signs(weights, biases, activation)
    assert (same.layer_widths, more.layer_widths) == ((4, 2), (8, 2))
    for found in (same, more):
        np.testing.assert_allclose(found(U), truth(U), atol=1e-12)
