"""Zero and norm of a unit from its profile across its boundary far out."""

import numpy as np
import pytest

from skident.identification.asymptotes.profiles import DISTANCE, Crossing, zero_and_slope
from skident.network import get_activation
from skident.oracle import Oracle

NAMES = ("softplus", "gelu", "gelu_tanh", "silu", "mish", "hardswish", "elu", "selu")
OUTGOING, STRAIGHT = np.array([1.5, -0.4]), np.array([0.2, 3.0])
POSITION = 12.3


def rate_of(name):
    return 1.0507009873554805 if name == "selu" else 1.0


def profile_of(function, slope, activation, rate=1.0):
    """What `zero_and_slope` finds on a line along the first input, on which the outputs are a function of it."""
    oracle = Oracle(lambda X: function(X[:, :1]) * OUTGOING + X[:, :1] * STRAIGHT, 2)
    crossing = Crossing(np.array([0.0, 1.0]), np.array([1.0, 0.0]), 1.0, OUTGOING * slope * rate, 1.0)
    zero, found, residual = zero_and_slope(oracle, crossing, get_activation(activation))
    assert zero[1] == DISTANCE
    return zero[0], found, residual


@pytest.mark.parametrize("slope", [0.7, 0.02])
@pytest.mark.parametrize("name", NAMES)
def test_position_and_slope(name, slope):
    """Rounding is 1e-11 of the outputs there, and relative to the smallest difference from the lines 1e-9."""
    position, found, residual = profile_of(
        lambda t: get_activation(name)(slope * (t - POSITION)), slope, name, rate_of(name)
    )
    assert found == pytest.approx(slope, rel=1e-6) and residual < 1e-6
    assert position == pytest.approx(POSITION, abs=1e-6)


@pytest.mark.parametrize("other", NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_other_activations_have_other_profiles(name, other):
    residual = profile_of(lambda t: get_activation(name)(0.5 * (t - POSITION)), 0.5, other, rate_of(name))[2]
    assert (residual > 1e-3) == (name != other)


def test_two_units_are_not_one():
    g = get_activation("gelu")
    assert profile_of(lambda t: g(0.2 * (t - POSITION)) + g(0.3 * (t - POSITION)), 0.5, "gelu")[2] > 1e-3


@pytest.mark.parametrize("jump", [0.5, 0.4], ids=["a corner", "another jump"])
def test_what_is_no_unit(jump):
    assert profile_of(lambda t: np.maximum(jump * (t - POSITION), 0.0), 0.5, "silu")[2] > 0.5
