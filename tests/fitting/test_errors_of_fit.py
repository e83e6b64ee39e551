"""Standard errors from the residuals of a fit: right for errors of any size, in any unit, and equal in no output."""

import numpy as np
import pytest

from skident.datasets import make_network
from skident.fitting.errors_of_fit import FitSample, standard_errors_of_fit
from skident.fitting.polish import polish_network
from skident.network import change_inputs, change_outputs
from skident.network.calculus import flatten_parameters
from skident.oracle import NotIdentified

GROWING = {
    "equal": lambda U: np.ones((len(U), 2)),
    "with the distance": lambda U: np.linalg.norm(U, axis=1, keepdims=True) * np.ones(2),
    "of the outputs": lambda U: np.tile([1.0, 20.0], (len(U), 1)),
}


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("errors", GROWING)
def test_intervals_cover_as_often_as_they_should(errors, activation):
    """Of fits that weigh all rows alike, to errors of any kind, with 10 outputs per parameter."""
    options = {"activation": activation, "output_activation": "identity", "bias_scale": 0.5}
    network = make_network((4, 5, 2), **options, random_state=0)
    truth, ratios = network.canonical(), []
    for seed in range(16):
        rng = np.random.RandomState(seed)
        U = 1.5 * rng.standard_normal((5 * truth.n_parameters, 4))
        std = 1e-6 * GROWING[errors](U)
        Y = truth(U) + std * rng.standard_normal(std.shape)
        fitted = polish_network(truth, U, Y, noise=np.median(std, axis=0))[0].canonical().align_to(truth)
        sample = FitSample(U, Y, np.median(std, axis=0))
        off = flatten_parameters(fitted.weights, fitted.biases) - flatten_parameters(truth.weights, truth.biases)
        ratios.append(off / flatten_parameters(*standard_errors_of_fit(fitted, sample)))
    assert 0.90 <= np.mean(np.abs(ratios) < 1.96) <= 0.99


def test_the_units_of_inputs_and_outputs_do_not_matter(rng):
    network = make_network((3, 4, 1), bias_scale=0.3, output_activation="identity", random_state=0)
    U = rng.standard_normal((200, 3))
    sample = FitSample(U, network(U) + 1e-3 * rng.standard_normal((200, 1)), np.full(1, 1e-3))
    weights, biases = standard_errors_of_fit(network, sample)
    inner, outer = 1e150, 1e-150
    scaled = change_outputs(
        change_inputs(network, np.zeros(3), np.full(3, 1.0 / inner)), np.zeros(1), np.full(1, outer)
    )
    sample = FitSample(inner * U, outer * sample.outputs, outer * sample.std)
    found, found_biases = standard_errors_of_fit(scaled, sample)
    np.testing.assert_allclose(found[0] * inner, weights[0], rtol=1e-8)
    np.testing.assert_allclose(found[1] / outer, weights[1], rtol=1e-8)
    np.testing.assert_allclose(found_biases[1] / outer, biases[1], rtol=1e-8)


def test_too_few_outputs(rng):
    network = make_network((3, 4, 1), output_activation="identity", random_state=0)
    U = rng.standard_normal((15, 3))
    with pytest.raises(NotIdentified, match="at these 15 inputs do not determine all 21 parameters"):
        standard_errors_of_fit(network, FitSample(U, network(U), np.ones(1)))
