"""Classifiers that are trained at once: against torch's own optimizer and schedule, and averaged."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, load_wine

from skident import HierarchicalQuadraticNetClassifier
from skident.hierarchical.batched_training import MeanOfLogits, _rate_and_momentum


@pytest.mark.parametrize("total", [2, 7, 300])
def test_rates_and_momenta_are_those_of_torch(total):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=total + 1)
    for step in range(total):
        group = optimizer.param_groups[0]
        assert _rate_and_momentum(step, total, 0.1) == pytest.approx((group["lr"], group["momentum"]))
        optimizer.step()
        schedule.step()


def test_predictions_are_means_of_the_logits_of_three_networks():
    X, y = load_iris(return_X_y=True)
    clf = HierarchicalQuadraticNetClassifier((8, 4), max_epochs=5, input_noise=0.0, random_state=0).fit(X, y)
    assert isinstance(clf._predictor, MeanOfLogits) and len(clf.restart_losses_) == 3
    u = torch.as_tensor(clf._input_scaling.inputs(X))
    with torch.no_grad():
        mean = sum(network(u) for network in clf._predictor.networks).numpy() / 3
    np.testing.assert_allclose(clf.decision_function(X), mean, atol=1e-12)
    assert len(clf.net_.history) == 5 and clf.history_ == pytest.approx(clf.net_.history[:, "train_loss"])
    assert clf.restart_losses_[0] == pytest.approx(clf.history_[-1])


def test_averages_repeat_with_the_seed_and_callbacks_train_one_network():
    X, y = load_wine(return_X_y=True)
    options = {"max_epochs": 4, "input_noise": 0.0, "random_state": 3}
    first, second = (HierarchicalQuadraticNetClassifier(**options).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    from skorch.callbacks import EpochTimer

    single = HierarchicalQuadraticNetClassifier(callbacks=[EpochTimer()], **options).fit(X, y)
    assert single._predictor is None and len(single.restart_losses_) == 1


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_modules_are_those_that_were_trained(dtype):
    X, y = load_iris(return_X_y=True)
    clf = HierarchicalQuadraticNetClassifier((6,), dtype=dtype, input_noise=0.0, random_state=1).fit(X, y)
    assert next(clf._module.parameters()).dtype == getattr(torch, dtype)
    assert clf.score(X, y) > 0.95
    assert (clf._in_chunks(X, lambda module, x: module(x)).argmax(axis=1) == y).mean() > 0.95
