"""Samples read in blocks."""

import numpy as np
import pytest

from skident.samples.sample import Sample


def moments(sample):
    first, second, y1, y2 = sample.reduce(lambda Z, y, w: (w @ Z, (w[:, None] * Z).T @ Z, w @ y, w @ y**2))
    return [a / sample.total for a in (first, second, y1, y2)]


@pytest.mark.parametrize("options", [{}, {"batch_size": 7}, {"batch_size": 7, "n_jobs": 2}])
@pytest.mark.parametrize("weighted", [False, True])
def test_coordinates_are_white(rng, options, weighted):
    X = rng.standard_normal((50, 4)) @ rng.standard_normal((4, 4)) + 1e4
    w = rng.integers(0, 4, 50) if weighted else None
    sample = Sample(X, 3.0 * X[:, 0] - 2.0, w, **options)
    first, second, y1, y2 = moments(sample)
    # 1e4 standard deviations away from zero, four of sixteen digits are lost.
    np.testing.assert_allclose(first, 0, atol=1e-10)
    np.testing.assert_allclose(second, np.eye(4), atol=1e-8)
    np.testing.assert_allclose([y1, y2], [0, 1], atol=1e-10)


def test_weights_are_repetitions(rng):
    X, y, w = rng.standard_normal((30, 3)), rng.standard_normal(30), rng.integers(0, 4, 30)
    weighted, repeated = Sample(X, y, w), Sample(np.repeat(X, w, axis=0), np.repeat(y, w))
    assert weighted.total == repeated.total
    for name in ("center", "whitener", "y_center", "y_scale", "skewness", "kurtosis"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(repeated, name), atol=1e-12)


def test_constant_and_dependent_columns_are_left_out(rng):
    A = rng.standard_normal((40, 3))
    X = np.column_stack([A, A @ [1.0, 2.0, 3.0], np.full(40, 1e3)])
    sample = Sample(X, A[:, 0])
    assert sample.dim == 3
    np.testing.assert_allclose(moments(sample)[1], np.eye(3), atol=1e-10)
    assert sample.kurtosis[-1] == 0


def test_blocks_from_a_file_give_the_same_sums(rng, tmp_path):
    X, y = rng.standard_normal((300, 5)).astype(np.float32), rng.standard_normal(300)
    np.save(tmp_path / "X.npy", X)
    there = Sample(np.load(tmp_path / "X.npy", mmap_mode="r"), y, batch_size=64)
    there._kept = None  # as for a file that does not fit
    here = Sample(X.astype(np.float64), y, batch_size=64)
    for a, b in zip(moments(there), moments(here)):
        np.testing.assert_array_equal(a, b)


def test_result_does_not_depend_on_the_number_of_jobs(rng):
    X, y = rng.standard_normal((500, 3)), rng.standard_normal(500)
    one, two = (Sample(X, y, batch_size=50, n_jobs=n) for n in (1, 2))
    one._kept = two._kept = None
    for a, b in zip(moments(one), moments(two)):
        np.testing.assert_array_equal(a, b)


def test_some_of_the_rows(rng):
    X = rng.standard_normal((1000, 2))
    sample = Sample(X, X[:, 0])
    part = sample.draw(200, np.random.RandomState(0))
    assert part.n_rows == 256 and part.whitener is sample.whitener  # four stretches of 64
    assert sample.draw(1000, np.random.RandomState(0)) is sample
    np.testing.assert_array_equal(sample.take(np.array([3, 5])).X, X[[3, 5]])


def test_shape_of_columns():
    # Exponential: skewness 2, excess kurtosis 6. 2e5 rows put them within 0.05 and 0.5 (five standard errors).
    X = np.random.default_rng(0).exponential(size=(200_000, 1))
    sample = Sample(np.column_stack([X, X**0.5]), X[:, 0])
    assert abs(sample.skewness[0] - 2.0) < 0.1 and abs(sample.kurtosis[0] - 6.0) < 1.0


def test_effective_rows(rng):
    X = rng.standard_normal((30, 2))
    w = np.repeat([0.0, 1.0, 3.0], 10)
    assert Sample(X, X[:, 0]).effective_rows == 30
    # (10 + 30)^2 / (10 + 90)
    for unit in (1.0, 1e-3, 1e60):
        np.testing.assert_allclose(Sample(X, X[:, 0], unit * w).effective_rows, 16.0)
