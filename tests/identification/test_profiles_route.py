import re
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident.metrics import parameter_error
from skident.network import FeedforwardNetwork
from tests.identifiers import make_identifier

D = 7
NAMES = ("softplus", "gelu", "gelu_tanh", "silu", "mish", "hardswish", "elu", "selu")


@pytest.fixture
def X(rng):
    return rng.standard_normal((200, D))


def random_network(activation, rng, m=12, n_outputs=2):
    weights = [rng.standard_normal((D, m)) / np.sqrt(D), rng.standard_normal((m, n_outputs))]
    return FeedforwardNetwork(weights, [0.5 * rng.standard_normal(m), rng.standard_normal(n_outputs)], activation)


def identified(box, X, activation, **options):
    return make_identifier(box, activation=activation, random_state=0, **options).fit(X)


@pytest.mark.parametrize("widths", [(30, 2), None, "auto"], ids=str)
@pytest.mark.parametrize("activation", NAMES)
def test_more_units_than_hessians_tell(activation, widths, X, rng):
    """30 units of 7 inputs, where symmetric matrices have 28 entries."""
    network = random_network(activation, rng, m=30)
    found = identified(lambda A: network(A), X, activation, layer_widths=widths)
    assert found.report_.exact and found.report_.route == "ReLU limit" and found.layer_widths_ == (30, 2)
    # Of a hard swish, few samples lie where a unit of large weights bends.
    error = 1e-8 if activation == "hardswish" else 1e-11
    assert found.report_.relative_max_error < error and parameter_error(network, found.network_) < 100.0 * error
    assert "at large inputs" in found.report_.reason


def test_fewer_units_than_asked_for(X, rng):
    network = random_network("silu", rng)
    with pytest.warns(ConvergenceWarning, match=r"\(12, 2\) explain"):
        found = identified(lambda A: network(A), X, "silu", layer_widths=(14, 2))
    assert found.layer_widths_ == (12, 2) and found.report_.relative_max_error < 1e-11


def test_more_units_than_asked_for(X, rng):
    network = random_network("elu", rng)
    with pytest.raises(
        ValueError, match=r"layer_widths gives 9 hidden units, but 12 .* were detected; set layer_widths=\(12, 2\)"
    ):
        identified(lambda A: network(A), X, "elu", layer_widths=(9, 2))


@pytest.mark.parametrize("options", [{"input_range": (-6.0, 6.0)}, {}], ids=["range", "raises far out"])
def test_hessians_where_the_box_cannot_be_asked_far_out(options, X, rng):
    network = random_network("silu", rng, m=5)

    def box(A):
        if np.abs(A).max() > 100.0:
            raise RuntimeError("input out of range")
        return network(A)

    found = identified(box, X, "silu", layer_widths=(5, 2), **options)
    assert found.report_.exact and found.report_.route == "Hessians, completion"


@pytest.mark.parametrize("limit", [20.0, 500.0])
def test_clipped_answers_are_told_though_hessians_near_the_centre_do_not_see_them(limit, X, rng):
    network = random_network("silu", rng, m=5)
    box = lambda A: np.clip(network(A), -limit, limit)  # noqa: E731
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = identified(box, X, "silu", layer_widths=(5, 2))
    if not found.report_.exact:
        assert re.search(r"agrees .*, but (up to .* outputs differ|output . repeats)", str(said[0].message))
        return
    A = 30.0 * limit * rng.standard_normal((1000, X.shape[1]))
    np.testing.assert_allclose(found.network_(A), box(A), atol=1e-6 * limit)


def test_elu_has_no_other_route(X, rng):
    network = random_network("elu", rng, m=5)
    with pytest.raises(ValueError, match="activation='elu' has no second derivative everywhere.*no input_range"):
        identified(lambda A: network(A), X, "elu", layer_widths=(5, 2), input_range=(-6.0, 6.0))
    with pytest.raises(ValueError, match="activation='elu' has no second derivative everywhere.*strategy='hessian'"):
        identified(lambda A: network(A), X, "elu", layer_widths=(5, 2), strategy="hessian")

    def box(A):
        if np.abs(A).max() > 100.0:
            raise RuntimeError("input out of range")
        return network(A)

    with pytest.raises(ValueError, match="input out of range.*Queries reach .* standard deviations"):
        identified(box, X, "elu", layer_widths=(5, 2))


@pytest.mark.filterwarnings("ignore:the outputs carry noise or rounding")
@pytest.mark.parametrize("widths", [(12, 2), "auto"], ids=str)
@pytest.mark.parametrize("activation", NAMES)
def test_outputs_in_single_precision(activation, widths, X, rng):
    """The activation is not given: four fit outputs far out, and one of them those near the center."""
    network = random_network(activation, rng)
    found = identified(lambda A: network(A).astype(np.float32), X, "auto", layer_widths=widths)
    assert found.network_.activation == activation and found.layer_widths_ == (12, 2)
    assert found.report_.agrees and not found.report_.exact and found.report_.route == "asymptotes"
    A = rng.standard_normal((500, D))
    np.testing.assert_allclose(found.predict(A), network(A), atol=1e-6 * network(A).std())
    assert found.n_queries_ < 20_000


@pytest.mark.filterwarnings("ignore:the network is not exact")
@pytest.mark.parametrize("activation", ["gelu", "elu"])
@pytest.mark.parametrize("kind", ["two layers", "linear part", "parallel"])
def test_other_models_are_never_exact_and_wrong(kind, activation, X, rng):
    """Two hidden layers, a linear part, parallel units."""
    one = random_network(activation, rng, m=5)
    weights = [rng.standard_normal((D, 5)), rng.standard_normal((5, 4)), rng.standard_normal((4, 2))]
    box = {
        "two layers": FeedforwardNetwork(weights, [np.zeros(5), np.zeros(4), np.zeros(2)], activation),
        "linear part": lambda A: one(A) + A[:, :2],
        "parallel": FeedforwardNetwork(
            [one.weights[0][:, [0, 0, 1, 2, 3]], one.weights[1]], one.biases, activation, "identity"
        ),
    }[kind]
    try:
        found = identified(lambda A: box(A), X, activation, layer_widths="auto")
    except ValueError as error:
        assert re.search("linear part|not that of one unit", str(error))
        return
    A = 3.0 * rng.standard_normal((1000, D))
    assert not found.report_.exact or np.abs(found.predict(A) - box(A)).max() < 1e-10
