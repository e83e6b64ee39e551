import numpy as np
import pytest

from skident.base.progress import StageLog
from skident.datasets import make_network
from skident.identification.saturating.first_layer import first_layer_as_stated, refuse_surplus, stated_architecture
from skident.network import Architecture
from skident.oracle import NotIdentified, Oracle

TWO = make_network((6, 5, 2), output_activation="identity", bias_scale=0.5, random_state=0)
THREE = make_network((6, 5, 4, 2), output_activation="identity", bias_scale=0.5, random_state=0)


def look(network, widths, first_layer="auto", activation="tanh"):
    stated = Architecture(widths, activation)
    return first_layer_as_stated(Oracle(network, 6), stated, first_layer, np.random.RandomState(0), StageLog())


def test_what_is_stated():
    assert stated_architecture([3, 2], ("logistic", "identity"), 2, "auto") == Architecture((3, 2), "sigmoid")
    assert stated_architecture(None, ("tanh", "identity"), 2, "auto").widths == ()
    with pytest.raises(ValueError, match="ends in 2 but the black box gives 3"):
        stated_architecture([3, 2], ("tanh", "identity"), 3, "auto")


@pytest.mark.parametrize(("activation", "first_layer"), [("relu", "auto"), ("tanh", "hessian")])
def test_widths_left_to_what_cannot_be_seen(activation, first_layer):
    with pytest.raises(ValueError, match="layer_widths=None needs a first layer that saturates"):
        stated_architecture(None, (activation, "identity"), 2, first_layer)


def test_widths_as_found():
    first, architecture = look(TWO, ())
    assert len(first.biases) == 5 and architecture.widths == (5, 2)


@pytest.mark.parametrize(
    ("widths", "first_layer", "activation"),
    [((2,), "auto", "tanh"), ((5, 2), "hessian", "tanh"), ((5, 2), "auto", "sin")],
)
def test_not_looked_for_far_away(widths, first_layer, activation):
    assert look(lambda X: 1 / 0, widths, first_layer, activation)[0] is None


def test_fewer_units_than_stated_count_unless_hessians_may_show_more():
    assert len(look(TWO, (6, 2))[0].biases) == 5
    assert look(THREE, (6, 4, 2))[0] is None
    assert len(look(THREE, (6, 4, 2), "saturation")[0].biases) == 5


def test_more_units_than_stated():
    with pytest.raises(
        ValueError, match=r"says 4 first-layer units, but 5 .* try layer_widths=\(5, 2\).* use first_layer"
    ):
        look(TWO, (4, 2))
    first, _ = look(TWO, ())
    refuse_surplus(first, (5, 2), "advice")
    with pytest.raises(ValueError, match="clipping shows as units: advice"):
        refuse_surplus(first, (4, 2), "advice")


def test_nothing_saturates():
    box = lambda X: X @ np.ones(6)  # noqa: E731
    assert look(box, (5, 1))[0] is None
    with pytest.raises(NotIdentified, match="does not saturate there"):
        look(box, (5, 1), "saturation")
    with pytest.raises(NotIdentified, match="Give layer_widths to use Hessians instead"):
        look(box, ())
