"""Models whose outputs depend on the batch, overflow, or are lost beside an offset: a message states the cause."""

import numpy as np
import pytest

from skident import IdentifierOptions, NetworkIdentifier
from skident.datasets import make_network
from skident.identification import problem as problem_module
from skident.identification.activation.growth import growth
from skident.identification.piecewise.noisy.assemble import first_layer_signs
from skident.oracle import NotIdentified, Oracle

X = np.random.RandomState(1).standard_normal((200, 4))
SPARSE = ((0.14, 0.0, (100, 40)), (0.19, 0.7, (40, 40)), (0.22, 0.0, (40, 10)))  # the second layer is rarely active
WRONG = {
    "zeros": lambda Y, n: np.zeros_like(Y),
    "noise": lambda Y, n: np.random.RandomState(n).standard_normal(Y.shape),
    "the first row": lambda Y, n: np.broadcast_to(Y[:1], Y.shape),
    "reversed": lambda Y, n: Y[::-1],
}


def network(activation="relu", widths=(4, 5, 1)):
    return make_network(widths, activation=activation, output_activation="identity", random_state=0, bias_scale=0.3)


def wrong_beyond(model, row, wrong):
    """An engine whose outputs are wrong from some row of a batch on."""

    def engine(Z):
        Y = model(Z)
        return np.concatenate([Y[:row], WRONG[wrong](Y, len(Y))[row:]])

    return engine


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("row", [1, 16, 32, 64, 128])
@pytest.mark.parametrize("options", [{}, {"activation": "relu"}, {"layer_widths": (5, 1), "activation": "relu"}])
def test_engines_that_are_wrong_in_large_batches_are_named(row, wrong, options):
    engine = wrong_beyond(network(), row, wrong)
    with pytest.raises(ValueError, match=r"depends on the other rows .* IdentifierOptions\(batch_size=1\)"):
        NetworkIdentifier(engine, random_state=0, **options).fit(X)


@pytest.mark.parametrize("row", [1, 32, 128])
def test_the_remedy_for_large_batches_works(row):
    engine, remedy = wrong_beyond(network(), row, "zeros"), IdentifierOptions(batch_size=1)
    assert NetworkIdentifier(engine, options=remedy, random_state=0).fit(X).report_.exact


@pytest.mark.parametrize("size", [1e156, 1e200, 1e300, 1e307])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_outputs_whose_squares_overflow(size, activation):
    model = lambda Z: size * np.clip(network(activation)(Z), -10.0, 10.0)  # noqa: E731
    message = r"returned .* \(so large that squares overflow\) .* lambda X: model\(X\) / 1e200"
    with pytest.raises(ValueError, match=message):
        NetworkIdentifier(model, random_state=0).fit(X)


@pytest.mark.parametrize("size", [1e156, 1e300, 1e307])
def test_the_remedy_for_large_outputs_works(size):
    model = lambda Z: size * network("tanh")(Z)  # noqa: E731
    assert NetworkIdentifier(lambda X: model(X) / 1e200, random_state=0).fit(X).report_.exact


def test_constant_outputs_up_to_some_radius_grow_beyond():
    """No ray moves between the first two radii: there is no exponent there."""
    oracle = Oracle(lambda Z: np.maximum(np.abs(Z[:, :1]) - 1e4, 0.0), 4)
    assert growth(oracle, np.random.RandomState(0)) in (("power", 1.0), ("settles", 0.0), ("unclear", 1.0))


def test_no_signs_without_hyperplanes():
    assert first_layer_signs([], np.zeros((0, 5))) is None


@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_lines_that_meet_no_boundary(seed, own_seconds):
    """Behind a sparse second layer many lines are straight: another cause may end the fit, no empty array does."""
    r = np.random.default_rng(seed)
    W = [
        0.14 * r.standard_normal((100, 40)),
        (r.standard_normal((40, 40)) - 0.7) / 5.3,
        0.2 * r.standard_normal((40, 10)),
    ]
    b = [0.1 * r.standard_normal(40), -0.1 + 0.1 * r.standard_normal(40)]
    model = lambda Z: np.maximum(np.maximum(Z @ W[0] + b[0], 0.0) @ W[1] + b[1], 0.0) @ W[2]  # noqa: E731
    rows = np.random.default_rng(5).standard_normal((200, 100))
    try:
        identifier = NetworkIdentifier(model, activation="relu", max_seconds=1, random_state=0).fit(rows)
    except NotIdentified:
        return
    assert not identifier.report_.exact


def test_the_default_limit_of_units_is_no_less_than_what_is_counted(monkeypatch):
    monkeypatch.setattr(problem_module, "_MAX_NEURONS", 3)
    deep = network("tanh", (4, 6, 3, 1))
    identifier = NetworkIdentifier(lambda Z: deep(Z), layer_widths="auto", random_state=0)
    assert identifier.fit(X).layer_widths_ == (6, 3, 1) and identifier.report_.exact
    with pytest.raises(ValueError, match="max_neurons=3 .*6 units in the first layer alone"):
        identifier.set_params(options__max_neurons=3).fit(X)


@pytest.mark.parametrize("offset", [1e12, 1e13, 1e14])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_outputs_lost_beside_an_offset_are_no_programming_error(offset, own_seconds):
    model = lambda Z: network(widths=(4, 6, 1))(Z) + offset  # noqa: E731
    identifier = NetworkIdentifier(model, max_seconds=2, random_state=0)
    try:
        identifier.fit(X)
    except NotIdentified:
        return
    assert not identifier.report_.exact
