import numpy as np

from skident.optim import bisect


def test_intervals_close_in_on_their_own_borders():
    borders = np.array([0.1, 0.5, 0.9])
    low, high = bisect(lambda t: t >= borders, np.zeros(3), np.ones(3), 30)
    assert np.all((low < borders) & (borders <= high))
    np.testing.assert_allclose(high - low, 2.0**-30)


def test_segments_between_points(rng):
    start, end = rng.standard_normal((2, 5, 3))
    low, high = bisect(
        lambda U: np.linalg.norm(U - start, axis=1) > 0.3 * np.linalg.norm(end - start, axis=1), start, end, 40
    )
    np.testing.assert_allclose(high, start + 0.3 * (end - start), atol=1e-10)
    np.testing.assert_allclose(low, high, atol=1e-10)
