"""skident.metrics against slow, obvious implementations, exact values and bad input."""

import tracemalloc

import numpy as np
import pytest

from skident.datasets import make_network
from skident.metrics import (
    assignment_error,
    bias_error,
    false_positive_rate,
    parameter_error,
    recovery_rate,
    relative_max_error,
    relative_mse,
    subspace_distance,
)
from skident.network import FeedforwardNetwork


def projector_distance(A, B):
    return np.linalg.norm(A @ np.linalg.pinv(A) - B @ np.linalg.pinv(B)) / np.sqrt(A.shape[1])


def nearest_up_to_sign(vector, others):
    """Distance of one unit vector to the nearest of +-others, each compared on its own."""
    return min(np.linalg.norm(vector - sign * other) for other in others for sign in (-1, 1))


def unit(rows):
    return np.array([row / np.linalg.norm(row) for row in rows])


def noisy_weights(rng, m=12, n=40, D=5, noise=0.03):
    """True vectors (m, D), and found ones (n, D): rescaled noisy copies of the first half, then random vectors."""
    true_weights = rng.standard_normal((m, D)) * rng.uniform(0.1, 10, (m, 1))
    copies = unit(true_weights)[rng.integers(m // 2, size=n - 5)]
    found = np.vstack([copies + noise * rng.standard_normal(copies.shape), rng.standard_normal((5, D))])
    return true_weights, found * rng.choice([-1, 1], (n, 1)) * rng.uniform(0.1, 10, (n, 1))


# -- subspaces ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.3, 10.0])
@pytest.mark.parametrize(("q", "m"), [(3, 1), (12, 4), (9, 9), (30, 29)])
def test_subspace_distance_reference(rng, q, m, noise):
    A = rng.standard_normal((q, m))
    B = (A + noise * rng.standard_normal((q, m))) @ rng.standard_normal((m, m))
    assert subspace_distance(A, B) == pytest.approx(projector_distance(A, B), abs=1e-11)
    assert subspace_distance(A, B) == pytest.approx(subspace_distance(B, A), abs=1e-13)


def test_subspace_distance_exact_values():
    eye = np.eye(5)
    assert subspace_distance(eye[:, :2], eye[:, 2:4]) == pytest.approx(np.sqrt(2))
    assert subspace_distance(eye[:, :2], eye[:, :2] * [1e-200, 1e200]) == 0.0
    angle = 0.3
    line = [[np.cos(angle)], [np.sin(angle)]]
    assert subspace_distance([[1.0], [0.0]], line) == pytest.approx(np.sqrt(2) * np.sin(angle))


def test_subspace_distance_keeps_tiny_distances():
    tiny = 1e-13
    assert subspace_distance([[1.0], [0.0]], [[1.0], [tiny]]) == pytest.approx(np.sqrt(2) * tiny, rel=1e-3)


def test_subspace_distance_of_different_dimensions():
    eye = np.eye(6)
    assert subspace_distance(eye[:, :4], eye[:, :3]) == subspace_distance(eye[:, :3], eye[:, :4]) == 0.5


def test_subspace_distance_forms_no_projector(rng):
    A = rng.standard_normal((6000, 20))
    tracemalloc.start()
    subspace_distance(A, A + 0.1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * A.nbytes < 6000**2 * 8 / 10


@pytest.mark.parametrize(
    ("A", "B", "message"),
    [
        (np.ones((4, 2)), np.eye(4), "A has 2 columns of length 4 but rank 1"),
        (np.eye(4), np.zeros((4, 1)), "B has 1 columns of length 4 but rank 0"),
        (np.ones((2, 3)), np.eye(2), "rank 1; expected linearly independent columns"),
        (np.eye(4), np.eye(5), "4 and 5 rows; transpose"),
        (np.full((3, 1), np.nan), np.eye(3), "A contains NaN"),
        (np.eye(3), np.full((3, 1), np.inf), "B contains infinity"),
        (np.ones(3), np.eye(3), "Expected 2D array"),
    ],
)
def test_subspace_distance_errors(A, B, message):
    with pytest.raises(ValueError, match=message):
        subspace_distance(A, B)


# -- weights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_entries", [1, 300, 2**22])
@pytest.mark.parametrize("radius", [0.0, 0.05, 0.2, 2.0])
def test_rates_reference(rng, monkeypatch, radius, max_entries):
    monkeypatch.setattr("skident.metrics._weights.BLOCK_ENTRIES", max_entries)
    true_weights, found = noisy_weights(rng)
    hits = [nearest_up_to_sign(v, unit(found)) <= radius for v in unit(true_weights)]
    misses = [nearest_up_to_sign(u, unit(true_weights)) > radius for u in unit(found)]
    assert recovery_rate(true_weights, found, radius) == np.mean(hits)
    assert false_positive_rate(true_weights, found, radius) == np.mean(misses)
    if radius in (0.05, 0.2):
        assert 0 < np.mean(hits) < 1 and 0 < np.mean(misses) < 1


def test_assignment_error_reference(rng):
    true_weights, assigned = noisy_weights(rng)
    expected = max(nearest_up_to_sign(u, unit(true_weights)) for u in unit(assigned))
    assert assignment_error(true_weights, assigned) == pytest.approx(expected, rel=1e-13)


def test_assignment_error_ignores_missed_weights():
    assert assignment_error(np.eye(4), -3 * np.eye(4)[:1]) == 0.0


@pytest.mark.parametrize("tiny", [1e-3, 1e-8, 1e-12])
def test_distances_keep_tiny_errors(tiny):
    # 1 - cos is tiny ** 2 / 2, far below rounding: inner products alone would answer 0, or pick the worse neighbour.
    true_weights = [[1.0, 10 * tiny], [1.0, 0.0]]
    assert assignment_error(true_weights, [[-2.0, -2 * tiny]]) == pytest.approx(tiny, rel=1e-3)
    assert recovery_rate([[1.0, 0.0]], [[1.0, tiny]], radius=2 * tiny) == 1.0
    assert recovery_rate([[1.0, 0.0]], [[1.0, tiny]], radius=tiny / 2) == 0.0


def test_extreme_scales():
    assert recovery_rate(1e-200 * np.eye(3), 1e200 * np.eye(3), radius=0.0) == 1.0


def test_nothing_found():
    assert recovery_rate(np.eye(3), np.empty((0, 3))) == 0.0
    assert false_positive_rate(np.eye(3), np.empty((0, 3))) == 0.0


def test_many_duplicates_stay_within_memory():
    true_weights, found = np.ones((2000, 30)), np.ones((3000, 30))
    tracemalloc.start()
    assert recovery_rate(true_weights, found) == 1.0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 250e6


@pytest.mark.parametrize(
    ("true_weights", "found", "message"),
    [
        (np.eye(3), np.eye(4), r"shapes \(3, 3\) and \(4, 4\); transpose"),
        (np.eye(3), np.zeros((2, 3)), "2 zero rows out of 2, the first is row 0"),
        (np.zeros((1, 3)), np.eye(3), "true_weights has 1 zero rows"),
        (np.eye(3), np.full((1, 3), np.nan), "contains NaN"),
        (np.full((1, 3), np.inf), np.eye(3), "true_weights contains infinity"),
        (np.empty((0, 3)), np.eye(3), "0 sample"),
        (np.eye(3), np.ones(3), "Expected 2D array"),
    ],
)
@pytest.mark.parametrize("metric", [recovery_rate, false_positive_rate, assignment_error])
def test_weight_errors(metric, true_weights, found, message):
    with pytest.raises(ValueError, match=message):
        metric(true_weights, found)


def test_assignment_error_of_nothing():
    with pytest.raises(ValueError, match="0 sample"):
        assignment_error(np.eye(3), np.empty((0, 3)))


@pytest.mark.parametrize("radius", [-0.1, np.nan, np.inf, None, "0.05"])
@pytest.mark.parametrize("metric", [recovery_rate, false_positive_rate])
@pytest.mark.parametrize("found", [np.eye(3), np.empty((0, 3))])
def test_bad_radius(metric, radius, found):
    with pytest.raises(ValueError, match="radius must be a finite number >= 0"):
        metric(np.eye(3), found, radius)


# -- predictions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(7,), (7, 1), (7, 3)])
def test_prediction_errors_reference(rng, shape):
    y_true, y_pred = rng.standard_normal(shape), rng.standard_normal(shape)
    entries = list(zip(y_true.ravel(), y_pred.ravel()))
    mse = sum((p - t) ** 2 for t, p in entries) / sum(t**2 for t, _ in entries)
    worst = max(abs(p - t) for t, p in entries) / max(abs(t) for t, _ in entries)
    assert relative_mse(y_true, y_pred) == pytest.approx(mse, rel=1e-13)
    assert relative_max_error(y_true, y_pred) == pytest.approx(worst, rel=1e-13)


def test_one_column_is_one_dimension(rng):
    y_true, y_pred = rng.standard_normal((2, 9))
    for metric in (relative_mse, relative_max_error):
        assert metric(y_true, y_pred[:, None]) == metric(y_true[:, None], y_pred) == metric(y_true, y_pred)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_prediction_errors_are_relative(scale):
    assert relative_mse([3 * scale, 4 * scale], [3 * scale, 3 * scale]) == pytest.approx(0.04)
    assert relative_max_error([3 * scale, -4 * scale], [3 * scale, -3 * scale]) == pytest.approx(0.25)


@pytest.mark.parametrize("metric", [relative_mse, relative_max_error])
@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        (np.ones(3), np.ones(4), r"got \(3, 1\) and \(4, 1\)"),
        (np.ones((3, 2)), np.ones(3), r"got \(3, 2\) and \(3, 1\)"),
        (np.ones((2, 3)), np.ones((3, 2)), "same shape"),
        (np.zeros(3), np.ones(3), "zero throughout.*absolute error"),
        ([1.0, np.nan], [1.0, 1.0], "y_true contains NaN"),
        ([1.0, 1.0], [1.0, np.inf], "y_pred contains infinity"),
        ([], [], "0 sample"),
    ],
)
def test_prediction_bad_input(metric, y_true, y_pred, message):
    with pytest.raises(ValueError, match=message):
        metric(y_true, y_pred)


# -- networks ----------------------------------------------------------------------------------------------------------


def disguised(network, rng):
    """The same tanh function with the hidden units permuted and their signs flipped."""
    weights, biases = [W.copy() for W in network.weights], [b.copy() for b in network.biases]
    for layer in range(len(weights) - 1):
        order = rng.permutation(biases[layer].size)
        signs = rng.choice([-1.0, 1.0], order.size)
        weights[layer] = weights[layer][:, order] * signs
        biases[layer] = biases[layer][order] * signs
        weights[layer + 1] = signs[:, None] * weights[layer + 1][order]
    return FeedforwardNetwork(weights, biases, network.activation, network.output_activation)


def test_network_errors_see_through_symmetries(rng):
    true_network = make_network((6, 5, 4, 3), random_state=1)
    twin = disguised(true_network, rng)
    assert not np.array_equal(true_network.weights[0], twin.weights[0])
    assert parameter_error(true_network, twin) == 0.0
    np.testing.assert_array_equal(bias_error(true_network, twin), np.zeros(3))


def test_bias_error_by_hand(rng):
    true_network = make_network((6, 5, 4, 3), random_state=1)
    shifts = [b + 0.01 * rng.standard_normal(b.shape) for b in true_network.biases]
    network = disguised(FeedforwardNetwork(true_network.weights, shifts, "tanh", "tanh"), rng)
    expected = [np.sum((s - b) ** 2) / np.sum(b**2) for s, b in zip(shifts, true_network.biases)]
    errors = bias_error(true_network, network)
    assert errors.shape == (3,)
    np.testing.assert_allclose(errors, expected, rtol=1e-12)


def test_parameter_error_by_hand(rng):
    true_network = make_network((6, 5, 4, 3), random_state=1)
    weights = [W + 1e-3 * rng.standard_normal(W.shape) for W in true_network.weights]
    biases = [b + 1e-4 * rng.standard_normal(b.shape) for b in true_network.biases]
    network = disguised(FeedforwardNetwork(weights, biases, "tanh", "tanh"), rng)
    pairs = [*zip(weights, true_network.weights), *zip(biases, true_network.biases)]
    expected = max(np.abs(found - true).max() / np.abs(true).max() for found, true in pairs)
    assert parameter_error(true_network, network) == pytest.approx(expected, rel=1e-10)


def test_zero_true_shifts_count_absolutely():
    true_network = make_network((6, 5, 3), bias_scale=0, random_state=1)
    network = FeedforwardNetwork(true_network.weights, [b + 0.1 for b in true_network.biases], "tanh", "tanh")
    np.testing.assert_allclose(bias_error(true_network, network), [0.05, 0.03], rtol=1e-12)
    assert parameter_error(true_network, network) == pytest.approx(0.1)
    assert parameter_error(true_network, true_network) == 0.0


@pytest.mark.parametrize("metric", [bias_error, parameter_error])
def test_network_bad_input(metric):
    network = make_network((6, 5, 3), random_state=0)
    for other in (make_network((6, 4, 3)), make_network((6, 5, 3), activation="sigmoid")):
        with pytest.raises(ValueError, match="one architecture"):
            metric(network, other)
    with pytest.raises(TypeError, match="true_network must be a FeedforwardNetwork, got list"):
        metric([np.eye(2)], network)
    with pytest.raises(TypeError, match="network must be a FeedforwardNetwork, got str"):
        metric(network, "network")
