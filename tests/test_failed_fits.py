"""An estimator whose fit raised is not fitted: the one policy, for every public estimator and every point of a fit."""

import ast
import copy
import inspect
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError

import skident
from skident import EntangledWeightExtractor, NetworkIdentifier, SaddleEscapeAnalyzer
from tests.test_sklearn_checks import ESTIMATORS, Units

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:.*columns of X are not Gaussian:UserWarning"
)
PACKAGE = str(Path(skident.__file__).parent)
PUBLIC = {
    name: member
    for name in skident.__all__
    if inspect.isclass(member := getattr(skident, name)) and hasattr(member, "fit")
}
USES = ("predict", "transform", "predict_proba", "decision_function", "score", "get_feature_names_out")


def sample(estimator):
    """Rows and targets on which an instance can be fitted."""
    rng = np.random.RandomState(0)
    X = rng.standard_normal((40, 4))
    labels = X[:, 0] + X[:, 1] ** 2 > 0.5
    return X, labels.astype(int) if is_classifier(estimator) else X[:, 0] + X[:, 1] ** 2 + 0.1 * rng.standard_normal(40)


def assert_not_fitted(estimator, X, y):
    assert [name for name in vars(estimator) if name.endswith("_")] == []
    for use in USES:
        if hasattr(estimator, use):
            arguments = {"score": (X, y), "get_feature_names_out": ()}.get(use, (X,))
            with pytest.raises(NotFittedError, match="not fitted yet"):
                getattr(estimator, use)(*arguments)


def interrupted(fit, at):
    """How many functions of the package a fit calls; the call of number `at` is answered by Ctrl-C."""
    calls = 0

    def watch(frame, event, _):
        nonlocal calls
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls += 1
            if at is not None and calls == at:
                raise KeyboardInterrupt

    sys.setprofile(watch)
    try:
        fit()
    finally:
        sys.setprofile(None)
    return calls


WRONG = {
    "a parameter": lambda X, y: (X, y),
    "one column": lambda X, y: (X[:, :1], y),
    "no table": lambda X, y: (X[:, 0], y),
    "NaN": lambda X, y: (np.where(X == X[3, 1], np.nan, X), y),
    "NaN in y": lambda X, y: (X, np.where(y == y[3], np.nan, y)),
    "fewer targets": lambda X, y: (X, y[:-1]),
    "one row": lambda X, y: (X[:1], y[:1]),
}
# What is no error: way -> beginnings of the instances' names.
FINE = {
    "one column": ("completion", "compressor", "passive", "quadratic", "ReLU", "saddle", "transformer", "verifier"),
    "NaN in y": ("extractor of a callable", "extractor by Hessians"),  # which look at no y
    "fewer targets": ("extractor of a callable", "extractor by Hessians"),
    "one row": ("quadratic",),
}
CASES = [(key, way) for key in ESTIMATORS for way in WRONG if not key.startswith(FINE.get(way, ("-",)))]
_FITTED = {}


def fitted(key):
    """A fitted instance of one's own, the rows and the targets."""
    if key not in _FITTED:
        X, y = sample(ESTIMATORS[key])
        estimator = clone(ESTIMATORS[key])
        seeded = {"random_state": 0} if hasattr(estimator, "random_state") else {}
        _FITTED[key] = estimator.set_params(**seeded).fit(X, y), X, y
    return copy.deepcopy(_FITTED[key])


def test_every_public_estimator_is_tried():
    assert {type(estimator) for estimator in ESTIMATORS.values()} == set(PUBLIC.values())


@pytest.mark.parametrize(("key", "way"), CASES, ids=lambda value: value)
def test_what_cannot_be_fitted_after_a_good_fit(key, way):
    estimator, X, y = fitted(key)
    if way == "a parameter":
        estimator.set_params(**{"verbose" if hasattr(estimator, "verbose") else "tol": "high"})
    with pytest.raises(ValueError, match=r"[a-zA-Z]{3}"):  # the messages are scikit-learn's, and differ
        estimator.fit(*WRONG[way](X, y))
    assert_not_fitted(estimator, X, y)


@pytest.mark.parametrize("key", ESTIMATORS)
def test_ctrl_c_anywhere_after_a_good_fit(key):
    estimator, X, y = fitted(key)
    n_calls = interrupted(lambda: estimator.fit(X, y), at=None)
    first = 12 if key.startswith("hierarchical") else 5  # where `fit` is in its block
    for at in (first, *np.linspace(0.1, 0.95, 5) * n_calls):
        estimator = fitted(key)[0]
        with pytest.raises(KeyboardInterrupt, match="^$"):
            interrupted(lambda it=estimator: it.fit(X, y), at=max(first, int(at)))
        assert_not_fitted(estimator, X, y)


class Failing:
    """Answers like the units for a while."""

    def __init__(self, n_rows):
        self.left = n_rows

    def __call__(self, X):
        self.left -= len(X)
        if self.left < 0:
            raise RuntimeError("no answer any more")
        return Units("tanh", 3)(X)


@pytest.mark.parametrize("kind", [NetworkIdentifier, EntangledWeightExtractor])
@pytest.mark.parametrize("n_rows", [0, 30, 150])
def test_a_black_box_that_raises_in_the_middle(kind, n_rows):
    X = np.random.RandomState(0).standard_normal((40, 4))
    estimator = kind(Units("tanh", 3), layer_widths=(3, 1), random_state=0).fit(X)
    estimator.set_params(estimator=Failing(n_rows))
    with pytest.raises(ValueError, match=r"raised RuntimeError.*no answer any more"):
        estimator.fit(X)
    assert_not_fitted(estimator, X, X[:, 0])


def test_a_loss_that_raises():
    X = np.random.RandomState(0).standard_normal((40, 4))
    analyzer = SaddleEscapeAnalyzer(width=3, n_starts=2, max_iter=3).fit(X, X[:, 0])

    def loss(outputs, y):
        raise RuntimeError("no loss")

    with pytest.raises(RuntimeError, match="no loss"):
        analyzer.set_params(loss=loss).fit(X, X[:, 0])
    assert_not_fitted(analyzer, X, X[:, 0])


@pytest.mark.parametrize("name", [name for name in PUBLIC if not name.startswith("Hierarchical")])
def test_all_of_fit_lies_in_the_block(name):
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(PUBLIC[name].fit))).body
    _, block, end = function.body  # after the docstring
    assert isinstance(block, ast.With) and ast.unparse(block.items[0]) == "forgotten_on_error(self)"
    assert ast.unparse(end) == "return self"
