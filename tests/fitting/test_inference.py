"""What samples determine: standard errors, the spectrum of the Jacobian, and the test of lack of fit."""

import numpy as np
import pytest

from skident.datasets import make_network
from skident.fitting.batched_fits import BatchedNetworkFits, WeightedSamples, parameters_of, random_parameters
from skident.fitting.lack_of_fit import lack_of_fit
from skident.fitting.least_squares import weighted_problem
from skident.fitting.standard_errors import jacobian_spectrum, parameter_jacobian, standard_errors
from skident.network import Architecture, FeedforwardNetwork, change_inputs, change_outputs
from skident.network.calculus import flatten_parameters
from skident.optim import Ending, batched_levenberg_marquardt


@pytest.mark.parametrize(("inner", "outer"), [(1e150, 1.0), (1e-150, 1.0), (1.0, 1e300), (1.0, 1e-290), (1e150, 1e100)])
def test_units_whose_squares_float64_does_not_hold(inner, outer):
    """The errors of weights and shifts come in the weights' units, whatever those of inputs and answers are."""
    network = make_network((4, 3, 2), bias_scale=0.3, output_activation="identity", random_state=0)
    U = np.random.default_rng(0).standard_normal((200, 4))
    weights, shifts = standard_errors(network, U, 1e-3)
    scaled = change_inputs(network, np.zeros(4), np.full(4, 1.0 / inner))
    scaled = change_outputs(scaled, np.zeros(2), np.full(2, outer))
    found, found_shifts = standard_errors(scaled, inner * U, 1e-3 * outer)
    np.testing.assert_allclose(found[0] * inner, weights[0], rtol=1e-10)
    np.testing.assert_allclose(found_shifts[0], shifts[0], rtol=1e-10)
    np.testing.assert_allclose(found[1] / outer, weights[1], rtol=1e-10)
    np.testing.assert_allclose(found_shifts[1] / outer, shifts[1], rtol=1e-10)


def test_the_jacobian_is_that_of_the_normal_equations(rng):
    network, U = make_network((4, 3, 5, 2), random_state=0), rng.standard_normal((7, 4))
    problem = weighted_problem(network, U, np.zeros((7, 2)), 1.0)
    A, _ = problem.normal_equations(flatten_parameters(network.weights, network.biases))
    J = parameter_jacobian(network, U)
    assert J.shape == (14, network.n_parameters)
    np.testing.assert_allclose(J.T @ J, A, atol=1e-12)


def test_spectra_are_singular_values_whichever_side_is_longer(rng):
    network = make_network((4, 3, 2), random_state=0)
    for n in (5, 60):
        U = rng.standard_normal((n, 4))
        J = parameter_jacobian(network, U)
        s = np.linalg.svd(J / np.linalg.norm(J, axis=0), compute_uv=False)
        np.testing.assert_allclose(jacobian_spectrum(network, U), s / s[0], atol=1e-7)


def test_two_units_alike_are_one_less(rng):
    W = rng.standard_normal((3, 1)) @ np.ones((1, 2))
    twice = FeedforwardNetwork([W, np.ones((2, 1))], [np.ones(2), np.zeros(1)], "tanh")
    assert np.sum(jacobian_spectrum(twice, rng.standard_normal((50, 3))) > 1e-6) == 4 + 1 + 1


def least_squares(architecture, rows, starts):
    ending = Ending(max_iter=40, ftol=1e-5)
    return batched_levenberg_marquardt(BatchedNetworkFits(architecture, rows), starts, ending).x


def rows_of(widths, n, seed, noise=None):
    truth = make_network((3, *widths), bias_scale=0.3, output_activation="identity", random_state=seed)
    rng = np.random.RandomState(seed)
    U = rng.standard_normal((n, 3))
    Y = truth(U)
    return truth, WeightedSamples(U, Y if noise is None else Y + noise(rng, U, Y.shape))


NOISES = {
    "Gaussian": lambda rng, U, shape: 0.1 * rng.standard_normal(shape),
    "heavy tails": lambda rng, U, shape: 0.1 * rng.standard_t(3, shape),
    "larger outside": lambda rng, U, shape: 0.1 * (0.3 + np.abs(U[:, :1])) * rng.standard_normal(shape),
    "equal in both": lambda rng, U, shape: np.repeat(0.1 * rng.standard_normal((shape[0], 1)), shape[1], axis=1),
}  # fmt: skip


@pytest.mark.parametrize("noise", NOISES)
def test_noise_is_not_called_a_misfit(noise):
    chances = []
    for seed in range(25):
        truth, rows = rows_of((2, 2), 160, seed, NOISES[noise])
        architecture = Architecture.of(truth)
        x = least_squares(architecture, rows, parameters_of(truth)[None])[0]
        chances.append(lack_of_fit(architecture, rows, x, np.random.RandomState(seed)))
    assert min(chances) > 1e-3 and np.mean(np.array(chances) < 0.1) <= 0.25


def test_weighted_rows_are_rows():
    truth, rows = rows_of((2, 1), 160, 0, NOISES["Gaussian"])
    weighted = WeightedSamples(rows.U, rows.Y, np.random.RandomState(1).uniform(0.5, 1.5, 160))
    architecture = Architecture.of(truth)
    x = least_squares(architecture, weighted, parameters_of(truth)[None])[0]
    assert lack_of_fit(architecture, weighted, x, np.random.RandomState(0)) > 1e-3


def test_local_minima_and_widths_too_small_are_no_noise():
    for seed, widths in enumerate([(4, 1), (3, 1), (5, 3, 1)]):
        _, rows = rows_of((5, 3, 1), 600, seed)
        architecture = Architecture(widths)
        ends = least_squares(architecture, rows, random_parameters(3, architecture, 6, np.random.RandomState(seed)))
        stuck = [x for x in ends if BatchedNetworkFits(architecture, rows).cost(x[None])[0] > 1e-6 * rows.total]
        assert stuck
        assert max(lack_of_fit(architecture, rows, x, np.random.RandomState(0)) for x in stuck) < 1e-3


def test_few_rows_tell_nothing():
    truth, rows = rows_of((2, 1), 40, 0)
    assert lack_of_fit(Architecture.of(truth), rows, 0.1 * np.ones(11), np.random.RandomState(0)) == 1.0


def test_a_random_part_stands_for_many_samples():
    rng = np.random.RandomState(0)
    U = rng.standard_normal((3000, 3))
    samples = WeightedSamples(U, U[:, :1] ** 2)
    assert lack_of_fit(Architecture((1,)), samples, np.zeros(4), rng, max_entries=2**17) < 1e-3
