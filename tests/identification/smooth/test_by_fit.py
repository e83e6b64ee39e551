import time
from dataclasses import replace

import numpy as np
import pytest

from skident.identification.smooth.by_fit import (
    FitDesign,
    fit_design,
    query_where_few_units_are_free,
    recover_by_fit,
)
from skident.metrics import relative_max_error
from skident.oracle import Accuracy, NotIdentified


@pytest.mark.parametrize(
    ("sizes", "activation"),
    [((2, 4, 3, 1), "tanh"), ((3, 6, 5, 1), "tanh"), ((4, 8, 8, 2), "tanh"), ((3, 5, 5, 1), "erf")],
)
def test_few_inputs(sizes, activation, make_planted, make_cube, rng):
    network = make_planted(sizes, seed=1, scale=1.2, activation=activation)
    problem = make_cube(network)
    found = recover_by_fit(problem, fit_design(sizes[0], sizes[1:]), sizes[2])
    X = rng.standard_normal((500, sizes[0]))
    assert found.residual < 1e-9 and relative_max_error(network(X), found.network(X)) < 1e-7
    np.testing.assert_allclose(np.abs(found.network.biases[0]), np.abs(network.biases[0]), atol=1e-5)  # up to signs


def test_queries_lie_where_zero_to_all_units_are_free(make_planted, make_cube):
    network = make_planted((3, 8, 5, 1))
    problem = make_cube(network)
    X, Y = query_where_few_units_are_free(problem, 400)
    moving = np.sum(np.abs(X @ problem.weights + problem.biases) < 3.0, axis=1)
    assert X.shape == (400, 3) and Y.shape == (400, 1)
    assert np.all(np.bincount(moving, minlength=4)[:4] > 10)


def test_no_design_if_steps_take_seconds():
    assert fit_design(3, (12, 12, 1)).n_queries == 1835
    assert fit_design(3, (64, 64, 1)) is None and fit_design(1, (4, 4, 1)) is None
    assert fit_design(17, (64, 64, 6)).n_starts == 1


def test_starts_are_bounded():
    plan = fit_design(3, (12, 12, 1))
    assert plan.with_starts(2).n_starts == 2 and plan.with_starts(None) == plan.with_starts(10**6) == plan


def test_late_fits_and_too_few_units_are_reported(make_planted, make_cube):
    network = make_planted((3, 6, 6, 1), seed=2)
    with pytest.raises(NotIdentified, match="unexplained after 1 starts, when its share of max_seconds was over"):
        recover_by_fit(make_cube(network), fit_design(3, (6, 6, 1)), 6, deadline=time.perf_counter())
    with pytest.raises(NotIdentified, match="unexplained after 3 starts$"):
        recover_by_fit(make_cube(network), FitDesign(150, 4, 3), 2)


@pytest.mark.parametrize("width", [4, 6])
def test_noise_and_rough_norms_leave_the_widths_right(width, make_planted, make_cube, rng):
    network = make_planted((4, 8, 4, 1), seed=1, scale=1.2)
    problem = make_cube(network)
    factors = 1.0 + 1e-3 * rng.standard_normal(8)
    problem = replace(
        problem,
        query=lambda X: network(X) + 1e-7 * rng.standard_normal((len(X), 1)),
        accuracy=Accuracy(np.array([1e-7]), np.ones(1), 2.0**-23, np.zeros(1), "noise"),
    ).rescaled(factors, np.zeros(8))
    found = recover_by_fit(problem, fit_design(4, (8, width, 1)), 4 if width == 4 else None)
    X = rng.standard_normal((500, 4))
    assert found.network.layer_widths == (8, 4, 1)
    assert found.residual < 1e-6 and relative_max_error(network(X), found.network(X)) < 1e-5
