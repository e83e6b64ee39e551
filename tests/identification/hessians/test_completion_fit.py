import numpy as np
import pytest
import scipy.optimize

from skident.base.progress import StageLog
from skident.datasets import make_network
from skident.identification.hessians.completion_problem import (
    CompletionProblem,
    best_completion,
    completion_starts,
    fit_hidden_layer,
    mixing_matrices,
)
from skident.network import Architecture, FeedforwardNetwork, get_activation


@pytest.fixture
def deep():
    """A problem of three layers, its features and outputs, and the scales and shifts that solve it."""
    network = make_network((8, 6, 4, 2), random_state=0)
    lengths = [np.linalg.norm(v, axis=0) for v in network.entangled_weights(np.zeros(8))]
    X = np.random.default_rng(0).standard_normal((300, 8))
    blocks = [X @ (v / n) for v, n in zip(network.entangled_weights(np.zeros(8)), lengths)]
    problem = CompletionProblem(Architecture((6, 4, 2), "tanh", "tanh"), mixing_matrices(blocks))
    return problem, blocks, network(X), (lengths[0], network.biases[0])


def ridge_problem():
    return CompletionProblem(Architecture((6, 2), "tanh", "identity"), [])


@pytest.mark.parametrize("given", [False, True])
def test_number_of_starts(deep, given):
    problem, blocks, _, truth = deep
    for case, which in ((problem, blocks), (ridge_problem(), blocks[:1])):
        starts = list(completion_starts(case, which, truth if given else None, 4, np.random.RandomState(0)))
        assert len(starts) == 4
        if given:
            np.testing.assert_array_equal(starts[0][0], truth[0])


def test_starts_have_centred_pre_activations_of_the_features_own_units(deep):
    problem, blocks, *_ = deep
    Z = 100.0 + 30.0 * blocks[0]
    paper, own, *_ = completion_starts(problem, [Z, *blocks[1:]], None, 4, np.random.RandomState(0))
    assert np.all(paper[0] == 1) and np.all(paper[1] == 0) and paper[2] is None
    pre_activations = Z * own[0] + own[1]
    np.testing.assert_allclose(pre_activations.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(pre_activations.std(axis=0), 1)


def test_a_good_start_ends_the_search(deep):
    problem, blocks, Y, truth = deep
    looked_at = []

    def starts():
        for start in completion_starts(problem, blocks, truth, 4, np.random.RandomState(0)):
            looked_at.append(start)
            yield start

    found = best_completion(problem, blocks[0], Y, starts(), max_iter=100, tol=1e-13, log=StageLog())
    assert len(looked_at) == 1 and found.residual < 1e-11 and not found.stopped
    network = FeedforwardNetwork(found.weights, found.biases, "tanh", "tanh")
    np.testing.assert_allclose(network(blocks[0]), Y, atol=1e-10)


def test_every_start_is_said(deep, capsys):
    problem, blocks, Y, _ = deep
    starts = completion_starts(problem, blocks, None, 3, np.random.RandomState(0))
    found = best_completion(problem, blocks[0], Y, starts, max_iter=1, tol=1e-13, log=StageLog(1, "here"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and all(line.startswith("[here] 1 steps, relative residual ") for line in lines)
    assert found.stopped and found.n_iter == 1


def test_outputs_that_no_start_can_meet(deep):
    problem, blocks, Y, _ = deep
    starts = [(np.full(6, np.nan), np.zeros(6), None)]
    with pytest.raises(ValueError, match="no start gives finite outputs"):
        best_completion(problem, blocks[0], Y, starts, max_iter=3, tol=1e-13, log=StageLog())


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "softplus"])
def test_hidden_layer_end_where_scipy_does(rng, activation, n_outputs):
    """On noisy outputs, so that the minimum is not zero."""
    g, n, m = get_activation(activation), 80, 3
    Z = rng.standard_normal((n, m))
    scales, shifts = np.array([0.8, 1.3, 1.7]), np.array([-0.4, 0.1, 0.6])
    Y = g(Z * scales + shifts) @ rng.standard_normal((m, n_outputs)) + 0.5 + 1e-2 * rng.standard_normal((n, n_outputs))

    def residual(w):
        Phi = np.hstack([np.ones((n, 1)), g(Z * w[:m] + w[m:])])
        return (Phi @ np.linalg.lstsq(Phi, Y, rcond=None)[0] - Y).ravel()

    start = 1.05 * scales, shifts + 0.05
    expected = scipy.optimize.least_squares(residual, np.concatenate(start), xtol=1e-12, ftol=1e-12, gtol=1e-12)
    weights, biases, result = fit_hidden_layer(Z, Y, g, *start)
    assert result.cost == pytest.approx(2 * expected.cost, rel=1e-6)
    network = FeedforwardNetwork(weights, biases, activation, "identity")
    assert np.sum((network(Z) - Y) ** 2) == pytest.approx(result.cost, rel=1e-9)
    np.testing.assert_allclose(result.x, expected.x, atol=1e-2)


def test_hidden_layer_exact(rng):
    g = get_activation("tanh")
    truth = make_network((4, 4, 2), output_activation="identity", random_state=0)
    Z = rng.standard_normal((100, 4))
    scales, shifts = np.array([0.5, 1.0, 1.5, 2.0]), np.array([0.3, 0.0, -0.3, 0.5])
    Y = g(Z * scales + shifts) @ truth.weights[1] + truth.biases[1]
    weights, biases, result = fit_hidden_layer(Z, Y, g, 0.8 * scales, shifts + 0.1)
    assert result.status == "target"
    np.testing.assert_allclose(np.diag(weights[0]), scales, rtol=1e-9)
    np.testing.assert_allclose(weights[1], truth.weights[1], rtol=1e-8)


def test_equal_units_do_not_blow_up(rng):
    """Two units with one direction and one start make the readout's least squares singular."""
    Z = np.repeat(rng.standard_normal((40, 1)), 2, axis=1)
    weights, biases, result = fit_hidden_layer(Z, np.tanh(Z[:, :1]), get_activation("tanh"), np.ones(2), np.zeros(2))
    assert result.cost < 1e-20 and np.abs(weights[1]).max() < 10


@pytest.mark.parametrize("activation", ["softplus", "gelu", "silu"])
def test_hidden_layer_with_wrong_signs(activation, rng):
    """A softplus or gelu unit turned round is off by a line; the fit must notice and turn it back."""
    network = make_network(
        (6, 5, 2), activation=activation, output_activation="identity", bias_scale=0.3, random_state=1
    )
    X = rng.standard_normal((300, 6))
    signs = np.array([1.0, -1.0, 1.0, -1.0, -1.0])
    Z = X @ (network.weights[0] * signs)
    weights, biases, result = fit_hidden_layer(Z, network(X), get_activation(activation), np.full(5, 0.7), np.zeros(5))
    np.testing.assert_allclose(np.diag(weights[0]), signs, atol=1e-8)
    np.testing.assert_allclose(biases[0], network.biases[0], atol=1e-8)
    found = FeedforwardNetwork(weights, biases, activation, "identity")
    np.testing.assert_allclose(found(Z), network(X), atol=1e-10)
