import numpy as np
import pytest

from skident.identification.piecewise.kernel.scan import scan_line
from skident.oracle import NotIdentified

RNG = np.random.RandomState


class Counted:
    """``sum_i c_i |t - t_i| / 2 + slope t``: slope jumps of c_i at t_i; counts the positions it is asked."""

    def __init__(self, t, c, slope=0.3):
        self.t, self.c = np.array(t, dtype=float), np.reshape(c, (len(t), -1) if len(t) else (0, 1))
        self.slope, self.n = slope, 0

    def __call__(self, t):
        self.n += len(t)
        return 0.5 * np.abs(t[:, None] - self.t) @ self.c + self.slope * t[:, None]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("K", "m"), [(1, 1), (5, 1), (20, 1), (40, 3)])
def test_all_kinks(K, m, seed):
    rng = RNG(seed)
    f = Counted(rng.standard_normal(K) / rng.uniform(0.1, 1, K), rng.standard_normal((K, m)))
    # Rounding of a sum of K terms of size 1.
    found = scan_line(f, 1e4, output_error=1e-14 * K, rng=rng)
    order = np.argsort(f.t)
    assert len(found.positions) == K and len(found.unresolved) == 0
    # The intersection of two lines exact to the noise is exact to noise / jump; 0.01 is about the smallest jump.
    np.testing.assert_allclose(found.positions, f.t[order], atol=1e-10)
    assert np.all(np.abs(found.jumps - f.c[order]) <= found.jump_errors[:, None])
    assert f.n <= 30 * K + 40


@pytest.mark.parametrize("ratio", [1.0, -1.0, 0.3])
@pytest.mark.parametrize("gap", [1e-1, 1e-3, 1e-5])
def test_two_close_kinks(gap, ratio):
    f = Counted([1.0, 1.0 + gap, -2.0], [1.0, ratio, 0.5])
    found = scan_line(f, 1e4, rng=RNG(1))
    np.testing.assert_allclose(found.positions, [-2.0, 1.0, 1.0 + gap], atol=1e-11)


@pytest.mark.parametrize("seed", range(10))
def test_kinks_too_close_are_reported(seed):
    """Both, or one of the two and a piece beside it that holds the other."""
    found = scan_line(Counted([1.0, 1.0 + 1e-9, -2.0], [1.0, 0.7, 0.5]), 1e4, rng=RNG(seed))
    np.testing.assert_allclose(found.positions[0], -2.0, atol=1e-11)
    np.testing.assert_allclose(found.positions[1:], 1.0, atol=2e-9)
    [[a, b]] = found.unresolved
    assert len(found.positions) <= 2 and a < 1.0 + 1e-9 and b > 1.0 and b - a < 1e-6


@pytest.mark.parametrize(
    ("t", "c"),
    [
        ([1.0, 2.0, 3.0], [1.0, -2.0, 1.0]),  # a hat: the same line on both sides
        ([-1.0, 1.0], [1.0, -1.0]),  # clipping: parallel lines, and odd about the middle
        ([-3.0, -1.0, 1.0, 3.0], [1.0, -1.0, -1.0, 1.0]),
        ([0.0, 0.1, 0.2, 50.0], [1.0, -3.0, 1.0, 1.0]),  # the outer lines meet outside the kinks
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_kinks_that_hide_from_the_ends(t, c, seed):
    found = scan_line(Counted(t, c), 1e4, rng=RNG(seed))
    np.testing.assert_allclose(found.positions, t, atol=1e-11)


def test_no_kinks_and_kinks_out_of_reach():
    for f in (Counted([200.0, -101.0], [1.0, -2.0]), Counted([], [])):
        found = scan_line(f, 100.0, rng=RNG(0))
        assert len(found.positions) == 0 and found.jumps.shape[0] == 0 and f.n < 40


def test_rank_one_is_checked_in_every_output():
    """A kink of output 0 and one of output 1 close by are two kinks, though each output has one."""
    f = Counted([1.0, 1.001], [[1.0, 0.0], [0.0, 1.0]])
    found = scan_line(f, 100.0, rng=RNG(0))
    np.testing.assert_allclose(found.positions, [1.0, 1.001], atol=1e-11)
    np.testing.assert_allclose(found.jumps, f.c, atol=1e-9)


def test_jumps_are_refused():
    with pytest.raises(NotIdentified, match="the outputs jump within") as info:
        scan_line(lambda t: (np.abs(t) + (t > 0.3))[:, None], 100.0, rng=RNG(0))
    assert info.value.reason == "steps"


def test_curves_are_refused():
    with pytest.raises(NotIdentified, match="at more than 50 places") as info:
        scan_line(lambda t: np.sin(t)[:, None], 10.0, max_boundaries=50, rng=RNG(0))
    assert info.value.reason == "crowded"


def test_answers_with_accuracies_and_a_blind_stretch():
    """What lies in a stretch without answers is not seen, and does not keep the others from being seen."""
    f = Counted([-2.0, 0.5, 1.3, 4.0], [1.0, -2.0, 1.0, 1.0])

    def ask(t):
        return f(t) + np.where(np.abs(t - 1.3) < 0.1, np.nan_to_num(np.sin(1e6 * t)), 0.0)[:, None], np.where(
            np.abs(t - 1.3) < 0.1, np.inf, 1e-13
        )

    found = scan_line(ask, (-10.0, 20.0), rng=RNG(0))
    np.testing.assert_allclose(found.positions, [-2.0, 0.5, 4.0], atol=1e-10)
    [[a, b]] = found.unresolved
    assert a < 1.2 and b > 1.4


@pytest.mark.parametrize("seed", range(4))
def test_noisy_answers(seed):
    rng, f = RNG(seed), Counted([-2.0, 0.5, 1.3, 4.0], [1.0, -2.0, 1.0, 1.0])
    noisy = lambda t: f(t) + 1e-6 * rng.standard_normal((len(t), 1))  # noqa: E731
    found = scan_line(lambda t: (noisy(t), np.full(len(t), 3e-6)), 100.0, detection_tol=12.0, rng=RNG(seed))
    np.testing.assert_allclose(found.positions, f.t, atol=5e-5)
    assert np.all(np.abs(found.positions - f.t) <= found.position_errors)
