import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.piecewise.kernel.output_error import measure_rounding
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, Oracle

NETWORK = make_network((5, 6, 1), activation="relu", output_activation="identity", shift_scale=0.5, random_state=0)
SEEN = {
    "smooth": [lambda X: np.tanh(NETWORK(X)), FeedforwardNetwork(NETWORK.weights, NETWORK.biases, "softplus")],
    "noisy": [
        lambda X: NETWORK(X) + 1e-9 * np.random.RandomState(len(X)).standard_normal((len(X), 1)),
        lambda X: NETWORK(X).round(8),
        lambda X: NETWORK(X).astype(np.float32),
    ],
    "steps": [lambda X: NETWORK(X).round(2), lambda X: np.floor(X).sum(axis=1)],
}


SAID = {
    "smooth": "bend everywhere",
    "noisy": "noise or rounding .* hides the activation boundaries",
    "steps": "do not change at all",
}


@pytest.mark.parametrize(("seen", "box"), [(seen, box) for seen in SEEN for box in SEEN[seen]])
def test_what_is_not_piecewise_linear(seen, box):
    oracle = Oracle(box, 5, derivatives="finite_difference")
    with pytest.raises(NotIdentified, match=SAID[seen]) as info:
        measure_rounding(oracle, np.random.RandomState(0))
    assert info.value.reason == seen and oracle.n_queries == 120


def test_noise_of_piecewise_linear_answers():
    """Some roundings of the largest answer, in every output's own unit; 16 is the margin."""
    scales = np.array([1e-6, 1.0, 1e6])
    network = make_network((5, 6, 3), activation="relu", output_activation="identity", random_state=0)
    box = lambda X: network(X) * scales  # noqa: E731
    noise = measure_rounding(Oracle(box, 5), np.random.RandomState(0)) / scales
    assert np.all((noise > 16 * 2e-16) & (noise < 16 * 2e-15))
    assert measure_rounding(Oracle(lambda X: 0.0 * X[:, 0], 5), np.random.RandomState(0)) > 0
