"""Many fits at once do what each of them does alone."""

import numpy as np
import pytest

from skident.datasets import make_network
from skident.fitting.batched_fits import BatchedNetworkFits, Rows, network_of, parameters_of, random_parameters
from skident.fitting.least_squares import NetworkLeastSquares
from skident.network import Architecture


@pytest.mark.parametrize(("widths", "activation"), [((3, 1), "tanh"), ((4, 3, 2), "gelu"), ((2,), "sin")])
def test_normal_equations_are_those_of_every_network_alone(widths, activation):
    rng, architecture = np.random.RandomState(0), Architecture(widths, activation)
    U, Y, weight = rng.standard_normal((40, 5)), rng.standard_normal((40, widths[-1])), rng.randint(1, 4, 40)
    x = random_parameters(5, architecture, 3, rng)
    fits = BatchedNetworkFits(architecture, Rows(U, Y, weight.astype(float)), chunk_bytes=8 * 3 * 200)
    matrix, gradient = fits.normal_equations(x)
    cost = fits.cost(x)
    for b in range(3):  # weights are repetitions of rows
        alone = NetworkLeastSquares(
            fits.shapes, architecture.activations, np.repeat(U, weight, axis=0), np.repeat(Y, weight, axis=0)
        )
        A, g = alone.normal_equations(x[b])
        np.testing.assert_allclose(matrix[b], A, atol=1e-12)
        np.testing.assert_allclose(gradient[b], g, atol=1e-12)
        assert cost[b] == pytest.approx(alone.cost(x[b]))


def test_parameters_and_networks_are_the_same_thing():
    network = make_network((3, 4, 2), output_activation="identity", random_state=1)
    assert network_of(parameters_of(network), 3, Architecture.of(network)) == network


def test_starts_have_first_layers_of_all_sizes():
    x = random_parameters(4, Architecture((50, 1)), 4, np.random.RandomState(0))
    sizes = np.std(x[:, :200], axis=1)
    np.testing.assert_allclose(sizes / sizes[0], 0.1 ** (np.arange(4) / 3), rtol=0.2)


def test_rows_count_weights():
    rows = Rows(np.zeros((2, 1)), np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([0.5, 2.0]))
    assert (rows.n_answers, rows.total) == (5.0, 0.5 * 5 + 2 * 9)
    assert Rows(rows.U, rows.Y).n_answers == 4
