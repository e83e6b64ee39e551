"""Number formats of outputs, the error of an output at a point, and points that float32 models see as they are."""

from __future__ import annotations

import numpy as np
import pytest

from skident.network import FeedforwardNetwork
from skident.oracle import Accuracy, Oracle, precision_of

FORMATS = {"float64": np.float64, "float32": np.float32, "float16": np.float16}


def _as_bfloat16(Y):
    return (Y.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


@pytest.mark.parametrize("kind", [*FORMATS, "bfloat16"])
def test_binary_formats_are_recognized(kind):
    Y = np.random.RandomState(400).standard_normal((60, 2)) * [1.0, 30.0]
    Y = _as_bfloat16(Y) if kind == "bfloat16" else Y.astype(FORMATS[kind])
    assert precision_of(Y.astype(float)).kind == kind


def test_integers_are_decimals_and_no_half_precision():
    Y = np.random.RandomState(401).randint(-300, 300, (60, 1)).astype(float)
    assert precision_of(Y).kind == "decimals" and precision_of(Y).decimals == 0


@pytest.mark.parametrize("seed", range(400, 406))
def test_rounding_grows_with_the_distance_as_stated(seed):
    """The root mean square error at 1 and 30 standard deviations is that of `std_of`, to a factor of two."""
    rng = np.random.RandomState(seed)
    D, m = 8, 24
    parameters = [rng.standard_normal((D, m)) / np.sqrt(D), rng.standard_normal((m, 1)) / np.sqrt(m)]
    biases = [0.3 * rng.standard_normal(m), np.zeros(1)]
    exact = FeedforwardNetwork([w.astype(np.float32) for w in parameters], biases, "relu")

    def model(X):
        H = np.asarray(X, np.float32)
        for W, b in zip(exact.weights, exact.biases, strict=True):
            Z = H @ W.astype(np.float32) + b.astype(np.float32)
            H = np.maximum(Z, 0)
        return Z

    exact = FeedforwardNetwork(exact.weights, [b.astype(np.float32).astype(float) for b in biases], "relu")
    oracle = Oracle(model, D)
    U = rng.standard_normal((50, D))
    accuracy = oracle.measure_accuracy(U, oracle.standardize_outputs(oracle(U)), rng)
    assert accuracy.kind == "float32" and accuracy.grows
    for radius in (1.0, 30.0):
        V = oracle.representable(radius * rng.standard_normal((2000, D)))
        Y = oracle(V)
        error = Y - (exact(V) - oracle.output_center) / oracle.output_scale
        ratio = np.sqrt(np.mean(error**2) / np.mean(accuracy.std_of(V, Y) ** 2))
        assert 0.4 < ratio < 2.0, (radius, ratio)


def test_other_errors_are_equal_everywhere():
    accuracy = Accuracy(np.array([1e-3]), np.ones(1), 2.0**-52, np.zeros(1), "noise")
    U = np.array([[1.0], [1e3]])
    assert not accuracy.grows
    np.testing.assert_array_equal(accuracy.std_of(U, U), 1e-3)


def test_representable_points_are_float32_inputs_within_the_range():
    oracle = Oracle(lambda X: np.float32(X @ [1.0, 2.0]), 2, center=[0.1, 5.0], scale=[0.3, 2.0], input_range=(-1, 9.1))
    U = oracle.clip_to_range(np.random.RandomState(402).standard_normal((40, 2)) * 5)
    assert oracle.representable(U) is U  # the format is not known yet
    oracle.standardize_outputs(oracle(U))
    V = oracle.representable(U)
    X = oracle.to_inputs(V)
    at_border = (X >= 9.1) | (X <= -1.0)
    np.testing.assert_allclose(X, np.where(at_border, X, np.float32(X)), rtol=4e-16)  # the rounding of center + scale u
    assert np.abs(V - U).max() < 1e-6 and at_border.any()
    oracle(V)  # none lies outside


@pytest.mark.parametrize("digits", range(2, 14))
@pytest.mark.parametrize("spread", [1.0, 1e3])
def test_significant_digits_are_no_decimals(digits, spread):
    Y = spread * np.random.RandomState(403 + digits).standard_normal((30, 1))
    Y = np.array([[float(f"{y:.{digits}g}")] for y in Y.ravel()])
    assert precision_of(Y) == ("digits", digits)
    assert precision_of(Y).eps == pytest.approx(10.0 ** (1 - digits))


@pytest.mark.parametrize("decimals", range(1, 11))
def test_decimals_are_no_significant_digits(decimals):
    """Values of several decades have digits of their own; a share of them ends with zeros by chance."""
    for seed in range(404, 424):
        Y = np.random.RandomState(seed).standard_normal((20, 1)) * np.geomspace(1.0, 300.0, 20)[:, None]
        assert precision_of(Y.round(decimals)).kind == "decimals"


@pytest.mark.parametrize("cast", [True, False])
def test_models_that_round_their_inputs_count_as_single_precision(cast):
    rng = np.random.RandomState(425)
    box = lambda X: np.maximum((np.float32(X).astype(float) if cast else X) @ [1.0, -2.0, 0.5], 0.1)  # noqa: E731
    oracle, U = Oracle(box, 3), rng.standard_normal((100, 3))
    accuracy = oracle.measure_accuracy(U, oracle.standardize_outputs(oracle(U)), rng)
    assert (accuracy.kind, oracle.rounds_inputs) == (("float32", True) if cast else ("float64", False))
    oracle.standardize_outputs(oracle(U))  # once more: what is known of the inputs stays
    assert oracle.precision.kind == accuracy.kind and accuracy.grows
    assert (oracle.representable(U) is U) == (not cast)


def test_steps_between_float32_inputs_are_no_rounding_of_inputs():
    rng = np.random.RandomState(426)
    oracle, U = Oracle(lambda X: np.floor(40.0 * (X @ [1.0, -2.0, 0.5])) * np.pi, 3), rng.standard_normal((100, 3))
    accuracy = oracle.measure_accuracy(U, oracle.standardize_outputs(oracle(U)), rng)
    assert accuracy.kind == "noise" and not oracle.rounds_inputs


@pytest.mark.parametrize("kind", ["decimals", "digits"])
def test_outputs_of_one_decade_near_the_center_have_others_farther_out(kind):
    def box(X):
        Y = 0.5 + 0.1 * X @ [1.0, -1.0]
        return Y.round(7) if kind == "decimals" else np.array([float(f"{y:.7g}") for y in Y])

    rng = np.random.RandomState(427)
    oracle, U = Oracle(box, 2), rng.uniform(-1.0, 1.0, (20, 2))
    standardized = oracle.standardize_outputs(oracle(U))
    assert oracle.precision.kind == "decimals"
    assert oracle.measure_accuracy(5.0 * U, standardized, rng).kind == kind
