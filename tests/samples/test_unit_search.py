"""Units that few directions do not show, and signs that only their own fits distinguish."""

import warnings

import numpy as np
import pytest

from skident import TensorReLURegressor
from skident.datasets import make_relu_network
from skident.samples.missing_unit import correlated_units
from skident.samples.ridges import fit_ridges, regress_on_ridges, squared_errors
from skident.samples.sample import Sample
from skident.samples.unit_count import add_missing_units, criterion
from skident.samples.unit_signs import resolve_signs
from tests.rates import fewest_successes


def regressed(sample, network, units):
    """A polished fit that starts from some units of the network."""
    W = np.linalg.lstsq(sample.whitener, network.weights[0][:, units], rcond=None)[0]
    b = network.biases[0][units] + sample.center @ network.weights[0][:, units]
    lengths = np.linalg.norm(W, axis=0)
    start = regress_on_ridges(sample, (W / lengths).T, b / lengths)
    return fit_ridges(sample, start.model, rng=np.random.RandomState(0))


def test_the_most_correlated_unit_is_the_missing_one():
    rng = np.random.default_rng(0)
    Z = np.column_stack([rng.standard_normal((2000, 4)), np.ones(2000)])
    units = np.array([[1.0, 0, 0, 0, 0.2], [0, 1.0, 0, 0, -0.3], [0, 0.6, 0.8, 0, 0.1]])
    residuals = np.maximum(Z @ units[2], 0) + 0.1 * rng.standard_normal(2000)
    found = correlated_units(Z, units[:2], residuals, 2, np.random.RandomState(0))
    cosines = np.abs(found @ units[2]) / np.linalg.norm(found, axis=1) / np.linalg.norm(units[2])
    assert cosines.max() > 0.99


def test_a_unit_close_to_one_of_the_fit_is_found():
    """Two units of a cosine of 0.87 of which the fit has their mean: no random unit in eight dimensions is near."""
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        Z = np.column_stack([rng.standard_normal((5000, 8)), np.ones(5000)])
        pair = np.zeros((2, 9))
        pair[:, 0], pair[:, 1], pair[:, -1] = np.cos(0.26), [np.sin(0.26), -np.sin(0.26)], 0.2
        mean = np.eye(9)[:1] + 0.2 * np.eye(9)[-1:]
        residuals = np.maximum(Z @ pair.T, 0) @ [1.0, 1.0] + 0.2 * rng.standard_normal(5000)
        unit = correlated_units(Z, mean, residuals, 1, np.random.RandomState(seed))[0]
        found.append(abs(unit[0]) < 0.995 and np.abs(unit[:2]) @ [0.9, 0.26] > 0.85 * np.linalg.norm(unit))
    assert sum(found) >= fewest_successes(6, 6, 6)


@pytest.mark.slow
def test_as_many_units_as_inputs_behind_noise():
    """22 units in 22 dimensions, 30 rows per parameter: fits take their steps by products."""
    good = []
    for seed in range(2):
        X, y, network = make_relu_network(15_000, 22, 22, noise=0.3, random_state=seed)
        reg = TensorReLURegressor(random_state=0).fit(X, y)
        new = np.random.RandomState(seed + 100).standard_normal((5000, 22))
        values = network(new)[:, 0]
        error = np.mean((reg.predict(new) - values) ** 2) / np.var(values)
        good.append(reg.n_units_ == 22 and error <= 1.5 * 0.3**2 * 22 * 23 / 15_000)
    assert sum(good) >= fewest_successes(2, 4, 4)


@pytest.mark.slow
def test_missing_units_are_added_and_others_are_not():
    added, spurious = [], []
    for seed in range(8):
        X, y, network = make_relu_network(4000, 4, 5, noise=0.3, random_state=seed)
        sample = Sample(X, y)
        fit, rng = regressed(sample, network, np.arange(4)), np.random.RandomState(seed)
        larger = add_missing_units(sample, fit, rng, max_units=8)
        assert criterion(sample, larger) <= criterion(sample, fit)
        from_truth = regressed(sample, network, np.arange(5))
        added.append(larger.rss <= 1.002 * from_truth.rss)
        spurious.append(add_missing_units(sample, from_truth, rng, max_units=8).model.n_units > 5)
    assert sum(added) >= fewest_successes(8, 8, 8) and sum(spurious) <= 1


def test_signs_are_those_whose_fit_leaves_least():
    """More units than inputs with much noise: the residual is that of a fit from the true network."""
    good = []
    for seed in range(6):
        X, y, network = make_relu_network(5000, 3, 6, noise=0.3, random_state=seed)
        sample = Sample(X, y)
        signed = resolve_signs(sample, regressed(sample, network, np.arange(6)), np.random.RandomState(0))
        rss, _ = sample.reduce(squared_errors, signed.fit.model)
        residual = (y - network(X)[:, 0]) / sample.y_scale
        good.append(float(rss) <= np.sum(residual**2))
    assert sum(good) >= fewest_successes(6, 6, 6)


def test_heavy_tails_are_hardly_clipped():
    """Of lognormal inputs: at most a few of 100,000 new rows are changed."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, new = np.exp(rng.standard_normal((5000, 3))), np.exp(rng.standard_normal((100_000, 3)))
        y = np.maximum(X[:, 0] - 1, 0) + 0.3 * rng.standard_normal(5000)
        reg = TensorReLURegressor(n_units=1, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reg.fit(X, y)
        assert np.sum(np.any(reg.input_box_.clipped(new) != new, axis=1)) <= 20
