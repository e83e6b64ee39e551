import numpy as np
import pytest

from skident.datasets import make_network
from skident.oracle import BlackBoxError, Oracle

D = 3
CENTER, SCALE = np.array([1.0, 2.0, 3.0]), np.array([0.1, 1.0, 10.0])
LOW, HIGH = CENTER - 2.0 * SCALE, CENTER + np.array([2.0, 3.0, 4.0]) * SCALE


def strict(X):
    """Refuses the smallest step outside."""
    assert (X >= LOW).all() and (X <= HIGH).all()
    return X.sum(axis=1)


def oracle(box=strict, **options):
    return Oracle(box, D, center=CENTER, scale=SCALE, **{"input_range": (LOW, HIGH), **options})


def test_reach_is_the_shortest_way_to_the_border():
    assert oracle().reach == pytest.approx(2.0) and oracle().restricted
    assert Oracle(strict, D).reach == np.inf and not Oracle(strict, D).restricted
    assert oracle(input_range=(-np.inf, np.inf)).reach == np.inf
    assert oracle(input_range=(LOW, HIGH + [0, 0, 1])).reach == pytest.approx(2.0)
    assert Oracle(strict, D, center=[0, 0, 0], input_range=(1, 2)).reach == -1.0


def test_the_border_itself_may_be_queried():
    """Rounding of center + scale * u does not lead outside."""
    corners = np.stack([oracle().from_inputs(LOW), oracle().from_inputs(HIGH)])
    assert len(oracle()(np.concatenate([corners, corners * (1 + 4e-16)]))) == 4


@pytest.mark.parametrize("method", ["__call__", "jacobian", "hessian", "query_twice"])
def test_nothing_is_queried_outside(method):
    box = oracle()
    with pytest.raises(BlackBoxError, match=r"a query needs input 1 at .*, outside its input_range \(0, 5\)"):
        getattr(box, method)(np.array([[0.0, 0.0, 0.0], [0.0, 3.1, 0.0]]))
    # Only chunks before the point may have been queried; here there are none.
    assert box.n_queries == 0


@pytest.mark.parametrize("derivative", ["jacobian", "hessian"])
def test_exact_derivatives_stay_inside_too(derivative):
    box = oracle(make_network((D, 2, 1), random_state=0))
    assert box.exact and getattr(box, derivative)(np.zeros((1, D))).shape[:2] == (1, 1)
    with pytest.raises(BlackBoxError, match="outside its input_range"):
        getattr(box, derivative)(np.array([[0.0, 0.0, 5.0]]))


def test_confined_rows():
    U = np.array([[-9.0, 0.5, 9.0]])
    np.testing.assert_allclose(oracle().clip_to_range(U), [[-2.0, 0.5, 4.0]])
    np.testing.assert_allclose(oracle().clip_to_range(U, 0.25), [[-1.75, 0.5, 3.75]])
    np.testing.assert_array_equal(Oracle(strict, D).clip_to_range(U), U)
    assert np.isfinite(
        oracle()(oracle().clip_to_range(50.0 * np.random.default_rng(0).standard_normal((500, D))))
    ).all()


def test_query_near_moves_rows_inside():
    box = oracle()
    U, Y = box.query_precise(lambda n, factor: np.full((n, D), 10.0), 4)
    np.testing.assert_allclose(box.to_inputs(U), np.tile(HIGH, (4, 1)))
    assert Y.shape == (4, 1)


def test_a_shared_box_keeps_range_count_and_derivatives():
    first = oracle(make_network((D, 2, 1), random_state=0))
    second = Oracle(first.as_black_box(), D, center=CENTER, scale=2.0 * SCALE)
    U = np.full((3, D), 0.1)
    np.testing.assert_array_equal(second(U), first(2.0 * U))
    np.testing.assert_allclose(second.jacobian(U), 2.0 * first.jacobian(2.0 * U))
    assert second.exact and second.reach == pytest.approx(1.0) and first.n_queries == 6
    with pytest.raises(BlackBoxError, match="outside its input_range"):
        second(np.ones((1, D)) * 1.5)


RANGES = [
    (3.0, r"must be \(low, high\), each a number or an array of 3 numbers"),
    ((0.0, 1.0, 2.0), r"must be \(low, high\)"),
    ((np.zeros(2), 1.0), r"must be \(low, high\)"),
    (("low", "high"), r"must be \(low, high\)"),
    (([0.0, 0.0, 1.0], 1.0), "must have low < high; input 2 has low=1.0, high=1.0"),
    (([0.0, np.nan, 0.0], 1.0), "must have low < high; input 1 has low=nan"),
]


@pytest.mark.parametrize(("input_range", "message"), RANGES)
def test_impossible_ranges(input_range, message):
    with pytest.raises(ValueError, match=message):
        oracle(input_range=input_range)
