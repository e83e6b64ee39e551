"""Networks behind samples: found, and what is said where they cannot be."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident import PassiveNetworkIdentifier
from skident.datasets import make_network
from skident.fitting.batched_fits import random_parameters
from skident.fitting.scored_pruning import Scoring
from skident.fitting.width_search import WidthSearchResult
from skident.metrics import parameter_error


def planted(widths, n, activation="tanh", seed=0):
    truth = make_network(
        (4, *widths), bias_scale=0.3, activation=activation, output_activation="identity", random_state=seed
    )
    X = np.random.RandomState(seed + 1).standard_normal((n, 4))
    return truth, X, truth(X)


def identifier(**options):
    return PassiveNetworkIdentifier(**{"n_starts": 8, "max_seconds": None, "random_state": 0, **options})


@pytest.mark.parametrize(
    ("widths", "activation"), [((3, 1), "tanh"), ((3, 2), "sigmoid"), ((3, 1), "softplus"), ((3, 1), "sin")]
)
def test_one_hidden_layer_is_found(widths, activation):
    truth, X, Y = planted(widths, 300, activation)
    found = identifier(activation=activation).fit(X, Y)
    assert found.layer_widths_ == widths and found.report_.exact and found.report_.open == []
    assert parameter_error(truth, found.network_) < 1e-10
    np.testing.assert_allclose(found.predict(X), Y, atol=1e-10)
    assert "exact" in str(found.report_)


def test_two_hidden_layers_are_found_with_widths_told():
    truth, X, Y = planted((3, 2, 1), 400, seed=1)
    found = identifier(layer_widths=(3, 2, 1)).fit(X, Y)
    assert found.report_.exact and parameter_error(truth, found.network_) < 1e-10


def test_noise_comes_with_standard_errors_and_no_claim():
    truth, X, Y = planted((2, 1), 120, seed=2)
    noise = 0.05 * Y.std()
    found = identifier(n_starts=4).fit(X, Y[:, 0] + noise * np.random.RandomState(5).standard_normal(120))
    assert found.layer_widths_ == (2, 1) and not found.report_.exact and found.report_.open == []
    assert found.report_.noise * Y.std() == pytest.approx(noise, rel=0.2)
    aligned = truth.align_to(found.network_)
    z = np.concatenate(
        [((a - b) / e).ravel() for a, b, e in zip(found.network_.weights, aligned.weights, found.stderr_[0])]
    )
    assert 0.3 < np.sqrt(np.mean(z**2)) < 2.0


def test_a_small_unit_behind_noise_is_found():
    truth, X, Y = planted((3, 1), 300, seed=1)
    assert np.abs(truth.weights[1]).min() < 0.25 * np.abs(truth.weights[1]).max()
    noisy = Y[:, 0] + 0.02 * Y.std() * np.random.RandomState(6).standard_normal(300)
    assert identifier(n_starts=4).fit(X, noisy).layer_widths_ == (3, 1)


def test_a_misfit_is_not_passed_as_noise(monkeypatch):
    def stuck(rows, architecture, limits, rng):
        fitted = Scoring(rows, 0.0).refit(architecture, random_parameters(4, architecture, 1, rng))
        return WidthSearchResult(fitted, True, [])  # as a search whose wider networks did no better

    truth, X, Y = planted((4, 3, 1), 600, seed=1)
    monkeypatch.setattr("skident.samples.passive.identifier.search_weights", stuck)
    with pytest.warns(ConvergenceWarning, match="not a network of this class.* which is no noise"):
        found = identifier(layer_widths=(4, 1)).fit(X, Y)
    assert not found.report_.exact and found.report_.lack_of_fit < 1e-3 < found.report_.noise
    assert all(np.isinf(errors).all() for part in found.stderr_ for errors in part)


def test_weights_are_repetitions():
    _, X, Y = planted((2, 1), 60, seed=3)
    y = Y[:, 0] + 0.1 * np.random.RandomState(0).standard_normal(60)
    counts = np.random.RandomState(1).randint(0, 3, 60)
    one = identifier(layer_widths=(2, 1)).fit(X, y, sample_weight=counts)
    other = identifier(layer_widths=(2, 1)).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    np.testing.assert_allclose(one.predict(X), other.predict(X), atol=1e-10)


def test_rows_in_a_file_are_read(tmp_path):
    _, X, Y = planted((2, 1), 300, seed=4)
    mapped = np.memmap(tmp_path / "X", dtype=np.float64, mode="w+", shape=X.shape)
    mapped[:] = X
    assert identifier(layer_widths=(2, 1)).fit(mapped, Y[:, 0]).report_.exact


def test_a_column_that_does_not_matter_is_told():
    _, X, Y = planted((2, 1), 300, seed=5)
    more = np.column_stack([X, np.random.RandomState(9).standard_normal(300)])
    found = identifier(layer_widths=(2, 1)).fit(more, Y[:, 0])
    assert list(found.report_.idle_features) == [4] and found.report_.exact
    noise = 0.02 * Y.std() * np.random.RandomState(3).standard_normal(300)
    found = identifier(layer_widths=(2, 1)).fit(more, Y[:, 0] + noise)
    assert list(found.report_.idle_features) == [4] and not found.report_.exact and not found.report_.open


# Bad input: what is open is said, and nothing is claimed.


def smooth(X):
    return np.exp(X[:, 0]) + X[:, 1] ** 2 * X[:, 2]


_, X, Y = planted((2, 1), 240, seed=6)
y = Y[:, 0]
NOISE = np.random.RandomState(3).standard_normal(240)
OUTLIERS = y + np.where(np.arange(240) % 60 == 0, 50.0, 0.0) + 0.01 * NOISE
BINARY = np.sign(X) + (np.arange(240)[:, None] // 80)
CASES = {
    "fewer rows than parameters": (X[:9], y[:9], {}, "too few to determine a network of one hidden unit"),
    "too few rows to check": (X[:45], y[:45], {"layer_widths": (2, 1)}, "only 6 rows could be held out"),
    "duplicated rows": (np.repeat(X[:8], 20, axis=0), np.repeat(y[:8], 20) + 0.1 * X[:160, 0], {}, "repeated rows"),
    "no density": (BINARY, make_network((4, 2, 1), output_activation="identity", random_state=0)(BINARY)[:, 0],
                   {"layer_widths": (2, 1)}, "columns of X are discrete: between"),
    "another class": (X, smooth(X), {"layer_widths": (1, 1)}, "not a network of this class"),
    "an activation that does not fit": (X, y, {"activation": "sin", "layer_widths": (2, 1)}, "not a network of this"),
    "outliers": (X, OUTLIERS, {"layer_widths": (2, 1)}, "outliers pull least squares"),
    "outliers that units are spent on": (X[:100], OUTLIERS[:100], {}, "rows decide parameters alone"),
    "an activation that does not fit, and noise": (X, y + 0.01 * NOISE, {"activation": "relu", "layer_widths": (2, 1)},
                                                   "functions of X explain what it leaves"),
    "a linear function": (X, X @ [1.0, 2.0, 0.0, 0.0], {}, "no hidden unit explains more"),
    "noise alone": (X[:60], np.random.RandomState(8).standard_normal(60), {}, "no hidden unit explains more"),
    "a constant column": (np.column_stack([X, np.ones(240)]), y, {"layer_widths": (2, 1)}, "weights along them"),
    "too many units": (X, y, {"layer_widths": (4, 1)}, "open"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_open_is_said(case):
    X, y, options, said = CASES[case]
    with pytest.warns(ConvergenceWarning, match=said):
        found = identifier(n_starts=4, **options).fit(X, y)
    assert not found.report_.exact and any(said in text for text in found.report_.open)
    assert np.isfinite(found.predict(X)).all()


@pytest.mark.parametrize(
    ("X", "y", "options", "said"),
    [
        (X, np.ones(240), {}, "y is constant"),
        (np.ones((240, 2)), y, {}, "all columns of X are constant"),
        (X[:9], y[:9], {"layer_widths": (3, 1)}, "has 19 parameters"),
        (X, y, {"layer_widths": (3, 2)}, "ends in 2"),
        (X, y, {"activation": "identity"}, "makes a linear function"),
    ],
)
def test_what_cannot_be_fitted_is_refused(X, y, options, said):
    with pytest.raises(ValueError, match=said):
        identifier(**options).fit(X, y)


def test_a_sine_along_a_discrete_column_is_open():
    truth = make_network((4, 1, 1), activation="sin", output_activation="identity", random_state=0)
    mixed = np.column_stack([X[:, :3], np.sign(X[:, 3])])
    with pytest.warns(ConvergenceWarning, match="frequencies of sin units"):
        found = identifier(activation="sin", layer_widths=(1, 1)).fit(mixed, truth(mixed)[:, 0])
    assert not found.report_.exact


@pytest.mark.usefixtures("own_seconds")
def test_time_is_kept_and_told():
    truth, X, Y = planted((6, 4, 1), 900, seed=7)
    with pytest.warns(ConvergenceWarning, match="not a network of this class, or not recovered in the time"):
        found = identifier(max_seconds=0.05).fit(X, Y)
    assert not found.report_.exact and found.report_.seconds < 5.0


@pytest.mark.parametrize("activation", ["tanh", "softplus", "sin"])
def test_the_activation_is_found(activation):
    truth, X, Y = planted((2, 1), 200, activation)
    found = identifier(activation="auto", n_starts=4, max_work=1e10).fit(X, Y)
    assert found.activation_ == activation and found.report_.exact and found.report_.stopped_by != "max_seconds"
    assert min(found.activation_scores_, key=found.activation_scores_.get) == activation
    assert parameter_error(truth, found.network_) < 1e-10


def test_activations_that_samples_do_not_exclude_are_named():
    _, X, Y = planted((1, 1), 60)
    y = Y[:, 0] + 0.5 * Y.std() * np.random.RandomState(0).standard_normal(60)
    with pytest.warns(ConvergenceWarning, match="do not determine the activation: .* has the lowest information"):
        found = identifier(layer_widths=(1, 1), activation="auto", n_starts=4, max_work=3e9).fit(X, y)
    assert set(found.activation_scores_) == {"tanh", "softplus", "relu", "sin", "gelu", "silu"}
