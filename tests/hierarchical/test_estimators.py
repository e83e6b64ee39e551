"""Hierarchical quadratic networks: exact recovery, real tables, classes, protocols, bad input."""

import copy
import pickle
import re

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, make_friedman1, make_friedman2, make_regression
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.svm import SVC

from skident import HierarchicalQuadraticNet, HierarchicalQuadraticNetClassifier
from skident.datasets import make_hierarchical_target
from skident.hierarchical import backward_feature_correction
from skident.metrics import feature_recovery_error
from tests.hierarchical.planted import ignored_convergence, planted, relative_mse


@pytest.fixture(scope="module")
def small():
    """A fitted net with its target and data."""
    target, X, y, X_test, y_test = planted(8, (3, 2), 1500, 100)
    return target, X, y, X_test, y_test, HierarchicalQuadraticNet((3, 2), random_state=0).fit(X, y)


@pytest.mark.parametrize(
    ("n_features", "widths", "n_samples", "kwargs"),
    [
        (8, (3, 2), 1000, {}),
        (16, (4, 2), 2000, {"distribution": "mixture"}),
        (10, (3, 2), 1500, {"connections": [(1,), (0, 2)]}),
        (6, (2,), 600, {}),
    ],
)
def test_recovers_the_target_to_rounding(n_features, widths, n_samples, kwargs):
    target, X, y, X_test, y_test = planted(n_features, widths, n_samples, 101, **kwargs)
    net = HierarchicalQuadraticNet(widths, connections=target.connections, random_state=0).fit(X, y)
    assert net.exact_ and net.readout_ == "sum"
    assert relative_mse(net, X_test, y_test) < 1e-16
    # With one layer the sum of squares is all that the data tell: S_2 up to rotation, which the error allows for.
    assert feature_recovery_error(target.features(X_test, 2), net.transform(X_test, layer=2)) < 1e-12


def test_deeper_target_with_one_unit_more_a_layer():
    _, X, y, X_test, y_test = planted(10, (2, 2, 1), 3000, 102)
    net = HierarchicalQuadraticNet((3, 3, 2), random_state=0).fit(X, y)
    assert relative_mse(net, X_test, y_test) < 1e-6


def test_where_kernels_fail():
    _, X, y, X_test, y_test = planted(16, (3, 2), 1500, 103)
    net = HierarchicalQuadraticNet((3, 2), random_state=0).fit(X, y)
    kernels = [KernelRidge(kernel="poly", degree=q, gamma=g, alpha=1e-3) for q in (2, 4) for g in (0.02, 0.1)]
    best = min(relative_mse(kernel.fit(X, y), X_test, y_test) for kernel in kernels)
    assert relative_mse(net, X_test, y_test) < 1e-8 and best > 0.05


def test_fitted_attributes_are_consistent(small):
    _, X, _, X_test, _, net = small
    assert net.widths_ == (3, 2) and net.connections_ == ((0, 1), (0, 2)) and net.alphas_ == (1.0, 0.3)
    assert {layer: {j: W.shape for j, W in blocks.items()} for layer, blocks in net.layer_weights_.items()} == {
        2: {0: (3, 8), 1: (3, 8)},
        3: {0: (2, 8), 2: (2, 3)},
    }
    assert len(net.restart_losses_) >= 1 and net.n_iter_ >= 1 and len(net.history_) > 1
    both = net.transform(X_test)
    np.testing.assert_array_equal(both[:, :3], net.transform(X_test, layer=2))
    assert list(net.get_feature_names_out()) == ["layer2_0", "layer2_1", "layer2_2", "layer3_0", "layer3_1"]
    # The documented units: a constant is all that the squares leave.
    rest = net.predict(X_test) - np.sum(both[:, :3] ** 2, axis=1) - 0.3 * np.sum(both[:, 3:] ** 2, axis=1)
    assert np.ptp(rest) < 1e-10 * np.ptp(net.predict(X_test))


def test_gradients_of_features_are_those_of_differences(small):
    *_, X_test, _, net = small
    x, step = X_test[:3], 1e-5
    gradients = net.feature_gradients(x, 3)
    shifted = x.copy()
    shifted[:, 4] += step * net._input_scaling.scale[4]
    differences = (net.transform(shifted, layer=3) - net.transform(x, layer=3)) / step
    np.testing.assert_allclose(gradients[:, :, 4], differences, atol=1e-3 * np.abs(gradients).max())


def test_layer_weights_reproduce_the_prediction(small):
    """The attributes are the network: computed by hand, on standardized inputs."""
    *_, X_test, _, net = small
    u = (X_test - net._input_scaling.center) / net._input_scaling.scale
    G = {0: u, 1: u**2 - net._module.moments.numpy()}
    total = net._module.offset.item()
    for layer, (alpha, b) in enumerate(zip(net.alphas_, net._module.biases), start=2):
        S = sum(G[j] @ W.T for j, W in net.layer_weights_[layer].items()) + b.detach().numpy()
        G[layer] = S**2
        total = total + alpha * G[layer].sum(axis=1)
    np.testing.assert_allclose(total, net.predict(X_test), rtol=1e-10)


@pytest.mark.filterwarnings("ignore:.*do not support the P =:sklearn.exceptions.ConvergenceWarning")  # diabetes
@pytest.mark.parametrize(
    ("data", "bar"),
    [
        (lambda: make_friedman1(600, noise=1.0, random_state=7), 0.92),
        (lambda: make_friedman2(500, noise=20.0, random_state=7), 0.97),
        (lambda: load_diabetes(return_X_y=True), 0.40),
        (lambda: make_regression(400, 10, n_informative=5, noise=10.0, random_state=7), 0.96),
    ],
    ids=["friedman1", "friedman2", "diabetes", "linear"],
)
def test_real_and_noisy_tables(data, bar):
    """One split each; the benchmark has five folds."""
    X, X_test, y, y_test = train_test_split(*data(), test_size=0.25, random_state=1)
    net = HierarchicalQuadraticNet(random_state=0).fit(X, y)
    assert net.score(X_test, y_test) > bar and not net.exact_


@pytest.mark.filterwarnings("ignore:.* better for these data")
def test_breast_cancer():
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, np.array(["b", "m"])[y], test_size=0.3, random_state=1)
    clf = HierarchicalQuadraticNetClassifier(max_epochs=15, random_state=0).fit(X, y)
    assert clf.score(X_test, y_test) > 0.94 and set(clf.predict(X_test)) == {"b", "m"}


def test_signs_of_a_target():
    target = make_hierarchical_target(8, (3, 2), random_state=104)
    (X, y), (X_test, y_test) = target.sample_signs(2000, 0), target.sample_signs(4000, 1)
    clf = HierarchicalQuadraticNetClassifier((3, 2), loss="theorem4", offset_column=0, random_state=0)
    clf.set_params(n_starts=1, max_iter=200)
    error = 1 - clf.fit(X, y).score(X_test, y_test)
    assert error < 0.025 and error < 0.5 * (1 - SVC(C=10.0).fit(X, y).score(X_test, y_test))
    np.testing.assert_allclose(clf.predict_proba(X_test).sum(axis=1), 1.0)
    moved = np.column_stack([X[:, 1:4], X[:, 0], X[:, 4:]])  # the offset may be any column
    short = clone(clf).set_params(max_iter=5)
    with ignored_convergence():
        again, first = clone(short).set_params(offset_column=3).fit(moved, y), short.fit(X, y)
    np.testing.assert_array_equal(again.predict(moved), first.predict(X))


def test_noise_is_not_fitted():
    """Agnostic labels: the error on the truth is well below the noise."""
    target, X, y, X_test, y_test = planted(8, (3, 2), 2000, 105)
    noisy = y + 0.3 * y.std() * np.random.RandomState(0).standard_normal(len(y))
    net = HierarchicalQuadraticNet((3, 2), random_state=0).fit(X, noisy)
    assert not net.exact_ and relative_mse(net, X_test, y_test) < 0.02


def test_single_layers_and_the_protocol():
    target, X, y, X_test, y_test = planted(8, (2, 2), 2000, 108, kappa=1.0)
    net = HierarchicalQuadraticNet((2, 2), readout="sum", random_state=0)
    result = backward_feature_correction(net, X, y, X_test=X_test, y_test=y_test, target=target)
    # The issue of the paper: without correction the lower layer stays wrong, with it everything is found.
    assert result.error("layerwise", 3) > 5e-3 and result.error("fixed", 2) > 5e-3
    assert result.error("all", 2) < 1e-4 * result.error("layerwise", 3)
    assert result.find("only", 2)["feature_errors"][2] > 1e4 * result.find("all", 2)["feature_errors"][2]
    row = result.find("only", 2)
    assert 0.5 < row["correlation_after"] <= 1.0 and abs(row["correlation_start"]) <= 1.0
    only = clone(net).fit_layers(X, y, depth=2)
    rest = clone(net).fit_layers(X, y, depth=3, fixed=(2,), start=only)
    for j, W in only.layer_weights_[2].items():
        np.testing.assert_allclose(rest.layer_weights_[2][j], W, rtol=1e-10)
    assert "train all" in str(result)


def test_the_protocol_of_classifiers():
    target = make_hierarchical_target(6, (2, 1), random_state=114)
    (X, y), (X_test, y_test) = target.sample_signs(800, 0), target.sample_signs(2000, 1)
    signs = HierarchicalQuadraticNetClassifier((2, 1), loss="theorem4", offset_column=0, n_starts=1, max_iter=60)
    plain = HierarchicalQuadraticNetClassifier((2, 2), max_epochs=3)
    for clf, truth in ((signs, target), (plain, None)):
        clf.set_params(random_state=0)
        with ignored_convergence():
            result = backward_feature_correction(clf, X, y, X_test=X_test, y_test=y_test, target=truth)
            only = clone(clf).fit_layers(X, y, depth=2)
            together = clone(clf).fit_layers(X, y, depth=3, start=only)
        assert result.classifies and len(result.rows) == 4
        assert all(row["error"] == pytest.approx(1 - row["score"]) and row["error"] < 0.5 for row in result.rows)
        assert result.error("only", 2) == pytest.approx(np.mean(only.predict(X_test) != y_test))
        assert set(result.find("all", 2)["feature_errors"]) == (set() if truth is None else {2, 3})
        for j, W in only.layer_weights_[2].items():  # "all" starts where "only" ended
            np.testing.assert_allclose(together.initial_layer_weights_[2][j], W, rtol=1e-12)


@pytest.mark.parametrize("solver", ["lbfgs", "adam", "sgd"])
def test_other_solvers_learn(solver):
    _, X, y, X_test, y_test = planted(6, (2, 1), 1000, 109)
    net = HierarchicalQuadraticNet(
        (2, 1), solver=solver, readout="sum", n_starts=3, max_epochs=40, l2=0.0, random_state=0
    )
    net.set_params(learning_rate={"sgd": 0.01, "adam": 0.03}.get(solver)).fit(X, y)
    assert relative_mse(net, X_test, y_test) < (1e-6 if solver == "lbfgs" else 0.35)
    assert hasattr(net, "net_") == (solver != "lbfgs")


@pytest.mark.filterwarnings("ignore:.* better for these data")
def test_curvature_and_classes_by_lbfgs():
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:, :10]
    clf = HierarchicalQuadraticNetClassifier((4, 2), curvature=0.1, solver="lbfgs", max_iter=60, n_starts=1)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        clone(clf).set_params(max_iter=3, random_state=0).fit(X, y)
    with ignored_convergence():
        assert clf.set_params(random_state=0).fit(X, y).score(X, y) > 0.9
    sgd = HierarchicalQuadraticNetClassifier((4, 2), curvature=0.1, max_epochs=10, random_state=0).fit(X, y)
    assert sgd.score(X, y) > 0.9


def test_several_outputs():
    target, X, y, X_test, y_test = planted(6, (2,), 600, 110)
    Y, fresh_Y = np.column_stack([y, -2 * y]), np.column_stack([y_test, -2 * y_test])
    net = HierarchicalQuadraticNet((2,), random_state=0).fit(X, Y)
    assert net.predict(X_test).shape == (5000, 2) and net.score(X_test, fresh_Y) > 0.99


def test_grid_search_is_the_same_in_two_processes():
    _, X, y, _, _ = planted(6, (2, 1), 150, 111)
    grid = {"connections": ["paper", [(1,), (2,)]], "l2": [1e-4, 1e-2]}
    net = HierarchicalQuadraticNet((2, 1), n_starts=1, readout="linear", max_iter=5, random_state=0)
    scores = []
    for n_jobs in (1, 2):
        search = GridSearchCV(net, grid, cv=2, n_jobs=n_jobs)
        with ignored_convergence():
            search.fit(X, y)
        scores.append(search.cv_results_["mean_test_score"])
    assert len(scores[0]) == 4 and np.isfinite(scores[0]).all() and len(set(scores[0])) == 4
    np.testing.assert_array_equal(*scores)


def test_the_connections_are_found_by_search():
    """Without the skip link the target is out of reach, and the scores show it."""
    _, X, y, _, _ = planted(8, (3, 2), 1000, 112)
    with ignored_convergence():
        scores = {
            graph: cross_val_score(
                HierarchicalQuadraticNet((3, 2), connections=graph, readout="sum", n_starts=2, random_state=0),
                X,
                y,
                cv=2,
            ).mean()
            for graph in ("paper", "chain")
        }
    assert scores["paper"] > 1 - 1e-10 > scores["chain"] + 1e-4


def test_random_state_decides_and_the_global_stream_stays(small):
    _, X, y, X_test, _, net = small
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    again = clone(net).fit(X, y)
    HierarchicalQuadraticNet((2,), solver="adam", max_epochs=1, random_state=0).fit(X, y)
    assert torch.equal(before, torch.random.get_rng_state())
    np.testing.assert_array_equal(again.predict(X_test), net.predict(X_test))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(net)).predict(X_test), net.predict(X_test))
    np.testing.assert_array_equal(copy.deepcopy(net).predict(X_test), net.predict(X_test))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("solver", ["lm", "lbfgs", "adam", "algorithm1"])
def test_on_a_gpu(solver):
    _, X, y, X_test, y_test = planted(6, (2, 1), 800, 113)
    net = HierarchicalQuadraticNet((2, 1), solver=solver, device="cuda", max_epochs=30, random_state=0)
    with ignored_convergence():
        net.fit(X, y)
    assert relative_mse(net, X_test, y_test) < {"lm": 1e-10, "adam": 0.6}.get(solver, 0.5)  # on a CPU, too: 0.57


X0 = np.random.RandomState(0).standard_normal((60, 4))
Y0 = X0[:, 0] ** 2 + X0[:, 1]


@pytest.mark.parametrize(
    ("params", "X", "y", "match"),
    [
        ({"connections": [(0, 1), (0,)]}, X0, Y0, r"layer 3 are \(0,\), without the previous layer 2"),
        ({"connections": [(0, 1), (2, 3)]}, X0, Y0, r"layer 3 must be indices in 0, ..., 2"),
        ({"connections": [(0, 1), (-1, 2)]}, X0, Y0, r"layer 3 must be indices"),
        ({"connections": [(0, 1)]}, X0, Y0, "connections lists 1 layers, but widths has 2"),
        ({"connections": {2: (1,), 4: (2,)}}, X0, Y0, r"must have the keys \[2, 3\]"),
        ({"widths": ()}, X0, Y0, "widths must be positive integers"),
        ({"widths": (2, 0)}, X0, Y0, "widths must be positive integers"),
        ({"widths": (2.5, 1)}, X0, Y0, "widths must be positive integers"),
        ({"alphas": (1.0,)}, X0, Y0, "alphas must be 2 positive finite numbers"),
        ({"alphas": (1.0, -1.0)}, X0, Y0, "alphas must be 2 positive finite numbers"),
        ({}, X0, np.full(60, 3.0), r"y is constant \(3 in all 60 samples\)"),
        ({}, X0[:, :1], Y0, r"1 feature\(s\)"),
        ({}, np.where(X0 > 2, np.nan, X0), Y0, "NaN"),
        ({}, X0, np.where(Y0 > 2, np.inf, Y0), "infinity"),
        ({"readout": "sum"}, X0, np.column_stack([Y0, Y0]), "readout='sum' has one output"),
        ({"solver": "algorithm1", "algorithm1_options": {"m": 3}}, X0, Y0, r"unknown keys \['m'\]"),
        ({"solver": "algorithm1", "algorithm1_options": {"kappa": -1}}, X0, Y0, "kappa=-1 is out of range"),
        ({"solver": "algorithm1", "readout": "linear"}, X0, Y0, "solver='algorithm1' has one output"),
        ({"solver": "adam", "device": "nowhere"}, X0, Y0, "device='nowhere'"),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_bad_input(params, X, y, match):
    net = HierarchicalQuadraticNet(**{"widths": (2, 1), **params})
    with pytest.raises(ValueError, match=match):
        net.fit(X, y)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        net.predict(X0)


LABELS = (Y0 > 1).astype(int)


@pytest.mark.parametrize(
    ("params", "y", "match"),
    [
        ({}, np.zeros(60, dtype=int), "y has one class, .*0.*, in all 60 samples"),
        ({"loss": "theorem4"}, np.arange(60) % 3, "for two classes, y has 3"),
        ({"loss": "theorem4", "offset_column": 7}, LABELS, "offset_column=7, but X has columns 0, ..., 3"),
        ({"loss": "theorem4", "solver": "sgd"}, LABELS, "has the solvers"),
        ({"loss": "theorem4", "solver": "algorithm1"}, LABELS, "needs offset_column"),
        ({"solver": "algorithm1"}, LABELS, "has the solvers"),
        ({}, Y0, "Unknown label type"),
    ],
)
def test_bad_input_of_the_classifier(params, y, match):
    with pytest.raises(ValueError, match=match):
        HierarchicalQuadraticNetClassifier((2, 1), **params).fit(X0, y)


@pytest.mark.filterwarnings("ignore:ridge regression on terms of degree two is better")
@pytest.mark.filterwarnings("ignore:.* better for these data")
def test_too_few_samples_are_told_with_numbers():
    with pytest.warns(ConvergenceWarning, match=r"N = 60 targets for P = 110 weights"):
        HierarchicalQuadraticNet((10, 5), connections=[(1, 0), (2,)], n_starts=1, l2=1.0).fit(X0[:, :3], Y0)


def test_a_named_layer_is_an_array_in_any_container():
    net = HierarchicalQuadraticNet((2, 1), solver="sgd", max_epochs=1, random_state=0).fit(X0, Y0)
    features = net.transform(X0)
    frame = net.set_output(transform="pandas").transform(X0)
    assert list(frame.columns) == ["layer2_0", "layer2_1", "layer3_0"]
    np.testing.assert_array_equal(frame.to_numpy(), features)
    assert isinstance(net.transform(X0, layer=2), np.ndarray)
    np.testing.assert_array_equal(net.transform(X0, layer=3), features[:, 2:])


def test_starts_are_told_on_stderr(capsys):
    net = HierarchicalQuadraticNet((2,), readout="sum", n_starts=1, random_state=0, verbose=1)
    with ignored_convergence():
        net.fit(X0, Y0)
    said = capsys.readouterr()
    assert re.fullmatch(r"\[HierarchicalQuadraticNet\] start 1: relative loss \d\.\d\de[+-]\d\d\n", said.err)
    assert not said.out


def test_bad_layers():
    net = HierarchicalQuadraticNet((2, 1), n_starts=1, l2=1e-2, random_state=0)
    with pytest.raises(ValueError, match=r"depth must be in \[2, 3\]"):
        net.fit_layers(X0, Y0, depth=4)
    with pytest.raises(ValueError, match="fixed layers must be among the layers of start"):
        net.fit_layers(X0, Y0, depth=3, fixed=(2,))
    with ignored_convergence():
        net.fit(X0, Y0)
    with pytest.raises(ValueError, match=r"layer must be one of \[2, 3\]"):
        net.transform(X0, layer=1)
    with pytest.raises(TypeError, match="must train single layers"):
        backward_feature_correction(SVC(), X0, LABELS)
    with pytest.raises(ValueError, match="needs two layers or more"):
        backward_feature_correction(HierarchicalQuadraticNet((2,)), X0, Y0)


@pytest.mark.parametrize("unit", [1e-300, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("solver", ["lm", "adam"])
def test_inputs_whose_squares_float64_does_not_hold(solver, unit):
    """They are standardized without squaring them: the same network as of inputs of order one."""
    options = {"solver": solver, "n_starts": 1, "max_iter": 30, "max_epochs": 3, "random_state": 0}
    plain = HierarchicalQuadraticNet((2,), **options).fit(X0, Y0)
    scaled = HierarchicalQuadraticNet((2,), **options).fit(unit * X0, Y0)
    np.testing.assert_allclose(scaled.predict(unit * X0), plain.predict(X0), atol=1e-8)


def test_a_better_linear_model_is_named():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((60, 6))
    y = X @ np.ones(6) + 0.5 * rng.standard_normal(60)
    with pytest.warns(ConvergenceWarning, match=r"a linear model is better .* R\^2 on held-out samples is about 0\.9"):
        HierarchicalQuadraticNet((3, 2), readout="sum", l2=10.0, random_state=0).fit(X, y)


# -- noise on the inputs of a classifier -------------------------------------------------------------------------------


def blobs(n=120, d=20):
    rng = np.random.RandomState(70)
    X, y = rng.standard_normal((n, d)), np.arange(n) % 2
    X[:, :5] += 0.7 * (2 * y[:, None] - 1)
    return X, y


@pytest.mark.filterwarnings("ignore:.* better for these data")
def test_held_out_rows_choose_noise_for_many_weak_inputs():
    clf = HierarchicalQuadraticNetClassifier(widths=(4,), max_epochs=10, random_state=0).fit(*blobs())
    assert clf.input_noise_ == 0.5 and clf.l2_ == 2e-3
    assert clf.held_out_score_ > 0.75 and clf.linear_score_ > 0.75


def test_held_out_rows_choose_no_noise_for_a_circle():
    X = np.random.RandomState(71).standard_normal((200, 2))
    y = (X**2).sum(axis=1) > 1.4
    clf = HierarchicalQuadraticNetClassifier(widths=(4,), max_epochs=20, random_state=0).fit(X, y)
    assert clf.input_noise_ == 0.0 and clf.l2_ == 5e-3 and clf.held_out_score_ > 0.9


def test_given_noise_asks_no_held_out_rows():
    clf = HierarchicalQuadraticNetClassifier(widths=(2,), max_epochs=2, input_noise=0.1, random_state=0).fit(*blobs(40))
    assert clf.input_noise_ == 0.1 and np.isnan(clf.held_out_score_) and np.isnan(clf.linear_score_)


def test_a_classifier_that_is_worse_than_a_linear_one_says_so():
    with pytest.warns(ConvergenceWarning, match="(linear model|ridge regression|kernel).* better for these data"):
        HierarchicalQuadraticNetClassifier(widths=(4,), max_epochs=1, learning_rate=1e-6, random_state=0).fit(*blobs())
