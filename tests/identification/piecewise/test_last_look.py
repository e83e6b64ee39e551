import numpy as np

from skident.identification.piecewise.deep.validation import extend_samples, sample_where_units_change, scaled_errors
from skident.network import FeedforwardNetwork


def in_units_of_answers(net, answers):
    unit = answers.output_error * net.oracle.output_scale
    shift = answers.query(np.zeros((1, net.network.n_inputs)))[0][0]
    network, zero = net.network, net.network(np.zeros((1, net.network.n_inputs)))[0]
    weights, biases = list(network.weights), list(network.biases)
    return [*weights[:-1], weights[-1] / unit], [*biases[:-1], (biases[-1] - zero) / unit + shift]


def test_a_unit_that_random_answers_hardly_show_is_missed_nowhere(planted):
    net = planted((30, 4, 3, 1), 1)
    weights, biases = ([v.copy() for v in part] for part in (net.network.weights, net.network.biases))
    weights[1][:, 0], biases[1][0] = 1.0, -25.0
    net.set(weights, biases)
    answers, rng = net.answers(), np.random.RandomState(0)
    weights, biases = in_units_of_answers(net, answers)
    right = FeedforwardNetwork(weights, biases, "relu")
    lacking = [weights[0], weights[1][:, 1:], weights[2][1:]]
    wrong = FeedforwardNetwork(lacking, [biases[0], biases[1][1:], biases[2]], "relu")
    rows = rng.standard_normal((50, 30))
    shown, anywhere = sample_where_units_change(answers, wrong, rows, 600, rng), extend_samples(answers, None, 600, rng)
    assert 500 < len(shown.X) <= 600 and scaled_errors(answers, right, shown)[1].max() < 1.0
    shares = [np.mean(scaled_errors(answers, wrong, asked)[1] > 1.0) for asked in (shown, anywhere)]
    assert shares[0] > 5.0 * shares[1] and shares[0] > 0.02
    assert len(sample_where_units_change(answers, right, rows[:0], 600, rng).X) > 200


def test_points_between_and_beyond_rows(planted):
    net = planted((4, 5, 3, 1), 2)
    answers, rng = net.answers(), np.random.RandomState(0)
    rows = np.array([[100.0, 0.0, 0.0, 0.0], [100.0, 1.0, 0.0, 0.0]])
    X = sample_where_units_change(answers, net.network, rows, 300, rng).X
    beside = X[np.abs(X[:, 0] - 100.0) < 1e-9]
    assert len(beside) >= 100 and beside[:, 1].min() < -0.5 and beside[:, 1].max() > 1.5
