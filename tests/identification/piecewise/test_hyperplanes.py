import numpy as np

from skident.identification.piecewise.deep.first_layer import HyperplaneSearch, refined_hyperplane


def true_planes(net):
    W, b = net.network.weights[0], net.network.biases[0]
    return np.column_stack([W.T, b]) / np.linalg.norm(W, axis=0)[:, None]


def test_a_rough_hyperplane_is_refined(planted):
    net = planted((5, 6, 4, 1), 0)
    answers, truth = net.answers(), true_planes(net)[2]
    rough = truth[:-1] + 1e-6 * net.rng.standard_normal(5)
    rough /= np.linalg.norm(rough)
    point = -truth[-1] * truth[:-1]
    plane, share = refined_hyperplane(answers, point, rough, 1e-6, net.rng)
    assert share > 0.4 and np.abs(plane - truth * np.sign(plane @ truth)).max() < 1e-12


def test_a_facet_is_no_hyperplane(planted):
    net = planted((5, 6, 4, 1), 0)
    x, g = net.kink_of(2, 1)
    fit = refined_hyperplane(net.answers(), x, g / np.linalg.norm(g), 1e-8, net.rng)
    search = HyperplaneSearch(net.answers(), net.rng)
    search.scan_lines(3)
    assert fit is None or not any(np.allclose(np.abs(p @ fit[0]), 1.0 + fit[0][-1] ** 2) for p in search.planes)


def test_lines_show_the_first_layer(planted):
    net = planted((6, 7, 5, 1), 4)
    search = HyperplaneSearch(net.answers(), net.rng)
    for _ in range(6):
        search.scan_lines(1)
    truth = true_planes(net)
    gaps = np.array([min(np.abs(p - s * q).max() for q in truth for s in (1, -1)) for p in search.planes])
    assert len(search.planes) == 7 and gaps.max() < 1e-11
    on = search.planes[0, :-1] * -search.planes[0, -1]
    np.testing.assert_array_equal(search.contains(np.vstack([on, on + 0.1])), [True, False])
    assert not search.add_plane(search.planes[3]) and not search.add_plane(-search.planes[3])
