"""Losses and targets that float64 does not hold."""

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError

from skident import HierarchicalQuadraticNet, HierarchicalQuadraticNetClassifier
from skident.hierarchical.distilled_net import DistilledQuadraticNet
from skident.hierarchical.modules import QuadraticDenseNet
from skident.hierarchical.problem import Fit, exploding_layer, require_finite
from tests.hierarchical.planted import ignored_convergence

X0 = np.random.RandomState(0).standard_normal((60, 4))
Y0 = X0[:, 0] ** 2 + X0[:, 1]


def test_exploding_losses_name_the_layer():
    net = HierarchicalQuadraticNet(
        (2, 2), solver="sgd", readout="sum", learning_rate=1e80, max_epochs=5, random_state=0
    )
    with pytest.raises(
        ValueError, match=r"the loss exploded.*first at layer 2 of layers 2, ..., 3. Lower learning_rate"
    ):
        net.fit(X0, Y0)


@pytest.mark.parametrize(
    "params", [{"solver": "algorithm1", "learning_rate": 1e100}, {"solver": "adam", "learning_rate": 1e200}]
)
def test_exploding_training_is_told(params):
    net = HierarchicalQuadraticNet((2, 2), batch_norm=False, max_epochs=30, random_state=0, **params)
    with pytest.raises(ValueError, match=r"the loss exploded.*layers 2, ..., 3. Lower learning_rate"):
        net.fit(X0, Y0)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        net.predict(X0)


DEEP = (3,) * 12  # degree 2^12: the inputs overflow on their way up


@pytest.mark.parametrize(
    "net",
    [
        HierarchicalQuadraticNet(DEEP, readout="sum"),
        HierarchicalQuadraticNet(DEEP, readout="sum", solver="lbfgs"),
        HierarchicalQuadraticNetClassifier(DEEP, loss="theorem4"),
        HierarchicalQuadraticNetClassifier(DEEP, solver="lbfgs"),
    ],
    ids=["lm", "lbfgs", "theorem 4", "cross-entropy"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_layer_named_is_that_of_the_network_that_exploded(net, monkeypatch):
    seen = []

    def watched(fit, x):
        seen.append((fit.module, x))
        return require_finite(fit, x)

    monkeypatch.setattr("skident.hierarchical.base.require_finite", watched)
    with pytest.raises(ValueError, match="the loss exploded") as error:
        clone(net).set_params(n_starts=2, random_state=0).fit(X0, Y0 > 1 if is_classifier(net) else Y0)
    ((module, x),) = seen
    finite = {layer: bool((S**2).isfinite().all()) for layer, S in module.hidden(x)[0].items()}
    first = min(layer for layer, valid in finite.items() if not valid)
    assert 2 < first <= 13
    assert f"first at layer {first} of layers 2, ..., 13." in str(error.value)


def test_linear_readouts_where_the_sum_explodes():
    """`readout="auto"` compares what is finite."""
    net = HierarchicalQuadraticNet(DEEP, solver="lbfgs", n_starts=1, max_iter=2, random_state=0)
    with ignored_convergence():
        assert net.fit(X0, Y0).readout_ == "linear" and np.isfinite(net.predict(X0)).all()


def test_targets_too_large_or_too_small_for_their_squares():
    net = HierarchicalQuadraticNet((2,), n_starts=1, random_state=0)
    with pytest.raises(ValueError, match=r"too large for float64 sums of squares \(largest .y. .*e\+16"):
        net.fit(X0, 1e160 * Y0)
    with pytest.raises(ValueError, match=r"too large for float64 sums of squares"):
        net.fit(X0, 1e307 * np.sign(Y0))
    with pytest.raises(ValueError, match=r"too small for float64 sums of squares.*multiply y"):
        net.fit(X0, 1e-170 * Y0)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        net.predict(X0)
    with ignored_convergence():
        expected = net.fit(X0, Y0).predict(X0)
        for factor in (1e140, 1e-140):
            np.testing.assert_allclose(net.fit(X0, factor * Y0).predict(X0) / factor, expected, rtol=1e-6)


def test_the_exploding_layer_is_the_first_whose_squares_overflow():
    module = QuadraticDenseNet(4, (3, 2, 2), ((0, 1), (0, 2), (0, 1, 3)), generator=torch.Generator().manual_seed(0))
    X = torch.as_tensor(X0)
    assert exploding_layer(module, X) == max((2, 3, 4), key=lambda layer: module.hidden(X)[0][layer].abs().max())
    with torch.no_grad():
        module.weights[1] *= 1e200
    assert bool(module.hidden(X)[0][3].isfinite().all())  # but not their squares
    assert exploding_layer(module, X) == 3
    wide = DistilledQuadraticNet(4, ((0, 1), (0, 2)), alphas=(1.0, 0.3), n_units=3, generator=torch.Generator())
    wide.open_layer(1.0)
    wide.distill(2, torch.ones(1, 8, dtype=torch.float64))
    wide.open_layer(1e200)
    assert exploding_layer(wide, X) == 3
    with torch.no_grad():
        wide.K[0] *= np.nan
    assert exploding_layer(wide, X) == 2
    fit = Fit(wide, None, [np.nan], [])
    with pytest.raises(ValueError, match="first at layer 2 of layers 2, ..., 3"):
        require_finite(fit, X)
    finite = Fit(wide, None, [np.nan, 1.0], [])
    assert require_finite(finite, X) is finite
