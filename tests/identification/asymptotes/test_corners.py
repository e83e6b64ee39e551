import numpy as np
import pytest

from skident.identification.asymptotes.corners import FarLine, find_corners
from skident.network import FeedforwardNetwork, get_activation
from skident.oracle import NotIdentified, Oracle

D, RADIUS, ENDS = 5, 1e6, (-1e10, 1e10)


def line_through(network, rng):
    origin, direction = np.linalg.qr(rng.standard_normal((D, 2)))[0].T
    return FarLine(Oracle(lambda X: network(X), D), RADIUS * origin, direction, np.full(2, 1e-14))


def network_of(weights, biases, activation, rng):
    outgoing = rng.standard_normal((weights.shape[1], 2))
    return FeedforwardNetwork([weights, outgoing], [biases, np.ones(2)], activation)


@pytest.mark.parametrize("activation", ["softplus", "gelu", "silu", "elu"])
def test_every_unit_bends_once_where_its_hyperplane_is(activation, rng):
    weights, biases = rng.standard_normal((D, 12)), rng.standard_normal(12)
    line = line_through(network_of(weights, biases, activation, rng), rng)
    found = find_corners(line, ENDS, 20, get_activation(activation), 1e2)
    across = line.direction @ weights
    crossings = -(biases + line.origin @ weights) / across
    order = np.argsort(crossings)
    np.testing.assert_allclose([p.position for _, p in found], crossings[order], rtol=1e-8)
    np.testing.assert_allclose([p.slope for _, p in found], np.abs(across[order]), rtol=1e-6)


def test_no_bend_on_a_line_without_units(rng):
    line = FarLine(Oracle(lambda X: X @ np.ones((D, 2)), D), np.ones(D), np.eye(D)[0], np.full(2, 1e-14))
    assert find_corners(line, ENDS, 20, get_activation("silu"), 1e2) == []


def test_too_many_units(rng):
    line = line_through(network_of(rng.standard_normal((D, 6)), np.zeros(6), "gelu", rng), rng)
    with pytest.raises(NotIdentified, match="more than 4 units bend along a line"):
        find_corners(line, ENDS, 4, get_activation("gelu"), 1e2)


@pytest.mark.parametrize("activation", ["silu", "elu"])
def test_parallel_units_are_refused(activation, rng):
    weights = np.repeat(rng.standard_normal((D, 3)), 2, axis=1)
    line = line_through(network_of(weights, np.arange(6.0), activation, rng), rng)
    with pytest.raises(NotIdentified, match="is no single unit.*: parallel units, another activation"):
        find_corners(line, ENDS, 20, get_activation(activation), 1e2)
