"""What an oracle knows of its outputs: their units, their precision, their errors, and the steps that follow."""

import numpy as np
import pytest
from scipy.special import expit

from skident.datasets import make_network
from skident.oracle import Oracle, measure_noise, precision_of

# -- accuracy ----------------------------------------------------------------------------------------------------------


NET = make_network((6, 5, 2), bias_scale=0.5, output_activation="identity", random_state=0)
U = np.random.RandomState(1).standard_normal((100, 6))


def informed(box, seed=0):
    """An oracle that knows its units and its accuracy."""
    oracle = Oracle(box, 6)
    Y = oracle.standardize_outputs(oracle(U))
    oracle.measure_accuracy(U, Y, np.random.RandomState(seed))
    return oracle


@pytest.mark.parametrize(
    ("change", "kind", "decimals"),
    [
        (lambda Y: Y, "float64", None),
        (lambda Y: Y.astype(np.float32), "float32", None),
        (lambda Y: 1e-9 * Y.astype(np.float32).astype(float), "noise", None),  # no longer single precision numbers
        (lambda Y: Y.round(6), "decimals", 6),
        (lambda Y: Y.round(1), "decimals", 1),
        (lambda Y: Y.round(3).astype(np.float32), "decimals", 3),
        (lambda Y: 1000.0 + Y, "float64", None),
    ],
)
def test_kinds_of_outputs(change, kind, decimals):
    oracle = informed(lambda X: change(NET(X)))
    assert (oracle.accuracy.kind, oracle.accuracy.decimals) == (kind, decimals)
    assert oracle.accuracy.repeatable


@pytest.mark.parametrize("values", [np.zeros((50, 1)), np.ones((50, 2)), np.sign(U[:, :2])])
def test_few_different_outputs_tell_no_precision(values):
    assert precision_of(values).kind == "float64"


@pytest.mark.parametrize("decimals", [2, 4, 6, 8])
def test_rounding_is_uniform(decimals):
    """Within the error of the estimate from short lines, and never below 10^-k / sqrt(12)."""
    oracle = informed(lambda X: NET(X).round(decimals))
    size = 10.0**-decimals / np.sqrt(12.0)
    ratio = oracle.accuracy.std * oracle.output_scale / size
    assert np.all(ratio > 1.0 - 1e-9) and np.all(ratio < 2.0)


def test_single_precision_is_measured():
    oracle = informed(lambda X: NET(X.astype(np.float32)).astype(np.float32))
    found = np.std((NET(U) - NET(U.astype(np.float32)).astype(np.float32)) / oracle.output_scale, axis=0)
    assert np.all((found / oracle.accuracy.std > 0.3) & (found / oracle.accuracy.std < 3.0))


@pytest.mark.parametrize(("offset", "unit"), [(1000.0, 1.0), (0.0, 1e6), (0.0, 1e-9), (-5.0, [1.0, 1e6])])
def test_outputs_in_units_of_their_own(offset, unit):
    """To rounding the same outputs and derivatives of f and of a + b f."""
    plain, mapped = informed(lambda X: NET(X)), informed(lambda X: offset + NET(X) * unit)
    answers = plain(U)
    np.testing.assert_allclose(mapped(U), answers, atol=1e-11)
    np.testing.assert_allclose(answers.std(axis=0), 1.0)
    np.testing.assert_allclose(mapped.jacobian(U[:3]), plain.jacobian(U[:3]), atol=1e-5)
    assert plain.n_queries == mapped.n_queries


def test_exact_derivatives_are_in_the_same_units():
    oracle = Oracle(NET, 6)
    oracle.standardize_outputs(oracle(U))
    np.testing.assert_allclose(oracle.jacobian(U[:3]), NET.jacobian(U[:3]) / oracle.output_scale[:, None])
    np.testing.assert_allclose(oracle.hessian(U[:3]), NET.hessian(U[:3]) / oracle.output_scale[:, None, None])


def test_outputs_with_limits_keep_them():
    oracle = Oracle(NET, 6)
    np.testing.assert_array_equal(oracle.standardize_outputs(oracle(U), "tanh"), NET(U))
    np.testing.assert_array_equal(oracle(U), NET(U))


def test_steps_follow_the_accuracy():
    exact, rounded = informed(lambda X: NET(X)), informed(lambda X: NET(X).round(5))
    assert exact.jacobian_step < 1e-5 and exact.hessian_step == 1e-3
    assert rounded.jacobian_step == rounded.accuracy.relative_error ** (1 / 3) and rounded.hessian_step > 0.03
    truth, error = NET.jacobian(U[:20]) / rounded.output_scale[:, None], []
    for box in (rounded, Oracle(lambda X: (NET(X).round(5) - rounded.output_center) / rounded.output_scale, 6)):
        error.append(np.abs(box.jacobian(U[:20]) - truth).max())
    assert error[0] < 0.02 and error[1] > 10.0 * error[0]  # the second does not know


def test_shared_oracles_share_what_they_know():
    oracle = informed(lambda X: 3.0 + 7.0 * NET(X).round(4))
    other = Oracle(oracle.as_black_box(), 6)
    np.testing.assert_array_equal(other.standardize_outputs(other(U)), oracle(U))
    assert other.measure_accuracy(U, other(U), np.random.RandomState(0)) is oracle.accuracy


def test_what_looks_like_much_noise_sets_no_step():
    oracle = informed(lambda X: NET(X).round(0) + 0.3 * np.sign(X[:, :2]))
    if not oracle.accuracy.is_plausible:
        assert oracle.hessian_step == oracle.step_size


def test_a_constant_output_has_no_relative_error():
    """Its rounding is beside no deviation, and says nothing of the others."""
    box = lambda X: np.column_stack([np.tanh(X[:, 0]), np.full(len(X), 4.2)]).astype(np.float32)  # noqa: E731
    U = np.random.RandomState(0).standard_normal((50, 2))
    oracle = Oracle(box, 2)
    accuracy = oracle.measure_accuracy(U, oracle.standardize_outputs(oracle(U)), np.random.RandomState(0))
    assert oracle.constant_outputs.tolist() == [False, True]
    assert accuracy.kind == "float32" and accuracy.relative_error < 1e-6


@pytest.mark.parametrize(("error", "kind"), [(0.0, "float64"), (1e-6, "noise")])
def test_logits_of_probabilities_near_one_are_exact_outputs(error, kind):
    """Log-odds of 5 to 15 are rounded to 1e-14 ... 1e-9: no noise of the network's own."""
    rng = np.random.RandomState(0)
    box = lambda X: expit(10.0 + 5.0 * np.tanh(X[:, 0]) + error * rng.standard_normal(len(X)))  # noqa: E731
    oracle = Oracle(box, 6, response="predict_proba")
    Y = oracle.standardize_outputs(oracle(U))
    assert oracle.measure_accuracy(U, Y, np.random.RandomState(0)).kind == kind


# -- noise -------------------------------------------------------------------------------------------------------------


SEEDS = range(4)


def network(seed, activation="tanh"):
    options = {"activation": activation, "output_activation": "identity"}
    return make_network((8, 6, 3), bias_scale=0.5, random_state=seed, **options)


def single(net, X):
    """The network in float32, as torch would output."""
    y = X.astype(np.float32)
    for W, b in zip(net.weights[:-1], net.biases[:-1]):
        y = np.tanh(y @ W.astype(np.float32) + b.astype(np.float32))
    return y @ net.weights[-1].astype(np.float32) + net.biases[-1].astype(np.float32)


def measure(box, seed):
    oracle = Oracle(box, 8)
    U = np.random.RandomState(seed).standard_normal((100, 8))
    level = measure_noise(oracle, U, np.random.RandomState(seed))
    assert level.std.shape == (3,)
    return *level, oracle.n_queries


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [1e-6, 1e-3])
def test_fresh_noise_of_every_output(size, seed):
    """120 degrees of freedom: the estimate's own standard deviation is 6.5 %, three of them are 20 %."""
    net, rng, unit = network(seed), np.random.RandomState(seed + 100), np.array([1.0, 10.0, 0.1])
    std, repeatable, n_queries = measure(lambda X: net(X) + size * unit * rng.standard_normal((len(X), 3)), seed)
    assert np.all(np.abs(std / (size * unit) - 1) < 0.2)
    assert not repeatable and n_queries <= 400


@pytest.mark.parametrize(("share", "n_most"), [(0.5, 1), (0.8, 2), (0.95, 2)])
def test_outputs_at_rest_are_no_rounding(share, n_most):
    """A unit that is off at most inputs gives equal neighbors, as rounding does: at most 1 of 300 was mistaken."""
    n_mistaken = 0
    for seed in range(50):
        rng = np.random.RandomState(seed)
        w, U = rng.standard_normal(5), rng.standard_normal((100, 5))
        start = np.quantile(U @ w, share)
        level = measure_noise(Oracle(lambda X, w=w, start=start: np.maximum(X @ w - start, 0), 5), U, rng)
        n_mistaken += level.std[0] > 1e-12
    assert n_mistaken <= n_most


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("decimals", [2, 4, 6])
def test_rounding_is_noise_that_repeats(decimals, seed):
    """The rounding error is uniform of length 10^-decimals; coarse rounding leaves few distinct values to see it by."""
    net = network(seed)
    std, repeatable, _ = measure(lambda X: net(X).round(decimals), seed)
    expected = 10.0**-decimals / np.sqrt(12)
    assert repeatable and np.all(std > expected / 4) and np.all(std < 4 * expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_single_precision(seed):
    net = network(seed)
    std, repeatable, _ = measure(lambda X: single(net, X), seed)
    assert repeatable and np.all(std > 5e-9) and np.all(std < 5e-7)


@pytest.mark.parametrize(
    "activation", ["tanh", "sigmoid", "erf", "softplus", "sin", "gelu", "silu", "elu", "relu", "quadratic"]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_exact_outputs_are_not_noisy(activation, seed):
    """Rounding of float64 sums of a few terms; activation boundaries of relu are not noise."""
    net = network(seed, activation)
    std, repeatable, n_queries = measure(net, seed)
    largest = np.abs(net(np.random.RandomState(seed).standard_normal((100, 8)))).max()
    assert repeatable and std.max() < 1e-14 * largest and n_queries <= 100


def test_steep_networks_are_not_noisy():
    net = network(0)
    assert measure(lambda X: net(30.0 * X), 0)[0].max() < 1e-13


def test_offset_counts_as_rounding_only():
    net = network(0)
    std, repeatable, _ = measure(lambda X: net(X) + 1e6, 0)
    assert repeatable and std.max() < 1e-9


def test_constant_output():
    """It cannot be told from one that is rounded coarsely, so larger spacings are tried too."""
    std, repeatable, n_queries = measure(lambda X: np.tile([1.0, 0.0, 1e9], (len(X), 1)), 0)
    assert repeatable and np.all(std == 0) and n_queries == 143
