"""Units of one hidden layer: from gradient jumps, positions, and where outputs are informative."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._testing import ignore_warnings

from skident import NetworkIdentifier
from skident.identification.piecewise.kernel.lines import Line
from skident.identification.piecewise.kernel.output_error import Probe, probe_of
from skident.identification.piecewise.kernel.scan import scan_line
from skident.identification.piecewise.shallow.line_search import LineSearch
from skident.identification.piecewise.shallow.network import find_relu_network
from skident.identification.piecewise.shallow.restricted import fit_unsigned, network_of_fit
from skident.identification.piecewise.shallow.units import (
    ReLUUnits,
    ResidualProbe,
    linear_part,
    locate_units,
    match_units,
    refine_units,
    units_on_line,
)
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, Oracle


def planted_units(D, K, m, seed):
    rng = np.random.RandomState(seed)
    weights = [rng.standard_normal((D, K)) / np.sqrt(D), rng.standard_normal((K, m)) / np.sqrt(K)]
    return FeedforwardNetwork(weights, [0.5 * rng.standard_normal(K), rng.standard_normal(m)], "relu")


def true_units(network, probe, line):
    """The planted_units units as `units_on_line` describes them: oriented along the line."""
    lengths = np.linalg.norm(network.weights[0], axis=0)
    w = network.weights[0] / lengths
    signs = np.sign(w.T @ line.direction)
    outgoing = network.weights[1] * lengths[:, None] / probe.output_error
    return ReLUUnits(w * signs, network.biases[0] / lengths * signs, outgoing, np.full(len(signs), 1e-12)), signs


@pytest.fixture(params=[(6, 9, 1), (6, 9, 3), (1, 4, 1), (12, 5, 2)], ids=str)
def setting(request):
    network = planted_units(*request.param, seed=0)
    probe = Probe(Oracle(network, network.n_inputs), np.full(network.n_outputs, 1e-14))
    rng = np.random.RandomState(1)
    direction = rng.standard_normal(network.n_inputs)
    line = Line(rng.standard_normal(network.n_inputs), direction / np.linalg.norm(direction), 1e4)
    scan = scan_line(
        lambda t: probe(line.at(t)), line.reach, output_error=2.0, length_scale=probe.length_scale, rng=rng
    )
    return network, probe, line, scan, rng


def order_on(line, units):
    return np.argsort(-(units.biases + units.weights.T @ line.origin) / (units.weights.T @ line.direction))


def test_units_from_gradient_jumps(setting):
    network, probe, line, scan, rng = setting
    before = probe.oracle.n_queries
    found, (point, gradient, accuracy) = units_on_line(probe, line, scan, np.arange(len(scan.positions)), rng)
    # Two queries an input and piece, and some more where another hyperplane came in between.
    assert probe.oracle.n_queries - before < 6 * (network.n_inputs + 1) * (len(scan.positions) + 1)
    truth, signs = true_units(network, probe, line)
    truth, signs = truth.take(order_on(line, truth)), signs[order_on(line, truth)]
    gaps = np.linalg.norm(found.weights - truth.weights, axis=0)
    assert np.all(gaps <= found.errors + 1e-13) and found.errors.max() < 1e-5
    size = np.linalg.norm(truth.outgoing, axis=1, keepdims=True)
    assert np.all(np.abs(found.outgoing - truth.outgoing) <= (found.errors[:, None] + 1e-13) * size)
    far = 1.0 + np.abs(scan.positions)
    assert np.all(np.abs(found.biases - truth.biases) <= (2.0 * found.errors + 1e-12) * far * probe.length_scale)
    np.testing.assert_allclose(gradient, network.jacobian(point[None])[0] / probe.output_error[:, None], atol=accuracy)
    # 2 g = sum_i sigma_i c_i w_i, each entry as exact as the gradient and the units it is made of.
    linear = (truth.outgoing.T * signs) @ truth.weights.T
    tol = 2.0 * accuracy + np.sum(size[:, 0] * found.errors)
    np.testing.assert_allclose(linear_part(found, point, gradient), linear, atol=tol)


def test_a_line_confirms_its_units_and_no_others(setting):
    network, probe, line, scan, _ = setting
    truth, _ = true_units(network, probe, line)
    lost, met = match_units(truth, line, scan)
    assert not lost.any() and np.array_equal(np.argsort(met), order_on(line, truth))
    for change in ("biases", "outgoing"):
        units = truth.take(np.arange(len(truth)))
        getattr(units, change)[1] *= 1.01
        lost, met = match_units(units, line, scan)
        assert np.array_equal(np.flatnonzero(lost), [1]) and np.array_equal(np.flatnonzero(met < 0), [1])


def test_units_that_a_line_cannot_confirm(setting):
    """Faint ones, those in an unresolved stretch, and those that it meets beyond its end are not lost."""
    network, probe, line, scan, _ = setting
    truth, _ = true_units(network, probe, line)
    first = order_on(line, truth)[0]
    rest = scan.positions > scan.positions[0]
    columns = ("positions", "jumps", "jump_errors", "position_errors")
    scan = replace(scan, **{name: getattr(scan, name)[rest] for name in columns})
    position = -(truth.biases + truth.weights.T @ line.origin)[first] / (truth.weights.T @ line.direction)[first]
    assert match_units(truth, line, scan)[0][first]
    scan = replace(scan, unresolved=np.array([[position - 1e-7, position + 1e-7]]))
    assert not match_units(truth, line, scan)[0].any()
    scan = replace(scan, unresolved=np.empty((0, 2)))
    assert not match_units(truth, Line(line.origin, line.direction, 0.9 * abs(position)), scan)[0][first]
    truth.outgoing[first] *= 1e4 / np.abs(truth.outgoing[first]).max()
    assert not match_units(truth, line, scan)[0].any()


def test_two_units_at_one_boundary_are_not_of_rank_one():
    network = planted_units(5, 4, 3, 0)
    biases = network.biases[0].copy()
    W, line = network.weights[0], Line(np.zeros(5), np.eye(5)[0], 1e3)
    biases[1] = W[0, 1] * biases[0] / W[0, 0]  # both hyperplanes cross the line at one point
    probe = Probe(Oracle(FeedforwardNetwork(network.weights, [biases, np.zeros(3)], "relu"), 5), np.full(3, 1e-14))
    scan = scan_line(lambda t: probe(line.at(t)), 1e3, output_error=2.0, length_scale=probe.length_scale)
    units, _ = units_on_line(probe, line, scan, np.arange(3), np.random.RandomState(0))
    assert len(scan.positions) == 3 and np.isinf(units.errors).sum() == 1


@pytest.mark.parametrize(("D", "K", "m"), [(5, 12, 1), (4, 6, 2)])
def test_refinement(D, K, m):
    network = planted_units(D, K, m, 1)
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


def planted_positions(D, K, m, seed):
    """A network and its units, oriented as they are active."""
    rng = np.random.RandomState(seed)
    W = rng.standard_normal((D, K))
    W /= np.linalg.norm(W, axis=0)
    network = FeedforwardNetwork([W, rng.standard_normal((K, m))], [0.5 * rng.standard_normal(K), np.zeros(m)], "relu")
    return network, ReLUUnits(W, network.biases[0], network.weights[1] / 1e-14, np.full(K, 1e-6))


def test_positions_are_more_exact_than_what_they_start_from():
    network, truth = planted_positions(6, 9, 2, 0)
    probe, rng = Probe(Oracle(network, 6), np.full(2, 1e-14)), np.random.RandomState(1)
    W = truth.weights + 1e-7 * rng.standard_normal((6, 9))
    rough = ReLUUnits(W / np.linalg.norm(W, axis=0), truth.biases, truth.outgoing, truth.errors)
    found, shares = locate_units(probe, rough, rng.standard_normal((200, 6)), rng)
    assert shares.min() > 0.8 and found.errors.max() < 1e-12
    np.testing.assert_allclose(found.weights, truth.weights, atol=1e-13)
    np.testing.assert_allclose(found.biases, truth.biases, atol=1e-13)
    assert probe.oracle.n_queries == 4 * 9 * (6 + 8)


def test_a_unit_that_is_none_does_not_show():
    network, truth = planted_positions(6, 9, 1, 0)
    probe, rng = Probe(Oracle(network, 6), np.full(1, 1e-14)), np.random.RandomState(1)
    false = ReLUUnits(truth.weights[:, ::-1], truth.biases, truth.outgoing, truth.errors)
    _, shares = locate_units(probe, false.take([0, 1]), rng.standard_normal((200, 6)), rng)
    assert shares.max() < 0.05


def test_rest_shows_a_faint_unit_alone():
    network, truth = planted_positions(5, 6, 1, 2)
    probe = Probe(Oracle(network, 5), np.full(1, 1e-14))
    rest = ResidualProbe(probe, truth.take(np.arange(1, 6)))
    U = np.random.RandomState(0).standard_normal((40, 5))
    one = 0.5 * np.abs(U @ truth.weights[:, :1] + truth.biases[:1]) @ truth.outgoing[:1]
    design = np.column_stack([U, np.ones(40)])  # up to a linear part
    left = rest(U) - one
    assert np.abs(left - design @ np.linalg.lstsq(design, left, rcond=None)[0]).max() < 4.0


@ignore_warnings
def trained(load):
    X, y = load(return_X_y=True)
    return X, make_pipeline(StandardScaler(), MLPClassifier(random_state=0)).fit(X, y)


@ignore_warnings(category=ConvergenceWarning)
@pytest.mark.parametrize(
    "load", [load_breast_cancer, load_digits, pytest.param(load_iris, marks=pytest.mark.slow), load_wine]
)
def test_classifiers_as_they_come(load):
    X, classifier = trained(load)
    identifier = NetworkIdentifier(FrozenEstimator(classifier), random_state=0).fit(X)
    rng = np.random.RandomState(0)
    X = np.concatenate([X, X.mean(axis=0) + 3.0 * X.std(axis=0) * rng.standard_normal((300, X.shape[1]))])
    assert np.abs(identifier.predict_proba(X) - classifier.predict_proba(X)).max() < 1e-10
    # Eight equations for a hundred signs (iris) may be too few; then a linear part of two outputs replaces them.
    determined = identifier.layer_widths_[0] <= 100
    assert identifier.report_.exact and identifier.report_.determined == determined
    assert identifier.layer_widths_[0] <= 104


def planted_in_view(D, K, m, seed):
    rng = np.random.RandomState(seed)
    weights = [rng.standard_normal((D, K)) / np.sqrt(D), rng.standard_normal((K, m)) / np.sqrt(K)]
    return FeedforwardNetwork(weights, [0.5 * rng.standard_normal(K), rng.standard_normal(m)], "relu")


@pytest.mark.parametrize("m", [1, 2])
def test_within_a_range(m):
    """One unit is at rest in all of the range, one active: neither has a boundary there."""
    network = planted_in_view(6, 8, m, 0)
    biases = network.biases[0].copy()
    biases[:2] = [-50.0, 50.0]
    truth = FeedforwardNetwork(network.weights, [biases, network.biases[1]], "relu")
    oracle = Oracle(truth, 6, derivatives="finite_difference", input_range=(-3.0, 3.0))
    found = find_relu_network(oracle, rng=np.random.RandomState(0))
    U = np.random.RandomState(1).uniform(-3.0, 3.0, (500, 6))
    assert np.abs(found.network(U) - truth(U)).max() < 1e-11 * np.abs(truth(U)).max()
    # With two outputs the linear part of the active unit is not distinguished from those that other signs would leave.
    assert 1 <= found.n_skips <= m and found.network.layer_widths == (6 + found.n_skips, m)


def test_a_view_tells_where_it_is_wrong():
    network = planted_in_view(5, 6, 1, 1)
    oracle = Oracle(network, 5, derivatives="finite_difference", input_range=(-4.0, 4.0))
    search = LineSearch(probe_of(oracle, np.random.RandomState(0)), 1e3, 100, np.random.RandomState(0))
    for _ in range(6):
        search.scan_next_line()
    view = fit_unsigned(search)
    assert len(view.units) == 6 and len(view.wrong) == 0 and view.residual == 0.0
    found = network_of_fit(view, search.probe.output_error, search.probe.length_scale)
    assert found.n_skips == 0 and found.network.layer_widths == (6, 1)
    search.units = view.units.take(np.arange(1, 6))
    view = fit_unsigned(search)
    assert len(view.wrong) > 10 and view.residual > 1e-3
