import numpy as np

from skident.identification.piecewise.deep.facet_unit import FacetUnit
from skident.identification.piecewise.deep.predictions import ends_at_others


def test_kinks_of_deeper_units_bend_where_those_of_the_layer_do_not(planted):
    net = planted((10, 6, 8, 6, 1), 0)
    known, factors = net.known(1)
    answers, W, b = net.answers(), net.network.weights[1], net.network.biases[1]
    units = []
    for k in range(8):
        x, g = net.kink_of(2, k)
        # relu(z) = (|z| + z) / 2, in terms of |z| for z up to sign and scale.
        c, h = 0.5 * W[:, k], net.network.weights[0] @ (0.5 * W[:, k])
        theta = np.concatenate([c / np.abs(factors), h, [0.5 * net.network.biases[0] @ W[:, k] + b[k]]])
        unit = FacetUnit(known, x, g / np.linalg.norm(g))
        unit.add_equations(np.eye(len(theta)), theta / np.linalg.norm(g), x[None])
        units.append(unit)
    bent = {2: 0, 3: 0}
    for layer, n_units in ((2, 8), (3, 6)):
        for k in range(n_units):
            x, g = net.kink_of(layer, k)
            others = [unit for j, unit in enumerate(units) if layer == 3 or j != k]
            bent[layer] += ends_at_others(
                answers, FacetUnit(known, x, g / np.linalg.norm(g), normal_error=1e-9), others, net.rng
            )
    assert bent[2] == 0 and bent[3] >= 4
    assert not ends_at_others(answers, units[0], [], net.rng)
