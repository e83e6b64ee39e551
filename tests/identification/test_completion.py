import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted
from skorch.callbacks import EarlyStopping

from skident import EntangledWeightExtractor, NetworkCompletion
from skident.datasets import make_network
from skident.metrics import bias_error, relative_max_error
from skident.network import FeedforwardNetwork

NETWORKS = {
    "one layer": make_network((10, 3), random_state=0),
    "two layers": make_network((10, 8, 3), random_state=0),
    "one output": make_network((10, 8, 1), activation="erf", random_state=0),
    "linear output": make_network((10, 8, 3), output_activation="identity", random_state=0),
    "sigmoid, linear": make_network((10, 8, 3), activation="sigmoid", output_activation="identity", random_state=0),
    "three layers": make_network((10, 8, 5, 3), random_state=0),
    "three layers, linear": make_network((10, 8, 5, 3), output_activation="identity", random_state=0),
}


@pytest.fixture
def X(rng):
    return rng.standard_normal((500, 10))


def features(network, X, n_layers=None):
    """Projections on the true entangled weights at zero, as unit vectors."""
    V = network.entangled_weights(np.zeros(10))[:n_layers]
    return np.hstack([X @ (v / np.linalg.norm(v, axis=0)) for v in V])


def completion(network, **options):
    names = {"activation": network.activation, "output_activation": network.output_activation}
    return NetworkCompletion(**{"layer_widths": network.layer_widths, "random_state": 0, **names, **options})


# -- Levenberg-Marquardt -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_exact_from_all_features(name, X):
    network = NETWORKS[name]
    Z, Y = features(network, X), network(X)
    model = completion(network).fit(Z, Y)
    assert model.residual_ < 1e-11
    X_new = np.random.default_rng(1).standard_normal((300, 10))
    assert relative_max_error(network(X_new), model.predict(features(network, X_new))) < 1e-10
    assert model.n_iter_ >= 1 and len(model.history_) >= 2
    assert bias_error(network, whole(model, network)).max() < 1e-16


def whole(model, network):
    """The completed network as a function of the inputs."""
    V = np.hstack([v / np.linalg.norm(v, axis=0) for v in network.entangled_weights(np.zeros(10))])
    inner = model.network_
    weights = [V[:, : inner.n_inputs] @ inner.weights[0], *inner.weights[1:]]
    return FeedforwardNetwork(weights, inner.biases, network.activation, network.output_activation)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "one layer"])
def test_exact_without_the_last_layer(name, X):
    """Its weights are then fitted freely."""
    network = NETWORKS[name]
    Z = features(network, X, len(network.weights) - 1)
    model = completion(network).fit(Z, network(X))
    assert model.residual_ < 1e-11 and model.layer_widths_ == network.layer_widths
    np.testing.assert_allclose(whole(model, network)(X), network(X), atol=1e-9)


@pytest.mark.parametrize("name", ["linear output", "three layers, linear"])
@pytest.mark.parametrize(("offset", "unit"), [(0.0, 1e6), (150.0, 70.0), (1e4, 1.0), (0.0, [1e4, 1.0, 1e-4])])
def test_outputs_in_any_unit(name, offset, unit, X):
    """What regression data look like: a linear output takes the unit on."""
    network = NETWORKS[name]
    Y = offset + unit * network(X)
    model = completion(network).fit(features(network, X), Y)
    spread = np.ptp(Y, axis=0)
    np.testing.assert_allclose(model.predict(features(network, X)) / spread, Y / spread, atol=1e-9)


def test_scaled_and_moved_features(X):
    """The start T = R = 1 is hopeless then, the next ones take every feature's own unit."""
    network = NETWORKS["three layers"]
    Z = (features(network, X) + 1.0) * np.logspace(-1, 1, 16)
    model = completion(network).fit(Z, network(X))
    assert model.residual_ < 1e-10


@pytest.mark.parametrize("names", [True, False])
def test_widths_from_names_or_parameter(names, X):
    network = NETWORKS["three layers"]
    Z = features(network, X)
    columns = [f"layer{layer + 1}_{i}" for layer, m in enumerate((8, 5, 3)) for i in range(m)]
    widths = None if names else (8, 5, 3)
    model = completion(network, layer_widths=widths).fit(pd.DataFrame(Z, columns=columns) if names else Z, network(X))
    assert model.layer_widths_ == (8, 5, 3) and model.residual_ < 1e-11


def test_widths_by_default_are_one_hidden_layer(X):
    network = NETWORKS["linear output"]
    model = NetworkCompletion(random_state=0).fit(features(network, X, 1), network(X))
    assert model.layer_widths_ == (8, 3) and model.residual_ < 1e-11


def test_fitted_attributes_are_equation_18(X):
    network = NETWORKS["three layers"]
    Z = features(network, X)
    model = completion(network).fit(Z, network(X))
    g, (C_1, C_2) = np.tanh, model.mixings_
    assert C_1.shape == (8, 5) and C_2.shape == (5, 3) and model.scales_.shape == (8,)
    V = [v / np.linalg.norm(v, axis=0) for v in network.entangled_weights(np.zeros(10))]
    np.testing.assert_allclose(C_1, np.linalg.pinv(V[0]) @ V[1], atol=1e-9)
    y = g(model.scales_ * Z[:, :8] + model.biases_[0])
    np.testing.assert_allclose(g(Z[:, :8] @ model.network_.weights[0][:8] + model.network_.biases[0]), y)
    assert [len(s) for s in model.biases_] == [8, 5, 3]


def test_a_given_start_is_used(X):
    network = NETWORKS["linear output"]
    Z = features(network, X, 1)
    truth = np.linalg.norm(network.weights[0], axis=0), network.biases[0]
    near = completion(network, start=truth).fit(Z, network(X))
    far = completion(network).fit(Z, network(X))
    assert near.n_iter_ <= 3 < far.n_iter_


def test_iterations_are_bounded(X):
    network = NETWORKS["three layers"]
    with pytest.warns(ConvergenceWarning, match="stopped after max_iter=2 steps at a residual of .* raise max_iter"):
        model = completion(network, max_iter=2, n_starts=1).fit(features(network, X), network(X))
    assert model.n_iter_ == 2 and model.residual_ > 1e-8


# -- descent by skorch -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("device", ["cpu", "auto"])
@pytest.mark.parametrize("solver", ["gd", "adam"])
def test_descent_lowers_the_loss(solver, device, free, X):
    network = NETWORKS["three layers"]
    Z = features(network, X, 2 if free else 3)
    model = completion(network, solver=solver, max_iter=30, device=device).fit(Z, network(X))
    loss = model.history_
    assert len(loss) == model.n_iter_ == 30 and loss[-1] < loss[0]
    assert solver == "adam" or np.all(np.diff(loss) < 0)
    expected = model.net_.predict(np.ascontiguousarray(Z[:, :8]))
    np.testing.assert_allclose(model.predict(Z), expected, atol=1e-12)


def test_descent_ends_at_the_solution(X):
    network = NETWORKS["two layers"]
    model = completion(network, solver="adam", max_iter=400, learning_rate=0.02).fit(features(network, X), network(X))
    assert model.residual_ < 0.05


@pytest.mark.parametrize("solver", ["lm", "gd"])
def test_one_dimensional_outputs(solver, X):
    """(n,) against the module's (n, 1) must not broadcast."""
    network = NETWORKS["one output"]
    Z, Y = features(network, X), network(X)
    model = completion(network, solver=solver, max_iter=20)
    assert clone(model).fit(Z, Y).predict(Z).shape == (500, 1)
    flat = model.fit(Z, Y[:, 0])
    assert flat.predict(Z).shape == (500,)
    np.testing.assert_allclose(flat.predict(Z), clone(model).fit(Z, Y).predict(Z)[:, 0], atol=1e-9)


def test_single_precision(X):
    network = NETWORKS["two layers"]
    model = completion(network, solver="gd", max_iter=5, dtype="float32").fit(features(network, X), network(X))
    assert next(model.net_.module_.parameters()).dtype == torch.float32
    assert model.predict(features(network, X)).dtype == np.float64


def test_callbacks_are_copied(X):
    network = NETWORKS["two layers"]
    stop = EarlyStopping(monitor="train_loss", patience=2, threshold=1.0, sink=lambda *_: None)
    before = dict(vars(stop))
    model = completion(network, solver="gd", max_iter=50, callbacks=[("stop", stop)])
    model.fit(features(network, X), network(X))
    assert model.n_iter_ < 50 and vars(stop) == before


def test_divergence_is_said(X):
    network = NETWORKS["linear output"]
    model = completion(network, solver="gd", learning_rate=1e3, max_iter=50)
    with pytest.raises(ValueError, match=r"descent diverged .* learning_rate=1000.* lower it"):
        model.fit(features(network, X), network(X))
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        check_is_fitted(model)


# -- determinism -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["lm", "gd", "adam"])
def test_same_seed_same_result_and_global_streams_left_alone(solver, X):
    network = NETWORKS["three layers"]
    Z, Y = features(network, X), network(X) + 0.1 * np.sin(X[:, :3])
    np.random.seed(3)
    torch.manual_seed(3)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    model = completion(network, solver=solver, max_iter=8)
    first, second = (clone(model).fit(Z, Y).predict(Z) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])


# -- the paper's pipeline ----------------------------------------------------------------------------------------------


def pipeline(network, **options):
    extractor = EntangledWeightExtractor(
        network, layer_widths=network.layer_widths, center=np.zeros(network.n_inputs), random_state=0
    )
    return make_pipeline(extractor, completion(network, **options))


@pytest.mark.parametrize("name", ["two layers", "linear output"])
def test_pipeline_is_exact_where_extraction_is(name, X):
    network = NETWORKS[name]
    model = pipeline(network).fit(X, network(X))
    X_new = np.random.default_rng(1).standard_normal((300, 10))
    assert relative_max_error(network(X_new), model.predict(X_new)) < 1e-8


def test_pipeline_of_three_layers_is_close():
    network = make_network((12, 10, 7, 4), random_state=0)
    X = np.random.default_rng(0).standard_normal((500, 12))
    model = pipeline(network).fit(X, network(X))
    assert model.score(X, network(X)) > 0.99


def test_widths_travel_by_feature_names():
    network = make_network((12, 10, 7, 4), random_state=0)
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((500, 12)), columns=[f"x{i}" for i in range(12)])
    Y = network(X.to_numpy())
    box = lambda X: network(np.asarray(X))  # noqa: E731
    model = pipeline(network, layer_widths=None).set_output(transform="pandas")
    model.set_params(entangledweightextractor__estimator=box, entangledweightextractor__activation="tanh")
    model.set_params(entangledweightextractor__output_activation="tanh").fit(X, Y)
    assert model[-1].layer_widths_ == (10, 7, 4)
    assert list(model[-1].feature_names_in_) == list(model[0].get_feature_names_out())
    assert model.score(X, Y) > 0.99


def test_grid_search_over_the_pipeline(X):
    network = NETWORKS["two layers"]
    model = pipeline(network)
    model.set_params(entangledweightextractor__first_layer="hessian")
    grid = {"entangledweightextractor__radius": [1e-2, 1.0], "networkcompletion__max_iter": [5, 30]}
    searches = [GridSearchCV(model, grid, cv=2, n_jobs=n_jobs).fit(X, network(X)) for n_jobs in (1, 2)]
    scores = [search.cv_results_["mean_test_score"] for search in searches]
    np.testing.assert_array_equal(*scores)
    assert searches[0].best_score_ > 0.99 and len(np.unique(scores[0])) > 1


def test_clone_and_pickle(X):
    network = NETWORKS["two layers"]
    Z = features(network, X)
    for solver in ("lm", "gd"):
        model = completion(network, solver=solver, max_iter=5).fit(Z, network(X))
        assert not hasattr(clone(model), "network_")
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(Z), model.predict(Z))


def test_verbose(X, capsys):
    network = NETWORKS["two layers"]
    completion(network, verbose=1).fit(features(network, X), network(X))
    seen = capsys.readouterr()
    assert "[NetworkCompletion] " in seen.err and "relative residual" in seen.err and seen.out == ""
    for solver, max_iter in (("lm", 100), ("gd", 3)):
        completion(network, solver=solver, max_iter=max_iter).fit(features(network, X), network(X))
    assert capsys.readouterr() == ("", "")


# -- bad input ---------------------------------------------------------------------------------------------------------

BAD_WIDTHS = [
    ((8, 4, 3), r"X has 16 features, but layer_widths=\(8, 4, 3\) need 15 .* or 12 without the last layer"),
    ((8, 5, 4), r"ends in 4 but the black box gives 3 output"),
    ((8, -5, 3), "must be positive integers"),
    ("abc", "layer_widths"),
]


@pytest.mark.parametrize(("widths", "message"), BAD_WIDTHS)
def test_wrong_widths(widths, message, X):
    network = NETWORKS["three layers"]
    with pytest.raises(ValueError, match=message):
        completion(network, layer_widths=widths).fit(features(network, X), network(X))


def test_layers_out_of_order(X):
    network = NETWORKS["two layers"]
    names = [f"layer2_{i}" for i in range(3)] + [f"layer1_{i}" for i in range(8)]
    frame = pd.DataFrame(features(network, X), columns=names)
    with pytest.raises(ValueError, match="layer by layer"):
        completion(network, layer_widths=None).fit(frame, network(X))


def test_too_few_rows(X):
    network = NETWORKS["three layers"]
    with pytest.raises(ValueError, match="8 samples do not determine how 8 features mix"):
        completion(network).fit(features(network, X[:8]), network(X[:8]))


@pytest.mark.parametrize("where", ["X", "y"])
def test_not_finite(where, X):
    network = NETWORKS["two layers"]
    Z, Y = features(network, X), network(X)
    (Z if where == "X" else Y)[2, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        completion(network).fit(Z, Y)


BAD_STARTS = [(np.ones(3), np.zeros(3)), (np.ones(8),), (np.full(8, np.nan), np.zeros(8)), ("a", "b")]


@pytest.mark.parametrize("bad", BAD_STARTS)
@pytest.mark.parametrize("solver", ["lm", "gd"])
def test_bad_start(bad, solver, X):
    network = NETWORKS["two layers"]
    with pytest.raises(ValueError, match="start must be two arrays of 8 finite numbers"):
        completion(network, start=bad, solver=solver).fit(features(network, X), network(X))


@pytest.mark.parametrize("solver", ["lm", "gd"])
@pytest.mark.filterwarnings("ignore:Levenberg-Marquardt stopped")
def test_constant_outputs(solver, X):
    model = completion(NETWORKS["linear output"], solver=solver, max_iter=5)
    model.fit(features(NETWORKS["linear output"], X), np.full((500, 3), 2.0))
    assert np.isfinite(model.predict(features(NETWORKS["linear output"], X))).all()


def test_a_constant_feature(X):
    network = NETWORKS["linear output"]
    Z = features(network, X, 1)
    Z[:, 0] = 4.0
    model = completion(network, max_iter=20).fit(Z, network(X))
    assert np.isfinite(model.predict(Z)).all()


def test_predict_before_fit(X):
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        NetworkCompletion().predict(X)


def test_nothing_half_fitted(X):
    network = NETWORKS["two layers"]
    model = completion(network).fit(features(network, X), network(X))
    with pytest.raises(ValueError, match=r"11 features, but layer_widths=\(7, 3\) need 10"):
        model.set_params(layer_widths=(7, 3)).fit(features(network, X), network(X))
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        model.predict(features(network, X))


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_there(device, X):
    network = NETWORKS["two layers"]
    with pytest.raises(ValueError, match=f"device='{device}'"):
        completion(network, solver="gd", device=device).fit(features(network, X), network(X))
