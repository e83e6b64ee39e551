"""Wide hidden layers that are reduced to the units that the outputs need."""

import numpy as np
import pytest

from skident.fitting import wide_layer
from skident.fitting.downstream_of_known_units import DownstreamOfKnownUnits
from skident.fitting.wide_layer import WideFitLimits, fit_wide_layer, losses_in_turn
from skident.network import get_activation

TANH = get_activation("tanh")
LIMITS = WideFitLimits(target=1e-8)


def planted(seed, n_units=6, n_samples=400):
    """A problem behind eight units whose biases are wrong by .1, the weights of the planted layer, and a generator."""
    rng = np.random.RandomState(seed)
    Z, W = 2.0 * rng.standard_normal((n_samples, 8)), 1.5 * rng.standard_normal((9, n_units)) / np.sqrt(8.0)
    Y = np.tanh(np.column_stack([np.tanh(Z), np.ones(n_samples)]) @ W) @ rng.standard_normal((n_units, 3))
    return DownstreamOfKnownUnits(Z + 0.1, Y, TANH), W, rng


@pytest.mark.parametrize("n_units", [6, None])
def test_planted_units_are_found_whether_their_number_is_given_or_not(n_units):
    found = 0
    for seed in range(6):
        problem, W, rng = planted(seed)
        params, residual = fit_wide_layer(problem, n_units, 11, rng, LIMITS)
        biases, _, W_found, _ = problem.split(params)
        if residual < 1e-7 and W_found.shape == W.shape:
            found += 1
            np.testing.assert_allclose(biases, -0.1, atol=1e-4)
            cosines = np.abs(W_found.T @ W) / np.linalg.norm(W_found, axis=0)[:, None] / np.linalg.norm(W, axis=0)
            np.testing.assert_allclose(cosines.max(axis=0), 1.0, atol=1e-6)
    assert found >= 5


def test_a_large_layer_is_fitted_by_adam_and_narrowed_first(monkeypatch):
    monkeypatch.setattr(wide_layer, "DENSE_PARAMETERS", 0)
    monkeypatch.setattr(wide_layer, "_ADAM_STEPS", 2000)
    found = 0
    for seed in range(3):
        problem, W, rng = planted(seed)
        start = wide_layer._start(problem, 11, rng)
        params = wide_layer._by_adam(problem, start, rng, LIMITS)
        assert problem.cost(params) < 0.1 * problem.cost(start)
        narrow = wide_layer._without_units_that_others_replace(problem, params, 6)
        assert 6 <= problem.split(narrow)[2].shape[1] <= 11
        params, residual = fit_wide_layer(problem, None, 11, rng, LIMITS)
        found += residual < 1e-7 and problem.split(params)[2].shape == W.shape
    assert found >= 2


def test_units_are_removed_in_the_order_of_their_losses():
    """In a linear model losses are exact: those of fits without the units."""
    rng = np.random.RandomState(0)
    J, y, m, m_L = rng.standard_normal((40, 3 + 5 * 2)), rng.standard_normal(40), 4, 2
    theta = np.linalg.lstsq(J, y, rcond=None)[0]
    cost, kept = np.sum((J @ theta - y) ** 2), list(range(13))
    order, losses, left = losses_in_turn(J.T @ J, theta[3:].reshape(m + 1, m_L), cost)
    for unit, loss, V in zip(order, losses, left, strict=True):
        before = np.zeros(13)
        before[kept] = np.linalg.lstsq(J[:, kept], y, rcond=None)[0]
        np.testing.assert_allclose(V, before[3:].reshape(m + 1, m_L), atol=1e-7)
        without = {}
        for j in set(range(m)) - set(order[: list(order).index(unit)]):
            some = [i for i in kept if i not in (3 + 2 * j, 4 + 2 * j)]
            without[j] = np.sum((J[:, some] @ np.linalg.lstsq(J[:, some], y, rcond=None)[0] - y) ** 2)
        assert min(without, key=without.get) == unit
        np.testing.assert_allclose(without[unit], loss, rtol=1e-7)
        kept = [i for i in kept if i not in (3 + 2 * unit, 4 + 2 * unit)]
