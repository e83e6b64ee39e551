"""Clipped outputs: identified with their clip, or never called exact; and what only looks like a clip."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.identification.activation.plateaus import clipped_range
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle
from tests.identifiers import make_identifier
from tests.rates import fewest_successes

SIDES = {"two-sided": (0.02, 0.98), "above": (0.0, 0.95), "below": (0.05, 1.0)}


def _case(seed, activation, sides, m=4, D=3):
    """Rows, a clipped network and its bounds."""
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((200, D))
    W, b = 1.5 * rng.standard_normal((D, m)) / np.sqrt(D), 0.5 * rng.standard_normal(m)
    plain = FeedforwardNetwork([W, rng.standard_normal((m, 1))], [b, rng.standard_normal(1)], activation)
    low, high = np.quantile(plain(X), sides)
    low, high = (low if sides[0] > 0.0 else -np.inf), (high if sides[1] < 1.0 else np.inf)
    return X, plain.with_clip(low, high)


def _fitted(box, X, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        found = make_identifier(box, random_state=0, **options).fit(X)
    return found, " ".join(str(w.message) for w in caught)


def _is_right(found, truth, X, tol=1e-7):
    V = np.concatenate([X, 3.0 * np.random.RandomState(1).standard_normal((2000, X.shape[1]))])
    return np.abs(found.network_(V) - truth(V)).max() < tol * np.ptp(truth(X))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_networks_are_found_with_their_clip(activation):
    n_found, n = 0, 12
    for seed in range(n):
        X, truth = _case(seed, activation, list(SIDES.values())[seed % 3])
        found, _ = _fitted(lambda V, f=truth: f(V)[:, 0], X)
        right = _is_right(found, truth, X)
        assert right or not found.report_.exact
        n_found += right and found.report_.exact and found.network_.activations[-1] == truth.activations[-1]
    assert n_found >= fewest_successes(n, 38, 40)


def test_clips_that_were_not_looked_for_are_never_exact():
    """With a given activation a clip is looked for last, which 3,000 queries do not allow: the others must veto."""
    said = []
    for seed in range(10):
        X, truth = _case(seed, "tanh", list(SIDES.values())[seed % 3])
        try:
            box = lambda V, f=truth: f(V)[:, 0]  # noqa: E731
            found, text = _fitted(box, X, activation="tanh", max_queries=3000)
        except ValueError:
            continue
        assert not found.report_.exact and not found.report_.agrees
        assert "answers as the black box does" not in text
        said.append(text)
    assert said and all(said)


def test_a_clip_that_few_far_outputs_reach_is_recovered():
    """The network before it explains all held-out samples; its extreme outputs prove the clip."""
    Z = 3.0 * np.random.RandomState(2).standard_normal((20_000, 3))
    for seed in range(5):
        X, truth = _case(seed, "tanh", SIDES["above"])
        plain = truth.without_clip()
        top = np.quantile(plain(Z), 0.995)
        box = lambda V, f=plain, top=top: np.minimum(f(V)[:, 0], top)  # noqa: E731
        found, _ = _fitted(box, X, activation="tanh", max_queries=3000)
        assert found.report_.exact and found.network_.output_range[1] == pytest.approx(top, rel=1e-12)
        np.testing.assert_allclose(found.predict(Z), box(Z), atol=1e-9)


def test_a_clip_beyond_all_queries_is_outside_the_checked_range():
    X, truth = _case(0, "relu", SIDES["above"])
    plain = truth.without_clip()
    found, _ = _fitted(lambda V: np.clip(plain(V)[:, 0], -1e40, 1e40), X)
    assert found.report_.exact and found.network_.output_range is None
    low, high = found.report_.checked_range
    assert np.all(low > -20.0) and np.all(high < 20.0)
    # What is claimed ends there: the clip starts far beyond.
    assert np.abs(plain(np.vstack([low, high]))).max() < 1e40


def test_diabetes_clipped_to_its_targets():
    """The model that was called exact although 2 % of its outputs three standard deviations away were clipped."""
    X, y = load_diabetes(return_X_y=True)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mlp = MLPRegressor(hidden_layer_sizes=(4,), activation="tanh", random_state=0, max_iter=150).fit(X, y)
    for low, high in ((y.min(), y.max()), (-np.inf, np.quantile(mlp.predict(X), 0.9))):
        box = lambda V, low=low, high=high: np.clip(mlp.predict(V), low, high)  # noqa: E731
        found, _ = _fitted(box, X)
        V = 3.0 * np.random.RandomState(1).standard_normal((5000, 10))
        right = np.abs(found.predict(V) - box(V)).max() < 1e-7
        assert right or not found.report_.exact


def _clip_of(box, X):
    oracle = Oracle(box, X.shape[1])
    oracle.standardize_outputs(oracle(X[:20]))
    E = np.random.RandomState(5).standard_normal((60, X.shape[1]))
    oracle(np.concatenate([spread * E for spread in (3.0, 30.0, 1e4)]))
    return clipped_range(oracle, X[:20])


POSITIVE = FeedforwardNetwork([[[1.0, -0.5], [0.3, 1.0]], [[1.0], [2.0]]], [[-0.5, -1.0], [0.3]], "relu")
NO_CLIPS = {
    "few tanh units": lambda X: make_network((2, 2, 1), output_activation="identity", random_state=0)(X),
    "steep tanh units": lambda X: make_network((2, 3, 2), output_activation="identity", random_state=0)(100.0 * X),
    "ReLU units that are all off": POSITIVE,
    "hard tanh units": lambda X: np.clip(X, -1.0, 1.0) @ [1.0, 2.0],
    "rounded": lambda X: np.round(np.tanh(X).sum(axis=1), 2),
    "steps": lambda X: np.floor(np.clip(X, -3, 3)).sum(axis=1),
    "linear": lambda X: X,
    "probabilities": lambda X: np.column_stack([p := 1.0 / (1.0 + np.exp(-np.clip(X[:, 0], -700, 700))), 1.0 - p]),
}


@pytest.mark.parametrize("name", NO_CLIPS)
def test_what_is_no_clip(name):
    assert _clip_of(NO_CLIPS[name], np.random.RandomState(0).standard_normal((100, 2))) is None


def test_bounds_are_exact_and_per_output():
    """Five percent of two outputs, one of them clipped on one side only."""
    for seed in range(10):
        for activation in ("tanh", "relu"):
            X, _ = _case(seed, activation, SIDES["above"])
            plain = make_network((3, 6, 2), activation=activation, output_activation="identity", random_state=seed)
            Y = plain(X)
            low, high = np.array([np.quantile(Y[:, 0], 0.05), -np.inf]), np.quantile(Y, 0.95, axis=0)
            found = _clip_of(plain.with_clip(low, high), X)
            assert found is not None
            # A bound that no queried output reaches is none.
            for bound, true in zip(found, (low, high), strict=True):
                assert np.all((bound == true) | np.isinf(bound))


def test_units_that_are_all_off_need_no_clip():
    X = np.random.RandomState(0).standard_normal((200, 2))
    found, text = _fitted(lambda V: POSITIVE(V)[:, 0], X)
    assert found.report_.exact and found.network_.output_range is None and not text


def test_rows_that_repeat_are_no_plateau():
    X = np.repeat(np.random.RandomState(0).standard_normal((4, 3)), 30, axis=0)
    truth = make_network((3, 4, 1), output_activation="identity", bias_scale=0.5, random_state=0)
    found, text = _fitted(lambda V: truth(V)[:, 0], X)
    assert found.report_.exact and found.network_.output_range is None and not text


def test_a_constant_plus_rounding():
    X = np.random.RandomState(0).standard_normal((100, 3))
    with pytest.raises(ValueError, match="the black box is constant"):
        NetworkIdentifier(lambda V: 3.0 + 4e-16 * np.sign(np.sin(V.sum(axis=1))), random_state=0).fit(X)
