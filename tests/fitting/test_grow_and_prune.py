import time

import numpy as np
import pytest

from skident.fitting import grow_and_prune as module
from skident.fitting.downstream_of_known_units import BehindKnownUnits
from skident.fitting.grow_and_prune import Growing, grow_and_prune
from skident.network import get_activation

TANH = get_activation("tanh")


def layer(rng, m_1=5, m_2=6, m_L=1, n=300):
    """Problems, held and freed, of a random layer behind units whose shifts and lengths are a little off."""
    Z, W = 2.0 * rng.standard_normal((n, m_1)), 1.5 * rng.standard_normal((m_1, m_2))
    V, c, shifts = rng.standard_normal((m_2, m_L)), rng.standard_normal(m_2), 0.4 * rng.standard_normal(m_1)
    Y = np.tanh(np.tanh(Z + shifts) @ W + c) @ V
    Z = Z * (1.0 + 1e-6 * rng.standard_normal(m_1))
    return [BehindKnownUnits(Z, Y, TANH, lengths_free=free) for free in (False, True)], (shifts, W)


@pytest.mark.parametrize("m_L", [1, 2])
def test_layers_are_found_with_the_shifts_before_them(m_L):
    found = 0
    for seed in range(4):
        problems, (shifts, W) = layer(np.random.RandomState(seed), m_L=m_L)
        theta, misfit, n_cycles = grow_and_prune(*problems, np.zeros(5), 6, np.random.RandomState(seed))
        assert n_cycles > 0 or misfit < 1e-9
        if misfit < 1e-9:
            found += 1
            parts = problems[0].parts(theta)
            np.testing.assert_allclose(parts[0], shifts, atol=1e-6)
            likeness = np.abs(np.corrcoef(W.T, parts[2][:-1].T)[:6, 6:])
            np.testing.assert_allclose(likeness.max(axis=1), 1.0, atol=1e-6)
    assert found >= 3


def test_costs_of_removals_are_those_of_constrained_least_squares(rng):
    (problem, _), _ = layer(rng, n=80)
    theta = problem.start(np.zeros(5), 4, rng)
    J, r = problem.jacobian(theta), problem.residual(theta)
    _, _, W, V = problem.parts(theta)
    G = np.tanh(problem.features(theta) @ W)
    for k, cost in enumerate(module._removal_costs(problem, theta)):
        left = (r - G[:, k, None] * V[k]).ravel()
        others = np.delete(J, problem.unit_places(theta)[k], axis=1)
        step = np.linalg.lstsq(others, -left, rcond=None)[0]
        assert cost == pytest.approx(np.sum((left + others @ step) ** 2), rel=1e-3)


@pytest.mark.usefixtures("own_seconds")
def test_a_deadline_ends_it(rng):
    problems, _ = layer(rng, 8, 12)
    began = time.perf_counter()
    _, misfit, n_cycles = grow_and_prune(*problems, np.zeros(8), 12, rng, Growing(deadline=began))
    assert n_cycles == 0 and misfit > 1e-9 and time.perf_counter() - began < 1.0


def test_cycles_are_counted_and_told(rng):
    problems, _ = layer(rng, 8, 12)
    told = []
    *_, n_cycles = grow_and_prune(*problems, np.zeros(8), 3, rng, Growing(n_cycles=2, progress=told.append))
    assert n_cycles == 2 and told == [1, 2]
