"""The bias-free network: the function it is, its starts, and the squared error whose gradient at zero is known."""

import numpy as np
import pytest
import torch

from skident.saddle import BiasFreeMLP
from skident.saddle.module import HalfSquaredError


def test_it_is_the_function_of_its_weights():
    rng = np.random.RandomState(0)
    weights = [rng.standard_normal((3, 4)), rng.standard_normal((4, 5)), rng.standard_normal((5, 2))]
    module, X = BiasFreeMLP((3, 4, 5, 2), start=weights), rng.standard_normal((7, 3))
    expected = np.maximum(np.maximum(X @ weights[0], 0) @ weights[1], 0) @ weights[2]
    np.testing.assert_allclose(module(torch.as_tensor(X)).detach().numpy(), expected, rtol=1e-13)
    assert [tuple(W.shape) for W in module.weights] == [(3, 4), (4, 5), (5, 2)]
    assert not any(name.endswith("bias") for name, _ in module.named_parameters())


def test_the_largest_singular_value_of_a_hidden_layer_is_twice_the_scale():
    torch.manual_seed(0)
    module = BiasFreeMLP((10, 300, 300, 10), init_scale=0.03)
    # Marchenko and Pastur: sigma (sqrt(m) + sqrt(m)), and fluctuations of order m^(-2/3).
    assert torch.linalg.matrix_norm(module.weights[1], 2).item() == pytest.approx(0.06, rel=0.05)


def test_starts_of_other_sizes_are_refused():
    with pytest.raises(ValueError, match="layers need"):
        BiasFreeMLP((3, 4, 2), start=[np.ones((4, 3)), np.ones((4, 2))])


def test_gradient_of_the_squared_error_at_zero():
    Y = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    outputs = torch.zeros_like(Y, requires_grad=True)
    HalfSquaredError()(outputs, Y).backward()
    assert torch.equal(outputs.grad, -Y / 2)
