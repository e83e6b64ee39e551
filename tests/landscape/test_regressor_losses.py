"""QuadraticNetRegressor with Poisson and Huber losses: against scikit-learn, and what they refuse."""

import numpy as np
import pytest
from sklearn.linear_model import HuberRegressor, PoissonRegressor
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from skident import QuadraticNetRegressor
from skident.landscape import HuberLoss


def counts(seed, n=300, d=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    mean = np.exp(0.6 * X[:, 0] * X[:, 1] + 0.4 * X[:, -1] - 0.5)
    return X, rng.poisson(mean), mean


def with_outliers(seed, n=300, d=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    clean = 100.0 * (X[:, 0] * X[:, 1] + X[:, -1]) + 1e4
    wrong = rng.random(n) < 0.1
    return X, clean + 5.0 * rng.standard_normal(n) + wrong * 1e4 * rng.standard_normal(n), clean


def test_counts_with_zeros_are_fitted_as_by_poisson_regression_on_products():
    X, y, _ = counts(0)
    assert np.mean(y == 0) > 0.3
    reg = QuadraticNetRegressor(loss="poisson", alpha=0).fit(X, y)
    features = StandardScaler().fit_transform(PolynomialFeatures(2, include_bias=False).fit_transform(X))
    reference = PoissonRegressor(alpha=0, tol=1e-10, max_iter=10_000).fit(features, y)
    assert reg.certificate_.status == "global" and reg.certificate_.loss_name == "poisson"
    assert reg.predict(X) == pytest.approx(reference.predict(features), rel=1e-4)
    assert reg.network_(X)[:, 0] == pytest.approx(np.log(reg.predict(X)), abs=1e-9)


def test_an_automatic_ridge_predicts_means_of_new_counts():
    X, y, _ = counts(1)
    reg = QuadraticNetRegressor(loss="poisson", random_state=0).fit(X, y)
    new, _, mean = counts(2)
    assert reg.certificate_.is_global
    assert np.corrcoef(np.log(reg.predict(new)), np.log(mean))[0, 1] > 0.9


def test_outliers_hardly_change_a_fit_by_huber_losses():
    X, y, clean = with_outliers(3)
    reg = QuadraticNetRegressor(loss=HuberLoss(10.0), alpha=1e-6).fit(X, y)
    assert reg.certificate_.is_global and reg.certificate_.loss_name == "huber"
    # 10 coefficients, noise of 5: an error of sqrt(10 / 300) 5 / efficiency; squared losses have one near 1000.
    assert np.sqrt(np.mean((reg.predict(X) - clean) ** 2)) < 3.0
    squared = QuadraticNetRegressor(alpha=1e-6).fit(X, y)
    assert np.sqrt(np.mean((squared.predict(X) - clean) ** 2)) > 30.0
    assert QuadraticNetRegressor(loss=HuberLoss(10.0)).fit(X, y).certificate_.is_global
    features = StandardScaler().fit_transform(PolynomialFeatures(2, include_bias=False).fit_transform(X))
    reference = HuberRegressor(epsilon=1.5, alpha=0.0, max_iter=1000).fit(features, (y - 1e4) / 10.0)
    assert reg.predict(X) == pytest.approx(10.0 * reference.predict(features) + 1e4, abs=2.0)


def test_a_large_delta_is_the_squared_loss():
    X, y, _ = with_outliers(4)
    options = {"alpha": 0.1, "fit_linear": True}
    one = QuadraticNetRegressor(loss=HuberLoss(1e6), **options).fit(X, y).predict(X)
    assert one == pytest.approx(QuadraticNetRegressor(**options).fit(X, y).predict(X), rel=1e-8)


@pytest.mark.parametrize("loss", ["poisson", HuberLoss(0.5)])
def test_few_samples_and_duplicated_columns(loss):
    X, y, _ = counts(5, n=12, d=20)
    assert QuadraticNetRegressor(loss=loss, alpha=0.1).fit(X, y).certificate_.is_global
    X, y, _ = counts(6)
    reg = QuadraticNetRegressor(loss=loss, alpha=0.1).fit(np.hstack([X, X[:, :1], np.ones((300, 1))]), y)
    assert reg.certificate_.is_global


def test_what_the_losses_refuse():
    X, y, _ = counts(7)
    with pytest.raises(ValueError, match="counts y >= 0"):
        QuadraticNetRegressor(loss="poisson").fit(X, y - 1.0)
    with pytest.raises(ValueError, match="all counts y are 0"):
        QuadraticNetRegressor(loss="poisson").fit(X, 0.0 * y)
    with pytest.raises(ValueError, match="delta"):
        QuadraticNetRegressor(loss=HuberLoss(-1.0)).fit(X, y)
    for options in ({"output_signs": "positive"}, {"n_hidden": 3}, {"solver": "descent"}):
        with pytest.raises(ValueError, match="output_signs='mixed'"):
            QuadraticNetRegressor(loss="poisson", **options).fit(X, y)
