"""Held-out samples that grow with the queries spent, the share they leave undetected, and clips they prove."""

import re
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from skident import HierarchicalQuadraticNet, NetworkIdentifier, PassiveNetworkIdentifier, TensorReLURegressor
from skident.base.undetected import CONFIDENCE, undetected_share
from skident.datasets import make_network
from skident.identification.further_samples import near_boundaries
from skident.identification.query_points import evenly_spaced_rows
from skident.network import FeedforwardNetwork

D = 5
X = np.random.RandomState(1).standard_normal((200, D))
Z = np.random.RandomState(2).standard_normal((100_000, D))
DEVIATIONS = ("bump", "slab", "ball")


def network(activation, seed, n_outputs=1):
    return make_network(
        (D, 6, n_outputs), activation=activation, output_activation="identity", bias_scale=0.5, random_state=seed
    )


def deviation(kind, share, seed):
    """A local deviation on a share of N(0, I)."""
    rng = np.random.RandomState(seed)
    center, u = 0.5 * rng.standard_normal(D), rng.standard_normal(D) / np.sqrt(D)
    distance = {
        "bump": lambda V: np.abs(V - center).sum(axis=1),
        "slab": lambda V: np.abs(V @ u - center[0]),
        "ball": lambda V: np.linalg.norm(V - center, axis=1),
    }[kind]
    radius = np.quantile(distance(Z), share)
    height = (lambda V: radius - distance(V)) if kind == "bump" else (lambda V: np.full(len(V), 0.3))
    return lambda V: np.where(distance(V) < radius, height(V), 0.0)


def fitted(box, samples=X, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return NetworkIdentifier(box, random_state=0, **options).fit(samples)


@pytest.mark.parametrize("kind", DEVIATIONS)
@pytest.mark.parametrize("seed", range(2))
def test_what_is_undetected_is_stated(kind, seed):
    share, f = 2e-3, network("relu", seed)
    local = deviation(kind, share, seed)
    report = fitted(lambda V: f(V) + local(V)[:, None], activation="relu").report_
    assert not report.exact or report.undetected_share >= share


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_a_local_deviation_is_named_by_its_input(kind):
    """One of 110 rows, which is not among the 100 that are held out first."""
    f, rows = network("tanh", 0), X[:110]
    (row, *_) = np.setdiff1d(np.arange(110), evenly_spaced_rows(np.arange(110), 100))

    def box(V):
        off = 0.1 * (np.abs(V - rows[row]).max(axis=1) < 1e-9)
        if kind == "regressor":
            return f(V)[:, 0] + off
        p = 1.0 / (1.0 + np.exp(-f(V)[:, 0] - off))
        return np.column_stack([1.0 - p, p])

    response = "predict" if kind == "regressor" else "predict_proba"
    identifier = NetworkIdentifier(
        box, layer_widths=(6, 1), activation="tanh", response_method=response, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match="not exact.*1 of .* further held-out samples.*local deviation") as said:
        identifier.fit(rows)
    report = identifier.report_
    np.testing.assert_allclose(report.deviates_at, rows[row])
    assert (report.exact, report.undetected_share, report.undetected_share_of_X) == (False, 1.0, 1.0)
    call = re.search(r"with (predict\(.*?\)),", str(said[-1].message)).group(1)
    there = eval(f"identifier.{call}", {"identifier": identifier, "report_": report})  # as the message recommends
    assert kind == "classifier" or abs(there - box(report.deviates_at[None])).max() > 0.09


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_cost_is_a_tenth_and_fits_what_is_left(activation):
    f, calls = network(activation, 1), []

    def box(V):
        calls.append(len(V))
        return f(V)

    free = fitted(box)
    spent = sum(calls)
    further = free.report_.checked - 200
    assert free.report_.exact and spent == free.n_queries_ and free.report_.deviates_at is None
    assert 0.08 * (spent - further) < further <= 0.1 * (spent - further)
    calls.clear()
    for max_queries in (free.n_queries_ - further, free.n_queries_ - further // 2, free.n_queries_):
        report = fitted(f, activation=activation, max_queries=max_queries).report_
        assert report.exact and report.n_queries <= max_queries
        assert free.report_.undetected_share - 1e-3 <= report.undetected_share < 0.1


def test_few_rows_are_all_compared():
    report = fitted(network("relu", 2), X[:110]).report_
    assert report.exact and report.undetected_share_of_X == 0.0 < report.undetected_share


def test_samples_stay_in_the_range():
    f, seen = network("relu", 3), []

    def box(V):
        seen.append(np.abs(V).max())
        return f(V)

    report = fitted(box, activation="relu", input_range=(-4.0, 4.0)).report_
    assert report.checked > 200 and max(seen) <= 4.0
    low, high = report.checked_range
    assert low.min() >= -4.0 and high.max() <= 4.0


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_points_lie_beside_the_boundaries_of_all_units(activation):
    f = make_network((D, 6, 4, 1), activation=activation, bias_scale=0.5, random_state=0)
    U = near_boundaries(f, np.random.RandomState(0).standard_normal((400, D)), np.random.RandomState(0))
    first = U @ f.weights[0] + f.biases[0]
    second = FeedforwardNetwork(f.weights[:2], f.biases[:2], activation)(U)
    near = np.hstack([np.abs(first), np.abs(second)]) < 0.11
    assert 200 < len(U) <= 400 and near.any(axis=1).mean() > 0.9
    assert (near.sum(axis=0) > 20)[:6].all()


def test_a_network_without_hidden_layers_has_no_boundaries():
    assert len(near_boundaries(FeedforwardNetwork([np.ones((D, 1))], [np.zeros(1)]), X, np.random.RandomState(0))) == 0
    report = fitted(lambda V: V @ np.arange(1.0, D + 1.0)).report_
    assert report.exact and report.undetected_share < 0.05


@pytest.mark.parametrize(("activation", "n_outputs"), [("tanh", 1), ("relu", 1), ("relu", 2)])
def test_an_output_that_is_clipped_rarely_is_recovered(activation, n_outputs):
    """A ReLU output that hardly a sample of N(0, 9 I) meets: the network's own smallest outputs prove it."""
    plain = network(activation, 4, n_outputs)
    low = np.quantile(plain(3.0 * Z[:20_000]), 1e-4, axis=0)
    box = lambda V: np.maximum(plain(V) - low, 0.0)  # noqa: E731
    found = fitted(box)
    assert found.report_.exact and found.network_.output_activation == "clip(0, inf)"
    for spread in (1.0, 3.0, 100.0):
        np.testing.assert_allclose(found.network_(spread * Z), box(spread * Z), atol=1e-7 * spread)


def test_classifiers_are_compared_too():
    rng = np.random.RandomState(0)
    samples = 0.3 * rng.standard_normal((150, 4))
    model = LogisticRegression().fit(samples, samples @ [1.0, 2.0, 0.0, -1.0] > 0.0)
    report = fitted(model.predict_proba, samples, response_method="predict_proba").report_
    assert report.exact and report.checked > 200 and report.undetected_share < 0.06


def test_estimators_from_samples_state_the_share():
    rng = np.random.RandomState(0)
    samples = rng.standard_normal((600, 3))
    f = make_network((3, 2, 1), output_activation="identity", random_state=0)
    passive = PassiveNetworkIdentifier(layer_widths=(2, 1), random_state=0).fit(samples, f(samples)[:, 0]).report_
    assert passive.exact and passive.undetected_share == undetected_share(passive.n_held_out)
    assert f"{passive.undetected_share:.2g} of such rows (confidence {CONFIDENCE:g})" in str(passive)
    y = np.maximum(samples[:, 0], 0.0) + np.maximum(samples[:, 1] - 0.2, 0.0)
    tensor = TensorReLURegressor(random_state=0).fit(samples, y)
    assert tensor.undetected_share_ == (undetected_share(600) if tensor.exact_ else 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sums = HierarchicalQuadraticNet(random_state=0).fit(samples, samples[:, 0] ** 2)
    assert sums.undetected_share_ == (undetected_share(600) if sums.exact_ else 1.0)


def test_the_bound_holds_as_often_as_it_says():
    """A share just above the bound is missed with less than the complement of the confidence."""
    for n in (1, 20, 1000):
        assert (1.0 - undetected_share(n)) ** n == pytest.approx(1.0 - CONFIDENCE)
    assert undetected_share(0) == 1.0 and undetected_share(7, of=7) == 0.0
