"""Units are left out as long as the criterion falls."""

import numpy as np
import pytest

from skident.fitting.batched_fits import Rows, parameters_of
from skident.fitting.penalised_fits import Prior
from skident.fitting.scored_pruning import Scoring, prune_by_score
from skident.network import Architecture, FeedforwardNetwork

U = np.random.RandomState(0).standard_normal((200, 3))
W, A = np.random.RandomState(1).standard_normal((3, 3)), np.array([[1.0], [-0.7], [0.5]])


def fitted(W, b, A, activation, noise=0.0):
    network = FeedforwardNetwork([W, A], [b, [0.0]], activation)
    Y = network(U) + noise * np.random.RandomState(2).standard_normal((200, 1))
    scoring = Scoring(Rows(U, Y), 1e-24 * float(np.sum(Y**2)))
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
    pruned = prune_by_score(*fitted(W, np.zeros(3), A, "tanh"), at_least=(2, 1))
    assert pruned.widths == (2, 1) and pruned.cost > 1e-6


def test_with_a_prior_fits_are_penalised_and_parameters_have_their_price():
    network = FeedforwardNetwork([W, A], [np.zeros(3), [0.0]], "tanh")
    architecture, x = Architecture.of(network), parameters_of(network)[None]
    scoring = Scoring(Rows(U, network(U)), 1.0, prior=Prior.like(network, 0.1))
    wanted = 0.1 * (np.sum(W**2) / np.median(np.mean(W**2, axis=0)) + np.sum(A**2) / np.mean(A**2))
    np.testing.assert_allclose(scoring.fits(architecture).cost(x), wanted)
    assert scoring.score(architecture, 5.0) == pytest.approx(5.0 / 0.1 + 2.5 * 16)


def test_the_score_counts_rows_and_parameters():
    scoring = Scoring(Rows(U, np.ones((200, 1))), 1.0)
    assert scoring.score(Architecture((2, 1)), 0.0) == pytest.approx(200 * np.log(1 / 200) + 11 * np.log(200))
