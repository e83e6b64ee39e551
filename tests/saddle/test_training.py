"""Saddle-to-saddle estimators: network, norm-adapted step, record, detected and expected escapes."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale

from skident import SaddleEscapeAnalyzer, SaddleToSaddleClassifier, SaddleToSaddleRegressor
from skident.saddle import BiasFreeMLP, detect_escapes
from skident.saddle.diagnosis import describe_plateau, expected_escape
from skident.saddle.module import HalfSquaredError


def staircase(t, *, at, width=8.0, noise=0.0, seed=0):
    """A loss that falls by one at every step of `at`."""
    falls = sum(0.5 * (1 + np.tanh((t - step) / width)) for step in at)
    return len(at) - falls + noise * np.random.RandomState(seed).standard_normal(len(t))


def spectra_rising(t, at):
    """Two layers: another singular value of one after every step of `at`."""
    values = np.stack([(t > step).astype(float) for step in at] + [np.zeros(len(t))], axis=1) + 0.01
    return [values, values]


# -- detection ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [[100], [100, 300], [60, 200, 330]])
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_every_step_of_a_staircase_is_an_escape(at, noise):
    t = np.arange(0.0, 400.0)
    # Noise of 1e-3 hides slopes below about 1e-3 / smoothing^1.5: a wider window for it.
    saddles = detect_escapes(t, staircase(t, at=at, noise=noise), smoothing=2.5 if noise == 0 else 12.0)
    assert [s.escape_step for s in saddles[:-1]] == pytest.approx(at, abs=4)
    assert saddles[-1].escape_step is None
    assert [s.loss for s in saddles] == pytest.approx(range(len(at), -1, -1), abs=0.02)


def test_ranks_between_escapes():
    t = np.arange(0.0, 400.0)
    saddles = detect_escapes(t, staircase(t, at=[100, 300]), spectra_rising(t, [100, 300]))
    assert [s.ranks for s in saddles] == [(0, 0), (1, 1), (2, 2)]
    assert saddles[1].singular_value_ratios == pytest.approx((0.01 / 1.01,) * 2)


def test_a_record_that_begins_behind_the_first_escape():
    """The start is then no origin, and its rank is the measured one."""
    t = np.arange(0.0, 400.0)
    loss, spectra = staircase(t, at=[3, 300], width=1.0), spectra_rising(t, [3, 300])
    saddles = detect_escapes(t[2:], loss[2:], [s[2:] for s in spectra])
    assert [s.escape_step for s in saddles] == [pytest.approx(300, abs=3), None]
    assert [s.ranks for s in saddles] == [(1, 1), (2, 2)]


def test_a_fall_without_a_new_rank_or_a_small_one_is_no_escape():
    t = np.arange(0.0, 400.0)
    loss = staircase(t, at=[100, 300])
    assert len(detect_escapes(t, loss, spectra_rising(t, [100]))) == 2
    small = staircase(t, at=[100]) + 0.05 * staircase(t, at=[300])
    assert len(detect_escapes(t, small)) == 2
    assert len(detect_escapes(t, small, min_drop=0.01)) == 3


@pytest.mark.parametrize("loss", [np.ones(50), np.linspace(1, 0, 50), np.exp(-np.arange(50) / 10)])
def test_curves_without_an_escape(loss):
    assert len(detect_escapes(np.arange(50.0), loss)) == 1


@pytest.mark.parametrize("smoothing", [2.5, 12.0])
def test_noise_alone_is_no_escape(smoothing):
    t = np.arange(400.0)
    for seed in range(20):
        assert len(detect_escapes(t, np.random.RandomState(seed).standard_normal(400), smoothing=smoothing)) == 1


@pytest.mark.parametrize(
    ("steps", "losses", "message"),
    [
        (np.arange(3), np.ones(3), "at least 5"),
        (np.arange(9), np.ones(8), "at least 5"),
        (np.zeros(9), np.ones(9), "steps must increase"),
        (np.arange(9), np.full(9, np.nan), "losses be finite"),
    ],
)
def test_curves_that_are_none(steps, losses, message):
    with pytest.raises(ValueError, match=message):
        detect_escapes(steps, losses)


# As in the paper: gradient descent throughout, inputs as they are.
PAPER = {"n_escapes": "all", "standardize": False, "relative_step": 0.02}


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X = (X - X.mean()) / X.std()
    return X[::2], y[::2]


@pytest.fixture(scope="module")
def trained(digits):
    """Four layers past the first escape."""
    classifier = SaddleToSaddleClassifier(
        4, 60, max_iter=260, record_every=5, dtype="float32", random_state=9200, **PAPER
    )
    return classifier.fit(*digits)


def test_the_first_plateau_on_digits(trained):
    origin, plateau = trained.saddles_[:2]
    assert origin.loss == pytest.approx(np.log(10), rel=1e-3) and 20 < origin.escape_step < 200
    assert 1.8 < plateau.loss < 2.1
    assert plateau.ranks[1:] == (1, 1, 1) and max(plateau.singular_value_ratios[1:]) <= 0.2
    assert abs(trained.escape_step_ - origin.escape_step) < 60


def test_the_record(trained):
    history = trained.history_
    assert history["steps"][0] == 1 and history["steps"][-1] == 260 and set(np.diff(history["steps"][1:])) == {5}
    assert [s.shape for s in history["singular_values"]] == [(len(history["steps"]), 10)] * 4
    ends = [np.linalg.svd(W, compute_uv=False)[:10] for W in trained.weights_]
    np.testing.assert_allclose([s[-1] for s in history["singular_values"]], ends, rtol=1e-4)
    norm = np.sqrt(np.mean([np.sum(W**2) for W in trained.weights_]))
    assert history["norms"][-1] == pytest.approx(norm, rel=1e-5)
    # After the first escape the rate is c a^(2-L), unless the relative step is shorter; norms before the step.
    late = history["steps"] > trained.escape_step_ + 60
    expected = 0.3 * history["norms"][late] ** -2.0
    np.testing.assert_allclose(history["learning_rates"][late], expected, rtol=0.02)
    assert len(trained.net_.history) == trained.n_iter_ == 260


def test_the_relative_step_before_the_escape():
    """Gradients near the origin shrink as a^(L-1), the step stays a share of the norm."""
    X, y = load_iris(return_X_y=True)
    for size in (1e-3, 1e-2):
        rng = np.random.RandomState(0)
        start = [size * rng.standard_normal(shape) for shape in ((4, 6), (6, 6), (6, 6), (6, 3))]
        options = {"initial_weights": start, "max_iter": 1, "random_state": 0, **PAPER}
        with pytest.warns(ConvergenceWarning, match="has not left the saddle"):
            moved = SaddleToSaddleClassifier(4, 6, **options).fit(scale(X), y).weights_
        step = np.sqrt(sum(np.sum((W - V) ** 2) for W, V in zip(moved, start)))
        assert step == pytest.approx(0.02 * np.sqrt(sum(np.sum(V**2) for V in start)), rel=1e-9)


def test_an_aligned_start_leaves_sooner(digits):
    X, y = digits
    options = {"depth": 3, "width": 12, "max_iter": 145, "record_every": 20, "dtype": "float32", "random_state": 0}
    options |= PAPER
    analyzer = SaddleEscapeAnalyzer(
        "log_loss", depth=3, width=12, n_starts=1, max_iter=30, dtype="float32", random_state=0
    ).fit(X, y)
    random = SaddleToSaddleClassifier(**options, init_scale=0.01).fit(X, y)
    norm = np.sqrt(sum(12 * min(12, n) for n in (64, 12, 10)) / 3) * 0.01 / np.sqrt(12)
    aligned = SaddleToSaddleClassifier(**options, initial_weights=analyzer.initial_weights(norm)).fit(X, y)
    assert aligned.escape_step_ < random.escape_step_
    # Without noise nothing else grows: rank one behind the first layer, to single precision.
    assert all(s[-1, 1] < 1e-4 * s[-1, 0] for s in aligned.history_["singular_values"][1:])


def test_minibatches_and_two_classes(digits):
    X, y = digits
    options = {"width": 20, "max_iter": 15, "batch_size": 64, "init_scale": 0.3, "random_state": 0, **PAPER}
    classifier = SaddleToSaddleClassifier(3, dtype="float32", **options).fit(X, np.where(y < 5, "low", "high"))
    assert classifier.score(X, np.where(y < 5, "low", "high")) > 0.8
    assert classifier.decision_function(X[:3]).shape == (3,)
    np.testing.assert_allclose(classifier.predict_proba(X).sum(axis=1), 1.0, rtol=1e-12)
    n_batches = int(np.ceil(len(X) / 64))
    assert classifier.history_["steps"][-1] == 10 * (15 * n_batches // 10)
    again = clone(classifier).fit(X, np.where(y < 5, "low", "high"))
    assert all(np.array_equal(W, V) for W, V in zip(classifier.weights_, again.weights_))


def test_regression_of_several_targets():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((200, 3))
    Y = 100.0 + 20.0 * np.stack([np.maximum(X[:, 0], 0), X @ [1.0, -1.0, 0.5]], axis=1)
    regressor = SaddleToSaddleRegressor(3, 20, init_scale=0.3, max_iter=300, random_state=0, **PAPER).fit(X, Y)
    assert regressor.score(X, Y) > 0.9 and regressor.predict(X).shape == (200, 2)
    # In units of the targets' scale, the loss at the origin is half the number of targets.
    assert regressor.history_["losses"][0] == pytest.approx(1.0, rel=0.02)
    residual = (regressor.predict(X) - Y) / regressor.target_scale_
    assert regressor.loss_ == pytest.approx(0.5 * np.mean(np.sum(residual**2, axis=1)), rel=1e-9)


# -- to the end, or so many saddles --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* better for these data")
@pytest.mark.parametrize(
    ("kind", "load"),
    [
        (SaddleToSaddleRegressor, load_diabetes),
        (SaddleToSaddleClassifier, load_iris),
        (SaddleToSaddleClassifier, load_wine),
    ],
)
def test_by_default_as_good_as_a_linear_model(kind, load):
    X, y = load(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(X))
    train, held = order[::2], order[1::2]
    linear = Ridge(10.0) if kind is SaddleToSaddleRegressor else LogisticRegression()
    linear = make_pipeline(StandardScaler(), linear).fit(X[train], y[train])
    estimator = kind(random_state=0).fit(X[train], y[train])
    assert estimator.score(X[held], y[held]) > linear.score(X[held], y[held]) - 0.03
    assert estimator.held_out_score_ > estimator.linear_score_ - 0.03
    assert 10 < estimator.escape_step_ < 60
    assert estimator.escape_step_ < estimator.n_iter_ < 1000
    assert estimator.history_["steps"][-1] <= estimator.n_iter_ and np.all(np.diff(estimator.history_["steps"]) > 0)


def test_training_ends_after_n_escapes(digits):
    """The same training as one that goes on, cut off on the plateau."""
    options = {"dtype": "float32", "random_state": 9200, "standardize": False, "record_every": 5}
    classifier = SaddleToSaddleClassifier(4, 60, n_escapes=1, relative_step=0.02, max_iter=400, **options).fit(*digits)
    assert len(classifier.saddles_) == 2 and classifier.escape_step_ < classifier.n_iter_ < 260
    assert 1.8 < classifier.loss_ < 2.1 and classifier.saddles_[1].ranks[1:] == (1, 1, 1)


def test_a_plateau_is_warned_of_with_the_step_of_its_escape():
    X, y = load_iris(return_X_y=True)
    options = {"n_escapes": "all", "record_every": 2, "random_state": 0}
    step = SaddleToSaddleClassifier(3, 20, max_iter=200, **options).fit(X, y).escape_step_
    with pytest.warns(
        ConvergenceWarning, match=r"saddle at the origin after .* \(loss 1\.\d+, escape expected"
    ) as seen:
        SaddleToSaddleClassifier(3, 20, max_iter=step - 4, **options).fit(X, y)
    assert float(str(seen[0].message).split("step ")[1].split(")")[0]) == pytest.approx(step, abs=8)
    with pytest.warns(ConvergenceWarning, match=r"left \d of 9 saddles after 50 epochs and is still at a plateau"):
        SaddleToSaddleClassifier(3, 20, max_iter=50, **{**options, "n_escapes": 9}).fit(X, y)


def test_what_training_to_the_end_warns_of():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((60, 8))
    with pytest.warns(ConvergenceWarning, match="held-out samples SaddleToSaddleRegressor is hardly better than"):
        SaddleToSaddleRegressor(3, 10, random_state=0).fit(X, rng.standard_normal(60))
    with pytest.warns(ConvergenceWarning, match="still falling after max_iter=100"):
        SaddleToSaddleRegressor(3, 10, max_iter=100, random_state=0).fit(X, X[:, 0] - X[:, 1])
    with pytest.warns(ConvergenceWarning, match="(linear model|ridge regression|kernel).* better for these data"):
        SaddleToSaddleRegressor(3, 10, random_state=0).fit(X[:30], X[:30].sum(axis=1))
    X = np.random.default_rng(0).uniform(-1.5, 1.5, (80, 2))
    with pytest.warns(ConvergenceWarning, match="a kernel is better for these data"):
        SaddleToSaddleRegressor(3, 20, random_state=0).fit(X, np.sin(3 * X[:, 0]) * np.cos(3 * X[:, 1]))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_no_stream_of_torch_is_touched():
    X, y = load_iris(return_X_y=True)
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    one, two = (SaddleToSaddleClassifier(3, 8, batch_size=50, max_iter=60, random_state=0).fit(X, y) for _ in range(2))
    assert torch.rand(1) == expected
    assert all(np.array_equal(V, W) for V, W in zip(one.weights_, two.weights_))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_training_on_a_gpu(digits):
    X, y = digits
    options = {"width": 20, "max_iter": 100, "init_scale": 0.3, "random_state": 0, **PAPER}
    assert SaddleToSaddleClassifier(3, device="cuda", **options).fit(X, y).loss_ < np.log(10)


@pytest.mark.parametrize(
    ("estimator", "y", "message"),
    [
        (SaddleToSaddleClassifier(), np.zeros(4, dtype=int), "one class only"),
        (SaddleToSaddleClassifier(), np.array([0.1, 0.2, 0.3, 0.4]), "Unknown label type"),
        (SaddleToSaddleRegressor(), np.full(4, 0.1), "y is constant"),
        (SaddleToSaddleRegressor(), np.array([1, 2, 3, np.nan]), "contains NaN"),
        (SaddleToSaddleRegressor(depth=1), np.arange(4.0), "'depth' parameter"),
        (SaddleToSaddleRegressor(width=0), np.arange(4.0), "'width' parameter"),
        (
            SaddleToSaddleRegressor(2, 3, standardize=False, initial_weights=[np.ones((3, 3)), np.ones((3, 2))]),
            np.arange(4.0),
            "shapes",
        ),
        (
            SaddleToSaddleRegressor(2, 3, standardize=False, initial_weights=[np.zeros((2, 3)), np.zeros((3, 1))]),
            np.arange(4.0),
            "zero",
        ),
    ],
)
def test_bad_input(estimator, y, message):
    X = np.random.RandomState(0).standard_normal((4, 2))
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, y)
    assert not hasattr(estimator, "weights_")


# -- sizes of numbers, sizes of models ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scales", [(1.0, 1e160), (1.0, 1e-160), (1e160, 1.0), (1e-160, 1.0), (1e300, 1e300)])
@pytest.mark.parametrize("kind", [SaddleToSaddleRegressor, SaddleEscapeAnalyzer])
def test_numbers_whose_squares_are_none_are_refused(kind, scales):
    X = np.random.RandomState(0).standard_normal((20, 3))
    with pytest.raises(ValueError, match=r"squares .*(over|under)flow\. Scale [Xy] to magnitudes"):
        kind().fit(scales[0] * X, scales[1] * X[:, 0])


@pytest.mark.parametrize("loss", ["gradient", lambda outputs, y: 1e200 * (outputs * y).sum()])
def test_gradients_whose_squares_are_none_are_refused(loss):
    X = np.random.RandomState(0).standard_normal((20, 3))
    with pytest.raises(ValueError, match="squares overflow. Scale (y|the gradient at zero outputs) to"):
        SaddleEscapeAnalyzer(loss).fit(X, X[:, 0] * (1e200 if loss == "gradient" else 1.0))


def test_inputs_for_which_the_weights_are_not_small():
    X = np.random.RandomState(0).standard_normal((20, 3))
    with pytest.warns(ConvergenceWarning, match=r"the loss is .*, and 0\.5 without any network.*Scale X"):
        SaddleToSaddleRegressor(3, 8, max_iter=20, random_state=0, **PAPER).fit(1e8 * X, X[:, 0])


@pytest.mark.parametrize("kind", [SaddleEscapeAnalyzer, SaddleToSaddleRegressor, SaddleToSaddleClassifier])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_models_keep_no_rows(kind):
    options = {"max_iter": 3, "random_state": 0} | ({} if kind is SaddleEscapeAnalyzer else {"depth": 3, "width": 8})
    sizes = []
    for n in (100, 3000):
        X = np.random.RandomState(0).standard_normal((n, 4))
        sizes.append(len(pickle.dumps(kind(**options).fit(X, X[:, 0] > 0))))
    assert abs(sizes[1] - sizes[0]) < 1000  # a row has 32 bytes


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_losses_of_batches_are_not_kept():
    X = np.random.RandomState(0).standard_normal((300, 4))
    net = SaddleToSaddleRegressor(3, 8, max_iter=4, batch_size=2, random_state=0, **PAPER).fit(X, X[:, 0]).net_
    assert len(net.history[:, "train_loss"]) == 4 and "batches" not in net.history[0]


@pytest.mark.filterwarnings("ignore:.* better for these data")
def test_a_classifier_of_many_weak_inputs_is_trained_with_noise():
    rng = np.random.RandomState(80)
    X, y = rng.standard_normal((120, 20)), np.arange(120) % 2
    X[:, :5] += 0.7 * (2 * y[:, None] - 1)
    classifier = SaddleToSaddleClassifier(width=20, random_state=0).fit(X, y)
    assert classifier.input_noise_ == 0.5 and classifier.held_out_score_ > 0.75
    np.testing.assert_array_equal(classifier.predict(X), classifier.predict(X))  # none once it is trained
    assert SaddleToSaddleClassifier(width=20, n_escapes=1, random_state=0).fit(X, y).input_noise_ == 0.0


# -- the network -------------------------------------------------------------------------------------------------------


def test_it_is_the_function_of_its_weights():
    rng = np.random.RandomState(0)
    weights = [rng.standard_normal((3, 4)), rng.standard_normal((4, 5)), rng.standard_normal((5, 2))]
    module, X = BiasFreeMLP((3, 4, 5, 2), start=weights), rng.standard_normal((7, 3))
    expected = np.maximum(np.maximum(X @ weights[0], 0) @ weights[1], 0) @ weights[2]
    np.testing.assert_allclose(module(torch.as_tensor(X)).detach().numpy(), expected, rtol=1e-13)
    assert [tuple(W.shape) for W in module.weights] == [(3, 4), (4, 5), (5, 2)]
    assert not any(name.endswith("bias") for name, _ in module.named_parameters())


def test_the_largest_singular_value_of_a_hidden_layer_is_twice_the_scale():
    torch.manual_seed(0)
    module = BiasFreeMLP((10, 300, 300, 10), init_scale=0.03)
    # Marchenko and Pastur: sigma (sqrt(m) + sqrt(m)), and fluctuations of order m^(-2/3).
    assert torch.linalg.matrix_norm(module.weights[1], 2).item() == pytest.approx(0.06, rel=0.05)


def test_starts_of_other_sizes_are_refused():
    with pytest.raises(ValueError, match="layers need"):
        BiasFreeMLP((3, 4, 2), start=[np.ones((4, 3)), np.ones((4, 2))])


def test_gradient_of_the_squared_error_at_zero():
    Y = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    outputs = torch.zeros_like(Y, requires_grad=True)
    HalfSquaredError()(outputs, Y).backward()
    assert torch.equal(outputs.grad, -Y / 2)


# -- expected escapes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [1e-8, 1e-5])
def test_exponential_departures_are_foreseen(start):
    t = np.arange(0.0, 60.0, 4.0)
    left = 12.0 * np.log(0.02 / start)
    assert expected_escape(t, 2.0 * (1.0 - start * np.exp(t / 12.0))) == pytest.approx(left, abs=2.0)


def test_a_steady_fall_is_continued():
    t = np.arange(0.0, 50.0, 10.0)
    assert expected_escape(t, 1.0 - 1e-4 * t) == pytest.approx(40 + 200, rel=0.01)


@pytest.mark.parametrize("losses", [np.ones(6), np.arange(6.0), [1.0, 0.9], [1, 1, np.nan, 1]])
def test_no_escape_in_sight(losses):
    history = {"steps": np.arange(len(losses)), "losses": losses}
    assert expected_escape(**history) == np.inf
    assert describe_plateau(history).endswith("no escape in sight")
