import numpy as np
import pytest

from skident.base.progress import StageLog
from skident.datasets import make_network
from skident.identification.hessians.layer_assignment import assign_layers, last_layer_from_jacobian, match_directions
from skident.identification.hessians.subspace import HessianSearch, cluster_directions, find_entangled_weights
from skident.network import Architecture
from skident.oracle import Oracle


def unit(V):
    return V / np.linalg.norm(V, axis=-1, keepdims=True)


@pytest.fixture
def network():
    return make_network((10, 8, 5, 3), bias_scale=0.05, random_state=1)


def test_weights_beside_the_known_ones(network):
    truth = unit(np.hstack(network.entangled_weights(np.zeros(10))).T)
    architecture, log = Architecture((8, 5, 3), "tanh", "tanh"), StageLog()
    shown = find_entangled_weights(
        Oracle(network, 10), architecture, truth[:8], HessianSearch(40), np.random.RandomState(0), log
    )
    assert shown.vectors.shape == (8, 10) and shown.n_missing == 0
    assert match_directions(truth[8:], shown.vectors)[1].min() > 0.98
    assert shown.hessians.shape == (40, 3, 55) and shown.basis.shape == (55, 16) and shown.n_iter >= 1
    assert [stage.name for stage in log.stages] == ["Hessians", "subspace", "power method"]
    assert all(0 <= stage.residual < 0.1 for stage in log.stages[1:])


def test_no_search_without_hessians(network):
    oracle = Oracle(network, 10)
    known = np.eye(10)[:4]
    shown = find_entangled_weights(
        oracle, Architecture((8, 5, 3)), known, HessianSearch(0), np.random.RandomState(0), StageLog()
    )
    assert shown.vectors.shape == (0, 10) and shown.hessians is None and shown.basis is None
    assert oracle.n_queries == oracle.n_derivatives == 0


@pytest.mark.parametrize("method", ["jacobian", "hessian"])
def test_shown_weights_by_layer(network, method):
    oracle, architecture, rng = Oracle(network, 10), Architecture((8, 5, 3), "tanh", "tanh"), np.random.RandomState(0)
    shown = find_entangled_weights(oracle, architecture, np.empty((0, 10)), HessianSearch(60), rng, StageLog())
    last = last_layer_from_jacobian(oracle)
    V, layers = assign_layers(oracle, architecture, shown, None, last, method=method, rng=rng, log=StageLog())
    np.testing.assert_array_equal(layers, np.repeat([0, 1, 2], [8, 5, 3]))
    np.testing.assert_allclose(np.linalg.norm(V, axis=1), 1)
    for layer, W in enumerate(network.entangled_weights(np.zeros(10))):
        cosines = match_directions(W.T, V[layers == layer])[1]
        assert np.median(cosines) > 0.99 and cosines.min() > 0.8
    signed = np.sum(V[layers == 2] * unit(last), axis=1)
    assert signed.min() > (0.8 if method == "hessian" else 1 - 1e-12)


# -- clusters ----------------------------------------------------------------------------------------------------------


def test_clusters_of_directions(rng):
    centers = unit(rng.standard_normal((5, 8)))
    labels = rng.permutation(np.repeat(np.arange(5), 6))
    copies = centers[labels] * rng.choice([-1, 1], 30)[:, None] + 1e-3 * rng.standard_normal((30, 8))
    found = cluster_directions(unit(copies), 5, random_state=np.random.RandomState(0))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
    index, cosine = match_directions(centers, found)
    assert sorted(index) == list(range(5)) and cosine.min() > 1 - 1e-4


def test_as_many_clusters_as_vectors(rng):
    vectors = unit(rng.standard_normal((4, 6)))
    index, cosine = match_directions(vectors, cluster_directions(vectors, 4))
    assert sorted(index) == list(range(4)) and cosine.min() > 1 - 1e-12
