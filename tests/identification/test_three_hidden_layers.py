"""Three hidden layers below one output, through `NetworkIdentifier`."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident.metrics import parameter_error, relative_max_error
from skident.network import FeedforwardNetwork
from tests.identifiers import make_identifier

SIZES = (6, 8, 5, 4, 1)


def planted(sizes=SIZES, seed=0, activation="tanh"):
    """Weights of variance one over what a unit reads."""
    rng = np.random.RandomState(seed)
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    weights = [rng.standard_normal((a, b)) / np.sqrt(a) for a, b in pairs]
    return FeedforwardNetwork(weights, [0.3 * rng.standard_normal(b) for _, b in pairs], activation)


def identify(network, **options):
    X = np.random.default_rng(0).standard_normal((200, network.n_inputs))
    options = {"layer_widths": network.layer_widths, "output_activation": "identity", "random_state": 0} | options
    return make_identifier(lambda A: network(A), activation="tanh", **options).fit(X)


def test_more_first_layer_units_than_inputs(rng):
    network = planted()
    model = identify(network)
    X = rng.standard_normal((500, SIZES[0]))
    assert model.report_.exact and model.report_.route in ("saturation, edges", "saturation, stem")
    assert relative_max_error(network(X), model.network_(X)) < 1e-10
    assert parameter_error(network, model.network_) < 1e-6


@pytest.mark.usefixtures("own_seconds")
@pytest.mark.parametrize("limit", [{"max_seconds": 0.5}, {"max_queries": 2500}])
def test_budgets_hold(limit):
    """What was found until then is never called exact unless it is."""
    network, X = planted((8, 14, 12, 10, 1), seed=1), np.random.default_rng(1).standard_normal((500, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model = identify(network, **limit)
        except ValueError as error:
            assert "no network was recovered" in str(error)
            return
    assert model.n_queries_ <= limit.get("max_queries", np.inf)
    assert not model.report_.exact or relative_max_error(network(X), model.network_(X)) < 1e-8
