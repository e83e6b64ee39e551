"""TensorReLURegressor says what it does not know: missing units, interpolated rows, inputs far from the rows."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident import TensorReLURegressor
from skident.samples.learning import missing_evidence
from skident.samples.regressor import InputBox
from skident.samples.ridges import RidgeModel
from skident.samples.sample import Sample


def units(rng, d, m):
    W = rng.standard_normal((m, d))
    a = rng.choice([-1.0, 1.0], m) * np.exp(rng.uniform(np.log(0.5), np.log(2.0), m))
    return W / np.linalg.norm(W, axis=1, keepdims=True), 0.5 * rng.standard_normal(m), a


def planted(seed, d, m, n):
    """Rows and the function of a network."""
    rng = np.random.default_rng(seed)
    (W, b, a), X = units(rng, d, m), rng.standard_normal((n, d))
    return X, lambda Z: np.maximum(Z @ W.T + b, 0.0) @ a, rng


# -- more units than features ------------------------------------------------------------------------------------------


def noisy(seed, d, m, n=2000, level=0.05):
    X, function, rng = planted(seed, d, m, n)
    y = function(X)
    noise = level * y.std()
    return X, y + noise * rng.standard_normal(n), function, noise, rng.standard_normal((3000, d))


def test_the_count_goes_on_beyond_the_number_of_features():
    """Over what least squares from the true network leaves, parameters times noise over rows; within order 1 it is 20
    to 1000 times as much. The information criterion may leave out a faint unit."""
    ratios = []
    for seed in range(10):
        X, y, function, noise, Z = noisy(seed, 3, 5)
        reg = TensorReLURegressor(random_state=0).fit(X, y)
        ratios.append(np.mean((reg.predict(Z) - function(Z)) ** 2) * len(X) / (20 * noise**2))
    assert np.sum(np.array(ratios) < 3.0) >= 8 and max(ratios) < 15.0


@pytest.mark.parametrize("seed", range(10))
def test_units_that_order_1_excludes_are_warned_of(seed):
    X, y, *_ = noisy(seed, 3, 6)
    with pytest.warns(ConvergenceWarning, match=r"order=1 allows 3 units.*the fit lacks units. Set order='auto'"):
        TensorReLURegressor(order=1, random_state=0).fit(X, y)


def test_units_that_no_order_allows_are_warned_of():
    X, y, *_ = noisy(0, 2, 9, level=0.0)
    with pytest.warns(ConvergenceWarning, match=r"order='auto' allows 5 units: the fit lacks units. Set order=5, or"):
        TensorReLURegressor(random_state=0).fit(X, y)


# -- exactness ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_a_unit_on_few_rows_is_not_called_exact(seed):
    """Active on one to five rows of 600, in four dimensions: these do not determine it, however well they are met."""
    X, function, rng = planted(seed, 4, 2, 600)
    w = rng.standard_normal(4)
    t = np.sort(X @ w)[::-1]
    b = -0.5 * (t[seed % 5] + t[seed % 5 + 1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reg = TensorReLURegressor(random_state=0).fit(X, function(X) + 2.0 * np.maximum(X @ w + b, 0.0))
    assert not reg.exact_
    assert reg.loss_ > 1e-20 or any("do not determine them, so exact_ is False" in str(w.message) for w in caught)


@pytest.mark.parametrize("seed", range(10))
def test_clipped_targets_are_not_called_exact(seed):
    X, function, rng = planted(seed, 3, 3, 800)
    y = function(X)
    low, high = np.quantile(y, [0.05, 0.9])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reg = TensorReLURegressor(random_state=0).fit(X, np.clip(y, low, high))
    Z = rng.standard_normal((5000, 3))
    error = np.abs(reg.predict(Z) - np.clip(function(Z), low, high))
    assert not reg.exact_ or np.mean(error > 1e-6) < 6.9 / len(X)


def model_of(W, b, skip=False):
    return RidgeModel(W.T, b, np.ones(len(b)), np.zeros(W.shape[1]), 0.0, "relu", skip)


def test_what_the_rows_lack_is_named(rng):
    X = rng.standard_normal((400, 3))
    sample, draw = Sample(X, X[:, 0]), np.random.RandomState(0)
    W = np.eye(3)
    assert missing_evidence(sample, model_of(W, np.zeros(3)), draw) == ""
    assert missing_evidence(sample, model_of(W, np.zeros(3), True), draw) == ""
    said = missing_evidence(sample, model_of(W, np.array([0.0, 0.0, 9.0])), draw)
    assert said == "unit 2 is inactive on 0 of 400 rows, 5 are needed"
    twice = model_of(W[[0, 0, 1]], np.zeros(3))
    assert missing_evidence(sample, twice, draw) == "the rows leave 4 of 13 parameters open"
    wide = model_of(rng.standard_normal((800, 3)), np.zeros(800))
    assert "3201 parameters are too many to check" in missing_evidence(sample, wide, draw)


def test_repeated_rows_count_once(rng):
    X = np.repeat(rng.standard_normal((11, 3)), 20, axis=0)
    few = missing_evidence(Sample(X, X[:, 0]), model_of(np.eye(3)[:2], np.zeros(2)), np.random.RandomState(0))
    assert few and ("of 11 rows" in few or "open" in few)


def test_rows_met_by_parameters_of_their_own(rng):
    """As many rows as parameters: every one of them is interpolated."""
    X = rng.standard_normal((13, 2))
    sample, W = Sample(X, X[:, 0]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
    said = missing_evidence(sample, model_of(W, np.zeros(4)), np.random.RandomState(0))
    assert "rows are met by parameters that no other row determines" in said or "open" in said


@pytest.mark.parametrize("offset", [1e3, 1e9])
def test_offsets_make_nothing_exact(offset):
    for seed in range(2):
        X, function, rng = planted(seed, 3, 2, 300)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reg = TensorReLURegressor(n_units=2, random_state=0).fit(X, function(X) + offset)
        Z = rng.standard_normal((2000, 3))
        assert not reg.exact_ or np.abs(reg.predict(Z) - offset - function(Z)).max() < 1e-6


def test_targets_that_are_constant_plus_rounding(rng):
    X = rng.standard_normal((200, 3))
    with pytest.raises(ValueError, match=r"y is constant up to rounding \(1e\+13 in all 200 rows\).*fit without it"):
        TensorReLURegressor().fit(X, 1e13 + np.spacing(1e13) * rng.integers(-2, 3, 200))


# -- far inputs --------------------------------------------------------------------------------------------------------


def test_predictions_far_from_the_rows_are_bounded():
    X, function, rng = planted(5, 4, 3, 2000)
    y = function(X)
    reg = TensorReLURegressor(random_state=0).fit(X, y + 0.1 * y.std() * rng.standard_normal(2000))
    far = 1e6 * rng.standard_normal((50, 4))
    assert np.abs(reg.predict(far) - y.mean()).max() < 20 * y.std()
    plain = reg.network_(X)[:, 0] + X @ reg.linear_ + reg.intercept_
    np.testing.assert_array_equal(reg.predict(X), plain)
    new = rng.standard_normal((20_000, 4))
    np.testing.assert_array_equal(reg.input_box_.clipped(new), new)  # ordinary new rows stay as they are


def test_few_new_rows_of_heavy_tails_are_clipped():
    """Of five times 20,000 lognormal rows 60 lie beyond the range of 2,000 and a quarter, 11 beyond the box."""
    clipped = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, new = (np.exp(rng.standard_normal((n, 2))) for n in (2_000, 20_000))
        clipped += int(np.sum(np.any(InputBox.of(Sample(X, X[:, 1])).clipped(new) != new, axis=1)))
    assert clipped <= 25


def test_an_exact_network_extrapolates():
    X, function, rng = planted(6, 4, 3, 2000)
    reg = TensorReLURegressor(random_state=0).fit(X, function(X))
    far = 100.0 * rng.standard_normal((50, 4))
    assert reg.exact_ and reg.input_box_ is None
    np.testing.assert_allclose(reg.predict(far), function(far), rtol=1e-9, atol=1e-9)


def test_the_box_is_in_whitened_inputs(rng):
    """A row that is ordinary in each of two collinear columns, and far from their line."""
    size = rng.standard_normal(500)
    X = np.column_stack([size, size + 0.01 * rng.standard_normal(500), np.full(500, 7.0)])
    box = InputBox.of(Sample(X, size))
    assert box.low.shape == (2,)
    inside, odd = box.clipped(X[:10]), box.clipped(np.array([[1.0, -1.0, 7.0]]))
    assert inside is not None and np.array_equal(inside, X[:10])
    assert abs(odd[0, 0] - odd[0, 1]) < 0.2 and odd[0, 2] == pytest.approx(7.0)
