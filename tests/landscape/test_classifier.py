"""QuadraticNetClassifier: what it learns, what it certifies, what it says of separable classes."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from skident import QuadraticNetClassifier
from skident.landscape import landscape_certificate


def data(seed, n=200, d=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, (2 * X[:, 0] * X[:, 1] + X[:, -1] + rng.logistic(size=n) > 0).astype(int)


def test_without_ridge_probabilities_are_those_of_logistic_regression_on_products():
    X, y = data(0)
    clf = QuadraticNetClassifier(alpha=0).fit(X, y)
    assert clf.certificate_.status == "global" and clf.separations_ == [None]
    products = PolynomialFeatures(2, include_bias=False)
    features = StandardScaler().fit_transform(products.fit_transform(X))
    reference = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(features, y)
    assert clf.predict_proba(X) == pytest.approx(reference.predict_proba(features), abs=1e-4)


@pytest.mark.parametrize(
    "options", [{}, {"alpha": 0.01}, {"fit_linear": False}, {"fit_intercept": False, "alpha": 0.1}]
)
def test_the_optimum_is_certified_again_from_outside(options):
    X, y = data(1)
    clf = QuadraticNetClassifier(**options).fit(X, y)
    Z, W = (X - clf.center_) / clf.scale_, clf.hidden_weights_[0] * clf.scale_
    signs = np.where(y == 1, 1.0, -1.0)
    found = landscape_certificate(W, clf.output_weights_, Z, signs, terms=clf.certificate_.terms, loss="logistic")
    assert found.status == "global" and clf.certificate_.status == "global"
    assert found.loss == pytest.approx(clf.certificate_.loss, rel=1e-12)
    network = ((X - clf.center_) @ clf.hidden_weights_[0].T) ** 2 @ clf.output_weights_
    linear = (X - clf.center_) @ clf.coef_[0] + clf.intercept_[0]
    assert clf.decision_function(X) == pytest.approx(network + linear, abs=1e-10)


@pytest.mark.filterwarnings("ignore:.* better for these data")
def test_three_classes_are_fitted_one_against_the_rest():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    clf = QuadraticNetClassifier().fit(X, names)
    assert clf.hidden_weights_.shape == (3, 8, 4) and len(clf.certificates_) == 3 and clf.certificate_.is_global
    assert clf.predict_proba(X).sum(axis=1) == pytest.approx(1.0)
    assert cross_val_score(QuadraticNetClassifier(), X, names, cv=5).mean() >= 0.95
    only = QuadraticNetClassifier(alpha=0.01).fit(X, y == 2)
    one = QuadraticNetClassifier(alpha=0.01).fit(X, y).decision_function(X)[:, 2]
    # Scales may depend on the classes: then the ridge differs, not the sign of clear samples.
    assert np.mean((only.decision_function(X) > 0) == (one > 0)) >= 0.97


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="one class"):
        QuadraticNetClassifier().fit(np.eye(4), np.ones(4))


def test_separable_classes_have_no_optimum_without_ridge():
    X = np.random.default_rng(2).standard_normal((80, 2))
    radius = np.sum(X**2, axis=1)
    X, y = X[np.abs(radius - 1.5) > 0.3], radius[np.abs(radius - 1.5) > 0.3] > 1.5
    with pytest.warns(ConvergenceWarning, match="no minimum"):
        clf = QuadraticNetClassifier(alpha=0).fit(X, y)
    separation = clf.separations_[0]
    Z = (X - clf.center_) / clf.scale_
    g = np.einsum("ij,ij->i", Z @ separation.quadratic_form, Z) + Z @ separation.coef + separation.intercept
    assert separation.is_complete and np.min(np.where(y, 1, -1) * g) == pytest.approx(separation.margin)
    assert separation.margin > 0 and clf.score(X, y) == 1.0
    # A ridge has an optimum, and needs no warning.
    assert QuadraticNetClassifier(alpha=0.01).fit(X, y).certificate_.is_global


def test_classes_that_meet_on_the_boundary_have_no_optimum_either():
    """1 and 1 with both labels, 0 and 2 with one: x = 1 stays undecided, the loss of the others tends to 0."""
    x, y = np.array([[0.0], [1.0], [1.0], [2.0], [2.0]]), [0, 0, 1, 1, 1]
    with pytest.warns(ConvergenceWarning, match="on the boundary"):
        clf = QuadraticNetClassifier(alpha=0).fit(x, y)
    assert not clf.separations_[0].is_complete and abs(clf.separations_[0].margin) < 1e-6


@pytest.mark.filterwarnings("ignore:.* better for these data")
def test_fewer_samples_than_inputs_and_duplicated_columns():
    X, y = data(3, n=12, d=30)
    with pytest.warns(ConvergenceWarning, match="no minimum"):
        QuadraticNetClassifier(alpha=0).fit(X, y)
    assert QuadraticNetClassifier(alpha=0.1).fit(X, y).certificate_.is_global
    X, y = data(4)
    twice = QuadraticNetClassifier(alpha=0.1).fit(np.hstack([X, X]), y)
    assert twice.certificate_.is_global and twice.score(np.hstack([X, X]), y) > 0.75
    constant = QuadraticNetClassifier().fit(np.hstack([X, np.ones((200, 1))]), y)
    assert constant.certificate_.is_global


def test_too_many_features_are_refused():
    X = np.random.default_rng(0).standard_normal((2000, 800))
    with pytest.raises(ValueError, match="GB of features"):
        QuadraticNetClassifier(alpha=1.0, fit_linear=False).fit(X, X[:, 0] > 0)


def test_scores_meet_a_kernel_of_second_degree():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((400, 6))
    y = X[:, 0] * X[:, 1] + X[:, 2] ** 2 - 1 + 0.3 * rng.standard_normal(400) > 0
    score = cross_val_score(QuadraticNetClassifier(), X, y, cv=5).mean()
    assert score > 0.9 and score > cross_val_score(LogisticRegression(), X, y, cv=5).mean() + 0.2


@pytest.mark.filterwarnings("ignore:a linear model:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", [0, 1])
def test_rare_classes_with_balanced_weights_are_found_among_new_samples(seed):
    """Left-out outputs decide on the intercept: as many of the rare class are found as others are left alone."""
    rng = np.random.default_rng(seed)
    y = (np.arange(800) % 20 == 0).astype(int)
    X = rng.standard_normal((800, 5)) + 0.8 * y[:, None]
    predicted = QuadraticNetClassifier(class_weight="balanced").fit(X[:400], y[:400]).predict(X[400:])
    rare = y[400:] == 1
    assert predicted[rare].mean() > 0.65 and (predicted[~rare] == 0).mean() > 0.65
