import copy
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.validation import check_is_fitted

from skident import EntangledWeightExtractor, IdentifierOptions, NetworkCompletion, NetworkIdentifier
from skident.datasets import make_network
from skident.metrics import parameter_error, relative_max_error
from skident.network import FeedforwardNetwork
from tests.identifiers import make_identifier
from tests.rates import fewest_successes

D = 8


class Counting:
    """A callable that hides the network and counts rows."""

    def __init__(self, network):
        self.network, self.n_rows = network, 0

    def __call__(self, X):
        self.n_rows += len(X)
        return self.network(X)


@pytest.fixture
def X(rng):
    return rng.standard_normal((200, D))


def identifier(network, box=None, **options):
    names = {"activation": network.activation, "output_activation": network.output_activation}
    options = {"layer_widths": network.layer_widths, "random_state": 0, **names, **options}
    return make_identifier(Counting(network) if box is None else box, **options)


def check_exact(network, model, X, error=1e-10, parameters=1e-6):
    """The same function on fresh inputs, and the same weights and shifts up to symmetries."""
    X_new = X.mean(axis=0) + X.std(axis=0) * np.random.default_rng(99).standard_normal((500, X.shape[1]))
    Y = network(X_new)
    assert model.report_.exact and model.report_.relative_max_error < model.tol
    assert relative_max_error(Y, model.predict(X_new).reshape(Y.shape)) <= error
    assert parameter_error(network, model.network_) <= parameters


# -- every route -------------------------------------------------------------------------------------------------------

TWO_LAYERS = [((8, 6, 2), "auto"), ((8, 6, 2), "hessian"), ((8, 12, 2), "auto"), ((8, 5, 1), "auto")]


@pytest.mark.parametrize(("sizes", "strategy"), TWO_LAYERS)
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "erf"])
def test_two_layers(activation, linear, sizes, strategy, X):
    output = "identity" if linear else activation
    network = make_network(sizes, activation=activation, output_activation=output, random_state=1)
    check_exact(network, identifier(network, strategy=strategy, random_state=1).fit(X), X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_how_often_sigmoid_layers_are_found_from_hessians(X):
    """The completion can end in a local minimum: at 2 of 60 networks and random states. It is never called exact."""
    n_exact = 0
    for seed in range(10):
        network = make_network((8, 6, 2), activation="sigmoid", random_state=seed)
        model = identifier(network, strategy="hessian", random_state=seed).fit(X)
        if model.report_.exact:
            check_exact(network, model, X)
        n_exact += model.report_.exact
    assert n_exact >= fewest_successes(10, 58, 60)


@pytest.mark.parametrize("strategy", ["auto", "saturation"])
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "erf"])
def test_three_layers(activation, linear, strategy, X):
    output = "identity" if linear else activation
    network = make_network((8, 7, 4, 2), activation=activation, output_activation=output, random_state=0)
    check_exact(network, identifier(network, strategy=strategy).fit(X), X)


@pytest.mark.parametrize("first_layer", ["saturation", "hessian"])
@pytest.mark.parametrize("activation", ["tanh", "erf"])
def test_three_layers_by_the_paper_s_pipeline(activation, first_layer, rng):
    network = make_network((12, 9, 5, 3), activation=activation, output_activation="identity", random_state=0)
    X = rng.standard_normal((200, 12))
    extractor = EntangledWeightExtractor(first_layer=first_layer)
    model = identifier(network, strategy="hessian", extractor=extractor).fit(X)
    check_exact(network, model, X)
    assert model.extractor_.first_layer_method_ == first_layer
    assert model.completion_.layer_widths_ == (9, 5, 3)


def test_four_layers(X):
    network = make_network((8, 7, 5, 4, 2), random_state=0)
    model = identifier(network).fit(X)
    check_exact(network, model, X)
    assert model.extractor_ is None and model.completion_ is None


def test_one_layer(X):
    network = make_network((8, 3), random_state=0)
    check_exact(network, identifier(network).fit(X), X)


@pytest.mark.parametrize(("activation", "output"), [("softplus", "identity"), ("sin", "sin"), ("gelu", "identity")])
def test_activations_that_do_not_saturate(activation, output, X):
    """By Hessians; the activation's symmetries decide what the parameters can tell, so the function is compared."""
    network = make_network((8, 6, 3), activation=activation, output_activation=output, random_state=0)
    check_exact(network, identifier(network).fit(X), X, parameters=np.inf)


@pytest.mark.parametrize("n_hidden", [1, 5, 14])
def test_width_found(n_hidden, X):
    network = make_network((8, n_hidden, 2), bias_scale=0.5, output_activation="identity", random_state=0)
    model = identifier(network, layer_widths=None).fit(X)
    assert model.layer_widths_ == (n_hidden, 2)
    check_exact(network, model, X)


@pytest.mark.parametrize("derivatives", ["exact", "finite_difference"])
@pytest.mark.parametrize("last_layer", ["jacobian", "hessian"])
def test_options_of_the_extractor(derivatives, last_layer, X):
    network = make_network((8, 6, 2), random_state=1)
    extractor = EntangledWeightExtractor(derivatives=derivatives, last_layer=last_layer, first_layer="hessian")
    model = identifier(network, network, extractor=extractor).fit(X)
    check_exact(network, model, X)
    assert model.extractor_.derivatives == derivatives


def test_without_polish(X):
    network = make_network((8, 6, 2), output_activation="identity", random_state=1)
    polished, rough = identifier(network).fit(X), identifier(network, polish=False, tol=1e-6).fit(X)
    check_exact(network, rough, X, 1e-6, 1e-5)
    assert polished.report_.relative_max_error < rough.report_.relative_max_error
    assert "polish" not in [stage.name for stage in rough.report_.stages]


# -- inputs and answers of any unit ------------------------------------------------------------------------------------


def moved(network, center, scale):
    """The same network of inputs with that centre and unit."""
    weights = [network.weights[0] / scale[:, None], *network.weights[1:]]
    biases = [network.biases[0] - (center / scale) @ network.weights[0], *network.biases[1:]]
    return FeedforwardNetwork(weights, biases, network.activation, network.output_activation)


UNITS = {
    "sd from 1e-6 to 1e6": (np.zeros(D), np.logspace(-6, 6, D), 1e-10),
    "means of 1e5": (np.full(D, 1e5), np.ones(D), 1e-8),
    "both": (1e3 * np.logspace(-3, 3, D), np.logspace(-3, 3, D), 1e-8),
}


@pytest.mark.parametrize("sizes", [(8, 6, 2), (8, 6, 4, 2)])
@pytest.mark.parametrize("units", UNITS)
def test_badly_scaled_inputs(units, sizes, X):
    center, scale, error = UNITS[units]
    network = moved(make_network(sizes, output_activation="identity", random_state=1), center, scale)
    X = center + scale * X
    check_exact(network, identifier(network).fit(X), X, error)


@pytest.mark.parametrize("sizes", [(8, 6, 2), (8, 6, 4, 2)])
@pytest.mark.parametrize(
    ("offset", "unit"), [(0.0, 1e6), (150.0, 70.0), (1e3, 1.0), (0.0, np.array([1e4, 1e-4])), (0.0, 1e-9)]
)
def test_answers_in_any_unit(offset, unit, sizes, X):
    """Linear outputs as regression has them. Every output counts, however small beside its neighbour."""
    net = make_network(sizes, output_activation="identity", random_state=1)
    weights, biases = [*net.weights[:-1], net.weights[-1] * unit], [*net.biases[:-1], net.biases[-1] * unit + offset]
    network = FeedforwardNetwork(weights, biases, "tanh", "identity")
    model = identifier(network).fit(X)
    assert model.report_.exact
    Y = network(X)
    np.testing.assert_allclose(model.predict(X) / np.ptp(Y, axis=0), Y / np.ptp(Y, axis=0), atol=1e-9)


def test_a_wrong_output_is_not_hidden_by_a_large_one(X):
    """The second output is no sine network, but 1e10 times smaller than the first."""
    W = make_network((8, 4, 2), random_state=1).weights[0]
    box = lambda X: np.column_stack([1e10 * np.sin(X @ W).sum(axis=1), np.tanh(X).sum(axis=1)])  # noqa: E731
    model = NetworkIdentifier(box, layer_widths=(4, 2), activation="sin", random_state=0)
    with pytest.warns(ConvergenceWarning, match="the network is not exact"):
        model.fit(X)
    assert not model.report_.exact


@pytest.mark.parametrize("sizes", [(8, 6, 2), (8, 12, 2), (8, 6, 4, 2)])
@pytest.mark.parametrize(("center", "scale"), [(30.0, 1.0), (5.0, 1.0), (0.0, 100.0)])
def test_data_where_most_units_are_saturated(center, scale, sizes, X):
    network = make_network(sizes, random_state=1)
    X = center + scale * X
    # The answers hardly vary there: what is rounding beside their size is 1e-8 of their variation.
    check_exact(network, identifier(network, tol=1e-6).fit(X), X)


def test_a_constant_column(X):
    X[:, 3] = 7.0
    network = make_network((8, 6, 4, 2), random_state=1)
    check_exact(network, identifier(network).fit(X), X)


def test_two_rows(X):
    network = make_network((8, 6, 2), random_state=1)
    check_exact(network, identifier(network).fit(X[:2]), X)


def test_an_input_that_is_not_read(X):
    net = make_network((8, 6, 2), random_state=1)
    W = net.weights[0] * (np.arange(8) > 0)[:, None]
    network = FeedforwardNetwork([W, net.weights[1]], net.biases, "tanh", "tanh")
    check_exact(network, identifier(network).fit(X), X)


@pytest.mark.parametrize("kind", ["float32", "list", "integers", "object"])
def test_kinds_of_X(kind, X):
    network = make_network((8, 6, 2), random_state=1)
    X_in = {
        "float32": X.astype(np.float32),
        "list": X.tolist(),
        "integers": np.round(3 * X).astype(int),
        "object": X.astype(object),
    }[kind]
    check_exact(network, identifier(network).fit(X_in), X)


@pytest.mark.parametrize("kind", ["duplicated", "dead", "without weights"])
def test_units_that_do_not_show(kind, X):
    """The function is found with fewer units."""
    net = make_network((8, 6, 2), output_activation="identity", random_state=1)
    W, A, b = net.weights[0].copy(), net.weights[1].copy(), net.biases[0].copy()
    if kind == "duplicated":
        W[:, 1], b[1] = W[:, 0], b[0]
    elif kind == "dead":
        A[1] = 0
    else:
        W[:, 1] = 0
    network = FeedforwardNetwork([W, A], [b, net.biases[1]], "tanh", "identity")
    model = identifier(network, layer_widths=None).fit(X)
    assert model.layer_widths_ == (5, 2) and model.report_.exact
    np.testing.assert_allclose(model.predict(X), network(X), atol=1e-11)


def test_units_far_from_the_data(X):
    """Saturated on all of X, steep, or with a tiny share of the answer."""
    net = make_network((8, 6, 2), output_activation="identity", random_state=1)
    W, A, b = net.weights[0].copy(), net.weights[1].copy(), net.biases[0].copy()
    b[0], W[:, 1], A[2] = 60.0, 300 * W[:, 1], 1e-4 * A[2]
    network = FeedforwardNetwork([W, A], [b, net.biases[1]], "tanh", "identity")
    check_exact(network, identifier(network).fit(X), X)


# -- black boxes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(8, 6, 2), (8, 6, 4, 2), (8, 5, 1)])
@pytest.mark.parametrize("kind", ["network", "torch", "frozen", "callable"])
def test_kinds_of_black_boxes(kind, sizes, X):
    """Activations are read off where the box tells; of callables tanh and linear output are the defaults."""
    network = make_network(sizes, output_activation="identity", random_state=1)
    box = {
        "network": network,
        "torch": network.to_torch(),
        "frozen": FrozenEstimator(network.to_sklearn()),
        "callable": lambda X: network(X),
    }[kind]
    model = NetworkIdentifier(box, layer_widths=network.layer_widths, random_state=0).fit(X)
    check_exact(network, model, X)
    assert model.estimator_ is box


def test_a_trained_regressor(X):
    """Fitted first, on a copy."""
    Y = np.column_stack([np.sin(X[:, 0]) + X[:, 1], X[:, 2] * X[:, 3]])
    regressor = MLPRegressor(
        hidden_layer_sizes=(5,), activation="logistic", solver="lbfgs", alpha=1e-2, max_iter=3000, random_state=0
    )
    model = NetworkIdentifier(regressor, random_state=0).fit(X, Y)
    assert not hasattr(regressor, "coefs_")
    check_exact(FeedforwardNetwork.from_sklearn(model.estimator_), model, X)
    assert model.score(X, Y) == pytest.approx(model.estimator_.score(X, Y))


def test_a_pipeline_as_black_box(X):
    """Its scaler is part of the first layer."""
    regressor = MLPRegressor(hidden_layer_sizes=(4,), activation="tanh", solver="lbfgs", max_iter=3000, random_state=0)
    fitted = make_pipeline(StandardScaler(), regressor).fit(10 + 5 * X, np.sin(X[:, 0]) + X[:, 1])
    model = NetworkIdentifier(FrozenEstimator(fitted), random_state=0).fit(10 + 5 * X)
    np.testing.assert_allclose(model.predict(10 + 5 * X), fitted.predict(10 + 5 * X), atol=1e-9)
    assert model.report_.exact


def test_default_black_box(X):
    model = NetworkIdentifier(random_state=0).fit(X, np.sin(X[:, 0]))
    assert isinstance(model.estimator_, MLPRegressor) and model.report_.exact


@pytest.mark.parametrize("flat", [True, False])
def test_shape_of_the_answers(flat, X):
    network = make_network((8, 5, 1), random_state=0)
    box = (lambda X: network(X)[:, 0]) if flat else (lambda X: network(X))
    assert identifier(network, box).fit(X).predict(X).shape == ((200,) if flat else (200, 1))


CASES = {
    "saturation": ((8, 6, 4, 2), {}),
    "saturation, then the pipeline": ((8, 6, 4, 1), {}),
    "pipeline": ((8, 6, 2), {"strategy": "hessian"}),
    "linear output": ((8, 6, 2), {"output_activation": "identity"}),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # counted all the same
@pytest.mark.parametrize("case", CASES)
def test_queries_are_counted(case, X):
    sizes, options = CASES[case]
    network = make_network(sizes, output_activation=options.get("output_activation", "tanh"), random_state=1)
    box = Counting(network)
    model = identifier(network, box, **options).fit(X)
    assert model.n_queries_ == box.n_rows
    assert sum(stage.queries for stage in model.report_.stages) <= box.n_rows


# -- determinism -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["auto", "hessian"])
def test_same_seed_same_answer_whatever_the_number_of_jobs(strategy, X):
    network = make_network((8, 6, 4, 2), output_activation="identity", random_state=1)
    models = [identifier(network, strategy=strategy, n_jobs=n_jobs).fit(X) for n_jobs in (None, 1, 2)]
    for other in models[1:]:
        np.testing.assert_array_equal(models[0].predict(X), other.predict(X))
        assert models[0].n_queries_ == other.n_queries_


def test_global_random_streams_are_left_alone(X):
    np.random.seed(7)
    torch.manual_seed(7)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    identifier(make_network((8, 6, 4, 2), random_state=1)).fit(X)
    NetworkIdentifier(random_state=np.random.RandomState(0)).fit(X, np.sin(X[:, 0]))
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])


# -- a scikit-learn regressor ------------------------------------------------------------------------------------------


def test_report(X):
    network = make_network((8, 6, 4, 2), random_state=1)
    model = identifier(network).fit(X)
    report = model.report_
    assert report.exact is True and report.attempts == 1 and report.noise == 0
    names = [stage.name for stage in report.stages]
    assert names == ["first layer (saturation)", "second layer (faces)", "polish", "polish"]
    assert report.route == "saturation, faces" and "saturates" in report.reason
    # In canonical form already.
    canonical = model.network_.canonical()
    assert all(np.array_equal(a, b) for a, b in zip(canonical.weights, model.network_.weights))


def test_progress(X, capsys):
    network = make_network((8, 6, 4, 2), random_state=1)
    identifier(network, verbose=1).fit(X)
    err = capsys.readouterr().err
    assert "first layer (saturation): 6 of 6 units, " in err and re.search(r"polish: [1-9]\d* steps, ", err)
    assert "0it" not in err
    identifier(network).fit(X)
    assert capsys.readouterr() == ("", "")


def test_nested_parameters(X):
    network = make_network((8, 6, 2), random_state=1)
    extractor, completion = EntangledWeightExtractor(first_layer="hessian"), NetworkCompletion()
    model = identifier(network, extractor=extractor, completion=completion)
    model.set_params(options__extractor__radius=0.05, options__completion__max_iter=50)
    assert clone(model).options.extractor.radius == 0.05
    model.fit(X)
    assert model.extractor_.radius == 0.05 and model.completion_.max_iter == 50
    # The templates are neither fitted nor changed.
    assert extractor.estimator is None and not hasattr(extractor, "components_")
    assert completion.layer_widths is None and not hasattr(completion, "network_")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # one step of completion is not enough
def test_grid_search(X):
    network = make_network((8, 4, 2), random_state=1)
    model = identifier(
        network,
        n_attempts=1,
        polish=False,
        extractor=EntangledWeightExtractor(first_layer="hessian"),
        completion=NetworkCompletion(),
    )
    grid = {"options__extractor__radius": [0.01, 1.0], "options__completion__max_iter": [1, 100]}
    searches = [GridSearchCV(model, grid, cv=2, n_jobs=n_jobs).fit(X, network(X)) for n_jobs in (1, 2)]
    scores = [search.cv_results_["mean_test_score"] for search in searches]
    np.testing.assert_array_equal(*scores)
    assert searches[0].best_params_["options__completion__max_iter"] == 100 and searches[0].best_score_ > 0.99


def test_frames(X):
    network = make_network((8, 6, 2), random_state=1)
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    model = identifier(network).fit(frame)
    np.testing.assert_allclose(model.predict(frame), identifier(network).fit(X).predict(X), atol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("bacdefgh")])


def test_a_regressor_fitted_on_frames(X):
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    regressor = MLPRegressor(hidden_layer_sizes=(3,), activation="tanh", solver="lbfgs", max_iter=3000, random_state=0)
    regressor.fit(frame, np.sin(X[:, 0]))
    model = NetworkIdentifier(FrozenEstimator(regressor), random_state=0).fit(frame)
    np.testing.assert_allclose(model.predict(frame), regressor.predict(frame), atol=1e-10)
    assert parameter_error(FeedforwardNetwork.from_sklearn(regressor), model.network_) < 1e-8


def test_clone_and_pickle(X):
    network = make_network((8, 6, 2), random_state=1)
    model = identifier(network).fit(X)
    assert not hasattr(clone(model), "network_")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_y_is_only_looked_at(X):
    """A given black box is not refitted; y must still be a proper y."""
    network = make_network((8, 6, 2), random_state=1)
    model = identifier(network).fit(X, np.zeros(200))
    check_exact(network, model, X)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        identifier(network).fit(X, np.zeros(199))


# -- bad input ---------------------------------------------------------------------------------------------------------


def raising(answers):
    raise OSError("disk full")


def with_nan(answers):
    answers[3] = np.nan
    return answers


class Flaky:
    """A network that breaks from call `k` on: `after` is applied to the answers."""

    def __init__(self, network, k, after):
        self.network, self.k, self.after, self.calls = network, k, after, 0

    def __call__(self, X):
        self.calls += 1
        return self.network(X) if self.calls <= self.k else self.after(self.network(X))


BREAKS = {
    "raises": (raising, "raised OSError on a batch of .* disk full"),
    "nan": (with_nan, r"returned \[nan.*\] \(not finite\) at row 3"),
    "fewer rows": (lambda Y: Y[:-1], "returned shape"),
    "one more axis": (lambda Y: Y[:, :, None], "returned shape"),
    "text": (lambda Y: Y.astype(str).tolist()[0][0] + "x", "cannot be read as real numbers"),
}


@pytest.fixture(scope="module", params=["auto", "hessian"])
def earlier(request):
    """A network, and a model fitted to it by one strategy or the other."""
    network = make_network((8, 6, 4, 2), output_activation="identity", random_state=1)
    X = np.random.default_rng(0).standard_normal((200, D))
    return network, identifier(network, strategy=request.param).fit(X)


@pytest.mark.parametrize("k", [0, 3, 10])
@pytest.mark.parametrize("name", BREAKS)
def test_a_black_box_that_breaks(name, k, earlier, X):
    """Nothing half-fitted is left, also where an earlier fit had succeeded."""
    (network, fitted), (after, message) = earlier, BREAKS[name]
    model = copy.deepcopy(fitted)
    with pytest.raises(ValueError, match=message):
        model.set_params(estimator=Flaky(network, k, after)).fit(X)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        check_is_fitted(model)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        model.predict(X)
    assert {name for name in vars(model) if name.endswith("_")} <= {"n_features_in_"}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_X_not_finite(value, X):
    X[3, 1] = value
    with pytest.raises(ValueError, match="contains (NaN|infinity)"):
        identifier(make_network((8, 6, 2), random_state=1)).fit(X)


def test_one_row(X):
    with pytest.raises(ValueError, match="1 sample"):
        identifier(make_network((8, 6, 2), random_state=1)).fit(X[:1])


def test_one_feature(X):
    with pytest.raises(ValueError, match="n_features=1.* at least 2 features"):
        NetworkIdentifier(np.tanh, layer_widths=(1, 1)).fit(X[:, :1])


def test_equal_rows(X):
    with pytest.raises(ValueError, match="X does not vary: its 5 rows are equal"):
        identifier(make_network((8, 6, 2), random_state=1)).fit(np.repeat(X[:1], 5, axis=0))


NETWORKS = {
    "linear": make_network((8, 6, 2), output_activation="identity", random_state=1),
    "tanh": make_network((8, 6, 2), random_state=1),
    "three": make_network((8, 6, 4, 2), random_state=1),
}
WRONG_WIDTHS = [
    ("linear", (6, 3), r"ends in 3 but the black box gives 2 output.* write layer_widths=\(6, 3, 2\) \(or \(6, 2\)"),
    ("tanh", (6, 3), r"ends in 3 but the black box gives 2 output"),
    ("linear", (5, 2), r"says 5 first-layer units, but 6 .* try layer_widths=\(6, 2\)"),
    ("tanh", (3, 2), r"says 3 first-layer units, but \d .* try layer_widths="),
    ("three", (5, 4, 2), r"says 5 first-layer units, but 6 .* try layer_widths=\(6, 4, 2\)"),
    ("tanh", (6, 0, 2), "must be positive integers"),
    ("tanh", [], "must be positive integers"),
]


@pytest.mark.parametrize("strategy", ["auto", "hessian"])
@pytest.mark.parametrize(("name", "widths", "message"), WRONG_WIDTHS)
def test_impossible_widths(name, widths, message, strategy, X):
    with pytest.raises(ValueError, match=message):
        identifier(NETWORKS[name], layer_widths=widths, strategy=strategy).fit(X)


MISSED_WIDTHS = [
    ("linear", (6, 4, 2), {"n_starts": 6}),
    ("tanh", (7, 2), {"strategy": "hessian"}),
    ("tanh", (4, 2), {"extractor": EntangledWeightExtractor(first_layer="hessian")}),
    ("tanh", (30, 2), {"extractor": EntangledWeightExtractor(first_layer="hessian")}),
    ("three", (6, 3, 2), {"n_starts": 4}),
    ("three", (6, 3, 2), {"strategy": "hessian"}),
    ("three", (6, 2), {}),
    ("three", (7, 4, 2), {"strategy": "hessian", "n_starts": 3}),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("name", "widths", "options"), MISSED_WIDTHS)
def test_wrong_widths_are_never_called_exact(name, widths, options, X):
    """Unless a network of these widths is the same function."""
    model = identifier(NETWORKS[name], layer_widths=widths, n_attempts=1, **options)
    try:
        model.fit(X)
    except ValueError as error:
        assert "layer_widths" in str(error)
    else:
        same = relative_max_error(NETWORKS[name](X), model.predict(X)) < 1e-6
        assert model.report_.exact <= same


def test_a_layer_too_narrow_is_said(X):
    model = identifier(NETWORKS["three"], layer_widths=(6, 2, 2), strategy="saturation", n_attempts=2, n_starts=2)
    """Faces count the units of the second layer themselves."""
    with pytest.warns(ConvergenceWarning, match=r"\(6, 2, 2\) was given, but \(6, 4, 2\) explain .* has more units"):
        model.fit(X)
    assert model.layer_widths_ == (6, 4, 2)


def test_more_weights_than_hessians_tell_apart(rng):
    network = make_network((3, 8, 2), activation="softplus", random_state=0)
    with pytest.raises(ValueError, match=r"m = 10 weights from Hessians, .* D = 3 .* = 6 are determined"):
        identifier(network).fit(rng.standard_normal((100, 3)))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"layer_widths": (2,)}, "with hidden layers.*Got layer_widths=\\(2,\\)"),
        ({"strategy": "hessian"}, "activation='relu' has no second derivative"),
        ({"strategy": "saturation"}, "strategy='saturation' needs an activation that saturates"),
        ({"output_activation": "softplus"}, "a linear output, .*Pass the model without its output activation"),
    ],
)
def test_ways_that_relu_does_not_allow(options, match, X):
    network = make_network((8, 6, 2), activation="relu", output_activation="identity", random_state=0)
    with pytest.raises(ValueError, match=match):
        identifier(network, **options).fit(X)


@pytest.mark.parametrize("output", ["tanh", "sigmoid", "erf"])
@pytest.mark.parametrize("sizes", [(8, 6, 2), (5, 8, 6, 2)])
def test_relu_units_behind_outputs_with_limits(sizes, output):
    """The layers before the outputs' activation, from outputs that keep clear of its limits."""
    named = {} if output != "erf" else {"activation": "relu", "output_activation": "erf"}
    X, n_recovered = np.random.RandomState(0).standard_normal((200, sizes[0])), 0
    for seed in range(2, 5):  # of 13 networks with a wide first layer behind erf, 11 had the right widths
        network = make_network(sizes, activation="relu", output_activation=output, bias_scale=0.5, random_state=seed)
        found = NetworkIdentifier(lambda X, network=network: network(X), **named, random_state=0).fit(X)
        assert found.network_.output_activation == output
        error = np.abs(found.network_(X) - network(X)).max()
        assert error < 1e-8 or not found.report_.exact
        n_recovered += found.report_.exact and found.layer_widths_ == sizes[1:]
    assert n_recovered >= 2


@pytest.mark.parametrize("widths", [(15, 1), None, "auto"])
def test_relu(widths, rng):
    """More units than inputs, by the kinks along lines."""
    sizes = (10, 15, 1)
    network = make_network(sizes, activation="relu", output_activation="identity", bias_scale=0.5, random_state=0)
    X = rng.standard_normal((200, 10))
    model = NetworkIdentifier(lambda X: network(X), layer_widths=widths, activation="relu", random_state=0).fit(X)
    assert model.report_.exact and model.report_.route == "activation boundaries" and model.layer_widths_ == (15, 1)
    np.testing.assert_allclose(model.predict(X).reshape(-1, 1), network(X), atol=1e-9)
    assert model.n_queries_ < 10_000


@pytest.mark.parametrize("widths", [(6, 5, 2), None, "auto"])
def test_deep_relu(widths, X):
    network = make_network((8, 6, 5, 2), activation="relu", output_activation="identity", random_state=2)
    found = NetworkIdentifier(lambda X: network(X), layer_widths=widths, activation="relu", random_state=0).fit(X)
    assert found.report_.exact and found.layer_widths_ == (6, 5, 2)
    assert found.report_.explained == 1.0 and found.report_.never_active == [0, 0]
    assert relative_max_error(network(X), found.network_(X)) < 1e-12


def test_relu_of_fewer_layers_than_asked_for(X):
    network = make_network((8, 6, 2), activation="relu", output_activation="identity", random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"layer_widths=\(6, 4, 2\) was given, but \(6, 2\) explain"):
        found = identifier(network, layer_widths=(6, 4, 2)).fit(X)
    assert found.report_.relative_max_error < 1e-12


def test_saturation_of_what_does_not_saturate(X):
    network = make_network((8, 6, 4, 2), activation="softplus", random_state=0)
    with pytest.raises(ValueError, match="strategy='saturation' needs an activation that saturates"):
        identifier(network, strategy="saturation").fit(X)


def test_four_layers_that_do_not_saturate(X):
    network = make_network((8, 6, 5, 4, 2), activation="softplus", random_state=0)
    with pytest.raises(ValueError, match="separate the inner layers of networks with up to three layers"):
        identifier(network).fit(X)


def test_width_to_be_found_needs_linear_output(X):
    with pytest.raises(ValueError, match="layer_widths=None recovers one hidden layer with linear output"):
        identifier(NETWORKS["tanh"], layer_widths=None).fit(X)


def test_too_noisy(X, rng):
    box = lambda X: NETWORKS["tanh"](X) + 0.2 * rng.standard_normal((len(X), 2))  # noqa: E731
    with pytest.raises(ValueError, match="returned different outputs when queried twice: relative difference"):
        identifier(NETWORKS["tanh"], box).fit(X)


NOISY = {
    "fresh 1e-6": (lambda Y, rng: Y * (1 + 1e-6 * rng.standard_normal(Y.shape)), 1e-6),
    "fresh 1e-4": (lambda Y, rng: Y * (1 + 1e-4 * rng.standard_normal(Y.shape)), 1e-4),
    "six decimals": (lambda Y, rng: Y.round(6), 1e-6),
    "single precision": (lambda Y, rng: Y.astype(np.float32), 1e-7),
}


@pytest.mark.parametrize("kind", NOISY)
@pytest.mark.parametrize("sizes", [(8, 6, 2), (8, 6, 4, 3)])
def test_noise_costs_accuracy_in_proportion_and_is_said(kind, sizes, X, rng):
    """Errors of the answers and of the weights within some tens of the noise, and never called exact."""
    disturb, size = NOISY[kind]
    network = make_network(sizes, bias_scale=0.3, random_state=1)
    model = identifier(network, lambda A: disturb(network(A), rng))
    with pytest.warns(ConvergenceWarning, match="noise or rounding of .* stderr_ holds the standard errors"):
        model.fit(X)
    assert not model.report_.exact and 0.05 * size < model.report_.noise < 20 * size
    assert relative_max_error(network(X), model.predict(X)) < 30 * size
    found = model.network_.align_to(network)
    assert parameter_error(network, found) < 100 * size
    largest = max(np.max(a) for part in model.stderr_ for a in part)
    errors = [np.abs(a - b).max() for a, b in zip(network.weights + network.biases, found.weights + found.biases)]
    assert 0.1 * largest < max(errors) < 10 * largest  # the largest of some 70 normal deviates


@pytest.mark.parametrize("value", [0.0, 2.5])
def test_constant(value, X):
    with pytest.raises(ValueError, match="the black box is constant: \\d+ rows .* nothing to identify"):
        identifier(NETWORKS["tanh"], lambda X: np.full((len(X), 2), value)).fit(X)


def test_unfitted_frozen(X):
    with pytest.raises(NotFittedError, match="FrozenEstimator instance is not fitted yet"):
        NetworkIdentifier(FrozenEstimator(MLPRegressor())).fit(X)


@pytest.mark.parametrize("estimator", [None, MLPRegressor()])
def test_y_missing(estimator, X):
    with pytest.raises(ValueError, match=r"requires y to be passed.*FrozenEstimator\(regressor\)"):
        NetworkIdentifier(estimator).fit(X)


def test_predict_before_fit(X):
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        NetworkIdentifier(NETWORKS["tanh"]).predict(X)


def five_neighbours(X, y):
    """As `KNeighborsRegressor` answers, without its checks of single rows."""
    return lambda U: y[np.argpartition(cdist(U, X, "sqeuclidean"), 5, axis=1)[:, :5]].mean(axis=1)


NO_NETWORKS = {
    "sin|x|": lambda X, y: lambda X: np.sin(np.abs(X)).sum(axis=1),
    "gauss": lambda X, y: lambda X: np.exp(-0.5 * np.sum(X**2, axis=1)),
    "steps": lambda X, y: lambda X: np.sign(X).sum(axis=1),
    "clipped square": lambda X, y: lambda X: np.clip(X[:, 0] ** 2 + X.sum(axis=1), -1, 1),
    "tanh of a square": lambda X, y: lambda X: np.tanh(X[:, 0] ** 2 - X[:, 1]),
    "arctan": lambda X, y: lambda X: np.arctan(X @ np.linspace(-1, 1, D)) + np.arctan(X.sum(axis=1) / 3),
    "tree": lambda X, y: DecisionTreeRegressor(max_depth=4, random_state=0).fit(X, y).predict,
    "neighbours": lambda X, y: five_neighbours(X[:20], y[:20]),
}
NO_NETWORK = "is not exact: relative maximum error|do not change at all|does not saturate|no step is a smooth sigmoid"
NO_NETWORK += "|does not change at the center|fewer than the [46] wanted|first layer does not show 6 units"
NO_NETWORK += "|span 8 dimensions|Detected activation: (sin|hard_tanh)"  # which the outputs seem to be of, far out
NO_NETWORK += "|a local kernel|class labels|a tree ensemble|nearest neighbors|but .1,. explain all outputs"  # named
NO_NETWORK += "|curved and have sharp bends|slow tails|outputs between the plateaus"  # named, too
NO_NETWORK += "|layer_widths says 6 first-layer units|carry noise or rounding"  # single precision hides a network


@pytest.mark.parametrize(
    "options",
    [{}, {"layer_widths": (6, 1)}, {"layer_widths": (6, 3, 1)}, {"layer_widths": (4, 1), "activation": "sin"}],
    ids=["unknown", "two layers", "three layers", "sin"],
)
@pytest.mark.parametrize("name", NO_NETWORKS)
def test_no_network_at_all(name, options, X):
    """An error or a warning, soon; never an exact network."""
    box = Counting(NO_NETWORKS[name](X, np.sin(X).sum(axis=1)))
    model = make_identifier(box, random_state=0, n_attempts=1, **options)
    with pytest.raises((ValueError, ConvergenceWarning), match=NO_NETWORK):
        model.fit(X)
    assert box.n_rows < 1e7


@pytest.mark.parametrize("layer_widths", ["auto", (6, 1), (6, 3, 1)])
def test_a_linear_model_is_one_layer(layer_widths, X):
    box = LinearRegression().fit(X, np.sin(X).sum(axis=1)).predict
    model = NetworkIdentifier(box, layer_widths=layer_widths, random_state=0)
    if layer_widths == "auto":
        model.fit(X)
    else:
        with pytest.warns(ConvergenceWarning, match=r"\(1,\) explain all outputs"):
            model.fit(X)
    assert model.layer_widths_ == (1,) and model.report_.exact and model.report_.determined


def test_five_neighbours_are_those_of_scikit_learn(X):
    y = np.sin(X).sum(axis=1)
    found, expected = five_neighbours(X[:20], y[:20]), KNeighborsRegressor().fit(X[:20], y[:20])
    np.testing.assert_allclose(found(X), expected.predict(X), atol=1e-14)


ROUNDED = {
    "rounded": lambda X: np.round(np.tanh(X).sum(axis=1), 4),
    "single precision": lambda X: np.tanh(X.astype(np.float32)).sum(axis=1),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_as_many_units_as_inputs_behind_rounding(name, X):
    """Found without widths; wrong widths are refused."""
    model = NetworkIdentifier(ROUNDED[name], random_state=0)
    with pytest.warns(ConvergenceWarning, match="stderr_ holds the standard errors"):
        model.fit(X)
    assert model.layer_widths_ == (D, 1) and not model.report_.exact
    for widths in ((6, 1), (6, 3, 1)):
        with pytest.raises(
            (ValueError, ConvergenceWarning),
            match="layer_widths says 6 first-layer units, but|is not exact: relative maximum",
        ):
            NetworkIdentifier(ROUNDED[name], layer_widths=widths, random_state=0).fit(X)


@pytest.mark.parametrize("strategy", ["hessian", "auto"])
@pytest.mark.parametrize("activation", ["softplus", "gelu", "silu", "sin"])
def test_signs_of_units_without_symmetry(activation, strategy, X):
    """One hidden layer by Hessians or profiles; softplus, gelu and silu units have signs, their directions do not."""
    network = make_network(
        (X.shape[1], 6, 1), activation=activation, output_activation="identity", bias_scale=0.3, random_state=3
    )
    found = NetworkIdentifier(
        network, layer_widths=(6, 1), options=IdentifierOptions(strategy=strategy), random_state=0
    ).fit(X)
    assert found.report_.exact and parameter_error(network, found.network_) < 1e-6
    expected = "Hessians, completion" if strategy == "hessian" or activation == "sin" else "ReLU limit"
    assert found.report_.route == expected


def test_a_box_that_rejects_far_inputs(X):
    """The message says how far the search goes and how to stay near."""
    network = make_network((X.shape[1], 6, 2), random_state=0)

    def box(A):
        if np.abs(A).max() > 100:
            raise RuntimeError("input out of range")
        return network(A)

    with pytest.raises(
        ValueError, match=r"input out of range.*deviations from the center.*set input_range=\(-99.9, 99.9\)"
    ):
        NetworkIdentifier(box, layer_widths=(6, 2), activation="tanh", output_activation="tanh", random_state=0).fit(X)
    near = NetworkIdentifier(
        box,
        layer_widths=(6, 2),
        activation="tanh",
        output_activation="tanh",
        options=IdentifierOptions(extractor=EntangledWeightExtractor(first_layer="hessian")),
        random_state=0,
    ).fit(X)
    assert near.report_.relative_max_error < 1e-10


@pytest.mark.parametrize("extra", [1, 2])
def test_too_many_inner_units_are_never_called_exact(extra, X):
    """A network with a unit too many gives the same outputs, but its weights are not determined."""
    network = make_network((X.shape[1], 7, 4, 2), bias_scale=0.3, random_state=0)
    said = "do not determine all weights.*Stage 'widths' failed|not exact|was given, but"
    with pytest.warns(ConvergenceWarning, match=said):
        model = identifier(network, lambda A: network(A), layer_widths=(7, 4 + extra, 2)).fit(X)
    assert not model.report_.exact or model.layer_widths_ == (7, 4, 2)


def test_fewer_units_than_asked_for_are_said(X):
    network = make_network((X.shape[1], 4, 2), random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"layer_widths=\(5, 2\) was given, but \(4, 2\) explain"):
        model = identifier(network, lambda A: network(A), layer_widths=(5, 2)).fit(X)
    assert model.layer_widths_ == (4, 2)


def test_strategy_saturation_needs_limits(X):
    network = make_network((X.shape[1], 4, 1), activation="softplus", output_activation="identity", random_state=0)
    with pytest.raises(ValueError, match="strategy='saturation' needs an activation that saturates"):
        NetworkIdentifier(network, layer_widths=(4, 1), options=IdentifierOptions(strategy="saturation")).fit(X)
