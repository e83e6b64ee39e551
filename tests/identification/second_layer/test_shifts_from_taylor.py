import numpy as np
import pytest

from skident.identification.second_layer.by_powers.biases_from_taylor import biases_from_taylor
from skident.identification.second_layer.kernel.charts import TanhChart
from skident.identification.second_layer.kernel.taylor import TaylorRule, taylor_coefficients

RULES = {2: TaylorRule(2, 0.15, 3), 3: TaylorRule(3, 0.4, 7), 4: TaylorRule(4, 0.5, 9)}


def tensors_of(problem, k, p, n):
    free = np.arange(k)
    return taylor_coefficients(problem.query, problem.patch(free, n), TanhChart(), RULES[p])


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(("sizes", "p", "k", "n"), [((10, 14, 12, 1), 2, 6, 34), ((8, 12, 9, 1), 3, 4, 45)])
def test_shifts_and_width(sizes, p, k, n, told, make_planted, make_downstream):
    network = make_planted(sizes, seed=p)
    problem, moved = make_downstream(network)
    found = biases_from_taylor(tensors_of(problem, k, p, n), sizes[2] if told else None)
    assert found.n_powers == sizes[2] and found.gap < 1e-3
    np.testing.assert_allclose(found.theta, np.tanh(moved[:k]), atol=5e-6)


def test_a_wider_first_layer_than_input_and_more_units_than_inputs(make_planted, make_downstream):
    network = make_planted((8, 20, 16, 2), seed=1)
    problem, moved = make_downstream(network)
    found = biases_from_taylor(tensors_of(problem, 5, 3, 34))
    assert found.n_powers == 16
    np.testing.assert_allclose(found.theta, np.tanh(moved[:5]), atol=1e-5)


def test_a_wrong_width_shows_in_the_gap(make_planted, make_downstream):
    problem, _ = make_downstream(make_planted((10, 14, 12, 1), seed=2))
    assert biases_from_taylor(tensors_of(problem, 6, 2, 34), 10).gap > 0.02


def test_too_few_rows(make_planted, make_downstream):
    problem, _ = make_downstream(make_planted((10, 14, 12, 1), seed=2))
    tensors = tensors_of(problem, 6, 2, 10)
    for width in (12, 21):
        with pytest.raises(ValueError, match=f"10 rows of 21 coefficients are too few to tell {width} units"):
            biases_from_taylor(tensors, width)
