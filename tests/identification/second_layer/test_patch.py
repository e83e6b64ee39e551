import itertools

import numpy as np
import pytest

from skident.identification.second_layer.kernel.patch import n_sign_patterns, rays_of_one_unit, reach_patch
from skident.network import get_activation


def layer(D, m, seed=0):
    rng = np.random.RandomState(seed)
    return rng.standard_normal((D, m)), 0.5 * rng.standard_normal(m)


def patterns_of_rays(D, m, free, rng, n=200_000):
    """Slow reference: the signs of the saturated units along random rays that leave the free ones alone."""
    W, _ = layer(D, m)
    along = np.linalg.qr(W[:, free], mode="complete")[0][:, len(free) :]
    others = np.setdiff1d(np.arange(m), free)
    return len(np.unique(np.sign(rng.standard_normal((n, along.shape[1])) @ along.T @ W[:, others]), axis=0))


@pytest.mark.parametrize(("D", "m", "k"), [(4, 7, 2), (4, 7, 3), (5, 6, 2), (3, 9, 1)])
def test_number_of_patterns(D, m, k):
    assert n_sign_patterns(D, m, k) == patterns_of_rays(D, m, np.arange(k), np.random.RandomState(0))


def test_number_of_patterns_where_every_level_can_be_chosen():
    assert n_sign_patterns(5, 4, 2) == np.inf and n_sign_patterns(5, 4, 4) == 1.0


@pytest.mark.parametrize(("D", "m", "k"), [(6, 9, 3), (4, 12, 2), (8, 20, 5)])
def test_free_units_are_free_and_all_others_saturated(D, m, k):
    W, b = layer(D, m)
    free = np.arange(1, k + 1)
    patch = reach_patch(W, b, free, 12, np.random.RandomState(0))
    T = np.random.RandomState(1).uniform(-1, 1, (5, k))
    Z = patch.at(T) @ W + b
    assert 4 <= len(patch.points) <= 12
    np.testing.assert_allclose(Z[..., free], np.broadcast_to(T, (len(patch.points), 5, k)), atol=1e-10)
    assert np.abs(patch.levels).min() > 20.99
    assert len(np.unique(np.sign(patch.levels), axis=0)) == len(patch.points)
    H = patch.outputs(get_activation("tanh"), np.full(m, 0.3))
    np.testing.assert_array_equal(H[:, patch.others], np.sign(patch.levels))
    np.testing.assert_allclose(H[:, free], np.tanh(0.3))


def test_levels_stay_where_all_of_them_can_be_chosen():
    W, b = layer(6, 5)
    patch = reach_patch(W, b, [0, 2], 7, np.random.RandomState(0))
    T = np.array([[0.5, -0.2], [0.0, 1.0]])
    Z = patch.at(T) @ W + b
    np.testing.assert_allclose(Z[..., [0, 2]], np.broadcast_to(T, (7, 2, 2)), atol=1e-12)
    np.testing.assert_allclose(Z[..., [1, 3, 4]], np.repeat(patch.levels[:, None], 2, axis=1), atol=1e-12)


def test_nothing_is_in_reach_where_no_direction_is_left_or_the_cells_are_too_far():
    W, b = layer(3, 8)
    assert len(reach_patch(W, b, [0, 1, 2], 4, np.random.RandomState(0)).points) == 0
    far = reach_patch(W, b, [0, 1], 4, np.random.RandomState(0), farthest=1.0)
    assert len(far.points) == 0 and far.distance == np.inf


def test_two_parallel_units_leave_no_point():
    W, b = layer(4, 8)
    W[:, 1] = 2.0 * W[:, 0]
    assert len(reach_patch(W, b, [0, 2], 4, np.random.RandomState(0)).points) == 0


def test_rays_lie_in_the_hyperplane_and_begin_where_others_saturate():
    W, b = layer(4, 9)
    base, rays, starts = rays_of_one_unit(W, b, 3, 6, np.random.RandomState(0))
    others = np.setdiff1d(np.arange(9), 3)
    for ray, start in zip(rays, starts):
        for R, margin in itertools.product((start, 10.0 * start), (20.99,)):
            z = (base + R * ray) @ W + b
            assert abs(z[3]) < 1e-9 and np.abs(z[others]).min() > margin
    assert len(rays) == 6


def test_others_are_held_at_levels_where_signs_are_too_few():
    W, b = layer(6, 7)
    free, rng = np.array([0, 2, 3, 6]), np.random.RandomState(0)
    patch = reach_patch(W, b, free, 24, rng)
    assert len(patch.points) == 24 > n_sign_patterns(6, 7, 4) and patch.moves.shape == (24, 4, 6)
    T = np.random.RandomState(1).uniform(-1, 1, (5, 4))
    Z = patch.at(T) @ W + b
    np.testing.assert_allclose(Z[..., free], np.broadcast_to(T, (24, 5, 4)), atol=1e-9)
    held = np.abs(patch.levels) < 20.0
    assert held.any(axis=1).sum() >= 18
    still = np.repeat(patch.levels[:, None], 5, axis=1)
    np.testing.assert_allclose(Z[..., patch.others].transpose(0, 2, 1)[held], still.transpose(0, 2, 1)[held], atol=1e-9)
    assert np.abs(Z[..., patch.others].transpose(0, 2, 1)[~held]).min() > 20.9
    some = patch.some(np.array([3, 20]))
    np.testing.assert_array_equal(some.at(T), patch.at(T)[[3, 20]])
