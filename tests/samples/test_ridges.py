"""Ridge functions fitted to samples: Algorithm 5's regression, the polish, their number, their signs."""

import numpy as np
import pytest

from skident.samples.paper.scalars import population_tensors
from skident.samples.ridge_count import add_ridge, cross_validated_size, escape, remove_ridge, select_size
from skident.samples.ridge_sides import as_relu, resolve_signs
from skident.samples.ridges import RidgeModel, fit_ridges, regress_on_ridges
from skident.samples.sample import Sample
from skident.samples.tensor_stage import correct, estimate_tensors, linear_model, residual_curvature, tensor_stage
from skident.samples.tensor_starts import fit_candidates, moment_candidates, units_tensors
from tests.rates import fewest_successes
from tests.references import reference_residual_jacobian


def planted(seed, d, m, n, noise=0.0):
    """A sample of a network of m units and the network's units as rows, biases, output weights."""
    rng = np.random.RandomState(seed)
    U = rng.standard_normal((m, d))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    b, a = rng.uniform(-1, 1, m), rng.choice([-1, 1], m) * rng.uniform(1, 2, m)
    X = rng.standard_normal((n, d))
    y = np.maximum(X @ U.T + b, 0) @ a
    return Sample(X, y + noise * y.std() * rng.standard_normal(n)), U, b, a


def in_z(sample, U, b):
    """The units' directions and biases in the coordinates of the sample."""
    V = np.linalg.solve(sample.whitener, U.T)
    lengths = np.linalg.norm(V, axis=0)
    return (V / lengths).T, (b + U @ sample.center) / lengths


def some_model(rng, d=3, m=4, kind="abs", skip=True):
    u = rng.standard_normal(d) if skip else np.zeros(d)
    s = np.where(np.arange(m) % 2, 1.0, -1.0)
    return RidgeModel(rng.standard_normal((d, m)), rng.standard_normal(m), s, u, 0.3, kind, skip)


def parts_of(sample, model):
    from skident.samples.ridges import _cost_and_gradient, _curvature

    cost, gradient = sample.reduce(_cost_and_gradient, model)
    return float(cost), gradient, sample.reduce(_curvature, model)[0]


@pytest.mark.parametrize("kind", ["abs", "relu"])
@pytest.mark.parametrize("skip", [True, False])
def test_gradient_and_curvature_are_those_of_the_residuals(kind, skip, rng):
    X, y, w = rng.standard_normal((60, 3)), rng.standard_normal(60), rng.uniform(0.5, 2, 60)
    sample, model = Sample(X, y, w), some_model(rng, kind=kind, skip=skip)
    Z, target, weights = sample._kept[0]

    def residual(theta):
        return np.sqrt(weights) * (model.unpack(theta)(Z) - target)

    theta = model.pack()
    assert len(theta) == model.n_parameters
    J, r = reference_residual_jacobian(residual, theta), residual(theta)
    cost, gradient, matrix = parts_of(sample, model)
    # Central differences of step 1e-6 on piecewise linear functions: rounding, 1e-10.
    np.testing.assert_allclose(cost, r @ r, rtol=1e-12)
    np.testing.assert_allclose(gradient, J.T @ r, atol=1e-6)
    np.testing.assert_allclose(matrix, J.T @ J, atol=1e-6)


def test_units_give_the_model_back(rng):
    model, Z = some_model(rng), rng.standard_normal((20, 3))
    U, b, a = model.units()
    np.testing.assert_allclose(0.5 * np.abs(Z @ U.T + b) @ a + Z @ model.u + model.c, model(Z), atol=1e-12)
    for signs in (None, np.array([1.0, -1.0, -1.0, 1.0])):
        np.testing.assert_allclose(as_relu(model, signs)(Z), model(Z), atol=1e-12)


def test_regression_on_the_true_units_is_exact():
    sample, U, b, a = planted(0, 4, 3, 300)
    regression = regress_on_ridges(sample, *in_z(sample, U, b))
    assert regression.rss < 1e-13 * sample.total  # a difference of Gram entries
    assert np.all(regression.removal > 1e-3)


def test_removal_is_what_leaving_a_ridge_out_costs(rng):
    sample, U, b, _ = planted(1, 4, 3, 300, noise=0.1)
    U, b = in_z(sample, U, b)
    whole = regress_on_ridges(sample, U, b)
    for i in range(3):
        rest = regress_on_ridges(sample, np.delete(U, i, 0), np.delete(b, i))
        np.testing.assert_allclose(rest.rss - whole.rss, whole.removal[i], rtol=1e-8)


def test_a_ridge_twice_is_no_trouble():
    sample, U, b, _ = planted(2, 3, 2, 200)
    U, b = in_z(sample, U[[0, 1, 1]], b[[0, 1, 1]])
    assert regress_on_ridges(sample, U, b).rss < 1e-13 * sample.total  # a difference of Gram entries


def test_tensors_of_units_are_those_of_the_population():
    _, U, b, a = planted(3, 3, 4, 10)
    ours, theirs = units_tensors(U, b, a), population_tensors(U.T, b, a, 4)
    for k in (2, 3, 4):
        np.testing.assert_allclose(ours[k], theirs[k], atol=1e-14)


@pytest.mark.parametrize(("p", "m"), [(4, 4), (8, 8), (4, 6)])
def test_exact_tensors_give_the_units(p, m):
    _, U, b, a = planted(4, p, m, 10)
    tensors, rng = units_tensors(U, b, a), np.random.RandomState(0)
    W, _, _, loss = fit_candidates(tensors, *moment_candidates(tensors, p, m, 24, rng))
    assert loss[0] < 1e-14
    # A loss of 1e-14 is an error of 1e-7 in the tensors; the decomposition loses some of it.
    np.testing.assert_allclose(np.abs(U @ W[0]).max(axis=1), 1.0, atol=1e-5)


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


def test_part_of_the_rows_is_enough_for_the_curvature():
    sample, U, b, _ = planted(8, 3, 2, 20_000, noise=0.1)
    start = regress_on_ridges(sample, in_z(sample, U, b)[0] + 0.1, b).model
    whole, part = (fit_ridges(sample, start, ftol=1e-12, rng=r) for r in (None, np.random.RandomState(0)))
    np.testing.assert_allclose(part.rss, whole.rss, rtol=1e-8)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_size_is_found_from_below_and_above(size):
    sample, U, b, _ = planted(9, 4, 3, 3000, noise=0.1)
    rng = np.random.RandomState(0)
    U, b = in_z(sample, U, b)
    start = fit_ridges(sample, regress_on_ridges(sample, U[:size] + 0.2, b[:size]).model)
    assert select_size(sample, start, rng, max_units=6).model.n_units == 3


def test_ridges_added_and_removed():
    sample, U, b, _ = planted(10, 4, 2, 2000, noise=0.1)
    rng = np.random.RandomState(0)
    fit = fit_ridges(sample, regress_on_ridges(sample, *in_z(sample, U, b)).model)
    wider = add_ridge(sample, fit, rng)
    assert wider.model.n_units == 3 and wider.rss < fit.rss
    back = remove_ridge(sample, wider, rng)
    # Both ended where the residual sum changes by less than 1e-4 a step.
    assert back.model.n_units == 2 and back.rss < fit.rss * 1.001


def test_out_of_a_local_minimum():
    """Two units in the place of one leave another one out; adding one and taking one away mends it."""
    n_stuck = 0
    for seed in range(20):
        sample, U, b, _ = planted(seed, 4, 3, 3000, noise=0.05)
        U, b = in_z(sample, U, b)
        fit = fit_ridges(sample, regress_on_ridges(sample, U[[0, 0, 1]] * 1.0, b[[0, 0, 1]] + [0.3, -0.3, 0]).model)
        stuck = fit.rss > 2 * 0.05**2 * sample.total
        better, found_more = escape(sample, fit, np.random.RandomState(0), max_units=6)
        assert found_more == stuck and better.model.n_units == 3 and better.rss < 1.05 * 0.05**2 * sample.total
        n_stuck += stuck
    # The fit itself gets out of most such starts: 7 of 20 were stuck.
    assert n_stuck >= fewest_successes(20, 7, 20)


def test_cross_validation_sees_through_interpolation():
    """Noise has no units, though a few of them fit it well."""
    rng = np.random.RandomState(0)
    sample = Sample(rng.standard_normal((120, 3)), rng.standard_normal(120))

    def learn(part, size):
        fit = fit_ridges(part, regress_on_ridges(part, rng.standard_normal((size, 3)), np.zeros(size)).model)
        return fit

    assert cross_validated_size(sample, 4, learn, rng) == 0


@pytest.mark.parametrize(("d", "m", "noise"), [(4, 4, 0.0), (4, 4, 0.1), (3, 5, 0.0), (3, 5, 0.1), (14, 14, 0.05)])
def test_signs(d, m, noise):
    sample, U, b, a = planted(12, d, m, 6000, noise)
    fit = fit_ridges(sample, regress_on_ridges(sample, *in_z(sample, U, b)).model)
    signed = resolve_signs(sample, fit, np.random.RandomState(0))
    model = signed.fit.model
    assert not model.skip and 0 <= signed.margins.min() and signed.margins.max() <= 1
    found = model.V / np.linalg.norm(model.V, axis=0)
    # Signed directions: noise .1 and 4000 rows leave .02 or so.
    assert (in_z(sample, U, b)[0] @ found).max(axis=1).min() > (0.995 if noise else 1 - 1e-9)


def test_a_linear_part_that_signs_do_not_explain_is_kept():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((3000, 3))
    sample = Sample(X, np.maximum(X[:, 0], 0) + 5.0 * X[:, 1])
    signed = resolve_signs(sample, fit_ridges(sample, regress_on_ridges(sample, np.eye(3)[:1], np.zeros(1)).model), rng)
    assert signed.fit.model.skip and signed.fit.rss < 1e-20 * sample.total
