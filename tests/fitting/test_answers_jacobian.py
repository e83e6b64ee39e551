import numpy as np

from skident.datasets import make_network
from skident.fitting.answers_jacobian import answers_jacobian, spectrum_of_answers
from skident.fitting.least_squares import weighted_problem
from skident.network import FeedforwardNetwork


def test_the_jacobian_is_that_of_the_normal_equations(rng):
    network, U = make_network((4, 3, 5, 2), random_state=0), rng.standard_normal((7, 4))
    problem = weighted_problem(network, U, np.zeros((7, 2)), 1.0)
    A, _ = problem.normal_equations(problem.flatten(network.weights, network.biases))
    J = answers_jacobian(network, U)
    assert J.shape == (14, network.n_parameters)
    np.testing.assert_allclose(J.T @ J, A, atol=1e-12)


def test_spectra_are_singular_values_whichever_side_is_longer(rng):
    network = make_network((4, 3, 2), random_state=0)
    for n in (5, 60):
        U = rng.standard_normal((n, 4))
        J = answers_jacobian(network, U)
        s = np.linalg.svd(J / np.linalg.norm(J, axis=0), compute_uv=False)
        np.testing.assert_allclose(spectrum_of_answers(network, U), s / s[0], atol=1e-7)


def test_two_units_alike_are_one_less(rng):
    W = rng.standard_normal((3, 1)) @ np.ones((1, 2))
    twice = FeedforwardNetwork([W, np.ones((2, 1))], [np.ones(2), np.zeros(1)], "tanh")
    assert np.sum(spectrum_of_answers(twice, rng.standard_normal((50, 3))) > 1e-6) == 4 + 1 + 1
