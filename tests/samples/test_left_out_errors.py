"""Leave-one-out errors of ReLU fits, and warnings if a kernel or the mean of y is better."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident import TensorReLURegressor
from skident.samples.checks import left_out_squares
from skident.samples.ridges import RidgeModel, fit_ridges
from skident.samples.sample import Sample


def test_leave_one_out_errors_are_those_of_fits_without_the_sample():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.abs(X[:, 0] + 0.3) + 0.2 * X[:, 1] + 0.1 * rng.standard_normal(60)
    sample = Sample(X, y)
    start = RidgeModel(np.array([[1.0], [0.0]]), np.array([0.3]), np.array([1.0]), np.zeros(2), 0.0)
    fit = fit_ridges(sample, start, rng=np.random.RandomState(0))
    found = left_out_squares(sample, fit.model)
    Z, v, _ = sample.arrays(np.float64)
    true = []
    for i in range(0, 60, 4):
        part = sample.take(np.delete(np.arange(60), i))
        without = fit_ridges(part, fit.model, rng=np.random.RandomState(0)).model
        true.append(float((v[i] - without(Z[i : i + 1])[0]) ** 2))
    assert np.allclose(np.sqrt(found[::4]), np.sqrt(true), rtol=0.3, atol=0.02)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_better_kernel_is_named(weighted):
    """A product of three inputs: few units explain half of it."""
    named = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        weights = rng.uniform(0.5, 2.0, 100) if weighted else None
        X = rng.standard_normal((100, 3))
        y = X[:, 0] * X[:, 1] * X[:, 2] + 0.02 * rng.standard_normal(100)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            TensorReLURegressor(random_state=0).fit(X, y, sample_weight=weights)
        named += any("a kernel is better for these data" in str(w.message) for w in caught)
    assert named >= 1


def test_an_approximation_is_called_one():
    """The largest of three inputs is no sum of ReLU units of these inputs."""
    X = np.random.default_rng(5).standard_normal((1000, 3))
    with pytest.warns(ConvergenceWarning, match="the fit is an approximation"):
        TensorReLURegressor(random_state=0).fit(X, X.max(axis=1))


def test_a_fit_to_noise_is_no_better_than_the_mean():
    rng = np.random.default_rng(0)
    with pytest.warns(ConvergenceWarning, match=r"no better than the mean of y. R\^2 .* is -0"):
        TensorReLURegressor(random_state=0).fit(rng.standard_normal((40, 3)), rng.standard_normal(40))


@pytest.mark.parametrize("seed", range(3))
def test_networks_with_noise_cause_no_warning(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((300, 3))
    y = np.maximum(X @ [1.0, -0.5, 0.2] + 0.2, 0) - np.maximum(X[:, 1] - 0.3, 0) + 0.2 * rng.standard_normal(300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TensorReLURegressor(random_state=0).fit(X, y)
