import numpy as np
import pytest

from skident.identification.piecewise.kernel.gradient import normals_at
from skident.identification.piecewise.kernel.lines import gaps_on_segments, random_segments
from skident.identification.piecewise.kernel.locate import scan_segments
from skident.identification.piecewise.kernel.output_error import DeepProbe
from skident.oracle import Oracle


def by_dense_sampling(net, lines, i, n=40_000):
    """Places of a line where a unit changes its side, by the planted network."""
    t = np.linspace(lines.low[i], lines.high[i], n)
    X = lines.origins[i] + t[:, None] * lines.directions[i]
    change = np.zeros(n - 1, dtype=bool)
    for Z in net.pre_activations(X):
        change |= np.any((Z[1:] > 0) != (Z[:-1] > 0), axis=1)
    return 0.5 * (t[1:] + t[:-1])[change], t[1] - t[0]


@pytest.mark.parametrize("widths", [(4, 6, 1), (6, 7, 5, 1), (6, 7, 5, 2)], ids=str)
def test_kinks_are_those_of_dense_sampling(widths, planted):
    net = planted(widths, 1)
    answers = net.answers()
    lines = random_segments(answers, 6, net.rng, reach=4.0)
    line, t = scan_segments(answers, lines, net.rng, n_intervals=48)
    missed = 0
    for i in range(6):
        expected, step = by_dense_sampling(net, lines, i)
        found = t[line == i]
        assert np.all(np.diff(found) > 0)
        # Nothing but kinks; some do not show, where the units behind are off.
        assert all(np.abs(expected - s).min() < step for s in found)
        missed += len(expected) - len(found)
    assert missed <= 0.35 * (len(t) + missed)


def test_normals_are_gradients_of_units(planted):
    net = planted((6, 7, 5, 1), 2)
    answers = net.answers()
    lines = random_segments(answers, 4, net.rng, reach=3.0)
    line, t = scan_segments(answers, lines, net.rng, n_intervals=24)
    kinks, kept = normals_at(
        answers, lines.at(line, t), lines.directions[line], gaps_on_segments(lines, line, t), net.rng
    )
    assert len(kept) > 0.8 * len(t)
    np.testing.assert_array_equal(kinks.points, lines.at(line, t)[kept])
    h = 1e-7
    Z = np.hstack(net.pre_activations(kinks.points))
    slopes = [np.hstack(net.pre_activations(kinks.points + h * e)) - Z for e in np.eye(6)]
    G = np.stack(slopes, axis=2) / h
    k = np.abs(Z / np.maximum(np.linalg.norm(G, axis=2), 1e-6)).argmin(axis=1)
    g = G[np.arange(len(k)), k]
    cosines = np.abs(np.sum(g * kinks.normals, axis=1)) / np.linalg.norm(g, axis=1)
    assert np.all(1.0 - cosines < 1e-6 + kinks.errors)


def test_lines_end_where_the_range_does():
    oracle = Oracle(lambda X: X[:, 0], 3, input_range=(-1.0, 2.0))
    answers = DeepProbe(oracle, np.array([1e-15]), np.array([1.0]))
    lines = random_segments(answers, 5, np.random.RandomState(0), reach=50.0)
    ends = np.concatenate([lines.at(np.arange(5), lines.low), lines.at(np.arange(5), lines.high)])
    X = oracle.to_inputs(ends)
    assert np.all(answers.inside(ends)) and np.all(np.any(np.isclose(X, -1.0) | np.isclose(X, 2.0), axis=1))
