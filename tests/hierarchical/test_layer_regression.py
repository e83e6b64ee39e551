"""New layers by linear regression."""

import copy

import numpy as np
import pytest
import torch

from skident import HierarchicalQuadraticNet
from skident.datasets import make_hierarchical_target
from skident.hierarchical.layer_regression import regress_top_layer
from skident.hierarchical.modules import QuadraticDenseNet
from skident.hierarchical.solvers import WeightedSamples
from skident.linalg.joint_diagonal import joint_diagonalizer
from skident.metrics import feature_recovery_error
from tests.hierarchical.planted import ignored_convergence, planted


@pytest.mark.parametrize("a", [0.1, 0.01])
def test_new_layers_are_found_however_small(a):
    """Without random starts; S_2 after <= 2 is wrong by O(a), squared O(a^2), and is corrected to rounding."""
    alphas = (1.0, a, a * a)
    target, X, y, X_test, _ = planted(8, (2, 2, 1), 2500, 115, kappa=1.0, alphas=alphas)
    net, errors = None, []
    for depth in (2, 3, 4):
        new = HierarchicalQuadraticNet((2, 2, 1), alphas=alphas, readout="sum", n_starts=2, random_state=0)
        with ignored_convergence():
            net = new.fit_layers(X, y, depth=depth, start=net)
        errors.append(feature_recovery_error(target.features(X_test, 2), net.transform(X_test, layer=2)))
    assert errors[0] > 1e-2 * a**2 and errors[2] < 1e-16


def test_a_regression_gives_the_last_layer():
    """The layer below is right up to a rotation: the rotation, the weights and their number are read off."""
    target = make_hierarchical_target(6, (3, 2), kappa=1.0, random_state=116)
    x = torch.as_tensor(target.sample(1500, 0))
    true = QuadraticDenseNet(6, (3, 2), target.connections, alphas=target.alphas)
    with torch.no_grad():
        for W, blocks in zip(true.weights, target.weights):
            W.copy_(torch.as_tensor(np.hstack([blocks[j] for j in sorted(blocks)])))
    y = true(x).detach()
    np.testing.assert_allclose(y[:, 0], target(x.numpy()), rtol=1e-9)  # the same target
    Q = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    lower = QuadraticDenseNet(6, (3,), target.connections[:1])
    found = copy.deepcopy(true)
    with torch.no_grad():
        lower.weights[0].copy_(Q @ true.weights[0])
        found.weights[0].copy_(lower.weights[0])
        found.weights[1].zero_()
    values = regress_top_layer(found, lower, WeightedSamples(x, y), ridge=1e-11)
    assert values[2] < 1e-3 * values[1]
    assert float(((found(x) - y) ** 2).mean().detach()) < 1e-6 * float(y.var())


def test_joint_diagonalizer():
    rng = np.random.RandomState(0)
    Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    N = np.einsum("pi,mp,pj->mij", Q, rng.standard_normal((5, 4)), Q)
    found = joint_diagonalizer(N)
    np.testing.assert_allclose(np.sort(np.abs(found @ Q.T).ravel())[-4:], 1.0)  # Q up to order and signs
    np.testing.assert_allclose(found @ found.T, np.eye(4), atol=1e-12)
