"""Services that are valid within a range only: recovered from `input_range` alone, and the range in messages."""

import warnings

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.identification.valid_range import find_sentinel, find_valid_range
from skident.metrics import relative_max_error
from skident.oracle import NotIdentified, Oracle
from tests.rates import fewest_successes


def service(model, low, high, beyond):
    """The model within a range; beyond it, it raises, or returns a value."""

    def box(X):
        outside = np.any((low > X) | (high < X), axis=1)
        if beyond == "raises" and outside.any():
            raise ValueError("input out of range")
        Y = np.array(model(X), dtype=float)
        if beyond != "raises":
            Y[outside] = beyond
        return Y

    return box


def network_of(activation, sizes, seed):
    return make_network(sizes, activation=activation, output_activation="identity", bias_scale=0.5, random_state=seed)


BEYOND = ("raises", np.nan, 0.0, -1.0)
LIMITS = ((-10.0, 10.0), (-5.0, 5.0), (-3.0, 3.0), (-3.0, 8.0))


def found_in_range(activation, sizes, seed, k):
    """Whether a service is recovered exactly if only its range is given."""
    D, rng = sizes[0], np.random.default_rng(seed)
    low, high = (np.full(D, bound) for bound in LIMITS[k % len(LIMITS)])
    if k % 2:
        low, high = low * rng.uniform(1.0, 1.5, D), high * rng.uniform(1.0, 1.5, D)
    X = rng.standard_normal((200, D)).clip(low, high)
    truth = network_of(activation, sizes, seed)
    box = service(truth, low, high, BEYOND[(k // 2) % len(BEYOND)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = NetworkIdentifier(box, input_range=(low, high), random_state=0).fit(X)
        except NotIdentified:
            return False
    if model.report_.exact:
        assert relative_max_error(truth(X), model.network_(X)) < 1e-7
    return model.report_.exact


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("sizes", [(4, 8, 1), (6, 12, 2)])
def test_one_hidden_layer_from_the_range_alone(activation, sizes):
    n = 4
    assert sum(found_in_range(activation, sizes, seed, k=seed) for seed in range(n)) >= fewest_successes(n, 20, 20)


@pytest.mark.parametrize(("activation", "measured"), [("relu", (8, 10)), ("tanh", (9, 10))])
def test_two_hidden_layers_from_the_range_alone(activation, measured):
    n = 2
    found = sum(found_in_range(activation, (5, 8, 6, 2), seed, k=seed) for seed in range(n))
    assert found >= fewest_successes(n, *measured)


def test_other_models_within_a_range(rng):
    X = rng.standard_normal((200, 4)).clip(-3.0, 3.0)
    linear = NetworkIdentifier(lambda U: U @ [1.0, 2.0, 3.0, 4.0] + 1.0, input_range=(-4, 4), random_state=0).fit(X)
    assert linear.report_.exact and linear.layer_widths_ == (1,)
    forest = RandomForestRegressor(5, random_state=0).fit(X, X[:, 0] * X[:, 1])
    with pytest.raises(NotIdentified, match="a tree ensemble"):
        NetworkIdentifier(forest.predict, input_range=(-4, 4), random_state=0).fit(X)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_rows_outside_the_range(rng, activation):
    """They are left out if the center lies inside; otherwise the error names what to do."""
    truth, X = network_of(activation, (4, 5, 1), 0), rng.standard_normal((200, 4))
    inside = NetworkIdentifier(service(truth, -2.0, 2.0, "raises"), input_range=(-2, 2), random_state=0).fit(X)
    assert inside.report_.exact
    far = NetworkIdentifier(service(truth, 0.3, 6.0, "raises"), input_range=(0.3, 6), random_state=0)
    with pytest.raises(ValueError, match="the center is too near the border: .* outside its input_range.*Pass only"):
        far.fit(X)


def test_only_the_rows_inside_the_range(rng):
    """What the message says to do."""
    truth, X = network_of("relu", (2, 5, 1), 0), rng.standard_normal((200, 2))
    low, high = np.full(2, 0.3), np.full(2, 6.0)
    identifier = NetworkIdentifier(service(truth, low, high, "raises"), input_range=(low, high), random_state=0)
    rows = X[((low <= X) & (X <= high)).all(axis=1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # units that change in a corner may be missed
        identifier.fit(rows)
    assert relative_max_error(truth(rows), identifier.network_(rows)) < 1e-8


def test_a_range_of_many_inputs_is_that_of_the_samples(rng):
    X = rng.uniform(-1.0, 1.0, (100, 30)) * np.arange(1, 31)
    low, high = X.min(axis=0), X.max(axis=0)
    found = find_valid_range(Oracle(service(lambda U: U[:, 0], low, high, "raises"), 30, scale=X.std(axis=0)), X)
    np.testing.assert_array_equal(found, (low, high))


def test_a_valid_ball_contains_the_box(rng):
    X = rng.standard_normal((100, 3))

    def box(U):
        return np.where(np.linalg.norm(U, axis=1) < 4.0, U[:, 0], np.nan)

    low, high = find_valid_range(Oracle(box, 3), X)
    assert np.linalg.norm(np.maximum(-low, high)) < 4.0 and (high - low).min() > 0.5


SMOOTH = {
    "clipped": lambda U: np.clip(U @ [1.0, 2.0], -1.0, 1.0),
    "kernel": lambda U: np.exp(-0.5 * np.sum(U**2, axis=1)),
    "saturated": lambda U: np.tanh(U @ [1.0, 2.0]),
    "tree": lambda U: np.where(U[:, 0] > 0.5, 1.0, 0.0),
}


@pytest.mark.parametrize("kind", SMOOTH)
def test_what_is_no_sentinel(kind, rng):
    assert find_sentinel(Oracle(SMOOTH[kind], 2), rng.standard_normal((50, 2))) is None
