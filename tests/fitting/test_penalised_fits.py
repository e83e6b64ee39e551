"""Penalised fits of a batch of networks."""

import numpy as np

from skident.datasets import make_network
from skident.fitting.batched_fits import BatchedNetworkFits, Rows, parameters_of, random_parameters
from skident.fitting.penalised_fits import PenalisedNetworkFits, Prior
from skident.network import Architecture
from skident.optim import Ending, batched_levenberg_marquardt

RNG = np.random.RandomState(0)
U = RNG.standard_normal((60, 3))
TRUTH = make_network((3, 2, 2), shift_scale=0.3, output_activation="identity", random_state=0)
ROWS = Rows(U, TRUTH(U) + 0.1 * RNG.standard_normal((60, 2)))
PRIOR = Prior((0.3, 0.5), (0.1, 7.0), 0.01)


def test_cost_and_gradient_have_the_penalty_of_all_but_the_last_shifts():
    architecture = Architecture.of(TRUTH)
    fits, plain = PenalisedNetworkFits(architecture, ROWS, PRIOR), BatchedNetworkFits(architecture, ROWS)
    x = random_parameters(3, architecture, 2, np.random.RandomState(1))
    wanted = 0.01 * (np.sum(x[:, :6] ** 2, axis=1) / 0.3 + np.sum(x[:, 6:8] ** 2, axis=1) / 0.1)
    wanted += 0.01 * np.sum(x[:, 8:12] ** 2, axis=1) / 0.5
    np.testing.assert_allclose(fits.cost(x) - plain.cost(x), wanted, rtol=1e-10)
    step = 1e-6 * np.eye(x.shape[1])
    slopes = [(fits.cost(x[:1] + d) - fits.cost(x[:1] - d))[0] / 4e-6 for d in step]
    np.testing.assert_allclose(fits.normal_equations(x)[1][0], slopes, rtol=1e-5, atol=1e-6)


def test_a_prior_is_like_a_network_and_draws_fits_to_0():
    prior = Prior.like(TRUTH, 0.01)
    assert prior.noise == 0.01 and len(prior.weights) == len(prior.shifts) == 2
    np.testing.assert_allclose(prior.weights, [np.median(np.mean(W**2, axis=0)) for W in TRUTH.weights])
    architecture, start = Architecture.of(TRUTH), parameters_of(TRUTH)[None]
    sizes = []
    for noise in (1e-4, 1.0):
        fits = PenalisedNetworkFits(architecture, ROWS, Prior(prior.weights, prior.shifts, noise))
        sizes.append(np.linalg.norm(batched_levenberg_marquardt(fits, start, Ending(max_iter=50, ftol=1e-8)).x))
    assert sizes[1] < 0.9 * sizes[0]


def test_a_broad_prior_allows_pre_activations_of_variance_four():
    prior = Prior.broad(Architecture((6, 3, 1), "tanh"), 5, 0.1)
    rng = np.random.RandomState(0)
    first = np.sqrt(prior.weights[0]) * rng.standard_normal((5, 20_000))
    np.testing.assert_allclose(np.var(rng.standard_normal((20_000, 5)) @ first[:, :50]), 4.0, rtol=0.3)
    units = np.tanh(rng.standard_normal((20_000, 6)))
    second = np.sqrt(prior.weights[1]) * rng.standard_normal((6, 2000))
    np.testing.assert_allclose(np.var(units @ second), 4.0, rtol=0.1)
    assert prior.penalty([(5, 6), (6, 3), (3, 1)])[-1] == 0.0


def test_the_mean_of_the_prior_is_where_a_fit_without_rows_that_tell_ends():
    architecture, center = Architecture((2, 1)), np.arange(1.0, 10.0)
    rows = Rows(np.zeros((3, 2)), np.zeros((3, 1)), np.zeros(3))
    fits = PenalisedNetworkFits(architecture, rows, Prior.broad(architecture, 2, 1.0), center)
    matrix, gradient = fits.normal_equations(center[None])
    assert fits.cost(center[None])[0] == 0.0 and not gradient.any()
    np.testing.assert_array_equal(matrix[0], np.diag(fits.penalty))
