"""SaddleEscapeAnalyzer: speeds, measures, construction, times, features, and what it refuses."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skident import SaddleEscapeAnalyzer
from skident.datasets import make_alternating_circle
from skident.optim import unit_norm
from skident.saddle import BiasFreeMLP
from skident.saddle.analyzer import rank_theorem_bound
from skident.saddle.escape_search import AscentOptions, search_escape
from skident.saddle.escape_time import aligned_escape_time, flow_escape_time
from skident.saddle.gradient_at_zero import gradient_at_zero
from skident.saddle.localized_loss import (
    best_units,
    collapse,
    deepened,
    last_layer,
    loss_gradient,
    speed,
    speed_and_gradient,
)

RANK_ONE = np.sqrt(2) - 1


def localized_loss(weights, X, G):
    """``<G, f(X)>``, layer by layer."""
    A = X
    for W in weights[:-1]:
        A = np.maximum(A @ W, 0)
    return float(np.sum(G * (A @ weights[-1])))


def random_hidden(rng, sizes, n=2):
    return [unit_norm(rng.standard_normal((n, a, b))) for a, b in zip(sizes[:-1], sizes[1:])]


@pytest.fixture(scope="module")
def circle():
    """Example 1 with 100 restarts of width 32."""
    analyzer = SaddleEscapeAnalyzer("gradient", depth=3, n_starts=100, max_iter=400, random_state=0)
    return analyzer.fit(*make_alternating_circle(8))


@pytest.fixture(scope="module")
def smooth():
    """Data, gradient and a fitted analyzer whose optimum lies on no activation boundary that matters."""
    rng = np.random.RandomState(1)
    X, G = rng.standard_normal((300, 4)), rng.standard_normal((300, 2)) / 300
    return X, G, SaddleEscapeAnalyzer("gradient", depth=3, width=8, n_starts=10, random_state=0).fit(X, G)


# -- data and formulas -------------------------------------------------------------------------------------------------


def test_the_circle():
    X, y = make_alternating_circle(8)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0, rtol=1e-15)
    np.testing.assert_array_equal(X[1], [1.0, 0.0])  # exactly: a quarter turn must lie on its activation boundary
    np.testing.assert_array_equal(y, [-1, 1] * 4)
    with pytest.raises(ValueError, match="must be even"):
        make_alternating_circle(7)


def test_example_one():
    """The rank-one optimum and the paper's rank-two point, whose last layer must be -1."""
    X, y = make_alternating_circle(8)
    G = y[:, None]
    rank_one = [np.array([[0.0], [1.0]]), np.ones((1, 1)), np.ones((1, 1))]
    assert -localized_loss(rank_one, X, G) == pytest.approx(RANK_ONE, abs=1e-12)
    W1 = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]]).T / 2
    rank_two = [W1, np.array([[1, -1, 1, -1]]).T / 2, -np.ones((1, 1))]
    assert -localized_loss(rank_two, X, G) == pytest.approx(0.5, abs=1e-12)
    assert localized_loss([*rank_two[:2], np.ones((1, 1))], X, G) == pytest.approx(0.5, abs=1e-12)  # as printed


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_gradients_are_those_of_automatic_differentiation(library):
    rng = np.random.RandomState(0)
    X, G, hidden = rng.standard_normal((30, 3)), rng.standard_normal((30, 2)), random_hidden(rng, (3, 5, 4))
    tensors = [torch.tensor(W, requires_grad=True) for W in hidden]
    A = torch.as_tensor(X)
    for W in tensors:
        A = torch.relu(A @ W)
    torch.linalg.matrix_norm(A.mT @ torch.as_tensor(G)).sum().backward()
    given = (hidden, X, G) if library == "numpy" else ([torch.as_tensor(W) for W in hidden], *map(torch.tensor, (X, G)))
    value, gradients = speed_and_gradient(*given)
    np.testing.assert_allclose(value, speed(*given), rtol=1e-14)
    for gradient, tensor in zip(gradients, tensors):
        np.testing.assert_allclose(gradient, tensor.grad, rtol=1e-12, atol=1e-14)


def test_gradient_of_all_layers():
    rng = np.random.RandomState(1)
    X, G = rng.standard_normal((20, 3)), rng.standard_normal((20, 2))
    weights = [rng.standard_normal(shape) for shape in ((3, 4), (4, 5), (5, 2))]
    tensors = [torch.tensor(W, requires_grad=True) for W in weights]
    module = BiasFreeMLP((3, 4, 5, 2), start=weights)
    torch.sum(module(torch.as_tensor(X)) * torch.as_tensor(G)).backward()
    value, gradients = loss_gradient(weights, X, G)
    assert value == pytest.approx(localized_loss(weights, X, G), rel=1e-13)
    for gradient, layer in zip(gradients, module.layers[::2]):
        np.testing.assert_allclose(gradient, layer.weight.grad.numpy().T, rtol=1e-12, atol=1e-14)
    # Euler: the localized loss is homogeneous of degree L.
    assert sum(np.sum(g * W) for g, W in zip(gradients, weights)) == pytest.approx(len(tensors) * value, rel=1e-12)


def test_collapse_never_loses_speed_and_prolonging_keeps_it():
    rng = np.random.RandomState(2)
    for _ in range(10):
        X, G, hidden = rng.standard_normal((15, 3)), rng.standard_normal((15, 2)), random_hidden(rng, (3, 6, 6, 6), 4)
        networks, values = collapse(hidden, X, G)
        assert np.all(values >= speed(hidden, X, G) * (1 - 1e-12))
        assert np.all(best_units(hidden, X, G)[0][:, -1] >= speed(hidden, X, G) * (1 - 1e-12))
        for network, value in zip(networks, values):
            readout = last_layer([W[None] for W in network], X, G)[0]
            deep = deepened(network, readout, 5, 6)
            assert -localized_loss(deep, X, G) == pytest.approx(value, rel=1e-12)
            assert [np.linalg.norm(W) for W in deep] == pytest.approx([1.0] * 6, abs=1e-12)
            assert all(np.linalg.matrix_rank(W) == 1 for W in deep[len(network) :])


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_escape_time_is_that_of_the_simulated_flow(depth):
    """Small explicit steps on the true localized loss, in the plain parameters, against the corrected formula."""
    X, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[-0.7], [0.0]])
    weights = [
        np.eye(2)[:, :1],
        *[np.ones((1, 1))] * (depth - 2),
        np.ones((1, 1)),
    ]  # rank one, no row on a activation boundary
    theta, t, a, h = [0.05 * W for W in weights], 0.0, 0.05, 0.01
    expected = aligned_escape_time(0.7, depth, 0.05, 0.5)
    while a < 0.5:
        step, before = h * a ** (2 - depth), a  # the same relative growth everywhere
        middle = [W - 0.5 * step * g for W, g in zip(theta, loss_gradient(theta, X, y)[1])]
        theta = [W - step * g for W, g in zip(theta, loss_gradient(middle, X, y)[1])]
        t, a = t + step, np.sqrt(sum(np.sum(W**2) for W in theta) / depth)
    t -= step * (a - 0.5) / (a - before)
    # Midpoint steps and the interpolation in the last are off by shares of order h^2 = 1e-4.
    assert t == pytest.approx(expected, rel=1e-3)
    assert flow_escape_time([0.05 * W for W in weights], X, y, 0.5) == pytest.approx(expected, rel=1e-4)
    if depth > 2:
        printed = (0.05 ** (2 - depth) + 0.5 ** (2 - depth)) / ((depth - 2) * depth * 0.7)
        assert abs(printed / expected - 1) > 0.2  # Proposition 2.2 as printed


def test_the_theorem_says_nothing_on_most_data():
    assert np.isinf(rank_theorem_bound(10, 30.0, 1.0)).all()
    bound = rank_theorem_bound(400, 1.001, 1.0)
    c = 1.001 * np.sqrt(2 * np.log(1.001))
    told = np.arange(1, 401) > 81 * c**2
    assert np.array_equal(np.isfinite(bound), told) and told.any() and (bound[told] < 1).all()
    assert bound[-1] == pytest.approx(8 * c / (1 - c / 20) / 20, rel=1e-12)


@pytest.mark.parametrize(
    ("loss", "y", "torch_loss"),
    [
        ("squared_error", np.array([1.0, 2.0, 4.0, 0.5]), None),
        ("log_loss", np.array([0, 1, 1, 0]), None),
        ("log_loss", np.array(["a", "b", "c", "a"]), None),
    ],
)
def test_gradients_of_losses_at_zero(loss, y, torch_loss):
    G, classes = gradient_at_zero(loss, y, fit_intercept=False)
    n = len(y)
    outputs = torch.zeros(G.shape, dtype=torch.float64, requires_grad=True)
    if loss == "squared_error":
        value = 0.5 * ((outputs[:, 0] - torch.as_tensor(y)) ** 2).mean()
    elif len(classes) == 2:
        value = torch.nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], torch.as_tensor(y).double())
    else:
        value = torch.nn.functional.cross_entropy(outputs, torch.tensor([0, 1, 2, 0]))
        G_callable, _ = gradient_at_zero(torch.nn.functional.cross_entropy, y)
        np.testing.assert_allclose(G_callable, G, rtol=1e-14)
    value.backward()
    np.testing.assert_allclose(G, outputs.grad.numpy(), rtol=1e-13)
    assert G.shape[0] == n


# -- the analyzer ------------------------------------------------------------------------------------------------------


def test_rank_two_beats_rank_one(circle):
    assert np.mean(circle.restart_speeds_ > RANK_ONE + 1e-9) >= 0.75
    assert 0.499 <= circle.escape_speed_ <= 0.5 + 1e-12
    assert circle.shallow_speed_ == pytest.approx(RANK_ONE, abs=1e-6)
    assert circle.rank_ratio_[0] == pytest.approx(0.5, abs=0.05)  # two equal singular values
    assert np.all(circle.rank_ratio_[1:] < 1e-12) and circle.bottleneck_rank_ == 1
    X, y = make_alternating_circle(8)
    assert -localized_loss(circle.escape_direction_, X, y[:, None]) == pytest.approx(circle.escape_speed_, rel=1e-12)


def test_restarts_in_many_small_batches():
    """Chunks of one restart each: as many speeds as restarts, and the same fastest one."""
    X, y = make_alternating_circle(8)
    found = [
        search_escape(X, y[:, None], depth=3, width=8, ascent=ascent, rng=np.random.RandomState(0))
        for ascent in (AscentOptions(20, 300), AscentOptions(20, 300, chunk_bytes=1))
    ]
    assert [len(f.restart_speeds) for f in found] == [20, 20]
    assert found[0].speed == pytest.approx(0.5, abs=1e-3) and found[1].speed == pytest.approx(0.5, abs=1e-3)


def test_progress_is_told_on_stderr(capsys):
    X, y = make_alternating_circle(8)
    options = {"width": 4, "n_starts": 2, "max_iter": 5, "n_components": 2, "random_state": 0}
    SaddleEscapeAnalyzer("gradient", verbose=1, **options).fit(X, y)
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert not printed.out and len(lines) == 2 and lines[1].startswith("[SaddleEscapeAnalyzer] component 2: speed 0.")


def test_extend(circle):
    X, y = make_alternating_circle(8)
    weights = circle.extend(3)
    assert len(weights) == 6 and all(np.linalg.matrix_rank(W) == 1 for W in weights[2:])
    assert -localized_loss(weights, X, y[:, None]) >= circle.escape_speed_ * (1 - 1e-12)
    assert sum(np.sum(W**2) for W in weights) == pytest.approx(6, abs=1e-12)
    with pytest.raises(ValueError, match="n_layers must be an integer >= 0"):
        circle.extend(-1)


def test_digits():
    """Speed of the mean cross-entropy; the layers behind the first are of rank one; the budget holds."""
    X, y = load_digits(return_X_y=True)
    X = (X - X.mean()) / X.std()
    options = {"depth": 4, "width": 20, "n_starts": 2, "max_iter": 60, "dtype": "float32", "random_state": 2}
    analyzer = SaddleEscapeAnalyzer("log_loss", **options).fit(X, y)
    assert 0.5525 <= analyzer.escape_speed_ <= 0.5529
    assert np.all(analyzer.rank_ratio_[1:] < 1e-3) and np.all(analyzer.activation_rank_ratio_[1:] < 1e-3)
    used, budget = analyzer.log_rank_budget_
    assert used == pytest.approx(0.71, abs=0.01) and budget == pytest.approx(5.24, abs=0.01)
    assert np.isinf(analyzer.theorem_bound_).all()
    assert list(analyzer.classes_) == list(range(10))


def test_the_direction_is_a_critical_point_away_from_activation_boundaries(smooth):
    X, G, analyzer = smooth
    s, weights = analyzer.escape_speed_, analyzer.escape_direction_
    assert analyzer.residual_ < 0.05
    assert [np.linalg.norm(W) for W in weights] == pytest.approx([1.0] * 3, abs=1e-12)
    assert s >= analyzer.shallow_speed_ and s >= np.nanmax(analyzer.restart_speeds_)
    rng = np.random.RandomState(3)  # no random direction is as fast
    for _ in range(200):
        other = [W / np.linalg.norm(W) for W in (rng.standard_normal(W.shape) for W in weights)]
        assert -localized_loss(other, X, G) < s


def test_speeds_are_linear_in_inputs_and_gradient(smooth):
    X, G, analyzer = smooth
    scaled = clone(analyzer).fit(1e-5 * X, 1e3 * G)
    assert scaled.escape_speed_ == pytest.approx(1e-2 * analyzer.escape_speed_, rel=1e-9)


def test_single_precision_gives_the_same_speed(smooth):
    X, G, analyzer = smooth
    single = clone(analyzer).set_params(dtype="float32").fit(1e20 * X, 1e-20 * G)
    assert single.escape_speed_ == pytest.approx(analyzer.escape_speed_, rel=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_gpu_gives_the_same_speed(smooth):
    X, G, analyzer = smooth
    assert clone(analyzer).set_params(device="cuda").fit(X, G).escape_speed_ == pytest.approx(
        analyzer.escape_speed_, rel=1e-3
    )


def test_a_deeper_network_escapes_at_least_as_fast(smooth):
    X, G, _ = smooth
    options = {"width": 8, "n_starts": 2, "max_iter": 100, "random_state": 4}
    speeds = [SaddleEscapeAnalyzer("gradient", depth=L, **options).fit(X, G).escape_speed_ for L in (2, 3, 5)]
    assert all(b >= a * (1 - 1e-3) for a, b in zip(speeds[:-1], speeds[1:]))


def test_escape_times(smooth):
    X, G, analyzer = smooth
    predicted = analyzer.predict_escape_time(0.01, 0.5)
    start = analyzer.initial_weights(0.01)
    assert [np.linalg.norm(W) for W in start] == pytest.approx([0.01] * 3, rel=1e-12)
    assert analyzer.escape_time_from(start, X, G, 0.5) == pytest.approx(predicted, rel=1e-3)
    # From any start times grow by alpha^(2-L), up to the share of the time that is spent near the end.
    rng = np.random.RandomState(5)
    other = [1e-3 * rng.standard_normal(W.shape) for W in start]
    slow, slower = (analyzer.escape_time_from([a * W for W in other], X, G) for a in (1.0, 0.1))
    assert slower / slow == pytest.approx(10.0, rel=0.05)
    assert analyzer.escape_time_from([0 * W for W in other], X, G) == np.inf
    assert analyzer.escape_time_from([1e3 * W for W in other], X, G, 0.1) == 0.0


def test_training_grows_as_predicted(smooth):
    """Gradient descent on the squared error itself, from the aligned start, while outputs are small."""
    rng = np.random.RandomState(6)
    X = rng.standard_normal((100, 3))
    y = np.maximum(X @ np.array([1.0, -0.5, 0.2]), 0)
    analyzer = SaddleEscapeAnalyzer(depth=3, width=4, fit_intercept=False, random_state=0).fit(X, y)
    module = BiasFreeMLP((3, 4, 4, 1), start=analyzer.initial_weights(0.02))
    inputs, targets, t = torch.as_tensor(X), torch.as_tensor(y)[:, None], 0.0
    while (a := np.sqrt(sum(float((p.detach() ** 2).sum()) for p in module.parameters()) / 3)) < 0.1:
        module.zero_grad()
        (0.5 * ((module(inputs) - targets) ** 2).mean()).backward()
        step = 0.01 / a
        with torch.no_grad():
            for p in module.parameters():
                p -= step * p.grad
        t += step
    # Explicit Euler is late by half the growth of a step, about 0.3 %, and the loss is not the localized one.
    assert t == pytest.approx(analyzer.predict_escape_time(0.02, 0.1), rel=0.02)


def test_components_are_distinct_features():
    X, y = load_digits(return_X_y=True)
    X, y = (X[:200] - 5.0) / 6.0, y[:200]
    analyzer = SaddleEscapeAnalyzer(
        "log_loss", width=6, n_starts=1, max_iter=10, n_components=5, dtype="float32", random_state=0
    )
    Z = analyzer.fit_transform(X, y)
    assert Z.shape == (200, 5) and np.linalg.matrix_rank(Z) == 5
    assert list(analyzer.get_feature_names_out()) == [f"saddleescapeanalyzer{k}" for k in range(5)]
    first = clone(analyzer).set_params(n_components=1, layer=1).fit_transform(X, y)
    assert first.shape == (200, 6)
    scores = GridSearchCV(
        make_pipeline(analyzer, LogisticRegression(max_iter=500)), {"saddleescapeanalyzer__depth": [2, 3]}, cv=2
    ).fit(X, y)
    assert scores.best_score_ > 0.6


def test_components_that_do_not_exist_are_not_made_up():
    X, y = np.array([[1.0], [2.0], [-1.0]]), np.array([1.0, 2.0, 0.0])
    with pytest.warns(ConvergenceWarning, match="explain all of G"):
        analyzer = SaddleEscapeAnalyzer("gradient", width=2, n_components=3, random_state=0).fit(X, y)
    assert analyzer.transform(X).shape == (3, 1)


def test_kinds_of_targets():
    """Floats are numbers even where they are whole; a column of labels is a vector of them."""
    X = np.random.RandomState(8).standard_normal((12, 2))
    y, options = np.arange(12) % 3, {"width": 4, "n_starts": 2, "max_iter": 5, "random_state": 0}
    assert not hasattr(SaddleEscapeAnalyzer(**options).fit(X, y.astype(float)), "classes_")
    numbers = SaddleEscapeAnalyzer(torch.nn.functional.mse_loss, **options).fit(X, y.astype(float))
    assert numbers.escape_direction_[-1].shape == (4, 1)
    for labels in (y, y > 0, y.astype(str)):
        vector, column = (SaddleEscapeAnalyzer(**options).fit(X, v) for v in (labels, labels[:, None]))
        assert list(column.classes_) == list(vector.classes_) == list(np.unique(labels))
        assert column.escape_speed_ == vector.escape_speed_


def test_parameters_changed_after_fit_and_a_failed_fit():
    X = np.random.RandomState(9).standard_normal((12, 2))
    analyzer = SaddleEscapeAnalyzer(width=4, n_starts=2, max_iter=5, random_state=0).fit(X, X[:, 0])
    before = analyzer.transform(X)
    analyzer.set_params(layer=1, depth=5, width=9)
    np.testing.assert_array_equal(analyzer.transform(X), before)
    assert len(analyzer.get_feature_names_out()) == 1
    with pytest.raises(ValueError, match="origin is not a saddle"):
        analyzer.fit(X, np.ones(12))
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        analyzer.get_feature_names_out()


def test_weights_of_a_torch_module(smooth):
    X, G, analyzer = smooth
    start = analyzer.initial_weights(0.05, noise=0.3, random_state=0)
    module = BiasFreeMLP((4, 8, 8, 2), start=start)
    # The same numbers in another memory order, so rounding differs.
    of_module, of_arrays = (analyzer.escape_time_from(weights, X, G) for weights in (module.weights, start))
    np.testing.assert_allclose(of_module, of_arrays, rtol=1e-12)


# -- bad input ---------------------------------------------------------------------------------------------------------

X_GOOD, Y_GOOD = np.array([[1.0, 0.5], [-0.5, 1.0], [0.2, -1.0], [-1.0, -0.3]]), np.array([1.0, -1.0, 0.5, 2.0])


@pytest.mark.parametrize(
    ("params", "X", "y", "message"),
    [
        ({"loss": "squared_error"}, X_GOOD, np.full(4, 3.0), "origin is not a saddle"),
        ({"loss": "gradient"}, X_GOOD, np.zeros(4), "origin is not a saddle"),
        ({"loss": "log_loss"}, X_GOOD, np.ones(4, dtype=int), "one class only"),
        ({"loss": "log_loss"}, X_GOOD, Y_GOOD, "Unknown label type"),
        ({"depth": 1}, X_GOOD, Y_GOOD, "'depth' parameter"),
        ({"width": 0}, X_GOOD, Y_GOOD, "'width' parameter"),
        ({"layer": 3}, X_GOOD, Y_GOOD, "hidden layers 1 to 2"),
        ({}, np.where(X_GOOD == 0.2, np.nan, X_GOOD), Y_GOOD, "contains NaN"),
        ({}, X_GOOD, np.where(Y_GOOD == 2, np.inf, Y_GOOD), "contains infinity"),
        ({}, 0 * X_GOOD, Y_GOOD, "X is zero"),
        ({"loss": "squared_error"}, X_GOOD, np.array(list("abab")), "needs numbers"),
        ({"loss": lambda outputs, targets: 1.0}, X_GOOD, Y_GOOD, "must return one number as a tensor"),
        ({"device": "nowhere"}, X_GOOD, Y_GOOD, "cannot be used here"),
    ],
)
def test_bad_input(params, X, y, message):
    analyzer = SaddleEscapeAnalyzer(width=4, n_starts=1, max_iter=2, random_state=0)
    with pytest.raises(ValueError, match=message):
        analyzer.set_params(**params).fit(X, y)
    assert not hasattr(analyzer, "escape_direction_")


def test_dead_restarts_are_counted_and_all_dead_is_an_error():
    """Positive inputs: half of all units are off everywhere, and of width one a dead unit is a dead network."""
    X, y = np.abs(X_GOOD) + 1.0, Y_GOOD
    analyzer = SaddleEscapeAnalyzer("gradient", depth=5, width=1, n_starts=40, max_iter=20, random_state=0).fit(X, y)
    dead = np.isnan(analyzer.restart_speeds_)
    assert 0 < dead.sum() == analyzer.n_dead_ < 40
    assert analyzer.escape_speed_ >= np.nanmax(analyzer.restart_speeds_)
    outcomes = []
    for seed in range(20):
        try:
            SaddleEscapeAnalyzer("gradient", depth=2, width=1, n_starts=1, max_iter=5, random_state=seed).fit(X, y)
            outcomes.append(True)
        except ValueError as error:
            assert "all 1 restarts died" in str(error)
            outcomes.append(False)
    assert set(outcomes) == {True, False}


@pytest.mark.parametrize(
    "call",
    [
        lambda X, G, a: a.predict_escape_time(0.0),
        lambda X, G, a: a.predict_escape_time(2.0, 1.0),
        lambda X, G, a: a.initial_weights(-1.0),
        lambda X, G, a: a.initial_weights(1.0, noise=-1.0),
        lambda X, G, a: a.escape_time_from([np.ones((3, 3)), np.ones((3, 2))], X, G),
        lambda X, G, a: a.escape_time_from([np.ones((4, 3)), np.ones((2, 2))], X, G),
        lambda X, G, a: a.escape_time_from(a.initial_weights(), X, G, radius=0.0),
    ],
)
def test_bad_arguments_of_methods(smooth, call):
    with pytest.raises(ValueError, match="must be"):
        call(*smooth)


def test_noise_fills_all_units(smooth):
    weights = smooth[2].initial_weights(0.1, noise=0.5, random_state=0)
    assert all(np.all(W != 0) for W in weights)
    aligned = smooth[2].initial_weights(0.1)
    assert [np.linalg.norm(W - V) for W, V in zip(weights, aligned)] == pytest.approx([0.05] * 3, rel=1e-12)


def test_the_global_stream_of_torch_is_left_alone(smooth):
    state = torch.get_rng_state()
    with warnings.catch_warnings():
        clone(smooth[2]).set_params(max_iter=2, n_starts=1).fit(*smooth[:2])
    assert torch.equal(state, torch.get_rng_state())


def test_squared_is_a_name_of_the_squared_error(rng):
    X, y = rng.standard_normal((30, 4)), rng.standard_normal(30)
    options = {"width": 4, "max_iter": 20, "random_state": 0}
    one, two = (SaddleEscapeAnalyzer(loss, **options).fit(X, y) for loss in ("squared", "squared_error"))
    assert one.escape_speed_ == two.escape_speed_


@pytest.mark.parametrize(("n", "width", "n_iter"), [(8, 4, 500), (4000, 50, 100), (1000, 32, 253)])
def test_steps_where_none_are_given(n, width, n_iter, rng):
    """1e10 products: 8 restarts, n rows, networks of D w + w^2 weights for three layers and one."""
    X = rng.standard_normal((n, 122))
    analyzer = SaddleEscapeAnalyzer(width=width, depth=3, n_starts=8, random_state=0)
    expected = max(100, min(500, int(1e10 / (8 * n * (122 * width + width**2)))))
    assert analyzer._ascent(X).max_iter == expected == n_iter


@pytest.mark.parametrize(("noise", "vacuous"), [(1e-4, False), (1.0, True)])
def test_bounds_of_propositions_3_3_and_3_4(noise, vacuous):
    rng = np.random.RandomState(0)
    X = np.outer(rng.uniform(0.5, 1.5, 20), rng.standard_normal(4)) + noise * rng.standard_normal((20, 4))
    G = rng.standard_normal((20, 1))
    analyzer = SaddleEscapeAnalyzer("gradient", depth=4, width=8, random_state=0).fit(X, G)
    bound, hidden = analyzer.near_rank_one_bound_, analyzer.activation_rank_ratio_
    assert np.isinf(bound) == vacuous
    assert max(*analyzer.rank_ratio_, *hidden, *analyzer.nonlinearity_ratio_) <= bound
    inputs = 1.0 - np.linalg.norm(X, 2) ** 2 / np.linalg.norm(X) ** 2
    assert np.all(np.sort([inputs, *hidden])[::-1] <= analyzer.layer_count_bound_)
    assert analyzer.layer_count_bound_[0] == analyzer.log_rank_budget_[1]
