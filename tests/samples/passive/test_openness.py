"""Standard errors, and what rows leave open."""

import numpy as np

from skident.datasets import make_network
from skident.fitting.standard_errors import standard_errors
from skident.network import FeedforwardNetwork
from skident.samples.passive.undetermined import information, lone_rows, standard_errors_of
from skident.samples.passive.whitened_table import Table

X = np.random.RandomState(0).standard_normal((150, 3)) * [1.0, 5.0, 0.1] + 3.0


def errors(network, Y, noise):
    table = Table(X, Y, None, True)
    inside = table.in_whitened(network)
    info = information(inside, table)
    return standard_errors_of(inside, table, info, noise / table.unit[0]), info


def test_they_are_those_of_the_whole_jacobian():
    network = make_network((3, 2, 2, 1), output_activation="identity", random_state=0)
    found, info = errors(network, network(X), 1e-3)
    wanted = standard_errors(network, X, 1e-3)
    for ours, theirs in zip((*found[0], *found[1]), (*wanted[0], *wanted[1]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert info.n_open == 0 and len(info.spectrum) == network.n_parameters


def test_two_units_that_are_one_are_open():
    W, b = np.array([[1.0, 1.0], [0.1, 0.1], [2.0, 2.0]]), np.array([-7.0, -7.0])
    network = FeedforwardNetwork([W, np.ones((2, 1))], [b, np.zeros(1)])
    found, info = errors(network, network(X), 1e-3)
    assert info.n_open > 0 and np.isinf(found[0][0]).all()


def test_what_relu_leaves_free_is_not_open():
    network = make_network((3, 2, 1), activation="relu", output_activation="identity", random_state=3)
    network = FeedforwardNetwork(network.weights, [-3.0 * network.weights[0].sum(axis=0), [0.0]], "relu")
    info = errors(network, network(X), 1e-3)[1]
    assert info.n_free == 2 and info.n_open == 0


def test_a_unit_for_one_row_is_told():
    Z = (X - 3.0) / [1.0, 5.0, 0.1]
    network = make_network((3, 2, 1), output_activation="identity", random_state=0)
    spent = np.array([[20.0], [0.0], [0.0]])  # a step between the row farthest out and the next one
    shift = -20.0 * np.sort(Z[:, 0])[-2:].mean(keepdims=True)
    more = FeedforwardNetwork(
        [np.hstack([network.weights[0], spent]), np.vstack([network.weights[1], [[1.0]]])],
        [np.append(network.biases[0], shift), network.biases[1]],
    )
    for one, lone in ((network, False), (more, True)):
        table = Table(Z, one(Z), None, True)
        inside = table.in_whitened(one)
        assert (lone_rows(inside, table, information(inside, table)) > 0) == lone
