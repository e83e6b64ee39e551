"""Networks in NumPy against the torch module: outputs, gradients, Jacobians, normal equations."""

import numpy as np
import pytest
import torch

from skident.hierarchical.array_networks import ArrayNetworks
from skident.hierarchical.modules import QuadraticDenseNet

FORMS = {
    "sum": {"readout": "sum"},
    "linear": {"readout": "linear"},
    "tilted": {"readout": "linear", "curvature": 0.1, "n_outputs": 2},
    "no skips": {"readout": "sum", "connections": [(1,), (2,), (3,)]},
    "full": {"readout": "sum", "connections": [(0, 1), (0, 1, 2), (0, 1, 2, 3)]},
}


def drawn(form, n=30):
    """A module with three hidden layers and biases, its inputs, targets and factors."""
    generator = torch.Generator().manual_seed(7)
    arguments = {"connections": [(0, 1), (0, 2), (0, 1, 3)], **FORMS[form]}
    module = QuadraticDenseNet(4, (3, 2, 2), moments=[0.5, 1.0, 1.5, 2.0], generator=generator, **arguments)
    for b in module.biases:
        b.data.normal_(generator=generator)
    module.all_signs[1::2] = -1.0  # of the sum form

    def values(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    return module, values(n, 4), values(n, len(module.offset)), values(n, 1).abs()


def jacobian(module, blocks, x):
    """Outputs (n, o) and their derivatives (o, n, P), one backward pass each."""
    F, parameters = module(x), [p for _, p in blocks]

    def gradient(value):
        parts = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        return torch.cat([torch.zeros(p.numel()) if g is None else g.ravel() for g, p in zip(parts, parameters)])

    return F.detach(), torch.stack([torch.stack([gradient(value) for value in column]) for column in F.T])


@pytest.mark.parametrize("form", FORMS)
def test_outputs_and_jacobian_are_those_of_the_module(form):
    module, x, _, _ = drawn(form)
    net, blocks = ArrayNetworks(module, x), module.blocks()
    for kept in (blocks, blocks[1:4], blocks[-1:]):
        F, J = net.jacobian(net.params_of(module), slice(5, None), [name for name, _ in kept])
        expected, derivatives = jacobian(module, kept, x[5:])
        np.testing.assert_allclose(F.T, expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(J.transpose(0, 2, 1), derivatives, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("form", FORMS)
def test_normal_equations_are_those_of_the_jacobian(form):
    module, x, y, w = drawn(form)
    net, blocks = ArrayNetworks(module, x), module.blocks()
    names = [name for name, _ in blocks]
    matrix, gradient = net.normal_equations(net.params_of(module), y.numpy(), w[:, 0].numpy(), names)
    F, J = jacobian(module, blocks, x)
    J = (J * w).reshape(-1, J.shape[-1])
    np.testing.assert_allclose(np.tril(matrix), np.tril(J.T @ J), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(gradient, J.T @ (w * (F - y)).T.reshape(-1), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", ["sum", "no skips", "full"])
def test_gradients_of_several_networks(form):
    module, x, y, _ = drawn(form)
    net, rng = ArrayNetworks(module, x), np.random.default_rng(0)
    params = net.params_of(module) + 0.3 * rng.standard_normal((3, net.size))
    w = rng.uniform(size=(3, len(x)))
    losses, gradients = net.loss_and_gradient(params, y[:, 0].numpy(), w)
    for one, weights, loss, gradient in zip(params, w, losses, gradients):
        matrix_free = net.normal_equations(one, y.numpy(), np.sqrt(weights), [name for name, _ in module.blocks()])[1]
        np.testing.assert_allclose(gradient, matrix_free, rtol=1e-10, atol=1e-10)
        F = net.features(one[None])[2][0, 0]
        assert loss == pytest.approx(float(weights @ (F - y[:, 0].numpy()) ** 2))
