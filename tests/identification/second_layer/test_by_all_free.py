import numpy as np
import pytest

from skident.identification.second_layer.by_all_free import all_free_design, recover_with_all_units_free
from skident.metrics import relative_max_error
from skident.oracle import NotIdentified


@pytest.mark.parametrize(
    ("sizes", "scale", "activation"),
    [
        ((6, 6, 9, 1), 1.0, "tanh"),
        ((10, 8, 9, 1), 2.0, "tanh"),
        ((4, 4, 8, 2), 1.5, "tanh"),
        ((7, 7, 5, 1), 1.0, "tanh"),
        ((6, 6, 8, 1), 1.5, "erf"),
        ((5, 4, 6, 1), 2.0, "erf"),
    ],
)
def test_second_layers_as_wide_as_the_first_or_wider(sizes, scale, activation, make_planted, make_downstream, rng):
    network = make_planted(sizes, seed=2, scale=scale, activation=activation)
    problem, moved = make_downstream(network, known_corrections=activation == "erf")
    found = recover_with_all_units_free(problem, all_free_design(sizes[0], sizes[1:]), sizes[2])
    X = rng.standard_normal((500, sizes[0]))
    assert found.residual < 1e-3 and relative_max_error(network(X), found.network(X)) < 5e-3
    np.testing.assert_allclose(found.network.biases[0], network.biases[0], atol=1e-4)


def test_designs_take_the_lowest_feasible_order():
    assert all_free_design(10, (8, 9, 1)).rule.order == 2 and all_free_design(4, (4, 8, 1)).rule.order == 3
    assert all_free_design(7, (8, 9, 1)) is None and all_free_design(10, (2, 12, 1)) is None


def test_a_width_that_is_too_small_is_reported(make_planted, make_downstream):
    network = make_planted((6, 6, 9, 1), seed=2)
    problem, _ = make_downstream(network)
    with pytest.raises(NotIdentified, match="no bias corrections|powers were recovered|relative residual"):
        recover_with_all_units_free(problem, all_free_design(6, (6, 7, 1)), 7)


def test_dependent_weights_are_reported(make_planted, make_downstream):
    network = make_planted((6, 6, 9, 1), seed=2)
    problem, _ = make_downstream(network)
    weights = problem.weights.copy()
    weights[:, 1] = weights[:, 0]
    parallel = type(problem)(problem.query, weights, problem.biases, "tanh", None, 1, problem.rng)
    with pytest.raises(NotIdentified, match="nearly dependent"):
        recover_with_all_units_free(parallel, all_free_design(6, (6, 9, 1)), 9)
