"""Questions that have to stay near the data of a network with few inputs: the function, and what stays open."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident.metrics import relative_max_error
from skident.network import FeedforwardNetwork
from tests.identifiers import make_identifier


def flat(sizes, seed=0, scale=0.7):
    rng = np.random.RandomState(seed)
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    weights = [scale * rng.standard_normal((a, b)) / np.sqrt(a) for a, b in pairs]
    return FeedforwardNetwork(weights, [0.1 * rng.standard_normal(b) for b in sizes[1:]], "tanh")


def identify(network, asked, **options):
    X = np.random.default_rng(0).standard_normal((200, network.n_inputs)).clip(-2.9, 2.9)

    def box(A):
        asked.append(np.abs(A).max())
        return network(A)

    names = {"layer_widths": network.layer_widths, "activation": "tanh", "random_state": 0}
    return make_identifier(box, input_range=(-3.0, 3.0), **names | options).fit(X)


@pytest.mark.usefixtures("own_seconds")
def test_what_stays_open_is_said_first_and_the_function_found(rng):
    network, asked = flat((2, 12, 12, 1)), []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = identify(network, asked, max_seconds=3.0)
    first, *_, last = [str(w.message) for w in said]
    assert first.startswith("outputs within input_range determine about") and "weights remain undetermined" in first
    assert "of the 205 parameters" in first and ("not exact" in last or "determine about" in last)
    assert not model.report_.exact and model.report_.route == "function near the data"
    assert 0.2 < model.report_.determined < 0.95 and len(model.report_.spectrum) == 205
    np.testing.assert_allclose(model.report_.determined, np.mean(model.report_.spectrum > 1e-6))
    U = rng.uniform(-2.0, 2.0, (500, 2))
    assert relative_max_error(network(U), model.network_(U)) < 0.02 and max(asked) <= 3.0 + 1e-9


def test_the_look_is_made_before_the_questions():
    network, asked = flat((2, 8, 8, 1)), []
    with pytest.warns(ConvergenceWarning, match="determine about|not exact"):
        model = identify(network, asked, max_queries=800)
    names = [stage.name for stage in model.report_.stages]
    assert names[0] == "provisional fit" and model.n_queries_ <= 800


def test_many_inputs_are_not_warned_of():
    network, asked = flat((8, 6, 1), scale=1.0), []
    model = identify(network, asked)
    assert model.report_.exact and all(stage.name != "provisional fit" for stage in model.report_.stages)
