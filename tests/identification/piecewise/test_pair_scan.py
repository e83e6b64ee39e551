"""Critical points along lines of functions with several outputs, from pairs of points."""

import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.piecewise.kernel.scan import scan_line
from skident.identification.piecewise.several_outputs.pair_scan import scan_pairs
from skident.oracle import NotIdentified

OPTIONS = {"output_error": 1e-14, "length_scale": 1.0, "max_boundaries": 2000}


def bends(positions, seed=0):
    """A function with the given bends, and its jumps (n, 4)."""
    U = np.random.RandomState(seed).standard_normal((len(positions), 4))
    return (lambda t: np.abs(t[:, None] - positions) @ U), 2.0 * U


@pytest.mark.parametrize("seed", range(4))
def test_all_critical_points_of_a_network_with_a_third_of_the_queries(seed):
    network = make_network((30, 24, 16, 5), activation="relu", output_activation="identity", random_state=seed)
    rng, n_queries = np.random.RandomState(seed), [0]
    origin, direction = rng.standard_normal((2, 30))

    def query(t):
        n_queries[0] += len(t)
        return network(origin + t[:, None] * direction)

    slow = scan_line(query, 300.0)
    n_slow, n_queries[0] = n_queries[0], 0
    positions, jumps = scan_pairs(query, -300.0, 300.0, rng=rng, **OPTIONS)
    assert len(positions) == len(slow.positions)
    assert np.abs(positions - slow.positions).max() < 1e-10 * (1.0 + np.abs(positions).max())
    assert np.abs(jumps - slow.jumps).max() < 1e-8 * np.abs(jumps).max()
    assert n_queries[0] < n_slow / 2.0


def test_bends_close_together_and_far_apart():
    """Distances from 1e-4 to 1e2: also several bends within a first pair, which is 2 % of its interval wide."""
    positions = np.array([-90.0, -1e-4, 0.0, 3e-4, 1e-3, 0.5, 0.5001, 7.0, 95.0])
    function, jumps = bends(positions)
    options = {**OPTIONS, "output_error": 1e-13}  # outputs are about 200 near 0
    found = scan_pairs(function, -100.0, 100.0, rng=np.random.RandomState(0), **options)
    np.testing.assert_allclose(found[0], positions, atol=1e-9)
    np.testing.assert_allclose(found[1], jumps, atol=1e-5)


def test_two_parallel_bends_are_not_taken_for_one():
    """The outer pieces meet in all outputs, but not on the function: it bends up and down again in between."""
    u = np.array([[1.0, -2.0, 0.5]])
    positions, _ = scan_pairs(
        lambda t: (np.maximum(t, 0.0) - 0.5 * np.maximum(t - 1.0, 0.0))[:, None] * u + t[:, None],
        -50.0, 50.0, rng=np.random.RandomState(0), **OPTIONS,
    )  # fmt: skip
    np.testing.assert_allclose(positions, [0.0, 1.0], atol=1e-10)


def test_no_bends():
    positions, jumps = scan_pairs(lambda t: t[:, None] * np.ones(3), -9.0, 9.0, rng=np.random.RandomState(0), **OPTIONS)
    assert positions.shape == (0,) and jumps.shape == (0, 3)


def test_curved_functions_are_refused():
    with pytest.raises(NotIdentified, match="boundaries"):
        scan_pairs(lambda t: np.sin(t)[:, None] * np.ones(3), -9.0, 9.0, rng=np.random.RandomState(0), **OPTIONS)
