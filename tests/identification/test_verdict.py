"""What is called exact, what of it was looked at, and what the warnings say otherwise."""

import re
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident import IdentifierOptions, NetworkIdentifier
from skident.datasets import make_network
from skident.identification.attempt import relative_to_deviation
from skident.network import FeedforwardNetwork


def shifted_box(offset, seed):
    """A network of inputs around `offset`, and rows there."""
    network = make_network((6, 5, 2), bias_scale=0.5, output_activation="identity", random_state=seed)
    return lambda X: network(X - offset), np.random.RandomState(seed).standard_normal((200, 6)) + offset


def error_on_many_rows(identifier, box, offset):
    X = np.random.RandomState(99).standard_normal((20_000, 6)) + offset
    return relative_to_deviation(identifier.predict(X) - box(X), box(X))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6, 1e7])
def test_the_claimed_error_holds_far_from_zero(offset, seed):
    box, X = shifted_box(offset, seed)
    identifier = NetworkIdentifier(box, layer_widths=(5, 2), random_state=0).fit(X)
    true = error_on_many_rows(identifier, box, offset)
    assert identifier.report_.exact and true < 1e-8
    # The largest of 20 000 rounding errors is above the largest of 200, measured 1.6 times at most; of rounding alone
    # the estimate holds.
    assert true < 3.0 * identifier.report_.relative_max_error
    assert offset == 0.0 or true < identifier.report_.input_rounding


@pytest.mark.parametrize("seed", range(3))
def test_rounded_inputs_are_named(seed):
    box, X = shifted_box(1e8, seed)
    with pytest.warns(ConvergenceWarning, match=r"rounded too coarsely.*is around 1e\+08.*minus their mean"):
        identifier = NetworkIdentifier(box, layer_widths=(5, 2), random_state=0).fit(X)
    assert not identifier.report_.exact
    assert error_on_many_rows(identifier, box, 1e8) < identifier.report_.input_rounding
    loose = NetworkIdentifier(box, layer_widths=(5, 2), tol=1e-6, random_state=0).fit(X)
    assert loose.report_.exact


def bumped(network, height, width, at):
    """A network with a smooth bump somewhere."""

    def box(X):
        inside = np.maximum(1.0 - ((X - at) ** 2).sum(axis=1) / (width / 2) ** 2, 0.0)
        return network(X) + height * inside[:, None] ** 3

    return box


def test_more_rows_see_more():
    network = make_network((3, 3, 2), bias_scale=0.5, output_activation="identity", random_state=0)
    box = bumped(network, 1e-3, 0.6, [2.3, 0.0, 0.0])  # in 5e-4 of a normal distribution
    X = np.random.RandomState(0).standard_normal((200, 3))
    few = NetworkIdentifier(box, layer_widths=(3, 2), random_state=0).fit(X)
    with pytest.warns(ConvergenceWarning, match="the network is not exact: relative maximum error"):
        many = NetworkIdentifier(
            box, layer_widths=(3, 2), options=IdentifierOptions(n_check=40_000), random_state=0
        ).fit(X)
    assert few.report_.exact and few.report_.undetected_share > 5e-4
    assert not many.report_.exact and many.report_.checked == 20_200  # all of X, and half of what was asked for
    np.testing.assert_allclose(many.report_.checked_spread, X.std(axis=0), rtol=0.03)


def test_what_was_looked_at():
    network = make_network((4, 3, 2), output_activation="identity", random_state=0)
    X = [5.0, 0.0, 0.0, -2.0] + [0.1, 1.0, 1.0, 3.0] * np.random.RandomState(0).standard_normal((40, 4))
    identifier = NetworkIdentifier(lambda X: network(X), layer_widths=(3, 2), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = identifier.fit(X).report_
    low, high = report.checked_range
    assert (
        140 < report.checked <= 140 + report.n_queries / 10
        and low.shape == high.shape == report.checked_spread.shape == (4,)
    )
    assert np.all(low <= X.min(axis=0) + 1e-12) and np.all(high >= X.max(axis=0) - 1e-12)
    np.testing.assert_allclose(report.checked_spread, [0.1, 1.0, 1.0, 3.0], rtol=0.3)
    assert 0 < report.input_rounding < 1e-12
    fewer = identifier.set_params(options__n_check=30).fit(X).report_
    assert 30 < fewer.checked <= 30 + fewer.n_queries / 10


def with_an_idle_unit(kind, sizes, output):
    """A network in whose first layer one unit does nothing."""
    network = make_network(sizes, bias_scale=0.5, output_activation=output, random_state=1)
    weights, biases = ([W.copy() for W in layers] for layers in (network.weights, network.biases))
    if kind == "dead":
        weights[1][0] = 0.0
    elif kind == "constant":
        weights[0][:, 0] = 0.0
    else:
        weights[0][:, 1], biases[0][1] = weights[0][:, 0], biases[0][0]
    return FeedforwardNetwork(weights, biases, "tanh", output)


@pytest.mark.parametrize("kind", ["dead", "constant", "twice"])
@pytest.mark.parametrize(("sizes", "output"), [((6, 5, 2), "tanh"), ((6, 5, 3, 2), "identity"), ((6, 5, 4, 2), "tanh")])
def test_widths_with_a_unit_too_many(kind, sizes, output):
    """All 36 such networks that were tried are identified, and the width that shows is named."""
    network, fewer = with_an_idle_unit(kind, sizes, output), (4, *sizes[2:])
    identifier = NetworkIdentifier(
        lambda X: network(X), layer_widths=sizes[1:], output_activation=output, random_state=0
    )
    X = np.random.RandomState(0).standard_normal((200, sizes[0]))
    message = rf"layer_widths={re.escape(str(sizes[1:]))} was given, but {re.escape(str(fewer))} explain"
    with pytest.warns(ConvergenceWarning, match=message):
        identifier.fit(X)
    assert identifier.report_.exact and identifier.layer_widths_ == fewer
