"""widths="auto": exact recovery without widths, posterior, bad input."""

import numpy as np
import pytest
import torch

from skident import HierarchicalQuadraticNet
from skident.hierarchical.array_networks import ArrayNetworks
from skident.hierarchical.modules import QuadraticDenseNet
from skident.hierarchical.posterior import PosteriorChains
from tests.hierarchical.planted import planted, relative_mse


def test_recovers_a_target_without_its_widths():
    _, X, y, X_test, y_test = planted(8, (3, 2), 300, 40)
    net = HierarchicalQuadraticNet("auto", random_state=0).fit(X, y)
    assert net.exact_ and relative_mse(net, X_test, y_test) < 1e-16
    assert net.transform(X_test).shape[1] == sum(net.widths_)


@pytest.mark.slow
def test_recovers_a_target_from_hardly_more_samples_than_weights():
    # 86 weights. The layer-by-layer fit alone stays in other minima, or explains the data with too many units.
    recovered = 0
    for seed in range(50, 54):
        _, X, y, X_test, y_test = planted(10, (3, 2), 140, seed)
        net = HierarchicalQuadraticNet("auto", random_state=0).fit(X, y)
        assert not net.exact_ or relative_mse(net, X_test, y_test) < 1e-12
        recovered += net.exact_
    assert recovered >= 2


def test_recovers_degree_16():
    _, X, y, X_test, y_test = planted(6, (2, 2, 1), 1000, 60)
    net = HierarchicalQuadraticNet("auto", random_state=0).fit(X, y)
    assert net.exact_ and relative_mse(net, X_test, y_test) < 1e-12 and len(net.widths_) == 3


@pytest.mark.slow
def test_targets_of_degree_32_are_approximated_or_recovered():
    for seed in (60, 61):
        _, X, y, X_test, y_test = planted(6, (2, 1, 1, 1), 2000, seed)
        net = HierarchicalQuadraticNet("auto", random_state=0).fit(X, y)
        assert relative_mse(net, X_test, y_test) < (1e-12 if net.exact_ else 1e-2)


def test_a_quadratic_target_has_one_hidden_layer():
    _, X, y, X_test, y_test = planted(6, (2,), 200, 61)
    net = HierarchicalQuadraticNet("auto", random_state=0).fit(X, y)
    assert net.exact_ and len(net.widths_) == 1 and relative_mse(net, X_test, y_test) < 1e-16


def test_connections_of_two_layers_limit_the_depth():
    _, X, y, X_test, y_test = planted(6, (2, 1), 300, 62)
    net = HierarchicalQuadraticNet("auto", connections=[(0, 1), (0, 2)], random_state=0).fit(X, y)
    assert net.exact_ and net.connections_ == ((0, 1), (0, 2))[: len(net.widths_)]


def test_posterior_of_the_mean_is_that_of_the_formula():
    # The target is constant: the mean output has the posterior of a mean, N(mean of y, noise / n).
    x, rng = torch.as_tensor(np.random.default_rng(0).standard_normal((400, 2))), np.random.RandomState(0)
    y = 3.0 + 0.5 * rng.standard_normal(400)
    net = ArrayNetworks(QuadraticDenseNet(2, (1,), [(0, 1)]), x)
    used = np.ones((4, 400))
    used[2:, ::2] = 0.0  # the last two chains use every other sample
    starts = 0.1 * rng.standard_normal((4, net.size))
    params = PosteriorChains(net, y, used, starts, rng).run(300)
    for chains, seen in ((params[:, :2], y), (params[:, 2:], y[1::2])):
        means = net.features(chains.reshape(-1, net.size))[2].mean(axis=(1, 2))
        sd = 0.5 / np.sqrt(len(seen))
        assert abs(means.mean() - seen.mean()) < sd and 0.5 * sd < means.std() < 2 * sd


@pytest.mark.parametrize(
    ("parameters", "outputs", "n", "message"),
    [
        ({"readout": "linear"}, 1, 30, "readout 'auto' or 'sum'"),
        ({"solver": "lbfgs"}, 1, 30, "solver 'auto' or 'lm'"),
        ({"curvature": 0.1}, 1, 30, "curvature=None"),
        ({"l2": 0.1}, 1, 30, "l2='auto'"),
        ({}, 2, 30, "one output"),
        ({}, 1, 8, "9 samples or more"),
    ],
)
def test_selection_refuses_what_it_cannot_fit(parameters, outputs, n, message):
    rng = np.random.default_rng(3)
    with pytest.raises(ValueError, match=message):
        HierarchicalQuadraticNet("auto", **parameters).fit(
            rng.standard_normal((n, 3)), rng.standard_normal((n, outputs))
        )


def test_protocols_need_widths():
    rng = np.random.default_rng(4)
    with pytest.raises(ValueError, match="fit_layers needs the widths"):
        HierarchicalQuadraticNet("auto").fit_layers(rng.standard_normal((30, 3)), rng.standard_normal(30), depth=2)
