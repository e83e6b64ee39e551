"""Constraints and checks that the estimators share."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import skident
from skident.base.parameters import (
    center_and_scale,
    check_layer_widths,
    check_magnitudes,
    check_targets,
    forgotten_on_error,
)


def test_the_private_module_of_scikit_learn_is_imported_in_one_place():
    package = Path(skident.__file__).parent
    files = [path for path in package.rglob("*.py") if "_param_validation" in path.read_text(encoding="utf-8")]
    assert [path.relative_to(package).as_posix() for path in files] == ["base/parameters.py"]


@pytest.mark.parametrize(("given", "n_outputs", "expected"), [((8, 5, 1), 1, (8, 5, 1)), (4, None, (4,))])
def test_widths(given, n_outputs, expected):
    assert check_layer_widths(given, n_outputs) == expected


@pytest.mark.parametrize("given", [(), (0, 1), (2.5, 1), ("a", 1)])
def test_impossible_widths(given):
    with pytest.raises(ValueError, match="layer_widths must be positive integers"):
        check_layer_widths(given)


def test_widths_end_in_the_number_of_outputs():
    with pytest.raises(ValueError, match=r"ends in 3 but the black box gives 2 output\(s\).*\(8, 2\)"):
        check_layer_widths((8, 3), 2)


def test_magnitudes_whose_squares_are_no_numbers():
    check_magnitudes(X=np.array([[0.0, 1e99]]), y=np.array([-1e-99, 1e-300]), zero=np.zeros(2))
    with pytest.raises(
        ValueError, match=r"X has entries of magnitude 2.0e\+100; .* overflow. Scale X .* below 1e\+100"
    ):
        check_magnitudes(y=np.ones(2), X=np.array([1.0, -2e100]))
    with pytest.raises(ValueError, match=r"y has no entry above 5.0e-101 .* underflow. Scale y .* above 1e-100"):
        check_magnitudes(y=np.array([0.0, -5e-101]))


def test_targets_of_classifiers_are_labels():
    y = np.array([0.5, 1.5])
    assert check_targets(y, "predict") is y
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        check_targets(y, "predict_proba")
    with pytest.raises(ValueError, match=r"y has 2 labels per sample \(multilabel\)"):
        check_targets(np.array([[0, 1], [1, 0]]), "predict_proba")


def test_center_and_scale():
    X = np.array([[0.0, 1.0, 5.0], [2.0, 5.0, 5.0]])
    center, scale = center_and_scale(X, None)
    np.testing.assert_allclose(center, [1.0, 3.0, 5.0])
    np.testing.assert_allclose(scale, [1.0, 2.0, 1.5])  # a constant column gets the median of the others
    np.testing.assert_allclose(center_and_scale(np.ones((2, 2)), [3.0, 4.0]), [[3.0, 4.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match=r"center must have shape \(3,\)"):
        center_and_scale(X, [1.0])


def test_a_failed_fit_leaves_nothing_behind():
    estimator = BaseEstimator()
    estimator.n_features_in_, estimator.coef_, estimator.alpha = 3, 1.0, 2.0
    with forgotten_on_error(estimator):
        assert vars(estimator) == {"n_features_in_": 3, "alpha": 2.0}
        estimator.coef_ = 2.0
    assert estimator.coef_ == 2.0
    with pytest.raises(KeyError, match="no such row"), forgotten_on_error(estimator):
        raise KeyError("no such row")
    assert vars(estimator) == {"alpha": 2.0}
