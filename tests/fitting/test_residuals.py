"""Noise is not called a misfit, and a misfit is not called noise."""

import numpy as np
import pytest

from skident.datasets import make_network
from skident.fitting import lack_of_fit as residuals
from skident.fitting.batched_fits import BatchedNetworkFits, Rows, parameters_of, random_parameters
from skident.fitting.lack_of_fit import lack_of_fit
from skident.network import Architecture
from skident.optim import Ending, batched_levenberg_marquardt


def least_squares(architecture, rows, starts):
    ending = Ending(max_iter=40, ftol=1e-5)
    return batched_levenberg_marquardt(BatchedNetworkFits(architecture, rows), starts, ending).x


def rows_of(widths, n, seed, noise=None):
    truth = make_network((3, *widths), shift_scale=0.3, output_activation="identity", random_state=seed)
    rng = np.random.RandomState(seed)
    U = rng.standard_normal((n, 3))
    Y = truth(U)
    return truth, Rows(U, Y if noise is None else Y + noise(rng, U, Y.shape))


NOISES = {
    "Gaussian": lambda rng, U, shape: 0.1 * rng.standard_normal(shape),
    "heavy tails": lambda rng, U, shape: 0.1 * rng.standard_t(3, shape),
    "larger outside": lambda rng, U, shape: 0.1 * (0.3 + np.abs(U[:, :1])) * rng.standard_normal(shape),
    "equal in both": lambda rng, U, shape: np.repeat(0.1 * rng.standard_normal((shape[0], 1)), shape[1], axis=1),
}  # fmt: skip


@pytest.mark.parametrize("noise", NOISES)
def test_noise_is_not_called_a_misfit(noise):
    chances = []
    for seed in range(25):
        truth, rows = rows_of((2, 2), 160, seed, NOISES[noise])
        architecture = Architecture.of(truth)
        x = least_squares(architecture, rows, parameters_of(truth)[None])[0]
        chances.append(lack_of_fit(architecture, rows, x, np.random.RandomState(seed)))
    assert min(chances) > 1e-3 and np.mean(np.array(chances) < 0.1) <= 0.25


def test_weighted_rows_are_rows():
    truth, rows = rows_of((2, 1), 160, 0, NOISES["Gaussian"])
    weighted = Rows(rows.U, rows.Y, np.random.RandomState(1).uniform(0.5, 1.5, 160))
    architecture = Architecture.of(truth)
    x = least_squares(architecture, weighted, parameters_of(truth)[None])[0]
    assert lack_of_fit(architecture, weighted, x, np.random.RandomState(0)) > 1e-3


def test_local_minima_and_widths_too_small_are_no_noise():
    for seed, widths in enumerate([(4, 1), (3, 1), (5, 3, 1)]):
        _, rows = rows_of((5, 3, 1), 600, seed)
        architecture = Architecture(widths)
        ends = least_squares(architecture, rows, random_parameters(3, architecture, 6, np.random.RandomState(seed)))
        stuck = [x for x in ends if BatchedNetworkFits(architecture, rows).cost(x[None])[0] > 1e-6 * rows.total]
        assert stuck
        assert max(lack_of_fit(architecture, rows, x, np.random.RandomState(0)) for x in stuck) < 1e-3


def test_few_rows_tell_nothing():
    truth, rows = rows_of((2, 1), 40, 0)
    assert lack_of_fit(Architecture.of(truth), rows, 0.1 * np.ones(11), np.random.RandomState(0)) == 1.0


def test_some_rows_stand_for_a_large_table(monkeypatch):
    monkeypatch.setattr(residuals, "_NUMBERS", 2**17)
    rng = np.random.RandomState(0)
    U = rng.standard_normal((3000, 3))
    assert lack_of_fit(Architecture((1,)), Rows(U, U[:, :1] ** 2), np.zeros(4), rng) < 1e-3
