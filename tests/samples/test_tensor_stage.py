"""Tensors of samples: control variates, noise, corrections, the number of units."""

import numpy as np

from skident.samples.ridges import linear_model, regress_on_ridges
from skident.samples.sample import Sample
from skident.samples.tensor_stage import correct, estimate_tensors, residual_curvature, tensor_stage, units_tensors
from tests.samples.planted import in_z, planted


def test_control_variate_leaves_the_expectation(rng):
    """The same tensors whatever is subtracted and added back, up to errors in proportion to the residuals."""
    sample, U, b, a = planted(5, 3, 2, 200_000)
    P, empty = np.eye(3), linear_model(sample)
    true = units_tensors(*in_z(sample, U, b), a / sample.y_scale)
    near = regress_on_ridges(sample, in_z(sample, U, b)[0] + 0.02, b).model
    errors = []
    for model, quadratic in ((empty, False), (empty, True), (near, False)):
        tensors = estimate_tensors(sample, P, model, quadratic=quadratic)
        errors.append(max(np.abs(tensors[k] - true[k]).max() for k in (2, 3, 4)))
    # sqrt(4! / n) = .011 is the standard error of a diagonal entry of T_4 for residuals of standard deviation 1.
    assert errors[0] < 0.06 and errors[1] < 0.7 * errors[0] and errors[2] < 0.2 * errors[0]


def test_noise_of_the_curvature_is_where_its_spectrum_ends():
    sizes = []
    for seed in range(10):
        rng = np.random.RandomState(seed)
        sample = Sample(rng.standard_normal((4000, 20)), rng.standard_normal(4000))
        curvature = residual_curvature(sample, linear_model(sample))
        sizes.append(np.abs(np.linalg.eigvalsh(curvature.matrix)).max() / curvature.noise)
    assert 0.7 < min(sizes) and max(sizes) < 1.3


def test_corrections_go_to_rounding_without_noise():
    sample, U, b, a = planted(6, 6, 3, 20_000)
    start = regress_on_ridges(sample, in_z(sample, U, b)[0] + 0.05, b)
    end = correct(sample, start, max_iter=12)
    assert end.rss < 1e-12 * start.rss


def test_stage_counts_and_finds_the_units():
    sample, U, b, a = planted(7, 8, 3, 20_000, noise=0.05)
    stage = tensor_stage(sample, rng=np.random.RandomState(0))
    assert stage.rank == 3
    found = stage.candidates[0].model.units()[0]
    assert np.abs(in_z(sample, U, b)[0] @ found.T).max(axis=1).min() > 0.99


def test_stage_without_units():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((2000, 5))
    stage = tensor_stage(Sample(X, X @ np.arange(5.0) + rng.standard_normal(2000)), rng=rng)
    assert stage.rank == 0 and stage.candidates == []
