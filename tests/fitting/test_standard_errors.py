import numpy as np
import pytest

from skident.datasets import make_network
from skident.fitting.standard_errors import standard_errors
from skident.network import change_inputs, change_outputs


@pytest.mark.parametrize(("inner", "outer"), [(1e150, 1.0), (1e-150, 1.0), (1.0, 1e300), (1.0, 1e-290), (1e150, 1e100)])
def test_units_whose_squares_float64_does_not_hold(inner, outer):
    """The errors of weights and shifts come in the weights' units, whatever those of inputs and answers are."""
    network = make_network((4, 3, 2), shift_scale=0.3, output_activation="identity", random_state=0)
    U = np.random.default_rng(0).standard_normal((200, 4))
    weights, shifts = standard_errors(network, U, 1e-3)
    scaled = change_inputs(network, np.zeros(4), np.full(4, 1.0 / inner))
    scaled = change_outputs(scaled, np.zeros(2), np.full(2, outer))
    found, found_shifts = standard_errors(scaled, inner * U, 1e-3 * outer)
    np.testing.assert_allclose(found[0] * inner, weights[0], rtol=1e-10)
    np.testing.assert_allclose(found_shifts[0], shifts[0], rtol=1e-10)
    np.testing.assert_allclose(found[1] / outer, weights[1], rtol=1e-10)
    np.testing.assert_allclose(found_shifts[1] / outer, shifts[1], rtol=1e-10)
