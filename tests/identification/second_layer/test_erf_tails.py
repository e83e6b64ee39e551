import numpy as np
import pytest

from skident.identification.saturating.first_layer import find_first_layer
from skident.identification.second_layer.erf_tails import erf_norms_and_biases
from skident.identification.second_layer.exact_directions import exact_directions
from skident.network import get_activation
from skident.oracle import Oracle


def exactly(network, rng):
    oracle = Oracle(lambda X: network(X), network.n_inputs)
    first = find_first_layer(oracle, activation="erf", n_units=network.layer_widths[0], rng=rng)
    return oracle, exact_directions(oracle, first, get_activation("erf"), rng)


@pytest.mark.parametrize(("sizes", "scale"), [((8, 10, 9, 1), 1.0), ((5, 9, 9, 2), 3.0)])
def test_lengths_and_shifts_whatever_follows(sizes, scale, make_planted):
    network, rng = make_planted(sizes, seed=7, scale=scale, activation="erf"), np.random.RandomState(0)
    oracle, first = exactly(network, rng)
    asked = oracle.n_queries
    found, shifts, support = erf_norms_and_biases(oracle, first, rng)
    assert support.min() >= 3 and oracle.n_queries - asked <= 240 * sizes[1]
    lengths = np.linalg.norm(network.weights[0], axis=0)
    cosines = (network.weights[0] / lengths).T @ found.directions
    match = np.argmax(np.abs(cosines), axis=0)
    signs = np.sign(cosines[match, np.arange(sizes[1])])
    np.testing.assert_allclose(found.norms, lengths[match], rtol=1e-5)
    np.testing.assert_allclose(found.biases + shifts, signs * network.biases[0][match], atol=1e-4)
    offsets = [f.biases / f.norms for f in (first, found)]
    np.testing.assert_allclose(offsets[1], offsets[0], rtol=1e-12)


def test_a_unit_without_a_tail_stays_as_it_is(make_planted):
    network, rng = make_planted((5, 4, 3, 1), seed=1, activation="erf"), np.random.RandomState(0)
    _, first = exactly(network, rng)
    flat = Oracle(lambda X: np.zeros(len(X)) + 1e-14 * network(X)[:, 0] + 1.0, 5)
    found, shifts, support = erf_norms_and_biases(flat, first, rng)
    np.testing.assert_allclose(found.weights, first.weights, rtol=1e-14)
    assert np.all(shifts == 0.0) and np.all(support == 0)
