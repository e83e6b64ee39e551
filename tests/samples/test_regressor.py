"""TensorReLURegressor: what it recovers, what it says, what it refuses."""

import pickle

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skident import TensorReLURegressor
from skident.datasets import make_relu_network
from skident.metrics import unit_matching_error


def data(seed, d, m, n, noise=0.0, n_test=2000):
    """Rows to learn from, fresh inputs with clean targets, the network."""
    X, y, network = make_relu_network(n, d, m, noise=noise, random_state=seed)
    fresh = np.random.RandomState(seed + 1).standard_normal((n_test, d))
    return X, y, fresh, network(fresh)[:, 0], network


def relative_error(reg, X, y):
    return np.mean((reg.predict(X) - y) ** 2) / np.var(y)


@pytest.mark.parametrize(("d", "m", "n"), [(5, 5, 3000), (10, 5, 2000), (10, 10, 5000), (20, 10, 6000)])
@pytest.mark.parametrize("given", [True, False])
def test_exact_without_noise(d, m, n, given):
    X, y, fresh, target, network = data(1, d, m, n)
    reg = TensorReLURegressor(n_units=m if given else None, random_state=0).fit(X, y)
    assert reg.exact_ and reg.n_units_ == m and relative_error(reg, fresh, target) < 1e-24
    np.testing.assert_array_equal(reg.linear_, 0)
    assert abs(reg.intercept_) < 1e-10
    error = unit_matching_error(network, reg.network_)
    # Signs included: the network itself, not a sign-flipped one with a linear function.
    assert max(error.weights, error.biases, error.output_weights) < 1e-9 and np.all(error.signs == 1)
    np.testing.assert_allclose(reg.signs_margin_, 1.0, atol=1e-6)


@pytest.mark.parametrize(("d", "m", "n"), [(5, 5, 5000), (10, 5, 5000), (20, 5, 5000)])
def test_noise_costs_what_least_squares_does(d, m, n):
    X, y, fresh, target, _ = data(2, d, m, n, noise=0.1)
    reg = TensorReLURegressor(random_state=0).fit(X, y)
    assert reg.n_units_ == m
    # Noise variance times parameters over rows, relative to the variance of f: 0.01 m (d + 1) / n.
    assert relative_error(reg, fresh, target) < 3 * 0.01 * m * (d + 1) / n
    assert len(reg.candidate_losses_) >= 1 and np.all(np.diff(reg.candidate_losses_) >= 0)
    np.testing.assert_allclose(reg.loss_, np.mean((reg.predict(X) - y) ** 2), rtol=1e-8)


def test_more_units_than_features():
    X, y, fresh, target, network = data(3, 4, 6, 30_000)
    reg = TensorReLURegressor(n_units=6, order=2, random_state=0).fit(X, y)
    assert relative_error(reg, fresh, target) < 1e-20
    assert unit_matching_error(network, reg.network_).weights < 1e-8


@pytest.mark.filterwarnings("ignore:the function is exact, but the signs")
@pytest.mark.parametrize("linear", [False, True])
def test_one_network_for_all(linear):
    X, y, *_ = data(12, 5, 2, 600)
    reg = TensorReLURegressor(random_state=0).fit(X, y + linear * X[:, 0])
    network = reg.to_network()
    assert network.layer_widths == (4 if linear else 2, 1)
    np.testing.assert_allclose(network(X)[:, 0], reg.predict(X), atol=1e-12)


def test_tensors_alone():
    X, y, _, _, network = data(4, 8, 4, 30_000)
    reg = TensorReLURegressor(n_units=4, polish=False, random_state=0).fit(X, y)
    assert unit_matching_error(network, reg.tensor_estimate_).weights < 1e-3  # corrections: far below sampling errors


def test_tensors_alone_down_to_rounding():
    """Moments corrected until nothing is left: no polish, and no warning about what is left."""
    X, y, fresh, target, _ = data(9301, 10, 5, 60_000)
    reg = TensorReLURegressor(n_units=5, polish=False, random_state=0).fit(X, y)
    assert relative_error(reg, fresh, target) < 1e-12


@pytest.mark.filterwarnings("ignore:. of 5 units are within the noise")  # of the literal tensors of order two, mostly
@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(("order", "m"), [(1, 3), (2, 5)])
def test_literal(order, m, seed):
    """The paper's own algorithm runs, explains something, and is far worse."""
    X, y, fresh, target, _ = data(seed, 4, m, 20_000)
    literal = TensorReLURegressor(n_units=m, order=order, method="literal", random_state=0).fit(X, y)
    refined = TensorReLURegressor(n_units=m, order=order, random_state=0).fit(X, y)
    assert relative_error(refined, fresh, target) < 1e-20 < relative_error(literal, fresh, target) < 0.9


def test_correlated_shifted_inputs_and_a_linear_part():
    rng = np.random.RandomState(0)
    X, _, network = make_relu_network(4000, 6, 3, random_state=6)
    A, shift, slope = rng.standard_normal((6, 6)) + 2 * np.eye(6), 10 * rng.standard_normal(6), rng.standard_normal(6)
    inputs = X @ A + shift
    y = 100.0 * (network(X)[:, 0] + X @ slope) + 7.0
    with pytest.warns(
        ConvergenceWarning, match="the signs of 3 of 3 units are undetermined .* the linear part makes up"
    ):
        reg = TensorReLURegressor(random_state=0).fit(inputs, y)
    assert reg.n_units_ == 3 and not reg.exact_ and not reg.signs_margin_.any()
    np.testing.assert_allclose(reg.predict(inputs), y, atol=1e-9 * np.abs(y).max())
    assert np.any(reg.linear_)
    np.testing.assert_allclose(np.linalg.norm(reg.network_.weights[0], axis=0), 1.0, rtol=1e-12)


def test_no_units_is_a_linear_function():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((500, 4))
    y = X @ np.arange(4.0) + 3.0 + 0.1 * rng.standard_normal(500)
    reg = TensorReLURegressor(random_state=0).fit(X, y)
    assert reg.n_units_ == 0 and reg.tensor_estimate_ is None and len(reg.signs_margin_) == 0
    np.testing.assert_allclose(reg.linear_, np.arange(4.0), atol=0.03)
    np.testing.assert_array_equal(reg.network_(X), 0)


@pytest.mark.parametrize("options", [{"n_jobs": 2}, {"batch_size": 300}, {"batch_size": 300, "n_jobs": 2}])
def test_blocks_and_jobs_do_not_matter(options):
    X, y, *_ = data(7, 6, 3, 2000, noise=0.1)
    one = TensorReLURegressor(random_state=0).fit(X, y)
    other = TensorReLURegressor(random_state=0, **options).fit(X, y)
    np.testing.assert_allclose(other.predict(X), one.predict(X), atol=1e-6)
    if "batch_size" in options:
        again = TensorReLURegressor(random_state=0, batch_size=300).fit(X, y)
        np.testing.assert_array_equal(other.predict(X), again.predict(X))


def test_from_a_file_of_single_precision(tmp_path, monkeypatch):
    monkeypatch.setattr("skident.samples.sample._KEPT_NUMBERS", 0)
    X, y, *_ = data(8, 6, 3, 3000)
    X = X.astype(np.float32)
    y = make_relu_network(1, 6, 3, random_state=8)[2](X.astype(np.float64))[:, 0]
    np.save(tmp_path / "X.npy", X)
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    reg = TensorReLURegressor(batch_size=500, random_state=0).fit(X, y)
    assert reg.exact_ and reg.n_units_ == 3


def test_other_backends_get_the_same_sums(monkeypatch):
    monkeypatch.setattr("skident.samples.sample._KEPT_NUMBERS", 0)
    X, y, *_ = data(8, 5, 2, 1000)
    plain = TensorReLURegressor(n_units=2, batch_size=400, random_state=0).fit(X, y)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        spread = TensorReLURegressor(n_units=2, batch_size=400, random_state=0).fit(X, y)
    np.testing.assert_array_equal(spread.predict(X), plain.predict(X))


def test_many_rows_are_drawn_from(monkeypatch):
    monkeypatch.setattr("skident.samples.learning._WORKING_ROWS", 2000)
    X, y, fresh, target, _ = data(9, 6, 3, 20_000, noise=0.1)
    reg = TensorReLURegressor(random_state=0).fit(X, y)
    assert reg.n_units_ == 3 and relative_error(reg, fresh, target) < 3 * 0.01 * 3 * 7 / 20_000


def test_weights_are_repetitions():
    X, y, *_ = data(10, 5, 2, 600, noise=0.1)
    w = np.random.RandomState(0).randint(0, 3, 600)
    weighted = TensorReLURegressor(n_units=2, random_state=0).fit(X, y, sample_weight=w)
    repeated = TensorReLURegressor(n_units=2, random_state=0).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    # Penalties are chosen with the effective number of rows, which is smaller than that of the repetitions.
    np.testing.assert_allclose(weighted.loss_, repeated.loss_, rtol=1e-3)
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-2 * y.std())


def test_importance_weights_for_a_known_density():
    """Laplace inputs, weighted to be Gaussian: the moments are those of Gaussian inputs, and nothing warns."""
    rng = np.random.RandomState(0)
    network = make_relu_network(1, 4, 3, random_state=11)[2]
    X = rng.laplace(scale=0.8, size=(40_000, 4))
    y = network(X)[:, 0]
    log_ratio = np.sum(-0.5 * X**2 - 0.5 * np.log(2 * np.pi) + np.abs(X) / 0.8 + np.log(1.6), axis=1)
    reg = TensorReLURegressor(n_units=3, polish=False, random_state=0).fit(X, y, sample_weight=np.exp(log_ratio))
    assert unit_matching_error(network, reg.tensor_estimate_).weights < 0.02


@pytest.mark.parametrize("unit", [1e-300, 1e-6, 1e6, 1e300])
def test_the_unit_of_the_weights_does_not_matter(unit):
    X, y, *_ = data(18, 5, 3, 1500, noise=0.1)
    plain = TensorReLURegressor(random_state=0).fit(X, y)
    weighted = TensorReLURegressor(random_state=0).fit(X, y, sample_weight=np.full(1500, unit))
    assert weighted.n_units_ == plain.n_units_ == 3
    np.testing.assert_allclose(weighted.predict(X), plain.predict(X), atol=1e-3 * y.std())


def test_the_global_generator_is_left_alone():
    X, y, *_ = data(12, 5, 2, 600, noise=0.1)
    before = np.random.get_state()[1].copy()
    fits = [TensorReLURegressor(random_state=np.random.RandomState(3)).fit(X, y) for _ in range(2)]
    np.testing.assert_array_equal(np.random.get_state()[1], before)
    np.testing.assert_array_equal(fits[0].predict(X), fits[1].predict(X))


@pytest.mark.filterwarnings("ignore:n_units=1 leaves residuals:sklearn.exceptions.ConvergenceWarning")
def test_in_pipelines_and_searches():
    X, y, *_ = data(12, 5, 2, 600, noise=0.1)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), TensorReLURegressor(random_state=0)),
        {"tensorreluregressor__n_units": [1, 2]},
        cv=3,
    ).fit(X, y)
    assert search.best_params_ == {"tensorreluregressor__n_units": 2}


def test_pickles():
    X, y, *_ = data(12, 5, 2, 600)
    reg = TensorReLURegressor(random_state=0).fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(reg)).predict(X), reg.predict(X))


def test_progress(capsys):
    X, y, *_ = data(12, 5, 2, 600)
    TensorReLURegressor(random_state=0, verbose=1).fit(X, y)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) >= 2 and all(line.startswith("[TensorReLURegressor] ") for line in lines)


@pytest.mark.parametrize("load", [load_diabetes, load_breast_cancer])
@pytest.mark.filterwarnings("ignore:.*columns of X are not Gaussian:UserWarning")
@pytest.mark.filterwarnings("ignore:.* better for these data")
@pytest.mark.filterwarnings("ignore:y takes 2 values")
def test_ordinary_tables(load):
    X, y = load(return_X_y=True)
    ours = cross_val_score(TensorReLURegressor(random_state=0), X, y, cv=5).mean()
    assert ours > cross_val_score(Ridge(), X, y, cv=5).mean() - 0.02


def test_warnings_point_at_the_caller(rng):
    X = rng.standard_normal((400, 4))
    Y = {"unit": np.abs(X[:, 0]), "sum": np.abs(X).sum(axis=1) + 0.1 * rng.standard_normal(400)}
    cases = [
        (X**3, Y["unit"], {}, "Gaussian"),
        (X, Y["sum"], {"n_units": 1}, "unit"),
        (X[:4], Y["unit"][:4], {}, "rows"),
    ]
    for inputs, y, options, said in cases:
        with pytest.warns((UserWarning, ConvergenceWarning), match=said) as caught:
            TensorReLURegressor(random_state=0, **options).fit(inputs, y)
        assert {warning.filename for warning in caught} == {__file__}


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "n", "options", "message"),
    [
        (5, 20, {"n_units": 3}, r"n_samples=20 distinct rows do not determine n_units=3 .* at least 24 rows"),
        (5, 200, {"n_units": 6, "order": 1}, r"n_units=6 is more than order=1 .* 5; order='auto' takes order 2"),
        (3, 200, {"n_units": 7, "order": 2}, r"n_units=7 is more than order=2 .* 6; order='auto' takes order 3"),
        (5, 200, {"method": "literal"}, r"method='literal' needs n_units"),
        (5, 200, {"order": 0}, r"'order' parameter of TensorReLURegressor must be"),
        (2, 200, {"n_units": 5, "order": 3}, r"n_units=5 is more than order=3 .* 4; order='auto' takes order 4"),
        (
            1,
            200,
            {"n_units": 2, "order": 3},
            r"n_units=2 is more than order=3 .* feature, 1; set order='auto'",
        ),
        (1, 200, {"n_units": 2, "method": "literal"}, r"one input separate 1 unit, got n_units=2"),
    ],
)
def test_impossible_sizes(d, n, options, message, rng):
    X = rng.standard_normal((n, d))
    with pytest.raises(ValueError, match=message):
        TensorReLURegressor(**options).fit(X, np.abs(X[:, 0]))


@pytest.mark.parametrize("n_units", [3, None])
def test_one_feature(n_units, rng):
    """Kinks of a piecewise linear function."""
    function = lambda x: np.maximum(x + 1.0, 0.0) - 2.0 * np.maximum(0.3 - x, 0.0) + 3.0 * np.maximum(x - 0.7, 0.0)  # noqa: E731
    X, new = rng.standard_normal((500, 1)), rng.uniform(-2.0, 2.0, (200, 1))
    reg = TensorReLURegressor(n_units=n_units, random_state=0).fit(X, function(X[:, 0]))
    assert reg.exact_ and reg.n_units_ == 3 and np.abs(reg.predict(new) - function(new[:, 0])).max() < 1e-10
    np.testing.assert_allclose(
        np.sort(-reg.network_.biases[0] / reg.network_.weights[0][0]), [-1.0, 0.3, 0.7], atol=1e-9
    )


# Measured on other seeds: 24 of 24 to 1e-13.
@pytest.mark.parametrize(("d", "k"), [(2, 4), (3, 8), (4, 12)])
@pytest.mark.parametrize("given", [True, False])
def test_more_units_than_pairs_of_features(d, k, given):
    X, y, fresh, target, network = data(0, d, k, 20_000)
    reg = TensorReLURegressor(n_units=k if given else None, random_state=0).fit(X, y)
    assert reg.exact_ and relative_error(reg, fresh, target) < 1e-20
    error = unit_matching_error(network, reg.network_)
    assert max(error.weights, error.biases, error.output_weights) < 1e-6 and np.all(error.signs == 1)


@pytest.mark.parametrize("y", [["1", "2"] * 50, np.array(["a", "b"] * 50), np.array([1.0, "b"] * 50, dtype=object)])
def test_strings_as_targets(y, rng):
    with pytest.raises(ValueError, match=r"y holds strings .* a regressor needs numbers.*np.asarray\(y, dtype=float\)"):
        TensorReLURegressor().fit(rng.standard_normal((100, 3)), y)


@pytest.mark.filterwarnings("ignore:.* better for these data")
def test_an_outlier_is_named(rng):
    X, y, *_ = data(0, 4, 3, 800)
    X[7, 1] = 1e8
    with pytest.warns(
        UserWarning, match=r"Row 7 is an outlier: 1e\+08 in column 1, whose other values spread"
    ) as caught:
        TensorReLURegressor(random_state=0).fit(X, y)
    assert "fit(np.delete(X, 7, axis=0), np.delete(y, 7))" in str(caught[0].message)
    assert TensorReLURegressor(random_state=0).fit(np.delete(X, 7, axis=0), np.delete(y, 7)).exact_


def test_a_column_that_is_constant_within_a_fold():
    X, y, *_ = data(0, 4, 3, 800)
    X[:, 2] = np.arange(800) >= 600
    reg = TensorReLURegressor(random_state=0).fit(X[:600], y[:600])
    assert np.isfinite(reg.predict(X[600:])).all() and reg.score(X[600:], y[600:]) > 0.5


@pytest.mark.parametrize("value", [0.0, -3.5e8])
def test_constant_targets(value, rng):
    with pytest.raises(ValueError, match="y is constant"):
        TensorReLURegressor().fit(rng.standard_normal((100, 3)), np.full(100, value))


@pytest.mark.parametrize("where", ["X", "y"])
@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_squares_that_no_float_holds(where, unit, rng):
    X, y = rng.standard_normal((100, 3)), rng.standard_normal(100)
    X, y = (X * unit, y) if where == "X" else (X, y * unit)
    with pytest.raises(ValueError, match=f"{where} spreads by .*rescale {where}"):
        TensorReLURegressor().fit(X, y)


@pytest.mark.parametrize("where", ["X", "y"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_not_finite(where, value, rng):
    X, y = rng.standard_normal((100, 3)), rng.standard_normal(100)
    (X if where == "X" else y)[3] = value
    with pytest.raises(ValueError, match="NaN|infinity"):
        TensorReLURegressor().fit(X, y)


def test_constant_inputs(rng):
    with pytest.raises(ValueError, match="all columns of X are constant"):
        TensorReLURegressor().fit(np.ones((100, 3)), rng.standard_normal(100))


def test_negative_and_zero_weights(rng):
    X, y = rng.standard_normal((100, 3)), rng.standard_normal(100)
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        TensorReLURegressor().fit(X, y, sample_weight=-np.ones(100))
    with pytest.raises(ValueError, match="sample_weight is zero for all samples"):
        TensorReLURegressor().fit(X, y, sample_weight=np.zeros(100))


def test_nothing_is_left_of_a_failed_fit(rng):
    X, y, *_ = data(12, 5, 2, 600)
    reg = TensorReLURegressor(random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="constant"):
        reg.fit(X, np.zeros(600))
    assert not hasattr(reg, "network_")
    reg.fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        reg.fit(np.where(X > 3, np.nan, X), y)
    assert not hasattr(reg, "network_")


def test_too_few_rows_for_a_unit(rng):
    X = rng.standard_normal((9, 5))
    with pytest.warns(ConvergenceWarning, match=r"n_samples=9 distinct rows determine no unit in 5 dim.*, 12 would"):
        reg = TensorReLURegressor().fit(X, X[:, 0])
    assert reg.n_units_ == 0


@pytest.mark.parametrize("draw", ["laplace", "exponential", "uniform"])
def test_inputs_that_are_not_gaussian(draw):
    """A warning with the figure, and the polish solves it all the same."""
    rng = np.random.RandomState(0)
    X = getattr(rng, draw)(size=(3000, 5))
    network = make_relu_network(1, 5, 3, random_state=13)[2]
    center, scale = X.mean(axis=0), X.std(axis=0)
    y = network((X - center) / scale)[:, 0]
    with pytest.warns(UserWarning, match=r"5 of 5 columns of X are not Gaussian.*excess kurtosis -?\d"):
        reg = TensorReLURegressor(n_units=3, random_state=0).fit(X, y)
    assert relative_error(reg, X, y) < 1e-20


@pytest.mark.filterwarnings("ignore:.*columns of X are not Gaussian:UserWarning")
@pytest.mark.filterwarnings("ignore:the fit is no better than the mean")
def test_repeated_rows_do_not_determine_units(rng):
    X = np.repeat(rng.standard_normal((15, 4)), 10, axis=0)
    said = r"n_samples=15 distinct rows do not determine n_units=3 .* at least 20 rows"
    with pytest.raises(ValueError, match=said):
        TensorReLURegressor(n_units=3).fit(X, np.abs(X[:, 0]))
    X = np.repeat(rng.standard_normal((9, 4)), 5, axis=0)
    with pytest.warns(ConvergenceWarning, match=r"9 distinct rows determine no unit in 4 dimensions, 10 would"):
        reg = TensorReLURegressor(random_state=0).fit(X, np.abs(X[:, 0]))
    assert reg.n_units_ == 0


@pytest.mark.filterwarnings("ignore:the function is exact, but the signs")
def test_discrete_columns(rng):
    """Units bend between the values of a column: what the data leave open is named."""
    X = np.column_stack([rng.standard_normal((2000, 2)), rng.integers(0, 3, (2000, 2)) - 1.0])
    with pytest.warns(UserWarning, match=r"2 of 4 columns of X are not Gaussian but discrete \(column 2: 3 values\)"):
        TensorReLURegressor(n_units=1, random_state=0).fit(X, np.abs(X[:, 0] + X[:, 2] + 0.3))


def test_a_column_that_does_not_matter(rng):
    X, y, *_ = data(17, 5, 2, 2000)
    wider = np.column_stack([X, rng.standard_normal(2000)])
    reg = TensorReLURegressor(random_state=0).fit(wider, y)
    assert reg.n_units_ == 2 and reg.exact_
    np.testing.assert_allclose(reg.network_.weights[0][-1], 0.0, atol=1e-10)


def test_units_within_the_noise():
    X, y, *_ = data(14, 6, 1, 400, noise=1.0)
    with pytest.warns(ConvergenceWarning, match=r"units are within the noise: the eigenvalue of T_2 .* is .*, samp"):
        reg = TensorReLURegressor(n_units=5, random_state=0).fit(X, y)
    assert reg.n_units_ == 5


def test_units_that_are_missing():
    X, y, *_ = data(15, 6, 4, 3000, noise=0.05)
    with pytest.warns(ConvergenceWarning, match=r"n_units=2 leaves residuals of mean square .* candidates ended at \d"):
        reg = TensorReLURegressor(n_units=2, random_state=0).fit(X, y)
    assert reg.n_units_ == 2


def test_candidates_that_disagree():
    """As many rows as parameters: minima of different depth, and no room to find out which is right."""
    X, y, *_ = data(4, 5, 3, 24)
    with pytest.warns(ConvergenceWarning, match=r"the candidates disagree: .* of \d.*, .*n_samples=24 rows"):
        reg = TensorReLURegressor(n_units=3, random_state=0).fit(X, y)
    assert reg.candidate_losses_[-1] > reg.candidate_losses_[0] > 0 and not reg.exact_


def test_a_known_noise_level_keeps_units_out():
    """Three units make up a smooth function; with its last third called noise, fewer do."""
    X = np.random.RandomState(0).standard_normal((2000, 3))
    y = np.sin(2 * X[:, 0])
    free = TensorReLURegressor(random_state=0).fit(X, y)
    held = TensorReLURegressor(random_state=0, noise_level=y.std()).fit(X, y)
    assert held.n_units_ < free.n_units_


def test_noise_level_ends_the_search():
    """With the noise known, residuals that reach it are not looked into."""
    X, y, *_ = data(16, 5, 2, 2000, noise=0.1)
    level = np.std(y) * 0.1
    fast = TensorReLURegressor(n_units=2, noise_level=level, random_state=0).fit(X, y)
    slow = TensorReLURegressor(n_units=2, random_state=0).fit(X, y)
    np.testing.assert_allclose(fast.predict(X), slow.predict(X), atol=1e-4 * np.std(y))
