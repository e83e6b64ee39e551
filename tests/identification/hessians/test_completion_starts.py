import numpy as np
import pytest

from skident.base.progress import StageLog
from skident.datasets import make_network
from skident.identification.hessians.completion_starts import best_completion, completion_starts
from skident.identification.hessians.scales_and_shifts import CompletionProblem, mixing_matrices
from skident.network import Architecture, FeedforwardNetwork


@pytest.fixture
def deep():
    """A problem of three layers, its features and answers, and the scales and shifts that solve it."""
    network = make_network((8, 6, 4, 2), random_state=0)
    lengths = [np.linalg.norm(v, axis=0) for v in network.entangled_weights(np.zeros(8))]
    X = np.random.default_rng(0).standard_normal((300, 8))
    blocks = [X @ (v / n) for v, n in zip(network.entangled_weights(np.zeros(8)), lengths)]
    problem = CompletionProblem(Architecture((6, 4, 2), "tanh", "tanh"), mixing_matrices(blocks))
    return problem, blocks, network(X), (lengths[0], network.biases[0])


def ridge_problem():
    return CompletionProblem(Architecture((6, 2), "tanh", "identity"), [])


@pytest.mark.parametrize("given", [False, True])
def test_as_many_starts_as_asked_for(deep, given):
    problem, blocks, _, truth = deep
    for asked, which in ((problem, blocks), (ridge_problem(), blocks[:1])):
        starts = list(completion_starts(asked, which, truth if given else None, 4, np.random.RandomState(0)))
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
    assert len(looked_at) == 1 and found.misfit < 1e-11 and not found.stopped
    network = FeedforwardNetwork(found.weights, found.biases, "tanh", "tanh")
    np.testing.assert_allclose(network(blocks[0]), Y, atol=1e-10)


def test_every_start_is_said(deep, capsys):
    problem, blocks, Y, _ = deep
    starts = completion_starts(problem, blocks, None, 3, np.random.RandomState(0))
    found = best_completion(problem, blocks[0], Y, starts, max_iter=1, tol=1e-13, log=StageLog(1, "here"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and all(line.startswith("[here] 1 steps, relative misfit ") for line in lines)
    assert found.stopped and found.n_iter == 1


def test_answers_that_no_start_can_meet(deep):
    problem, blocks, Y, _ = deep
    starts = [(np.full(6, np.nan), np.zeros(6), None)]
    with pytest.raises(ValueError, match="no start gives finite answers"):
        best_completion(problem, blocks[0], Y, starts, max_iter=3, tol=1e-13, log=StageLog())
