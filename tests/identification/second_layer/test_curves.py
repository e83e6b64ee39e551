import math

import numpy as np
import pytest
import torch

from skident.identification.second_layer.kernel.curves import fit_curve, taylor_term


@pytest.mark.parametrize("activation", ["tanh", "erf"])
@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_terms_against_automatic_differentiation(activation, order):
    g = getattr(torch, activation)
    y = torch.linspace(-3, 3, 13, dtype=torch.float64, requires_grad=True)
    value = g(y)
    for _ in range(order):
        value = torch.autograd.grad(value.sum(), y, create_graph=True)[0]
    slope = torch.autograd.grad(value.sum(), y)[0]
    term = taylor_term(activation, order)(y.detach().numpy())
    for told, true in zip(term, (value, slope)):
        np.testing.assert_allclose(told, true.detach().numpy() / math.factorial(order), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("activation", ["tanh", "erf"])
@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize(("length", "shift"), [(0.4, 0.1), (1.0, -0.8), (3.0, 1.5)])
def test_curves_from_their_points(activation, order, length, shift, rng):
    x = rng.standard_normal(80)
    term, readout = taylor_term(activation, order), np.array([0.7, -1.3])
    C = np.outer(length**order * term(length * x + shift)[0], readout)
    C += 1e-9 * np.abs(C).max() * rng.standard_normal(C.shape)
    found = fit_curve(x, C, order, term)
    assert found.misfit < 1e-7
    # For even orders of these odd functions, (r, gamma, v) and (r, -gamma, ...) differ, since x is not symmetric.
    np.testing.assert_allclose([found.length, found.shift], [length, shift], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.readout, readout, rtol=1e-4)


def test_what_is_no_curve_has_a_misfit(rng):
    x = rng.standard_normal(80)
    assert fit_curve(x, rng.standard_normal((80, 1)), 3, taylor_term("tanh", 3)).misfit > 0.3
