"""The torch modules of hierarchical learning: forms, derivatives, scaling, distillation."""

import numpy as np
import pytest
import torch

from skident.hierarchical.distilled_net import DistilledQuadraticNet
from skident.hierarchical.modules import QuadraticDenseNet, TruncatedSquare
from skident.hierarchical.solvers import WeightedSamples, fit_lbfgs, fit_least_squares, set_trainable

GRAPHS = {"paper": ((0, 1), (0, 2), (0, 1, 3)), "full": ((0, 1), (0, 1, 2), (0, 1, 2, 3)), "chain": ((1,), (2,), (3,))}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def net(readout="sum", graph="paper", n_outputs=1, **kwargs):
    module = QuadraticDenseNet(
        4, (3, 2, 2), GRAPHS[graph], n_outputs=n_outputs, readout=readout, generator=generator(), **kwargs
    )
    with torch.no_grad():  # biases, offset and direct part start at zero and would test nothing
        for p in module.parameters():
            p += 0.1 * torch.randn(p.shape, dtype=p.dtype, generator=generator(1))
    return module


X = torch.randn(20, 4, dtype=torch.float64, generator=generator(2))


def by_hand(module, x):
    """Eq. (1.1) with loops over layers only, in numpy."""
    G = {0: x, 1: x**2 - module.moments.numpy()}
    total = module.offset.detach().numpy()
    if module.direct is not None:
        total = total + np.hstack([G[0], G[1]]) @ module.direct.detach().numpy()
    for i, J in enumerate(module.connections):
        W, b = module.weights[i].detach().numpy(), module.biases[i].detach().numpy()
        S = np.hstack([G[j] for j in J]) @ W.T + b
        G[i + 2] = S**2
        U = np.ones((len(b), 1)) if module.readout == "sum" else module.readouts[i].detach().numpy()
        total = total + float(module.alphas[i]) * G[i + 2] @ U
    return total


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(("readout", "n_outputs"), [("sum", 1), ("linear", 1), ("linear", 3)])
def test_forward_is_the_formula(graph, readout, n_outputs):
    module = net(readout, graph, n_outputs)
    np.testing.assert_allclose(module(X).detach().numpy(), by_hand(module, X.numpy()), rtol=1e-12)


@pytest.mark.parametrize("readout", ["sum", "linear"])
def test_scaling_the_output(readout):
    module = net(readout)
    before, features = module(X).detach(), {k: v.detach() for k, v in module.hidden(X)[0].items()}
    module.scale_output_(7.0)
    torch.testing.assert_close(module(X), 7.0 * before)
    for layer, S in module.hidden(X)[0].items():
        torch.testing.assert_close(S, features[layer] * (7.0**0.5 if readout == "sum" else 1.0))


def test_fixed_layers_stay_and_both_solvers_agree():
    truth = net()
    y = truth(X).detach()
    costs = []
    for solve in ("lm", "lbfgs"):
        module = net()
        with torch.no_grad():
            module.weights[2] += 0.05
        kept = module.weights[0].detach().clone()
        set_trainable(module, fixed=(2, 3))
        if solve == "lm":
            fit_least_squares(module, WeightedSamples(X, y), max_iter=200)
        else:
            fit_lbfgs(module, lambda m=module: ((m(X) - y) ** 2).mean(), max_iter=2000)
        assert torch.equal(module.weights[0], kept)
        costs.append(float(((module(X) - y) ** 2).mean().detach()))
    assert costs[0] < 1e-20 and costs[1] < 1e-8


@pytest.mark.parametrize("solver", ["lm", "lbfgs"])
def test_ridge_penalty_is_the_documented_one(solver):
    """The cost that is reported is ``sum r^2 + n l2 Reg``, computed here again."""
    module, y = net("linear"), torch.sin(X[:, :1])
    if solver == "lm":
        result, n = fit_least_squares(module, WeightedSamples(X, y), l2=0.1, max_iter=50), len(X)
    else:
        result, n = fit_lbfgs(module, lambda: ((module(X) - y) ** 2).sum(), l2=0.1 * len(X), max_iter=200), len(X)
    assert result.cost < 0.2 * result.history[0]
    with torch.no_grad():
        penalty = sum((W**2).sum() for W in (*module.weights, *module.readouts)) + 0.01 * (module.direct**2).sum()
        loss = float(((module(X) - y) ** 2).sum() + n * 0.1 * penalty)
    assert result.cost == pytest.approx(loss, rel=1e-12)


def test_truncated_square():
    square, z = TruncatedSquare(2.0), torch.linspace(-6, 6, 2001, dtype=torch.float64)
    values = square(z)
    inside, outside = z.abs() <= 2, z.abs() >= 4
    torch.testing.assert_close(values[inside], z[inside] ** 2)
    torch.testing.assert_close(values[outside], torch.full_like(z[outside], 2.2 * 4))
    positive = values[z >= 0]
    assert bool((torch.diff(positive) >= -1e-12).all())
    # Three continuous derivatives: third differences have no jump of the size that a discontinuity would have.
    third = torch.diff(positive, n=3) / (z[1] - z[0]) ** 3
    assert float(torch.diff(third).abs().max()) < 2.0
    torch.testing.assert_close(TruncatedSquare()(z), z**2)


def test_sum_has_one_output():
    with pytest.raises(ValueError, match="readout='sum' has one output, got n_outputs=2"):
        net("sum", n_outputs=2)


def test_distilled_net_equals_the_sum_where_K_is_W():
    """``F = sum alpha_l ||S_l||^2`` with ``W^T W = K^T K``: what the regularizers ask for."""
    module = DistilledQuadraticNet(4, ((0, 1), (0, 2)), alphas=(1.0, 0.3), n_units=8, generator=generator())
    for layer, k in ((2, 3), (3, 2)):
        assert module.open_layer() == layer
        K = torch.randn(k, sum(module.sizes(layer)), dtype=torch.float64, generator=generator(layer))
        module.distill(layer, K, torch.ones(len(K)))
        with torch.no_grad():
            Q = torch.linalg.qr(torch.randn(8, k, dtype=torch.float64, generator=generator(9)))[0]
            module.W[layer - 2].copy_(Q @ K)
    S, _ = module.hidden(X)
    expected = (S[2] ** 2).sum(1) + 0.3 * (S[3] ** 2).sum(1)
    torch.testing.assert_close(module.predict(X)[:, 0], expected)
    module.weights3, module.weights4, module.weights5 = [1.0] * 2, [1.0] * 2, [1.0] * 2
    assert float(module.penalty().detach()) < 1e-20
    features = {layer: values.detach() for layer, values in S.items()}
    module.scale_output_(3.0)
    torch.testing.assert_close(module.predict(X)[:, 0], 3.0 * expected)
    torch.testing.assert_close(module.hidden(X)[0][3], 3.0**0.5 * features[3])


def test_penalty_is_that_of_section_2_2():
    module = DistilledQuadraticNet(2, ((0, 1),), alphas=(1.0,), n_units=3, generator=generator())
    module.open_layer(1.0)
    K = torch.randn(2, 4, dtype=torch.float64, generator=generator(3))
    module.distill(2, K, torch.ones(len(K)))
    W = module.W[0].detach()
    gap = K.T @ K - W.T @ W  # columns 0, 1 are x; columns 2, 3 the previous layer
    terms = [(gap[2:, :2] ** 2).sum(), (gap[2:, 2:] ** 2).sum(), (gap**2).sum(), (K**2).sum() + (W**2).sum()]
    for i, term in enumerate(terms):
        for number in range(3, 7):
            setattr(module, f"weights{number}", [1.0 if number == i + 3 else 0.0])
        torch.testing.assert_close(module.penalty().detach(), term)


def test_layers_open_in_order():
    module = DistilledQuadraticNet(3, ((0, 1), (0, 2)), alphas=(1.0, 0.3), n_units=3)
    module.open_layer()
    with pytest.raises(ValueError, match="layer 3 needs the features of layer 2"):
        module.open_layer()
    with pytest.raises(ValueError, match="the next layer to distill is 2, got 3"):
        module.distill(3, torch.zeros(1, 6, dtype=torch.float64), torch.ones(1))
