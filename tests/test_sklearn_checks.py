"""scikit-learn's own checks on small instances of every estimator, and as constructed by default.

The slow ones among the defaults run in full with ``SKIDENT_CHECKS=all``.
"""

import os

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks

import skident
from skident import (
    EntangledWeightExtractor,
    HierarchicalQuadraticNet,
    HierarchicalQuadraticNetClassifier,
    IdentifierOptions,
    NetworkCompletion,
    NetworkCompressor,
    NetworkIdentifier,
    NetworkVerifier,
    PassiveNetworkIdentifier,
    QuadraticNetClassifier,
    QuadraticNetRegressor,
    SaddleEscapeAnalyzer,
    SaddleToSaddleClassifier,
    SaddleToSaddleRegressor,
    TensorReLURegressor,
)
from skident.landscape import HuberLoss

# The data of the checks are random, mostly too few or too degenerate to determine a network. That is what
# ConvergenceWarning says, and here it is no failure.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*columns of X are not Gaussian:UserWarning"),
    pytest.mark.filterwarnings("ignore:y takes . values. steps between them are fitted:UserWarning"),
    # Some checks fit on a frame and transform an array, or the other way round, and mean to.
    pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names:UserWarning"),
]


class Units:
    """A network of any number of inputs, one output."""

    def __init__(self, activation, n_units):
        self.activation, self.n_units = activation, n_units

    def __repr__(self):
        return f"{self.n_units} {self.activation} units"

    def __call__(self, X):
        i, j = np.arange(1.0, X.shape[1] + 1), np.arange(1.0, self.n_units + 1)
        return getattr(np, self.activation)(X @ np.sin(np.outer(i, j)) + 0.1 * j) @ j


# Scaled: the rows of some checks are around 100, where the plain regressor is saturated, so constant.
SMALL_MLP = make_pipeline(
    StandardScaler(), MLPRegressor(hidden_layer_sizes=(3,), activation="tanh", solver="lbfgs", random_state=0)
)
SMALL_CLASSIFIER = make_pipeline(
    StandardScaler(), MLPClassifier(hidden_layer_sizes=(3,), activation="tanh", solver="lbfgs", random_state=0)
)
# From large weights with long steps: as few epochs as the checks' scores allow.
FAST = {"init_scale": 1.0, "relative_step": 0.1, "max_iter": 60, "record_every": 60}
ESTIMATORS = {
    "extractor": EntangledWeightExtractor(),
    "extractor of a callable": EntangledWeightExtractor(Units("tanh", 3), layer_widths=(3, 1)),
    "extractor by Hessians": EntangledWeightExtractor(Units("sin", 2), layer_widths=(2, 1), activation="sin"),
    "completion": NetworkCompletion(),
    "completion by descent": NetworkCompletion(solver="gd", max_iter=2),
    "identifier": NetworkIdentifier(options=IdentifierOptions(n_starts=1)),  # few starts: some data saturate all units
    "identifier of a callable": NetworkIdentifier(Units("tanh", 3), layer_widths=(3, 1)),
    "identifier of a classifier": NetworkIdentifier(SMALL_CLASSIFIER, layer_widths=None),
    "identifier with stages": NetworkIdentifier(
        SMALL_MLP,
        layer_widths=None,
        options=IdentifierOptions(extractor=EntangledWeightExtractor(), completion=NetworkCompletion()),
    ),
    "compressor": NetworkCompressor(),
    "compressor of a classifier": NetworkCompressor(SMALL_CLASSIFIER),
    "verifier": NetworkVerifier(),
    "passive identifier": PassiveNetworkIdentifier(n_starts=2, max_seconds=None),
    "ReLU network": TensorReLURegressor(),
    "ReLU network, order 2": TensorReLURegressor(order=2),
    "quadratic": QuadraticNetRegressor(),
    "quadratic classifier": QuadraticNetClassifier(),
    "quadratic classifier, no ridge": QuadraticNetClassifier(alpha=0),
    "quadratic by descent": QuadraticNetRegressor(solver="descent", alpha=0.1),
    "quadratic, outliers": QuadraticNetRegressor(loss=HuberLoss(1.0), alpha=0.01),
    "quadratic, few units, no ridge": QuadraticNetRegressor(n_hidden=2, alpha=0),
    "hierarchical": HierarchicalQuadraticNet(widths=(2, 2), readout="linear", n_starts=1, max_iter=5, l2=1e-2),
    "hierarchical by Adam": HierarchicalQuadraticNet(widths=(2,), solver="adam", learning_rate=0.05, max_epochs=15),
    "hierarchical classifier": HierarchicalQuadraticNetClassifier(widths=(4,), max_epochs=10),
    "transformer of escapes": SaddleEscapeAnalyzer(width=3, n_starts=2, max_iter=3),
    "saddle-to-saddle classifier": SaddleToSaddleClassifier(3, 8, **FAST),
    "saddle-to-saddle regressor": SaddleToSaddleRegressor(3, 8, **FAST),
    "saddle-to-saddle regressor by descent": SaddleToSaddleRegressor(
        3, 8, **{**FAST, "max_iter": 25}, n_escapes="all", standardize=False, learning_rate=1.0
    ),
}
# Estimator's name here -> {check: why it must fail}.
EXPECTED_FAILURES = {
    "identifier of a callable": {
        "check_regressor_multioutput": "y has five columns here, but predictions are the callable's: one output"
    },
}


def suite():
    """As `parametrize_with_checks` has it, with the names of this table, which cost less than representations."""
    for key, estimator in ESTIMATORS.items():
        failing = EXPECTED_FAILURES.get(key, {})
        for case in estimator_checks.estimator_checks_generator(
            estimator, expected_failed_checks=failing, mark="xfail"
        ):
            values, marks = getattr(case, "values", case), getattr(case, "marks", ())
            options = "".join(f", {name}={value}" for name, value in values[1].keywords.items())
            yield pytest.param(*values, marks=marks, id=f"{key}-{values[1].func.__name__}{options}")


@pytest.mark.parametrize(("estimator", "check"), list(suite()))
def test_suite(estimator, check):
    check(estimator)


# What the suite does not yield: for every estimator, and for transformers only.
FOR_ALL = ["check_param_validation", "check_dataframe_column_names_consistency"]
FOR_TRANSFORMERS = [
    "check_set_output_transform",
    "check_set_output_transform_pandas",
    "check_global_output_transform_pandas",
    "check_transformer_get_feature_names_out",
    "check_transformer_get_feature_names_out_pandas",
]
MORE = [(key, check) for key in ESTIMATORS for check in FOR_ALL]
MORE += [
    (key, check)
    for key in ESTIMATORS
    if key.startswith(("extractor", "transformer", "hierarchical"))
    for check in FOR_TRANSFORMERS
]


@pytest.mark.parametrize(("key", "check"), MORE)
def test_not_in_the_suite(key, check):
    estimator = ESTIMATORS[key]
    getattr(estimator_checks, check)(type(estimator).__name__, estimator)


def test_checks_run_on_instances_with_all_parameters_constrained():
    """`check_param_validation` compares names; here the values: every default satisfies its constraint."""
    for estimator in ESTIMATORS.values():
        estimator._validate_params()


# As constructed by default: how many checks there are for every public estimator; skipped ones would vanish silently.
N_CHECKS = {
    EntangledWeightExtractor: 48,
    HierarchicalQuadraticNet: 65,
    HierarchicalQuadraticNetClassifier: 68,
    NetworkCompletion: 53,
    NetworkCompressor: 53,
    NetworkIdentifier: 53,
    NetworkVerifier: 41,
    PassiveNetworkIdentifier: 60,
    QuadraticNetClassifier: 63,
    QuadraticNetRegressor: 60,
    SaddleEscapeAnalyzer: 55,
    SaddleToSaddleClassifier: 63,
    SaddleToSaddleRegressor: 60,
    TensorReLURegressor: 59,
}
# Of those that are not in ESTIMATORS by default, since all their checks take 12 to 30 s: the ones that ask for scores.
SLOW = [SaddleToSaddleClassifier, SaddleToSaddleRegressor]
SLOWER = [HierarchicalQuadraticNet, HierarchicalQuadraticNetClassifier, PassiveNetworkIdentifier, SaddleEscapeAnalyzer]
ALL_CHECKS = os.environ.get("SKIDENT_CHECKS") == "all"


def checks_of(kind):
    """Pairs of instance and check, of an estimator as constructed by default."""
    return list(estimator_checks.estimator_checks_generator(kind()))


def by_default():
    """All checks of the estimators above with ``SKIDENT_CHECKS=all``, else some of the quicker ones."""
    for kind in [*SLOW, *SLOWER] if ALL_CHECKS else SLOW:
        for instance, check in checks_of(kind):
            name = check.func.__name__
            # One of the three variants of a check is enough here.
            if ALL_CHECKS or (name in ("check_classifiers_train", "check_regressors_train") and not check.keywords):
                yield pytest.param(instance, check, id=f"{kind.__name__}-{name}-{check.keywords}")


def test_all_public_estimators_are_counted():
    public = {getattr(skident, name) for name in skident.__all__}
    assert {
        kind for kind in public if isinstance(kind, type) and issubclass(kind, BaseEstimator) and hasattr(kind, "fit")
    } == N_CHECKS.keys()
    plain = {type(e) for e in ESTIMATORS.values() if repr(e) == f"{type(e).__name__}()"}
    few_starts = {NetworkIdentifier}  # checked with other options
    assert plain | few_starts | {*SLOW, *SLOWER} == N_CHECKS.keys()


@pytest.mark.parametrize("kind", N_CHECKS, ids=lambda kind: kind.__name__)
def test_number_of_checks(kind):
    assert len(checks_of(kind)) == N_CHECKS[kind]


@pytest.mark.parametrize(("estimator", "check"), list(by_default()))
def test_as_constructed_by_default(estimator, check):
    check(estimator)
