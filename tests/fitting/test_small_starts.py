import numpy as np
import pytest

from skident.fitting.random_starts import Search
from skident.fitting.small_starts import network_from_small_starts, small_starts_serve
from skident.metrics import parameter_error
from skident.network import Architecture, FeedforwardNetwork


def planted(sizes, seed, activation="tanh"):
    rng = np.random.RandomState(seed)
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    weights = [rng.standard_normal((a, b)) / np.sqrt(a) for a, b in pairs]
    return FeedforwardNetwork(weights, [0.3 * rng.standard_normal(b) for _, b in pairs], activation)


def in_a_cube(network, seed=0, n_rows=3000):
    """Answers in the cube of first-layer outputs."""
    U = np.random.RandomState(seed).uniform(-1.0, 1.0, size=(n_rows, network.n_inputs))
    return lambda n: (U[:n], network(U[:n]))


def test_two_hidden_layers_below_one_output():
    """Both are found, in few starts."""
    starts = []
    for seed in range(2):
        truth = planted((6, 5, 4, 1), seed)
        found, misfit = network_from_small_starts(
            in_a_cube(truth),
            6,
            Architecture.of(truth),
            np.random.RandomState(seed),
            search=Search(12, progress=starts.append),
        )
        assert misfit < 1e-9 and parameter_error(truth, found) < 1e-6
    assert len(starts) <= 20


def test_answers_of_no_network(rng):
    """Something of the widths asked for, with its misfit, also where there is no time."""
    Y = rng.standard_normal((3000, 1))
    U = rng.standard_normal((3000, 4))
    for n_starts, deadline in ((2, np.inf), (50, 0.0)):
        starts = []
        search = Search(n_starts, deadline=deadline, progress=starts.append)
        found, misfit = network_from_small_starts(
            lambda n: (U[:n], Y[:n]), 4, Architecture((3, 2, 1)), np.random.RandomState(0), search=search
        )
        assert found.layer_widths == (3, 2, 1) and misfit > 0.5
        assert max(starts) <= (n_starts if deadline else 1)


@pytest.mark.parametrize(
    ("widths", "output", "serves"),
    [
        ((10, 8, 1), "identity", True),
        ((16, 16, 16, 1), "identity", True),
        ((8, 1), "identity", False),
        ((10, 8, 1), "tanh", False),
        ((64, 64, 1), "identity", False),
    ],
)
def test_what_small_starts_serve(widths, output, serves):
    assert small_starts_serve(12, Architecture(widths, "tanh", output)) == serves


def test_outputs_that_are_not_linear_are_refused():
    with pytest.raises(ValueError, match="output_activation='tanh': only linear outputs"):
        network_from_small_starts(None, 4, Architecture((3, 2, 1), "tanh", "tanh"), np.random.RandomState(0))
