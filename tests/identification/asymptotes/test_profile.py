import numpy as np
import pytest

from skident.identification.asymptotes.corners import Corner, FarLine, fit_profile
from skident.network import get_activation
from skident.oracle import Oracle

NAMES = ("softplus", "gelu", "silu", "elu")
OUTGOING = np.array([1.5, -0.4])
POSITION, ROUNDING = 123.456, np.full(2, 1e-15)


def line_of(profile):
    """A line along the first input, on which the outputs are a function of it."""
    oracle = Oracle(lambda X: profile(X[:, :1]), 2)
    return FarLine(oracle, np.zeros(2), np.array([1.0, 0.0]), ROUNDING)


def corner_of(activation, slope):
    """The two lines of ``OUTGOING g(slope (t - POSITION))``, and a straight part."""
    low = float(activation(np.array([-1e3]))[0])
    position, jump = POSITION + low / slope, OUTGOING * abs(slope)
    straight = np.array([0.2, 3.0])
    before = straight + (0.0 if slope > 0 else -jump)
    return Corner(position, OUTGOING * low + straight * position, before, before + jump, 1e4), straight


@pytest.mark.parametrize("slope", [0.7, -0.02])
@pytest.mark.parametrize("name", NAMES)
def test_length_position_and_side(name, slope):
    g = get_activation(name)
    corner, straight = corner_of(g, slope)
    line = line_of(lambda t: g(slope * (t - POSITION)) * OUTGOING + t * straight)
    found = fit_profile(line, corner, g)
    assert found.slope == pytest.approx(abs(slope), rel=1e-9)
    assert found.position == pytest.approx(POSITION, abs=1e-8)
    assert found.orientation == (0 if name != "elu" else np.sign(slope))


@pytest.mark.parametrize("other", NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_other_activations_have_other_profiles(name, other):
    g, h = get_activation(name), get_activation(other)
    corner, straight = corner_of(g, 0.5)
    line = line_of(lambda t: g(0.5 * (t - POSITION)) * OUTGOING + t * straight)
    assert (fit_profile(line, corner, h) is None) == (name != other)


def test_two_units_are_not_one():
    g = get_activation("gelu")
    corner, straight = corner_of(g, 0.5)
    line = line_of(lambda t: (g(0.2 * (t - POSITION)) + g(0.3 * (t - POSITION))) * OUTGOING + t * straight)
    assert fit_profile(line, corner, g) is None


def test_a_sharp_corner_has_no_profile():
    g = get_activation("silu")
    corner, straight = corner_of(g, 0.5)
    line = line_of(lambda t: np.maximum(0.5 * (t - POSITION), 0.0) * OUTGOING + t * straight)
    assert fit_profile(line, corner, g) is None
