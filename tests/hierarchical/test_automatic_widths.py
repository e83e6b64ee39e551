"""widths="auto": exact recovery without widths, posterior, stacking, bad input."""

import numpy as np
import pytest
import torch

from skident import HierarchicalQuadraticNet
from skident.hierarchical.modules import QuadraticDenseNet
from skident.hierarchical.posterior import posterior_modules
from skident.hierarchical.solvers import WeightedSamples
from skident.hierarchical.stacking import KernelRidgePart, stacking_weights
from tests.hierarchical.planted import planted, relative_mse


def test_recovers_a_target_without_its_widths():
    _, X, y, X_test, y_test = planted(8, (3, 2), 300, 40)
    net = HierarchicalQuadraticNet("auto", random_state=0).fit(X, y)
    assert net.exact_ and relative_mse(net, X_test, y_test) < 1e-16
    assert net.transform(X_test).shape[1] == sum(net.widths_)


def test_posterior_of_the_mean_is_that_of_the_formula():
    # The target is constant: the mean output has the posterior of a mean, N(mean of y, noise / n).
    x, rng = torch.as_tensor(np.random.default_rng(0).standard_normal((400, 2))), np.random.RandomState(0)
    y = 3.0 + 0.5 * torch.as_tensor(rng.standard_normal((400, 1)))
    module = QuadraticDenseNet(2, (1,), [(0, 1)])
    vectors, chain = posterior_modules(module, WeightedSamples(x, y), rng, 300)
    means = []
    for vector in vectors:
        chain.assign(vector)
        means.append(float(module(x).detach().mean()))
    sd = 0.5 / np.sqrt(400)
    assert abs(np.mean(means) - float(y.mean())) < sd and 0.5 * sd < np.std(means) < 2 * sd


def test_stacking_selects_the_part_that_predicts():
    rng = np.random.default_rng(1)
    y = rng.standard_normal(500)
    weights, error = stacking_weights(
        np.column_stack([y + 0.1 * rng.standard_normal(500), rng.standard_normal(500)]), y
    )
    assert weights[0] > 0.9 and weights[1] < 0.1 and error < 0.02 and weights.sum() <= 1.0 + 1e-12


def test_kernel_ridge_part_fits_a_smooth_function():
    x = torch.rand(200, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    y = torch.sin(3.0 * x)
    assert float((KernelRidgePart(x, y)(x) - y).abs().max()) < 1e-2


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
