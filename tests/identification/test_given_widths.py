"""Widths that are given and contradict those of the model: the message has the widths that were detected."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident import NetworkIdentifier
from skident.datasets import make_network

X = np.random.RandomState(0).standard_normal((200, 5))


def identifier(activation, widths):
    network = make_network((5, 6, 1), activation=activation, output_activation="identity", random_state=0)
    return NetworkIdentifier(lambda rows: network(rows), layer_widths=widths, random_state=0)


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_fewer_units_than_there_are(activation):
    with pytest.raises(ValueError, match=r"^.{0,160}\b6\b.*layer_widths=\(6, 1\)"):
        identifier(activation, (4, 1)).fit(X)


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_more_units_than_there_are(activation):
    with pytest.warns(ConvergenceWarning, match=r"layer_widths=\(9, 1\) was given, but \(6, 1\) explain all outputs"):
        found = identifier(activation, (9, 1)).fit(X)
    assert found.report_.exact and found.layer_widths_ == (6, 1)


def test_a_layer_too_many():
    with pytest.warns(ConvergenceWarning, match=r"layer_widths=\(6, 3, 1\) was given, but .* explain all outputs"):
        found = identifier("relu", (6, 3, 1)).fit(X)
    assert found.report_.exact and found.layer_widths_ == (6, 1)
