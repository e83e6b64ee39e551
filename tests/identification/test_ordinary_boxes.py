"""Black boxes as they are deployed: single precision, rounded, noisy, shifted and scaled answers."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.metrics import relative_max_error
from skident.network import FeedforwardNetwork, change_outputs
from tests.identifiers import make_identifier
from tests.rates import fewest_successes

N = 6
SEEDS = range(31, 31 + N)


def module(D, h, seed):
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(D, h), torch.nn.Tanh(), torch.nn.Linear(h, 2))
    with torch.no_grad():
        net[0].weight.mul_(2.0)
    return net


def case(seed):
    rng = np.random.RandomState(seed)
    D, h = rng.randint(4, 13), rng.randint(4, 13)
    net = module(D, h, seed)
    layers = [net[0], net[2]]
    weights = [layer.weight.detach().double().numpy().T for layer in layers]
    truth = FeedforwardNetwork(weights, [layer.bias.detach().double().numpy() for layer in layers], "tanh", "identity")
    return net, truth, rng.standard_normal((200, D)), rng.standard_normal((1000, D))


def found(box, X, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return make_identifier(box, random_state=0, **options).fit(X)


def share_within(truth, model, times=2.0):
    """Weights within so many standard errors."""
    true = truth.align_to(model.network_)
    pairs = zip(
        [*model.network_.weights, *model.network_.biases],
        [*true.weights, *true.biases],
        [*model.stderr_[0], *model.stderr_[1]],
        strict=True,
    )
    return np.mean(np.concatenate([(np.abs(a - b) < times * s).ravel() for a, b, s in pairs]))


def in_float32(net):
    def box(X):
        with torch.no_grad():
            return net(torch.as_tensor(X, dtype=torch.float32)).numpy()

    return box


def test_single_precision_by_default():
    """Right widths, an error of the order of the answers' own, standard errors that hold; never called exact."""
    successes, shares = 0, []
    for seed in SEEDS:
        net, truth, X, fresh = case(seed)
        model = found(in_float32(net), X)
        rounding = relative_max_error(truth(fresh), in_float32(net)(fresh))
        assert not model.report_.exact
        error = relative_max_error(truth(fresh), model.network_(fresh))
        right = model.layer_widths_ == truth.layer_widths and error < 20.0 * rounding
        successes += right
        shares += [share_within(truth, model)] if right else []
    assert successes >= fewest_successes(N, 30, 30)
    assert np.mean(shares) > 0.85


DISTURBED = {
    "3 decimals": (1e-3, lambda Y, rng: Y.round(3)),
    "6 decimals": (1e-6, lambda Y, rng: Y.round(6)),
    "noise 1e-9": (1e-9, lambda Y, rng: Y + 1e-9 * rng.standard_normal(Y.shape)),
    "noise 1e-4": (1e-4, lambda Y, rng: Y + 1e-4 * rng.standard_normal(Y.shape)),
}


@pytest.mark.parametrize("kind", DISTURBED)
def test_disturbed_answers_by_default(kind):
    size, disturb = DISTURBED[kind]
    successes = 0
    for seed in SEEDS:
        _, truth, X, fresh = case(seed)
        rng = np.random.RandomState(seed)
        model = found(lambda A: disturb(truth(A), rng), X)  # noqa: B023
        assert not model.report_.exact
        error = np.abs(truth(fresh) - model.network_(fresh)).max()
        successes += model.layer_widths_ == truth.layer_widths and error < 10.0 * size
    assert successes >= fewest_successes(N, 27, 30)


def test_noise_is_said_even_below_the_tolerance():
    _, truth, X, _ = case(31)
    rng = np.random.RandomState(0)
    with pytest.warns(ConvergenceWarning, match="noise or rounding of .*e-(10|09) of their standard deviation"):
        NetworkIdentifier(lambda A: truth(A) + 1e-9 * rng.standard_normal((len(A), 2)), random_state=0).fit(X)


MAPS = [(1000.0, 1.0), (0.0, 1e6), (0.0, 1e-9), (0.0, np.array([1.0, 1e6]))]


@pytest.mark.parametrize(("offset", "unit"), MAPS)
def test_shifted_and_scaled_answers(offset, unit):
    """As many queries, to a few, and the same network, mapped likewise."""
    network = make_network((8, 6, 3, 2), bias_scale=0.5, output_activation="identity", random_state=3)
    X = np.random.RandomState(3).standard_normal((200, 8))
    plain = found(lambda A: network(A), X, layer_widths=(6, 3, 2))
    model = found(lambda A: offset + network(A) * unit, X, layer_widths=(6, 3, 2))
    assert plain.report_.exact and model.report_.exact
    assert abs(model.n_queries_ / plain.n_queries_ - 1.0) <= 0.1
    mapped = change_outputs(plain.network_, np.full(2, offset), np.broadcast_to(unit, 2))
    assert relative_max_error(mapped(X), model.network_(X)) < 1e-10
