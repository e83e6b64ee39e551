"""Upper bounds of the escape speed at depth two, against exact speeds in the plane and against random networks."""

import numpy as np
import pytest

from skident import SaddleEscapeAnalyzer
from skident.datasets import make_alternating_circle
from skident.saddle import deep_escape_bound, fastest_planar_escape, fastest_shallow_escape
from skident.saddle.planar_escape import _candidates
from skident.saddle.shallow_relaxation import Relaxation


def problem(seed, n, D):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, D)), rng.standard_normal(n)


def speed_of(weights, X, G):
    return -float(G @ (np.maximum(X @ weights[0], 0) @ weights[1])[:, 0])


@pytest.mark.parametrize("seed", range(8))
def test_the_exact_speed_in_the_plane_lies_between_speed_and_bound(seed):
    X, G = problem(seed, 20, 2)
    exact = np.abs(G @ np.maximum(X @ _candidates(X, G).T, 0)).max()
    found = fastest_shallow_escape(X, G, random_state=0)
    assert exact * (1 - 1e-4) <= found.speed <= exact * (1 + 1e-12)
    assert exact <= found.upper_bound <= 1.01 * found.speed
    assert speed_of(found.weights, X, G) == pytest.approx(found.speed, rel=1e-12)
    assert [np.linalg.norm(W) for W in found.weights] == pytest.approx([1, 1], abs=1e-12)


def test_the_circle_of_the_paper():
    found = fastest_shallow_escape(*make_alternating_circle(8), tol=1e-4, random_state=0)
    assert found.speed <= np.sqrt(2) - 1 + 1e-12 and found.upper_bound >= np.sqrt(2) - 1
    assert found.upper_bound <= (1 + 2e-4) * (np.sqrt(2) - 1)


@pytest.mark.parametrize(("seed", "n", "D"), [(0, 30, 3), (1, 40, 5), (2, 30, 10), (3, 40, 10)])
def test_no_network_is_faster(seed, n, D):
    X, G = problem(seed, n, D)
    found = fastest_shallow_escape(X, G, tol=0.05, random_state=0)
    assert found.speed <= found.upper_bound <= 1.05 * found.speed
    other = SaddleEscapeAnalyzer(loss="gradient", depth=2, random_state=1).fit(X, G).escape_speed_
    assert other <= found.upper_bound and other >= 0.99 * found.speed


@pytest.mark.parametrize("seed", range(20))
def test_every_choice_of_multipliers_is_a_bound(seed):
    """A relaxation cut short, in a random region: no point of the region has a larger sum."""
    rng = np.random.default_rng(seed)
    X, g = problem(seed, 15, 3)
    X /= np.linalg.norm(X, axis=1).max()
    signs = np.where(rng.random(15) < 0.3, rng.choice([-1, 1], 15), 0).astype(np.int8) * (g > 0)
    W = rng.standard_normal((3, 20_000))
    W /= np.linalg.norm(W, axis=0)
    Z = X @ W
    inside = np.all((signs[:, None] * Z >= 0), axis=0)
    upper = Relaxation(X, g).bound(signs.astype(np.int8), target=rng.choice([1e3, 1e-3])).upper
    assert not inside.any() or (g @ np.maximum(Z[:, inside], 0)).max() <= upper


def test_speeds_scale_with_inputs_and_gradient():
    X, G = problem(4, 20, 4)
    known = fastest_shallow_escape(X, G, random_state=0)
    scaled = fastest_shallow_escape(1e3 * X, 1e-4 * G, random_state=0)
    assert scaled.speed == pytest.approx(0.1 * known.speed, rel=1e-6)
    assert fastest_shallow_escape(X, -G, random_state=0).speed == pytest.approx(known.speed, rel=1e-3)


def test_a_search_that_is_cut_short_keeps_its_bound():
    X, G = problem(5, 60, 10)
    whole, cut = (fastest_shallow_escape(X, G, tol=0.1, max_regions=n, random_state=0) for n in (2000, 2))
    assert cut.n_regions == 2 and whole.speed <= cut.upper_bound and whole.upper_bound <= cut.upper_bound


@pytest.mark.parametrize(("X", "G"), [(np.ones((3, 2)), np.zeros(3)), (np.zeros((3, 2)), np.ones(3))])
def test_without_a_gradient_or_inputs_there_is_no_escape(X, G):
    found = fastest_shallow_escape(X, G)
    assert found.speed == found.upper_bound == 0.0


def test_equal_samples_that_cancel():
    found = fastest_shallow_escape(np.ones((2, 2)), np.array([1.0, -1.0]), random_state=0)
    assert abs(found.speed) < 1e-12 and 0 <= found.upper_bound < 1e-2


@pytest.mark.parametrize(
    ("X", "G"), [(np.ones((3, 2)), np.ones(4)), (np.ones(3), np.ones(3)), (np.full((3, 2), np.nan), np.ones(3))]
)
def test_what_it_does_not_take(X, G):
    with pytest.raises(ValueError, match="gradient \\(n,\\) of one output"):
        fastest_shallow_escape(X, G)


@pytest.mark.parametrize("seed", range(6))
def test_no_network_of_depth_three_exceeds_the_bound_of_all_depths(seed):
    X, G = problem(seed, 7, 2)
    bound = deep_escape_bound(X, G, random_state=0)
    assert fastest_planar_escape(X, G).speed <= bound * (1 + 1e-9)
    assert fastest_shallow_escape(X, G, random_state=0).speed <= bound


@pytest.mark.parametrize("depth", [3, 4, 5])
def test_no_analyzed_speed_exceeds_the_bound_of_all_depths(depth):
    for X, G in (make_alternating_circle(8), problem(3, 30, 4)):
        analyzer = SaddleEscapeAnalyzer(loss="gradient", depth=depth, max_iter=200, random_state=0).fit(X, G)
        assert analyzer.escape_speed_ <= deep_escape_bound(X, G, random_state=0)


def test_a_gradient_of_one_sign_has_the_same_speed_at_every_depth():
    X, G = problem(1, 20, 3)
    shallow = fastest_shallow_escape(X, abs(G), random_state=0)
    assert deep_escape_bound(X, abs(G), random_state=0) <= shallow.upper_bound * (1 + 1e-6)
    assert deep_escape_bound(np.zeros((3, 2)), np.ones(3)) == 0.0
