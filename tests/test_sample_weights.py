"""Weights of samples and of classes: the same as repetitions in every estimator that fits samples."""

import numpy as np
import pytest
import sklearn
from scipy.special import expit, softmax
from sklearn.base import is_classifier
from sklearn.ensemble import AdaBoostClassifier, AdaBoostRegressor, BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, r2_score, recall_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import has_fit_parameter

import skident
from skident import (
    HierarchicalQuadraticNet,
    HierarchicalQuadraticNetClassifier,
    PassiveNetworkIdentifier,
    QuadraticNetClassifier,
    QuadraticNetRegressor,
    SaddleEscapeAnalyzer,
    SaddleToSaddleClassifier,
    SaddleToSaddleRegressor,
    TensorReLURegressor,
)
from skident.base.checked_data import merged_samples
from skident.base.predictions import added_constants
from skident.landscape import HuberLoss
from skident.landscape.certify import certify_quadratic
from skident.landscape.convex_solver import solve_convex
from skident.landscape.problem import LossTerms, QuadraticProblem

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")

SADDLE = {"width": 6, "max_iter": 60, "init_scale": 0.3, "random_state": 0}
SUM = {"widths": (2, 2), "n_starts": 1, "max_iter": 10, "random_state": 0}
SGD = {"widths": (3,), "max_epochs": 12, "random_state": 0}
ESTIMATORS = {
    "quadratic": QuadraticNetRegressor(),
    "quadratic by descent": QuadraticNetRegressor(solver="descent", alpha=0.01),
    "quadratic, without intercept": QuadraticNetRegressor(alpha=0.01, fit_intercept=False),
    "quadratic, outliers": QuadraticNetRegressor(loss=HuberLoss(1.0)),
    "quadratic classifier": QuadraticNetClassifier(),
    "saddle-to-saddle": SaddleToSaddleRegressor(**SADDLE),
    "saddle-to-saddle by descent": SaddleToSaddleRegressor(**SADDLE, n_escapes="all"),
    "saddle-to-saddle in batches": SaddleToSaddleRegressor(**SADDLE, batch_size=32),
    "saddle-to-saddle classifier": SaddleToSaddleClassifier(**SADDLE),
    "escapes": SaddleEscapeAnalyzer(width=3, n_starts=2, max_iter=20, random_state=0),
    "hierarchical": HierarchicalQuadraticNet(**SUM),
    "hierarchical, linear readouts": HierarchicalQuadraticNet(**SUM, readout="linear"),
    "hierarchical by L-BFGS": HierarchicalQuadraticNet(**SUM, readout="linear", solver="lbfgs", l2=1e-2),
    "hierarchical by Adam": HierarchicalQuadraticNet(**SGD, solver="adam"),
    "hierarchical by Algorithm 1": HierarchicalQuadraticNet(**{**SGD, "max_epochs": 40}, solver="algorithm1"),
    "hierarchical, automatic widths": HierarchicalQuadraticNet(random_state=0),
    "hierarchical classifier": HierarchicalQuadraticNetClassifier(**SGD),
    "hierarchical classifier by Adam": HierarchicalQuadraticNetClassifier(**SGD, solver="adam"),
    "hierarchical classifier by L-BFGS": HierarchicalQuadraticNetClassifier(**SUM, solver="lbfgs"),
    "hierarchical classifier, Theorem 4": HierarchicalQuadraticNetClassifier(**SUM, loss="theorem4"),
    "passive identifier": PassiveNetworkIdentifier(layer_widths=(2, 1), n_starts=2, max_work=1e8, random_state=0),
    "ReLU network": TensorReLURegressor(random_state=0),
}
# Rows of these are points around which a model is queried, so that weights of rows have no meaning: fit refuses them.
# A model that `fit` trains itself can be trained with weights before, and passed in a FrozenEstimator.
QUERIED = {
    "EntangledWeightExtractor",
    "NetworkCompletion",  # from weights that are known up to a few numbers
    "NetworkCompressor",
    "NetworkIdentifier",
    "NetworkVerifier",
}
# Variants of estimators that take a second each.
SLOW = {"saddle-to-saddle in batches", "hierarchical classifier by Adam", "hierarchical, automatic widths"}
SLOW |= {"hierarchical by L-BFGS", "saddle-to-saddle"}
N = 90


def table(seed=0, n=N):
    """X, targets, labels, and integer weights from 0 to 2."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    y = (X[:, 0] + X[:, 1]) ** 2 + X[:, 2] + 0.1 * rng.standard_normal(n)
    return X, y, np.where(y > np.median(y), "many", "few"), rng.integers(0, 3, n)


def targets(estimator, y, labels):
    return labels if is_classifier(estimator) else y


def outputs(estimator, X):
    """Logits, predictions or features."""
    for name in ("decision_function", "predict", "transform"):
        if hasattr(estimator, name):
            return getattr(estimator, name)(X)
    raise AssertionError(estimator)


def test_every_estimator_takes_weights_or_has_a_reason():
    public = {getattr(skident, name) for name in skident.__all__}
    fitted = {kind.__name__: kind for kind in public if isinstance(kind, type) and hasattr(kind, "fit")}
    weighted = {name for name, kind in fitted.items() if has_fit_parameter(kind, "sample_weight")}
    assert weighted == fitted.keys() - QUERIED == {type(estimator).__name__ for estimator in ESTIMATORS.values()}


@pytest.mark.parametrize("key", [pytest.param(k, marks=[pytest.mark.slow] * (k in SLOW)) for k in ESTIMATORS])
def test_weights_are_repetitions(key):
    """Equal up to 1e-6, in any unit; the fits have the same input, so that they are in fact the same numbers."""
    estimator, (X, y, labels, w) = ESTIMATORS[key], table()
    t, rows = targets(estimator, y, labels), np.random.default_rng(1).permutation(np.repeat(np.arange(N), w))
    weighted = outputs(estimator.fit(X, t, sample_weight=w), X)
    repeated = outputs(estimator.fit(X[rows], t[rows], sample_weight=np.full(len(rows), 1e-3)), X)
    np.testing.assert_allclose(repeated, weighted, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key in ESTIMATORS if hasattr(ESTIMATORS[key], "score")])
def test_samples_of_small_weight_hardly_matter(key):
    """Three fifths of the targets are wrong, at a weight of 1e-4: the score is nearer to that of a fit without them.

    A stage that left the weights out would follow these targets.
    """
    estimator, (X, y, labels, _) = sklearn.clone(ESTIMATORS[key]), table(2, n=250)
    longer = {"max_epochs": 60} if getattr(estimator, "solver", "") == "adam" else {}
    estimator.set_params(**({"max_iter": 300} if key.startswith("saddle") else longer))
    t, wrong, w = targets(estimator, y, labels), np.arange(250) % 5 < 3, np.ones(250)
    given = t.copy()
    given[wrong] = np.where(t[wrong] == "few", "many", "few") if is_classifier(estimator) else -3.0 * t[wrong]
    w[wrong] = 1e-4
    fits = ((X[~wrong], t[~wrong]), (X, given, w), (X, given))
    without, weighted, with_all = (max(0.0, estimator.fit(*data).score(X, t)) for data in fits)
    assert without > with_all + 0.2 and weighted > 0.5 * (without + with_all)


def test_merged_samples_have_the_mean_weight_one():
    X, y = np.array([[1.0], [0.0], [1.0], [2.0]]), np.array([5.0, 3.0, 5.0, 4.0])
    merged, targets_of_merged, w = merged_samples(X, y, [1.0, 2.0, 0.5, 0.0])
    assert sorted(zip(merged[:, 0], targets_of_merged, w)) == [(0.0, 3.0, 8 / 7), (1.0, 5.0, 6 / 7)]
    assert merged_samples(X[:2], y[:2], [1e300, 1e300])[2] is None
    labels = np.array(["a", "b", "a", "b"])  # the row (1, "a") twice: weights 2, 1 and 1 of two classes
    assert merged_samples(X, labels, [1, 2, 1, 2], "balanced")[2] is not None


@pytest.mark.parametrize("terms", [
    LossTerms(),
    LossTerms(0.0, True, True),
    LossTerms(0.1, True, True, 10.0),
    LossTerms(0.1, False, True),
])  # fmt: skip
def test_a_weighted_problem_is_that_of_repeated_rows(terms):
    """Loss, slope, minimizer and certificate, for weights of mean one and samples repeated twice as often."""
    X, y, _, _ = table(3, n=24)
    w = np.resize([0.5, 1.5, 1.0, 1.0], 24)
    rows = np.repeat(np.arange(24), (2 * w).astype(int))
    one, other = QuadraticProblem(X, y, terms, w), QuadraticProblem(X[rows], y[rows], terms)
    M = np.cov(X.T)
    for found, expected in zip(one.value_and_gradient(M), other.value_and_gradient(M)):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    solution = solve_convex(one)
    np.testing.assert_allclose(solution.M, solve_convex(other).M, atol=1e-10)
    values, vectors = np.linalg.eigh(solution.M)
    W, v = np.sqrt(np.abs(values))[:, None] * vectors.T, np.where(values < 0, -1.0, 1.0)
    W, v = np.vstack([W, 0.0 * W]), np.concatenate([v, -v])
    certificates = [certify_quadratic(problem, W, v) for problem in (one, other)]
    assert [c.status for c in certificates] == ["global", "global"]
    low, high = max(c.lower_bound for c in certificates), min(c.loss for c in certificates)
    assert low <= high * (1.0 + 1e-12)  # no bound is above the loss of the same problem, written in another way


CLASSIFIERS = {key: estimator for key, estimator in ESTIMATORS.items() if is_classifier(estimator)}
RARE = {
    "quadratic": QuadraticNetClassifier(alpha=0.01, class_weight="balanced"),
    "saddle-to-saddle": SaddleToSaddleClassifier(width=10, max_iter=100, random_state=0, class_weight="balanced"),
    "hierarchical": HierarchicalQuadraticNetClassifier(widths=(6,), random_state=0, class_weight="balanced"),
}


@pytest.mark.parametrize("key", RARE)
def test_rare_classes_are_found_with_balanced_weights(key):
    """4 % positives, 1.5 standard deviations away: the recall of logistic regression is .8 to .9."""
    rng = np.random.default_rng(5)
    y = (np.arange(1200) % 25 == 0).astype(int)
    X = rng.standard_normal((1200, 4)) + 0.75 * y[:, None]
    train, test = np.arange(1200) < 600, np.arange(1200) >= 600
    reference = LogisticRegression(class_weight="balanced").fit(X[train], y[train])
    assert recall_score(y[test], reference.predict(X[test])) >= 0.5
    classifier = RARE[key].fit(X[train], y[train])
    assert recall_score(y[test], classifier.predict(X[test])) >= 0.5
    p, f = classifier.predict_proba(X[test]), classifier.decision_function(X[test])
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(f > 0, classifier.predict(X[test]) == 1)
    assert 0.03 < np.mean(f > 0) < 0.6


@pytest.mark.parametrize("k", [1, 3])
def test_added_constants_match_weighted_shares_of_classes(k):
    """Where the cross-entropy is lowest: slopes are below 1e-5, the tolerance of BFGS. One column has two classes."""
    rng = np.random.default_rng(9)
    F, w = 3.0 * rng.standard_normal((200, k)) + np.arange(k), rng.uniform(0.0, 2.0, 200)
    labels = rng.integers(0, max(k, 2), 200)
    shifted = F + added_constants(F, labels, w)
    p = expit(shifted) if k == 1 else softmax(shifted, axis=1)
    shares = np.average(labels[:, None] == ([1] if k == 1 else np.arange(k)), axis=0, weights=w)
    np.testing.assert_allclose(np.average(p, axis=0, weights=w), shares, rtol=0, atol=1e-5)


@pytest.mark.parametrize("key", CLASSIFIERS)
def test_class_weights_multiply_sample_weights(key):
    X, _, labels, w = table(4)
    classifier = sklearn.clone(CLASSIFIERS[key])
    expected = outputs(classifier.fit(X, labels, w * np.where(labels == "few", 4, 1)), X)
    given = classifier.set_params(class_weight={"few": 4, "many": 1}).fit(X, labels, w)
    np.testing.assert_allclose(outputs(given, X), expected, rtol=0, atol=1e-6)


# Bad input.


@pytest.mark.parametrize(("w", "message"), [
    (np.zeros(N), "sample_weight is zero for all samples"),
    (np.r_[-1.0, np.ones(N - 1)], "Negative values in data passed to `sample_weight`"),
    (np.r_[np.nan, np.ones(N - 1)], "Input sample_weight contains NaN"),
    (np.r_[np.inf, np.ones(N - 1)], "Input sample_weight contains infinity"),
    (np.ones(N - 1), r"sample_weight.shape == \(89,\), expected \(90,\)"),
])  # fmt: skip
@pytest.mark.parametrize("kind", sorted({type(e) for e in ESTIMATORS.values()}, key=lambda kind: kind.__name__))
def test_bad_weights_are_refused(kind, w, message):
    X, y, labels, _ = table()
    estimator = kind()
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, targets(estimator, y, labels), sample_weight=w)


@pytest.mark.parametrize(("class_weight", "message"), [
    ({"few": 1.0, "Many": 2.0}, r"classes that y does not have, \['Many'\], and not its classes \['many'\]"),
    ({"few": -1.0, "many": 1.0}, "class_weight must have finite values >= 0"),
    ({"few": 0.0, "many": 0.0}, "class_weight must have finite values >= 0, not all zero"),
    ({"few": np.nan}, "class_weight must have finite values >= 0"),
    ("even", "The 'class_weight' parameter"),
    ({"few": 0.0}, "y has one class"),
])  # fmt: skip
@pytest.mark.parametrize("key", RARE)
def test_bad_class_weights_are_refused(key, class_weight, message):
    X, _, labels, _ = table()
    with pytest.raises(ValueError, match=message):
        sklearn.clone(RARE[key]).set_params(class_weight=class_weight).fit(X, labels)


def test_a_class_without_weight_is_left_out():
    X, y, _, w = table()
    labels = np.digitize(y, [0.5, 2.0])
    classifier = QuadraticNetClassifier(alpha=0.01).fit(X, labels, sample_weight=np.where(labels == 1, 0, w))
    assert list(classifier.classes_) == [0, 2]


@pytest.mark.parametrize("kind", [
    QuadraticNetRegressor, SaddleToSaddleRegressor, HierarchicalQuadraticNet, TensorReLURegressor,
    PassiveNetworkIdentifier,
])  # fmt: skip
@pytest.mark.parametrize("dtype", [str, object])
def test_strings_as_targets_are_refused(kind, dtype):
    X, _, labels, _ = table()
    with pytest.raises(ValueError, match=r"y holds strings \('(few|many)'\), and a regressor needs numbers"):
        kind().fit(X, labels.astype(dtype))


# Ensembles, pipelines and searches.


def test_in_ensembles():
    X, y, labels, _ = table(6)
    regressor = AdaBoostRegressor(QuadraticNetRegressor(alpha=0.1), n_estimators=3, random_state=0).fit(X, y)
    assert regressor.score(X, y) > 0.9
    for ensemble in (AdaBoostClassifier, BaggingClassifier):
        classifier = ensemble(QuadraticNetClassifier(alpha=0.1), n_estimators=3, random_state=0).fit(X, labels)
        assert classifier.score(X, labels) > 0.8


def test_weights_are_routed():
    X, y, _, w = table(7)
    with sklearn.config_context(enable_metadata_routing=True):
        net = QuadraticNetRegressor(alpha=0.1).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=True)
        search = GridSearchCV(make_pipeline(scaler, net), {"quadraticnetregressor__alpha": [0.01, 0.1]}, cv=3)
        search.fit(X, y, sample_weight=w)
        direct = QuadraticNetRegressor(alpha=search.best_params_["quadraticnetregressor__alpha"])
        scaled = StandardScaler().fit(X, sample_weight=w).transform(X)
        np.testing.assert_allclose(search.predict(X), direct.fit(scaled, y, w).predict(scaled), atol=1e-10)


def test_scores_take_weights():
    X, y, labels, w = table(8)
    regressor, classifier = QuadraticNetRegressor(alpha=1.0).fit(X, y), QuadraticNetClassifier(alpha=1.0).fit(X, labels)
    assert regressor.score(X, y, w) == r2_score(y, regressor.predict(X), sample_weight=w)
    assert classifier.score(X, labels, w) == accuracy_score(labels, classifier.predict(X), sample_weight=w)
