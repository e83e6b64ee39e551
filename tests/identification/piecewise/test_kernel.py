"""Kernels: output errors, scans of lines, located boundaries, gradients, robust fits."""

import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.piecewise.kernel.gradient import normals_at
from skident.identification.piecewise.kernel.lines import random_segments
from skident.identification.piecewise.kernel.output_error import DeepProbe, measure_rounding
from skident.identification.piecewise.kernel.robust_fit import active_set_fit, fit_outputs
from skident.identification.piecewise.kernel.scan import scan_line
from skident.identification.piecewise.kernel.windows import locate_by_lines
from skident.identification.piecewise.noisy.hyperplanes import bends_on
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, Oracle

RNG = np.random.RandomState


class Counted:
    """``sum_i c_i |t - t_i| / 2 + slope t``: slope jumps of c_i at t_i; counts the positions it is queried at."""

    def __init__(self, t, c, slope=0.3):
        self.t, self.c = np.array(t, dtype=float), np.reshape(c, (len(t), -1) if len(t) else (0, 1))
        self.slope, self.n = slope, 0

    def __call__(self, t):
        self.n += len(t)
        return 0.5 * np.abs(t[:, None] - self.t) @ self.c + self.slope * t[:, None]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("K", "m"), [(1, 1), (5, 1), (20, 1), (40, 3)])
def test_all_boundaries(K, m, seed):
    rng = RNG(seed)
    f = Counted(rng.standard_normal(K) / rng.uniform(0.1, 1, K), rng.standard_normal((K, m)))
    # Rounding of a sum of K terms of size 1.
    found = scan_line(f, 1e4, output_error=1e-14 * K, rng=rng)
    order = np.argsort(f.t)
    assert len(found.positions) == K and len(found.unresolved) == 0
    # The intersection of two lines exact to the noise is exact to noise / jump; 0.01 is about the smallest jump.
    np.testing.assert_allclose(found.positions, f.t[order], atol=1e-10)
    assert np.all(np.abs(found.jumps - f.c[order]) <= found.jump_errors[:, None])
    assert f.n <= 30 * K + 40


@pytest.mark.parametrize("ratio", [1.0, -1.0, 0.3])
@pytest.mark.parametrize("gap", [1e-1, 1e-3, 1e-5])
def test_two_close_boundaries(gap, ratio):
    f = Counted([1.0, 1.0 + gap, -2.0], [1.0, ratio, 0.5])
    found = scan_line(f, 1e4, rng=RNG(1))
    np.testing.assert_allclose(found.positions, [-2.0, 1.0, 1.0 + gap], atol=1e-11)


@pytest.mark.parametrize("seed", range(10))
def test_boundaries_too_close_are_reported(seed):
    """Both are detected, or one of the two and a piece beside it that holds the other."""
    found = scan_line(Counted([1.0, 1.0 + 1e-9, -2.0], [1.0, 0.7, 0.5]), 1e4, rng=RNG(seed))
    np.testing.assert_allclose(found.positions[0], -2.0, atol=1e-11)
    np.testing.assert_allclose(found.positions[1:], 1.0, atol=2e-9)
    assert len(found.positions) == 3 or len(found.unresolved) == 1
    for a, b in found.unresolved:
        assert len(found.positions) <= 2 and a < 1.0 + 1e-9 and b > 1.0 and b - a < 1e-6


@pytest.mark.parametrize(
    ("t", "c"),
    [
        ([1.0, 2.0, 3.0], [1.0, -2.0, 1.0]),  # a hat: the same line on both sides
        ([-1.0, 1.0], [1.0, -1.0]),  # clipping: parallel lines, and odd about the middle
        ([-3.0, -1.0, 1.0, 3.0], [1.0, -1.0, -1.0, 1.0]),
        ([0.0, 0.1, 0.2, 50.0], [1.0, -3.0, 1.0, 1.0]),  # the outer lines meet outside the boundaries
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_boundaries_that_hide_from_the_ends(t, c, seed):
    found = scan_line(Counted(t, c), 1e4, rng=RNG(seed))
    np.testing.assert_allclose(found.positions, t, atol=1e-11)


def test_no_boundaries_and_boundaries_out_of_reach():
    for f in (Counted([200.0, -101.0], [1.0, -2.0]), Counted([], [])):
        found = scan_line(f, 100.0, rng=RNG(0))
        assert len(found.positions) == 0 and found.jumps.shape[0] == 0 and f.n < 40


def test_rank_one_is_checked_in_every_output():
    """A boundary of output 0 and one of output 1 close by are two, though each output has one."""
    f = Counted([1.0, 1.001], [[1.0, 0.0], [0.0, 1.0]])
    found = scan_line(f, 100.0, rng=RNG(0))
    np.testing.assert_allclose(found.positions, [1.0, 1.001], atol=1e-11)
    np.testing.assert_allclose(found.jumps, f.c, atol=1e-9)


def test_jumps_are_refused():
    with pytest.raises(NotIdentified, match="the outputs jump within") as info:
        scan_line(lambda t: (np.abs(t) + (t > 0.3))[:, None], 100.0, rng=RNG(0))
    assert info.value.reason == "steps"


def test_curves_are_refused():
    with pytest.raises(NotIdentified, match="at more than 50 places") as info:
        scan_line(lambda t: np.sin(t)[:, None], 10.0, max_boundaries=50, rng=RNG(0))
    assert info.value.reason == "crowded"


def test_outputs_with_accuracies_and_a_blind_stretch():
    """Boundaries in an interval without outputs are not detected, and do not hide the others."""
    f = Counted([-2.0, 0.5, 1.3, 4.0], [1.0, -2.0, 1.0, 1.0])

    def ask(t):
        return f(t) + np.where(np.abs(t - 1.3) < 0.1, np.nan_to_num(np.sin(1e6 * t)), 0.0)[:, None], np.where(
            np.abs(t - 1.3) < 0.1, np.inf, 1e-13
        )

    found = scan_line(ask, (-10.0, 20.0), rng=RNG(0))
    np.testing.assert_allclose(found.positions, [-2.0, 0.5, 4.0], atol=1e-10)
    [[a, b]] = found.unresolved
    assert a < 1.2 and b > 1.4


@pytest.mark.parametrize("seed", range(4))
def test_noisy_outputs(seed):
    rng, f = RNG(seed), Counted([-2.0, 0.5, 1.3, 4.0], [1.0, -2.0, 1.0, 1.0])
    noisy = lambda t: f(t) + 1e-6 * rng.standard_normal((len(t), 1))  # noqa: E731
    found = scan_line(lambda t: (noisy(t), np.full(len(t), 3e-6)), 100.0, rng=RNG(seed))
    np.testing.assert_allclose(found.positions, f.t, atol=5e-5)
    assert np.all(np.abs(found.positions - f.t) <= found.position_errors)


def test_normals_are_gradients_of_units(planted):
    net = planted((6, 7, 5, 1), 2)
    probe = net.probe()
    lines = random_segments(probe, 4, net.rng, reach=3.0)
    line, points, gaps = bends_on(probe, lines, net.rng)
    critical, kept = normals_at(probe, points, lines.directions[line], gaps, net.rng)
    assert len(kept) > 0.8 * len(points)
    np.testing.assert_array_equal(critical.points, points[kept])
    h = 1e-7
    Z = np.hstack(net.pre_activations(critical.points))
    slopes = [np.hstack(net.pre_activations(critical.points + h * e)) - Z for e in np.eye(6)]
    G = np.stack(slopes, axis=2) / h
    k = np.abs(Z / np.maximum(np.linalg.norm(G, axis=2), 1e-6)).argmin(axis=1)
    g = G[np.arange(len(k)), k]
    cosines = np.abs(np.sum(g * critical.normals, axis=1)) / np.linalg.norm(g, axis=1)
    assert np.all(1.0 - cosines < 1e-6 + critical.errors)


def test_lines_end_where_the_range_does():
    oracle = Oracle(lambda X: X[:, 0], 3, input_range=(-1.0, 2.0))
    probe = DeepProbe(oracle, np.array([1e-15]), np.array([1.0]))
    lines = random_segments(probe, 5, np.random.RandomState(0), reach=50.0)
    ends = np.concatenate([lines.at(np.arange(5), lines.low), lines.at(np.arange(5), lines.high)])
    X = oracle.to_inputs(ends)
    assert np.all(probe.inside(ends)) and np.all(np.any(np.isclose(X, -1.0) | np.isclose(X, 2.0), axis=1))


def test_a_boundary_is_located_where_it_is_alone():
    box = lambda X: np.abs(X[:, 0]) + np.abs(X[:, 1] - 5.0)  # noqa: E731
    probe = DeepProbe(Oracle(box, 2), np.array([1e-10]), np.array([1.0]))
    points = np.array([[2e-4, 0.0], [1.0, 1.0], [2e-4, 5.0 - 2e-4], [9e-4, 0.0]])
    directions = np.array([[1.0, 0.0], [1.0, 0.0], [0.6, 0.8], [1.0, 0.0]])
    there = locate_by_lines(probe, points, directions, 1e-3, n_rounds=1)
    np.testing.assert_array_equal(there.found, [True, False, False, False])
    assert abs(there.offset[0] + 2e-4) < 1e-10
    assert len(locate_by_lines(probe, points[:0], directions[:0], 1e-3).found) == 0


NETWORK = make_network((5, 6, 1), activation="relu", output_activation="identity", bias_scale=0.5, random_state=0)
SEEN = {
    "smooth": [lambda X: np.tanh(NETWORK(X)), FeedforwardNetwork(NETWORK.weights, NETWORK.biases, "softplus")],
    "noisy": [
        lambda X: NETWORK(X) + 1e-9 * np.random.RandomState(len(X)).standard_normal((len(X), 1)),
        lambda X: NETWORK(X).round(8),
        lambda X: NETWORK(X).astype(np.float32),
    ],
    "steps": [lambda X: NETWORK(X).round(2), lambda X: np.floor(X).sum(axis=1)],
}


SAID = {
    "smooth": "bend everywhere",
    "noisy": "noise or rounding .* hides the activation boundaries",
    "steps": "do not change at all",
}


@pytest.mark.parametrize(("seen", "box"), [(seen, box) for seen in SEEN for box in SEEN[seen]])
def test_what_is_not_piecewise_linear(seen, box):
    oracle = Oracle(box, 5, derivatives="finite_difference")
    with pytest.raises(NotIdentified, match=SAID[seen]) as info:
        measure_rounding(oracle, np.random.RandomState(0))
    assert info.value.reason == seen and oracle.n_queries == 120


def test_noise_of_piecewise_linear_outputs():
    """Some roundings of the largest answer, in every output's own unit; 16 is the margin."""
    scales = np.array([1e-6, 1.0, 1e6])
    network = make_network((5, 6, 3), activation="relu", output_activation="identity", random_state=0)
    box = lambda X: network(X) * scales  # noqa: E731
    noise = measure_rounding(Oracle(box, 5), np.random.RandomState(0)) / scales
    assert np.all((noise > 16 * 2e-16) & (noise < 16 * 2e-15))
    assert measure_rounding(Oracle(lambda X: 0.0 * X[:, 0], 5), np.random.RandomState(0)) > 0


def test_outputs_come_in_units_of_their_rounding():
    probe = DeepProbe(Oracle(lambda X: 3.0 * X[:, 0], 2), np.array([1e-15]), np.array([1.0]))
    X = np.array([[1.0, 0.0], [0.0, 40.0]])
    F, tol = probe.query(X)
    np.testing.assert_allclose(F[:, 0], [3e15, 0.0])
    assert tol[0] < tol[1] < 40.0
    block, tols = probe.query_block(X[None])
    np.testing.assert_array_equal(block[0], F)
    np.testing.assert_array_equal(tols[0], tol)


def test_equations_of_something_else_are_left_out():
    rng = np.random.default_rng(0)
    A, x, errors = rng.standard_normal((40, 5)), np.arange(5.0), np.full(40, 1e-6)
    y = A @ x + errors * rng.uniform(-1.0, 1.0, 40)
    y[:6] += 1e-3
    fit = active_set_fit(A, y, errors)
    assert not fit.kept[:6].any() and fit.kept[6:].all()
    assert np.abs(fit.solution - x).max() < 1e-6
    assert np.sqrt(np.diag(fit.covariance)).max() < 1e-6


def test_no_fit_where_hardly_any_equations_agree():
    rng = np.random.default_rng(0)
    assert active_set_fit(rng.standard_normal((8, 5)), rng.standard_normal(8), np.full(8, 1e-9)) is None


def test_features_without_outputs_get_no_coefficient():
    rng = np.random.RandomState(0)
    A = np.column_stack([rng.standard_normal((20, 2)), np.zeros(20)])
    truth = np.array([[1.0], [-2.0], [0.0]])
    coef, residual = fit_outputs(A, A @ truth, np.full(20, 1e-12), explained=1.0, n_rounds=3)
    assert np.allclose(coef, truth, rtol=0.0, atol=1e-12) and residual.max() < 1.0
