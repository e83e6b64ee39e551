"""Parallel, duplicate and opposite units, layers that are too wide, and ranges within which no unit saturates."""

import time
import warnings

import numpy as np
import pytest

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.metrics import relative_max_error
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

X = np.random.default_rng(0).standard_normal((300, 6))
FURTHER = {"duplicate": (1.0, 0.0), "opposite": (-1.0, 0.0), "parallel": (1.7, 0.4), "dead": (0.0, 0.5)}


def with_further_unit(kind, activation, deep):
    """A network of five first-layer units and a further one, which is a multiple of the first."""
    rng, (factor, shift) = np.random.default_rng(1), FURTHER[kind]
    W, b = rng.standard_normal((6, 5)), 0.3 * rng.standard_normal(5)
    weights, biases = [np.c_[W, factor * W[:, :1]]], [np.r_[b, factor * b[0] + shift]]
    if deep:
        weights.append(rng.standard_normal((6, 4)) / 2.0)
        biases.append(0.3 * rng.standard_normal(4))
    weights.append(rng.standard_normal((weights[-1].shape[1], 2)))
    biases.append(rng.standard_normal(2))
    return FeedforwardNetwork(weights, biases, activation)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "gelu"])
@pytest.mark.parametrize("kind", ["duplicate", "opposite", "dead"])
def test_units_that_add_nothing_are_left_out(kind, activation, deep):
    if kind == "opposite" and activation == "gelu":
        pytest.skip("the units g(z) and g(-z) are two")
    network = with_further_unit(kind, activation, deep)
    model = NetworkIdentifier(lambda rows: network(rows), random_state=0).fit(X)
    assert model.report_.exact and model.layer_widths_ == ((5, 4, 2) if deep else (5, 2))


@pytest.mark.parametrize(
    ("kind", "activation", "deep"),
    [
        ("parallel", "tanh", False),
        ("parallel", "sigmoid", False),
        ("parallel", "gelu", False),
        ("parallel", "gelu", True),
        ("opposite", "gelu", False),
        ("opposite", "gelu", True),
    ],
)
def test_parallel_units_are_named(kind, activation, deep, own_seconds):
    network = with_further_unit(kind, activation, deep)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            model = NetworkIdentifier(lambda rows: network(rows), random_state=0).fit(X)
            assert not model.report_.exact
            message = str(said[0].message)
        except NotIdentified as error:
            message = str(error)
    assert "parallel" in message


@pytest.mark.slow
def test_parallel_units_below_a_second_layer_are_named():
    network = with_further_unit("parallel", "tanh", True)
    with pytest.raises(NotIdentified, match="5 units in the first layer; parallel ones look like one"):
        NetworkIdentifier(lambda rows: network(rows), random_state=0, max_seconds=40).fit(X)


def in_range(network, bound):
    """The network within a range; it raises beyond."""

    def box(rows):
        if np.abs(rows).max() > bound + 1e-9:
            raise ValueError("input out of range")
        return network(rows)

    return box


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"activation": "gelu"},
        {"activation": "gelu", "layer_widths": (6, 2)},
    ],
)
def test_gelu_within_a_range_in_which_nothing_saturates(settings):
    """The samples within the range decide between the activations; no message blames tanh."""
    network = make_network((4, 6, 2), activation="gelu", output_activation="identity", bias_scale=0.5, random_state=0)
    box, rows = in_range(network, 2.0), np.clip(X[:, :4], -2.0, 2.0)
    began = time.process_time()
    model = NetworkIdentifier(box, input_range=(-2.0, 2.0), random_state=0, **settings).fit(rows)
    assert time.process_time() - began < 20.0
    assert model.report_.exact and model.network_.activation == "gelu" and model.layer_widths_ == (6, 2)


def test_softplus_within_a_range_of_given_widths():
    network = make_network(
        (4, 6, 1), activation="softplus", output_activation="identity", bias_scale=0.5, random_state=0
    )
    identifier = NetworkIdentifier(
        in_range(network, 2.0), input_range=(-2, 2), activation="softplus", layer_widths=(6, 1), random_state=0
    )
    rows = np.clip(X[:, :4], -2.0, 2.0)
    assert relative_max_error(network(rows), identifier.fit(rows).network_(rows)) < 1e-9


@pytest.mark.parametrize("widths", [(64, 64, 64, 3), (128, 128, 2)])
def test_layers_behind_one_wider_than_the_inputs_are_refused_at_once(widths, own_seconds):
    """As those of public controllers with 4 and 12 inputs."""
    D = 12 if len(widths) == 4 else 4
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (200, D))
    network = make_network((D, *widths), output_activation="identity", bias_scale=0.3, random_state=1)
    with pytest.raises(NotIdentified, match=rf"first layer has {widths[0]} units, more than the {D} inputs") as error:
        NetworkIdentifier(lambda X: network(X), random_state=0).fit(rows)
    assert error.value.reason == "wide"
