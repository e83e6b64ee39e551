import numpy as np

from skident.identification.piecewise.kernel.output_error import Probe
from skident.identification.piecewise.shallow.units import ReLUUnits, ResidualProbe, locate_units
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle


def planted(D, K, m, seed):
    """A network and its units, oriented as they are active."""
    rng = np.random.RandomState(seed)
    W = rng.standard_normal((D, K))
    W /= np.linalg.norm(W, axis=0)
    network = FeedforwardNetwork([W, rng.standard_normal((K, m))], [0.5 * rng.standard_normal(K), np.zeros(m)], "relu")
    return network, ReLUUnits(W, network.biases[0], network.weights[1] / 1e-14, np.full(K, 1e-6))


def test_positions_are_more_exact_than_what_they_start_from():
    network, truth = planted(6, 9, 2, 0)
    probe, rng = Probe(Oracle(network, 6), np.full(2, 1e-14)), np.random.RandomState(1)
    W = truth.weights + 1e-7 * rng.standard_normal((6, 9))
    rough = ReLUUnits(W / np.linalg.norm(W, axis=0), truth.biases, truth.outgoing, truth.errors)
    found, shares = locate_units(probe, rough, rng.standard_normal((200, 6)), rng)
    assert shares.min() > 0.8 and found.errors.max() < 1e-12
    np.testing.assert_allclose(found.weights, truth.weights, atol=1e-13)
    np.testing.assert_allclose(found.biases, truth.biases, atol=1e-13)
    assert probe.oracle.n_queries == 4 * 9 * (6 + 8)


def test_a_unit_that_is_none_does_not_show():
    network, truth = planted(6, 9, 1, 0)
    probe, rng = Probe(Oracle(network, 6), np.full(1, 1e-14)), np.random.RandomState(1)
    false = ReLUUnits(truth.weights[:, ::-1], truth.biases, truth.outgoing, truth.errors)
    _, shares = locate_units(probe, false.take([0, 1]), rng.standard_normal((200, 6)), rng)
    assert shares.max() < 0.05


def test_rest_shows_a_faint_unit_alone():
    network, truth = planted(5, 6, 1, 2)
    probe = Probe(Oracle(network, 5), np.full(1, 1e-14))
    rest = ResidualProbe(probe, truth.take(np.arange(1, 6)))
    U = np.random.RandomState(0).standard_normal((40, 5))
    one = 0.5 * np.abs(U @ truth.weights[:, :1] + truth.biases[:1]) @ truth.outgoing[:1]
    design = np.column_stack([U, np.ones(40)])  # up to a linear part
    left = rest(U) - one
    assert np.abs(left - design @ np.linalg.lstsq(design, left, rcond=None)[0]).max() < 4.0
