from dataclasses import replace

import numpy as np
import pytest

from skident.identification.piecewise.kernel.lines import Line
from skident.identification.piecewise.kernel.output_error import Probe
from skident.identification.piecewise.kernel.scan import scan_line
from skident.identification.piecewise.shallow.units import (
    ReLUUnits,
    linear_part,
    match_units,
    refine_units,
    units_on_line,
)
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, Oracle


def planted(D, K, m, seed):
    rng = np.random.RandomState(seed)
    weights = [rng.standard_normal((D, K)) / np.sqrt(D), rng.standard_normal((K, m)) / np.sqrt(K)]
    return FeedforwardNetwork(weights, [0.5 * rng.standard_normal(K), rng.standard_normal(m)], "relu")


def true_units(network, probe, line):
    """The planted units as `units_on_line` describes them: oriented along the line."""
    lengths = np.linalg.norm(network.weights[0], axis=0)
    w = network.weights[0] / lengths
    signs = np.sign(w.T @ line.direction)
    outgoing = network.weights[1] * lengths[:, None] / probe.output_error
    return ReLUUnits(w * signs, network.biases[0] / lengths * signs, outgoing, np.full(len(signs), 1e-12)), signs


@pytest.fixture(params=[(6, 9, 1), (6, 9, 3), (1, 4, 1), (12, 5, 2)], ids=str)
def setting(request):
    network = planted(*request.param, seed=0)
    probe = Probe(Oracle(network, network.n_inputs), np.full(network.n_outputs, 1e-14))
    rng = np.random.RandomState(1)
    direction = rng.standard_normal(network.n_inputs)
    line = Line(rng.standard_normal(network.n_inputs), direction / np.linalg.norm(direction), 1e4)
    kinks = scan_line(
        lambda t: probe(line.at(t)), line.reach, output_error=2.0, length_scale=probe.length_scale, rng=rng
    )
    return network, probe, line, kinks, rng


def order_on(line, units):
    return np.argsort(-(units.biases + units.weights.T @ line.origin) / (units.weights.T @ line.direction))


def test_units_from_gradient_jumps(setting):
    network, probe, line, kinks, rng = setting
    asked = probe.oracle.n_queries
    found, (point, gradient, accuracy) = units_on_line(probe, line, kinks, np.arange(len(kinks.positions)), rng)
    # Two queries an input and piece, and some more where another hyperplane came in between.
    assert probe.oracle.n_queries - asked < 6 * (network.n_inputs + 1) * (len(kinks.positions) + 1)
    truth, signs = true_units(network, probe, line)
    truth, signs = truth.take(order_on(line, truth)), signs[order_on(line, truth)]
    gaps = np.linalg.norm(found.weights - truth.weights, axis=0)
    assert np.all(gaps <= found.errors + 1e-13) and found.errors.max() < 1e-5
    size = np.linalg.norm(truth.outgoing, axis=1, keepdims=True)
    assert np.all(np.abs(found.outgoing - truth.outgoing) <= (found.errors[:, None] + 1e-13) * size)
    far = 1.0 + np.abs(kinks.positions)
    assert np.all(np.abs(found.biases - truth.biases) <= (2.0 * found.errors + 1e-12) * far * probe.length_scale)
    np.testing.assert_allclose(gradient, network.jacobian(point[None])[0] / probe.output_error[:, None], atol=accuracy)
    # 2 g = sum_i sigma_i c_i w_i, each entry as exact as the gradient and the units it is made of.
    linear = (truth.outgoing.T * signs) @ truth.weights.T
    tol = 2.0 * accuracy + np.sum(size[:, 0] * found.errors)
    np.testing.assert_allclose(linear_part(found, point, gradient), linear, atol=tol)


def test_a_line_confirms_its_units_and_no_others(setting):
    network, probe, line, kinks, _ = setting
    truth, _ = true_units(network, probe, line)
    lost, met = match_units(truth, line, kinks)
    assert not lost.any() and np.array_equal(np.argsort(met), order_on(line, truth))
    for change in ("biases", "outgoing"):
        units = truth.take(np.arange(len(truth)))
        getattr(units, change)[1] *= 1.01
        lost, met = match_units(units, line, kinks)
        assert np.array_equal(np.flatnonzero(lost), [1]) and np.array_equal(np.flatnonzero(met < 0), [1])


def test_units_that_a_line_cannot_confirm(setting):
    """Faint ones, those in an unresolved stretch, and those that it meets beyond its end are not lost."""
    network, probe, line, kinks, _ = setting
    truth, _ = true_units(network, probe, line)
    first = order_on(line, truth)[0]
    rest = kinks.positions > kinks.positions[0]
    columns = ("positions", "jumps", "jump_errors", "position_errors")
    kinks = replace(kinks, **{name: getattr(kinks, name)[rest] for name in columns})
    position = -(truth.biases + truth.weights.T @ line.origin)[first] / (truth.weights.T @ line.direction)[first]
    assert match_units(truth, line, kinks)[0][first]
    kinks = replace(kinks, unresolved=np.array([[position - 1e-7, position + 1e-7]]))
    assert not match_units(truth, line, kinks)[0].any()
    kinks = replace(kinks, unresolved=np.empty((0, 2)))
    assert not match_units(truth, Line(line.origin, line.direction, 0.9 * abs(position)), kinks)[0][first]
    truth.outgoing[first] *= 1e4 / np.abs(truth.outgoing[first]).max()
    assert not match_units(truth, line, kinks)[0].any()


def test_two_units_at_one_kink_are_not_of_rank_one():
    network = planted(5, 4, 3, 0)
    biases = network.biases[0].copy()
    W, line = network.weights[0], Line(np.zeros(5), np.eye(5)[0], 1e3)
    biases[1] = W[0, 1] * biases[0] / W[0, 0]  # both hyperplanes cross the line at one point
    probe = Probe(Oracle(FeedforwardNetwork(network.weights, [biases, np.zeros(3)], "relu"), 5), np.full(3, 1e-14))
    kinks = scan_line(lambda t: probe(line.at(t)), 1e3, output_error=2.0, length_scale=probe.length_scale)
    units, _ = units_on_line(probe, line, kinks, np.arange(3), np.random.RandomState(0))
    assert len(kinks.positions) == 3 and np.isinf(units.errors).sum() == 1


@pytest.mark.parametrize(("D", "K", "m"), [(5, 12, 1), (4, 6, 2)])
def test_refinement(D, K, m):
    network = planted(D, K, m, 1)
    probe, rng = Probe(Oracle(network, D), np.ones(m)), np.random.RandomState(0)
    truth, signs = true_units(network, probe, Line(None, np.ones(D), 1.0))
    noisy = lambda A: A + 1e-8 * rng.standard_normal(A.shape)  # noqa: E731
    rough = ReLUUnits(noisy(truth.weights), noisy(truth.biases), noisy(truth.outgoing), truth.errors)
    units, linear = refine_units(probe, rough, 2.0 * rng.standard_normal((4 * (K + 1) * (D + 1), D)))
    # The design's condition number is some hundreds.
    for name in ("weights", "biases", "outgoing"):
        np.testing.assert_allclose(getattr(units, name), getattr(truth, name), atol=1e-12)
    np.testing.assert_allclose(linear, (truth.outgoing.T * signs) @ truth.weights.T, atol=1e-12)


def test_refinement_needs_points_between_hyperplanes():
    probe = Probe(Oracle(lambda X: np.abs(X[:, 0]) + np.abs(X[:, 0] - 1e-9), 2), np.ones(1))
    units = ReLUUnits(np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([0.0, -1e-9]), np.ones((2, 1)), np.zeros(2))
    with pytest.raises(NotIdentified, match="do not separate the units"):
        refine_units(probe, units, np.random.RandomState(0).standard_normal((40, 2)))
