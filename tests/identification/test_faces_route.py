"""Two hidden layers with few outputs, the second one as wide as the first, through `NetworkIdentifier`."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from skident import NetworkIdentifier
from skident.identification.methods import second_layer as faces_route
from skident.metrics import parameter_error, relative_max_error
from skident.network import FeedforwardNetwork
from tests.identifiers import make_identifier

STAGE = "second layer (faces)"
pytestmark = pytest.mark.usefixtures("own_seconds")


def planted(sizes, seed=0, scale=1.5, activation="tanh", output="identity"):
    rng = np.random.RandomState(seed)
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    weights = [scale * rng.standard_normal((a, b)) / np.sqrt(a) for a, b in pairs]
    return FeedforwardNetwork(weights, [0.5 * rng.standard_normal(b) for _, b in pairs], activation, output)


def identify(network, widths=None, box=None, **options):
    widths = network.layer_widths if widths is None else widths
    X = np.random.default_rng(0).standard_normal((200, network.n_inputs))
    names = {"activation": network.activation, "output_activation": network.output_activation, "random_state": 0}
    return make_identifier(
        (lambda A: network(A)) if box is None else box, layer_widths=widths, **(names | options)
    ).fit(X)


def failures(model):
    return [stage.details["failed"] for stage in model.report_.stages if "failed" in stage.details]


@pytest.mark.parametrize("widths", [None, "auto"])
@pytest.mark.parametrize(
    ("sizes", "activation", "output"),
    [
        ((10, 16, 16, 1), "tanh", "identity"),
        ((8, 10, 9, 1), "sigmoid", "identity"),
        ((7, 10, 8, 1), "erf", "identity"),
        ((10, 8, 9, 2), "tanh", "tanh"),
        ((7, 10, 10, 1), "tanh", "sigmoid"),
        ((6, 8, 9, 1), "tanh", "identity"),
    ],
)
def test_networks_and_widths(sizes, activation, output, widths, rng):
    network = planted(
        sizes, seed=3, scale=3.0 if activation == "sigmoid" else 1.0, activation=activation, output=output
    )
    model = identify(network, widths)
    assert model.report_.exact and model.report_.route == "saturation, faces" and model.layer_widths_ == sizes[1:]
    X = rng.standard_normal((500, sizes[0]))
    assert relative_max_error(network(X), model.network_(X)) < 1e-10
    assert parameter_error(network, model.network_) < 1e-6
    if widths is None:
        assert "faces" in model.report_.reason and model.report_.attempts == 1


def test_a_unit_too_weak_for_derivatives():
    """The fit to outputs at vertices recovers it."""
    model = identify(planted((8, 7, 4, 1), seed=3, scale=1.0))
    assert model.report_.exact and model.report_.route == "saturation, faces" and not failures(model)


def test_erf_units_with_unknown_widths():
    """Three of five at least; seven of eight when this was written."""
    found = 0
    for seed in range(1, 6):
        network = planted((7, 10, 8, 1), seed=seed, scale=1.0, activation="erf")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                model = identify(network, "auto", max_seconds=20.0, n_attempts=1, n_starts=1)
            except ValueError:  # nothing was found in time
                continue
        X = np.random.default_rng(1).standard_normal((500, 7))
        close = relative_max_error(network(X), model.network_(X)) < 1e-10
        assert close or not model.report_.exact
        found += close and model.layer_widths_ == (10, 8, 1)
    assert found >= 3


@pytest.mark.parametrize(
    ("sizes", "activation", "output"),
    [
        ((2, 6, 5, 1), "tanh", "identity"),
        ((3, 10, 10, 1), "tanh", "identity"),
        ((4, 8, 8, 1), "sigmoid", "identity"),
        ((3, 6, 6, 2), "erf", "identity"),
        ((3, 6, 5, 1), "tanh", "tanh"),
    ],
)
def test_few_inputs(sizes, activation, output, rng):
    """No face has as many free units as products need: a fit."""
    network = planted(
        sizes, seed=5, scale=3.0 if activation == "sigmoid" else 1.0, activation=activation, output=output
    )
    model = identify(network)
    assert model.report_.exact and model.report_.route == "saturation, faces" and not failures(model)
    X = rng.standard_normal((500, sizes[0]))
    assert relative_max_error(network(X), model.network_(X)) < 1e-10
    assert parameter_error(network, model.network_) < 1e-6


def test_a_trained_regressor(rng):
    X, y = load_diabetes(return_X_y=True)
    X, y = StandardScaler().fit_transform(X), (y - y.mean()) / y.std()
    mlp = MLPRegressor(hidden_layer_sizes=(16, 16), activation="tanh", random_state=1, solver="lbfgs", max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mlp.fit(X, y)
    network = FeedforwardNetwork.from_sklearn(mlp)
    model = NetworkIdentifier(mlp.predict, layer_widths=(16, 16, 1), activation="tanh", random_state=0).fit(X)
    assert model.report_.exact and model.report_.route == "saturation, faces"
    assert parameter_error(network, model.network_) < 1e-6


def test_more_units_than_there_are_is_said():
    network = planted((10, 16, 13, 1), seed=4, scale=1.0)
    with pytest.warns(ConvergenceWarning, match=r"\(16, 13, 1\) explain all outputs"):
        model = identify(network, (16, 16, 1))
    assert model.layer_widths_ == (16, 13, 1) and model.report_.relative_max_error < 1e-10


def hard_to_see(what):
    network = planted((8, 10, 9, 1), seed=3, scale=1.0)
    weights = [W.copy() for W in network.weights]
    if what == "parallel":
        weights[0][:, 1] = 1.5 * weights[0][:, 0]
    else:
        weights[1][:, 4] = weights[1][:, 2]
    return FeedforwardNetwork(weights, network.biases, "tanh", "identity")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_two_second_layer_units_with_equal_rows_have_one_direction_and_other_routes_are_taken(rng):
    """A fit may recover both; if none does, the network is not exact."""
    network = hard_to_see("equal rows")
    model = identify(network, max_seconds=8.0, n_attempts=1, n_starts=1)
    names = [stage.name for stage in model.report_.stages]
    at = names.index(STAGE)
    assert "leaves a relative residual" in model.report_.stages[at].details["failed"]
    assert any(name.startswith(("second layer (fit)", "rest of the network")) for name in names[at:])
    X = rng.standard_normal((500, 8))
    assert model.report_.exact == (relative_max_error(network(X), model.network_(X)) < 1e-8)


def test_two_parallel_first_layer_units_are_named_and_other_routes_are_taken():
    with pytest.warns(ConvergenceWarning, match="not exact"):
        model = identify(hard_to_see("parallel"), max_seconds=8.0, n_attempts=2, n_starts=1)
    assert "9 of 10 first-layer units detected; parallel ones look like one" in failures(model)
    assert not model.report_.exact and model.report_.route != "saturation, faces"


def test_faces_out_of_an_input_range_leave_the_other_routes():
    network = planted((10, 8, 9, 1), seed=3, scale=1.0)
    with pytest.warns(ConvergenceWarning, match="not exact"):
        model = identify(network, input_range=(-6.0, 6.0), max_seconds=8.0, n_attempts=1, n_starts=1)
    assert not model.report_.exact and model.report_.route != "saturation, faces"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_queries_that_do_not_suffice_leave_the_other_routes(monkeypatch):
    monkeypatch.setattr(faces_route, "COST_MARGIN", np.inf)
    model = identify(planted((10, 16, 16, 1), seed=3, scale=1.0), max_seconds=5.0, n_attempts=1, n_starts=1)
    assert all(stage.name != STAGE for stage in model.report_.stages)


def test_time_that_does_not_suffice_leaves_the_other_routes(monkeypatch):
    monkeypatch.setattr(faces_route, "TIME_SHARE", 0.0)
    network = planted((10, 8, 9, 1), seed=3, scale=1.0)
    with pytest.warns(ConvergenceWarning, match="not exact"):
        model = identify(network, max_seconds=10.0, n_attempts=1, n_starts=1)
    assert failures(model) == ["its share of max_seconds is over"] * 2 and model.report_.route != "saturation, faces"
