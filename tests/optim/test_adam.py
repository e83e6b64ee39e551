"""Adam and its batches."""

import numpy as np

from skident.optim.adam import Adam, batches


def test_least_squares_by_adam():
    rng = np.random.RandomState(0)
    A, solution = rng.standard_normal((400, 5)).astype(np.float32), np.arange(5, dtype=np.float32)
    x = [np.zeros(5, dtype=np.float32)]
    adam = Adam(x, (0.1,))
    for step, (rows, y) in zip(range(1000), batches((A, A @ solution), 32, rng), strict=False):
        adam.step((rows.T @ (rows @ x[0] - y) / np.float32(32),), 1.0 - step / 1000)
    np.testing.assert_allclose(x[0], solution, atol=1e-3)


def test_a_rate_of_zero_keeps_an_array():
    x = [np.ones(3, dtype=np.float32), np.ones(3, dtype=np.float32)]
    Adam(x, (0.0, 0.1)).step((np.ones(3, np.float32), np.ones(3, np.float32)), 1.0)
    assert (x[0] == 1.0).all() and (x[1] < 1.0).all()


def test_batches_contain_every_row_once_before_the_first_one_again():
    rows = batches((np.arange(12), np.arange(12)), 4, np.random.RandomState(0))
    first = np.concatenate([next(rows)[0] for _ in range(3)])
    assert sorted(first) == list(range(12))
    assert len(next(batches((np.arange(3),), 4, np.random.RandomState(0)))[0]) == 3
