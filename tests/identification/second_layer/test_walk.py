from dataclasses import replace

import numpy as np
import pytest

from skident.identification.second_layer.by_patch_and_extension import extension as module
from skident.identification.second_layer.by_patch_and_extension.extension import (
    extend_to_all_units,
    n_queries_of_extension,
)
from skident.identification.second_layer.by_patch_and_extension.known_patch import KnownPatch
from skident.oracle import NotIdentified


def known_patch(network, downstream, moved, k, error, rng):
    """The true one with errors, its free units drawn."""
    free = np.sort(rng.permutation(network.layer_widths[0])[:k])
    patch = downstream.patch(free, 1)
    signs = np.sign(patch.points[0] @ downstream.weights + downstream.biases)
    signs[free] = 0.0
    (_, W, V), (_, c, v) = network.weights, network.biases
    parts = W[free], c + signs @ W, V, v
    theta = network.activations[0](moved[free])
    parts = [part + error * rng.standard_normal(part.shape) for part in parts]
    return KnownPatch(free, theta + error * rng.standard_normal(k), patch.points[0], signs, *parts)


CASES = [
    ((5, 10, 9, 2), 4, 0.7, "tanh"),
    ((6, 12, 10, 1), 5, 1.0, "tanh"),
    ((5, 9, 8, 3), 4, 3.0, "tanh"),
    ((5, 10, 9, 3), 4, 0.7, "erf"),
]


@pytest.mark.parametrize(("sizes", "k", "scale", "activation"), CASES)
def test_all_units_from_one_patch(sizes, k, scale, activation, make_planted, make_downstream, rng):
    network = make_planted(sizes, seed=3, scale=scale, shift=0.3, activation=activation)
    problem, moved = make_downstream(network, known_shifts=activation == "erf")
    asked = []

    def ask(X):
        asked.append(len(X))
        return network(X).reshape(len(X), -1)

    problem = replace(problem, query=ask)
    found = extend_to_all_units(problem, known_patch(network, problem, moved, k, 1e-8, rng))
    assert found.misfit < 1e-7
    for one, other in zip(
        [*found.network.weights, *found.network.biases], [*network.weights, *network.biases], strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert sum(asked) < 1.3 * n_queries_of_extension(sizes[1:], k)


def test_a_wrong_patch_is_named(make_planted, make_downstream, rng):
    network = make_planted((5, 9, 8, 2), seed=3)
    problem, moved = make_downstream(network)
    patch = known_patch(network, problem, moved, 4, 0.3, rng)
    with pytest.raises(NotIdentified, match="does not explain answers of its cell"):
        extend_to_all_units(problem, patch)


def test_errors_at_the_end_are_fitted_away(make_planted, make_downstream, rng, monkeypatch):
    network = make_planted((5, 10, 9, 2), seed=3, scale=0.7, shift=0.3)
    problem, moved = make_downstream(network)

    def spoil(walk):
        if not walk.open:
            rows = walk.known.rows + 1e-3 * rng.standard_normal(walk.known.rows.shape)
            walk.known = replace(walk.known, rows=rows)
            assert walk.known.misfit(*walk.answers()) > 1e-4

    monkeypatch.setattr(module, "_refine", spoil)
    assert extend_to_all_units(problem, known_patch(network, problem, moved, 4, 1e-8, rng)).misfit < 1e-5
