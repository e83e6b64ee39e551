import numpy as np

from skident.identification.piecewise.deep.validation import (
    boundaries_beside_errors,
    extend_samples,
    polish,
    scaled_errors,
    untested_points,
)
from skident.network import FeedforwardNetwork


def test_errors_lead_to_the_kinks_of_a_missing_unit(planted):
    net = planted((6, 7, 5, 1), 0)
    answers = net.answers()
    unit, shift = (
        answers.output_error * net.oracle.output_scale,
        net.network(np.zeros((1, 6)))[0] / net.oracle.output_scale,
    )
    shift = answers.query(np.zeros((1, 6)))[0][0] - shift / answers.output_error
    weights = [w.copy() for w in net.network.weights]
    weights[2] = weights[2] / unit
    biases = [*net.network.biases[:2], net.network.biases[2] / unit + shift]
    right = FeedforwardNetwork(weights, biases, "relu")
    asked = extend_samples(answers, extend_samples(answers, None, 100, net.rng), 400, net.rng)
    X, error = scaled_errors(answers, right, asked)
    assert len(X) == 400 and error.max() < 1.0
    assert len(boundaries_beside_errors(answers, right, X, error, net.rng)) == 0
    k = int(np.argmin(np.abs((net.pre_activations(X)[1] > 0).mean(axis=0) - 0.5)))
    lacking = [weights[0], np.delete(weights[1], k, 1), np.delete(weights[2], k, 0)]
    wrong = FeedforwardNetwork(lacking, [biases[0], np.delete(biases[1], k), biases[2]], "relu")
    X, error = scaled_errors(answers, wrong, asked)
    off = net.pre_activations(X)[1][:, k] <= 0
    np.testing.assert_array_equal(error < 1.0, off)
    kinks = boundaries_beside_errors(answers, wrong, X, error, net.rng)
    assert len(kinks) > 0 and np.abs(net.pre_activations(kinks.points)[1][:, k]).max() < 1e-6


def test_polish_restores_a_network(planted):
    net = planted((6, 7, 5, 1), 1)
    answers = net.answers()
    unit, shift = (
        answers.output_error * net.oracle.output_scale,
        net.network(np.zeros((1, 6)))[0] / net.oracle.output_scale,
    )
    shift = answers.query(np.zeros((1, 6)))[0][0] - shift / answers.output_error
    weights = [w * (1.0 + 1e-8 * net.rng.standard_normal(w.shape)) for w in net.network.weights]
    weights[2] = weights[2] / unit
    rough = FeedforwardNetwork(weights, [*net.network.biases[:2], net.network.biases[2] / unit + shift], "relu")
    X = net.rng.standard_normal((300, 6))
    F = answers.query(X)[0]
    before, after = (np.abs(f(X) - F).max() for f in (rough, polish(answers, rough, net.rng)))
    assert after < 1e-4 * before


def test_weights_that_do_not_matter_are_looked_at_where_they_are_next_to(planted):
    net = planted((6, 7, 5, 1), 2)
    answers, weights, biases = net.answers(), net.network.weights, [b.copy() for b in net.network.biases]
    biases[1][3] = -25.0
    network, X = FeedforwardNetwork(weights, biases, "relu"), net.rng.standard_normal((2000, 6))
    points = untested_points(answers, network, X, net.rng)

    def third(P):
        H = np.maximum(P @ weights[0] + biases[0], 0.0)
        return (H @ weights[1] + biases[1])[:, 3], H

    assert third(X)[0].max() < 0.0 and 40 <= len(points) <= 300
    near, H = third(points)
    assert np.median(near) > np.max(third(X)[0]) and np.all((H > 0).sum(axis=0) >= 20)
    biases[1][3] = 0.0
    everywhere = FeedforwardNetwork(weights, biases, "relu")
    assert len(untested_points(answers, everywhere, X, net.rng)) <= 100


def test_what_is_exact_is_not_polished(planted):
    net = planted((6, 7, 5, 1), 0)
    answers = net.answers()
    unit, shift = (
        answers.output_error * net.oracle.output_scale,
        net.network(np.zeros((1, 6)))[0] / net.oracle.output_scale,
    )
    shift = answers.query(np.zeros((1, 6)))[0][0] - shift / answers.output_error
    weights = [*net.network.weights[:2], net.network.weights[2] / unit]
    right = FeedforwardNetwork(weights, [*net.network.biases[:2], net.network.biases[2] / unit + shift], "relu")
    assert polish(answers, right, net.rng) is right
    rough = FeedforwardNetwork([weights[0] * (1.0 + 1e-9), *weights[1:]], right.biases, "relu")
    assert polish(answers, rough, net.rng) is not rough
