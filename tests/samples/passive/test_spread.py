"""Standard errors where the noise leaves more than one network: true values are covered, or named as undetermined."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident import PassiveNetworkIdentifier
from skident.datasets import make_network
from tests.rates import fewest_successes

SEEDS = range(10)


def noisy(activation, seed, widths=(2, 1), n_inputs=2, noise=0.03):
    truth = make_network(
        (n_inputs, *widths), bias_scale=0.3, activation=activation, output_activation="identity", random_state=seed
    )
    rng = np.random.default_rng(seed + 100)
    X = rng.standard_normal((10 * truth.n_parameters, n_inputs))
    y = truth(X)[:, 0]
    return truth, X, y + noise * y.std() * rng.standard_normal(len(y))


def fitted(X, y, **options):
    options = {"layer_widths": (2, 1), "n_starts": 2, "max_seconds": None, "random_state": 0, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return PassiveNetworkIdentifier(**options).fit(X, y)


def flat(weights, biases):
    return np.concatenate([part.ravel() for part in (*weights, *biases)])


def z_scores(truth, found):
    network = found.network_
    aligned = truth.align_to(network)
    errors, scale = flat(network.weights, network.biases) - flat(aligned.weights, aligned.biases), flat(*found.stderr_)
    assert np.sum(np.isinf(scale)) == found.report_.n_undetermined
    return np.abs(errors[np.isfinite(scale)] / scale[np.isfinite(scale)])


def test_standard_errors_cover_with_widths_given():
    covered, size = [], []
    for seed in SEEDS:
        truth, X, y = noisy("softplus", seed)
        found = fitted(X, y, activation="softplus")
        covered.append(np.mean(z_scores(truth, found) <= 1.96) >= 0.75)
        size.append(max(np.abs(W).max() for W in found.network_.weights[:1]))
        assert found.report_.n_resampled == 24
    assert sum(covered) >= fewest_successes(len(SEEDS), 9, 10)
    assert max(size) < 10.0  # no unit follows the noise at single rows


def test_what_is_named_is_said():
    truth, X, y = noisy("softplus", 0, noise=0.3)
    with pytest.warns(ConvergenceWarning, match=r"the rows do not determine \d+ of 9 parameters at this noise"):
        found = PassiveNetworkIdentifier(
            (2, 1), activation="softplus", n_starts=2, max_seconds=None, random_state=0
        ).fit(X, y)
    assert found.report_.n_undetermined > 0 and not found.report_.exact


def test_standard_errors_of_first_order_are_named(monkeypatch):
    _, X, y = noisy("tanh", 1)
    monkeypatch.setattr("skident.samples.passive.final_fit.resampled", lambda *_: [])  # as where the budget ends first
    found = fitted(X, y)
    assert found.report_.n_resampled == 0 and np.isfinite(flat(*found.stderr_)).any()
    assert any("standard errors are of first order" in text for text in found.report_.open)


def test_no_standard_errors_where_the_budget_ends_before_the_fit():
    _, X, y = noisy("tanh", 1)
    found = fitted(X, y, max_work=1e6)
    assert found.report_.stopped_by == "max_work" and np.isinf(flat(*found.stderr_)).all()


def test_a_busy_machine_finds_the_same_network(monkeypatch):
    _, X, y = noisy("tanh", 2)
    idle = fitted(X, y, max_seconds=1e6)
    clock = iter(range(10**9))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(clock)))  # a second per look at the clock
    busy = fitted(X, y, max_seconds=1e6)
    assert busy.report_.stopped_by is None and busy.report_.work == idle.report_.work
    for ours, theirs in zip(flat(*busy.stderr_), flat(*idle.stderr_), strict=True):
        assert ours == theirs
    with pytest.warns(ConvergenceWarning, match="max_seconds=20 ended the search before its budget of work did"):
        guarded = PassiveNetworkIdentifier((2, 1), n_starts=2, max_seconds=20, random_state=0).fit(X, y)
    assert guarded.report_.stopped_by == "max_seconds" and not guarded.report_.exact


def clipped(truth, X, rng):
    y = truth(X)[:, 0]
    return np.minimum(y, np.sort(y)[-rng.integers(2, 5)])


def rare(truth, X, rng):
    w = rng.standard_normal(X.shape[1])
    along = X @ w / np.linalg.norm(w)
    return truth(X)[:, 0] + np.logaddexp(0.0, 10.0 * (along - np.sort(along)[-rng.integers(2, 5)]))


def offset(truth, X, rng):
    return truth(X)[:, 0] + 10.0 ** rng.uniform(8, 12)


@pytest.mark.parametrize("change", [clipped, rare, offset])
def test_what_was_changed_is_never_exact(change):
    for seed in SEEDS:
        truth, X, _ = noisy("tanh", seed, widths=(2, 1))
        y = change(truth, X, np.random.default_rng(seed))
        assert not fitted(X, y, layer_widths=(2, 1), max_work=1e8).report_.exact


@pytest.mark.parametrize("y", [1e6 + 1e-10 * np.arange(60), np.full(60, 0.1 + 0.2) + 1e-17 * np.arange(60),
                               (1.0 + 1e-7 * np.arange(60) / 60).astype(np.float32)])  # fmt: skip
def test_a_constant_plus_rounding_is_refused(y):
    X = np.random.default_rng(0).standard_normal((60, 2))
    with pytest.raises(ValueError, match="y is constant up to rounding"):
        fitted(X, y)


def test_inputs_that_repeat_are_named():
    _, X, y = noisy("tanh", 3)
    with pytest.warns(ConvergenceWarning, match="repeated rows give the noise"):
        found = PassiveNetworkIdentifier((2, 1), n_starts=2, max_seconds=None, random_state=0).fit(
            np.repeat(X, 2, axis=0), np.concatenate([y, y + 0.01])[np.argsort(np.tile(np.arange(len(y)), 2))]
        )
    assert not found.report_.exact


def test_widths_for_another_number_of_targets_speak_of_targets():
    _, X, y = noisy("tanh", 4)
    with pytest.raises(ValueError, match=r"ends in 1 but y has 2 target\(s\)"):
        fitted(X, np.column_stack([y, y]), layer_widths=(2, 1))


def test_units_with_a_kink_are_never_exact():
    truth, X, _ = noisy("relu", 5)
    with pytest.warns(ConvergenceWarning, match="cannot separate relu units that bend between the same rows"):
        found = PassiveNetworkIdentifier(
            (2, 1), activation="relu", n_starts=8, max_seconds=None, random_state=0
        ).fit(X, truth(X)[:, 0])  # fmt: skip
    assert not found.report_.exact and found.report_.held_out_error < 1e-8


def test_rounded_targets_are_never_exact():
    for seed in SEEDS:
        truth, X, _ = noisy("tanh", seed)
        assert not fitted(X, np.round(truth(X)[:, 0], 9)).report_.exact
