import signal

import numpy as np
import pytest
import torch
from skorch.callbacks import Callback, EarlyStopping

from skident import HierarchicalQuadraticNetClassifier, NetworkCompletion, SaddleToSaddleClassifier
from skident.training.net import Training, fit_module


class CtrlC(Callback):
    """What a user at the keyboard does in the third step."""

    def on_train_begin(self, net, **kwargs):
        self.n_batches = 0

    def on_batch_end(self, net, **kwargs):
        self.n_batches += 1
        if self.n_batches == 3:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def keyboard():
    """Processes that run tests side by side may ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def line(rng):
    x = torch.as_tensor(rng.standard_normal((40, 2)), dtype=torch.float32)
    return x, x @ torch.tensor([[1.0], [-2.0]])


def test_interrupts_reach_the_caller(line):
    with pytest.raises(KeyboardInterrupt, match="^$"):
        fit_module(torch.nn.Linear(2, 1), *line, torch.nn.MSELoss, Training(batch_size=8), callbacks=[CtrlC()])


@pytest.mark.parametrize(
    "estimator",
    [
        SaddleToSaddleClassifier(depth=3, width=5, max_iter=10, callbacks=[CtrlC()], random_state=0),
        HierarchicalQuadraticNetClassifier(widths=(2,), solver="adam", callbacks=[CtrlC()], random_state=0),
        NetworkCompletion(layer_widths=(2, 1), solver="adam", max_iter=10, callbacks=[CtrlC()], random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_an_interrupted_fit_leaves_nothing_fitted(estimator, rng):
    X, y = rng.standard_normal((40, 3)), np.arange(40) % 2
    with pytest.raises(KeyboardInterrupt, match="^$"):
        estimator.fit(X, y)
    assert not [name for name in vars(estimator) if name.endswith("_")]


def test_callbacks_end_a_training(line):
    stopping = EarlyStopping(monitor="train_loss", patience=2, threshold=10.0, sink=lambda text: None)
    training = Training(optimizer="sgd", lr=1e-3, momentum=0.0, max_epochs=50, batch_size=-1)
    net = fit_module(torch.nn.Linear(2, 1), *line, torch.nn.MSELoss, training, callbacks=[stopping])
    assert len(net.history) == 3
    ended = fit_module(
        torch.nn.Linear(2, 1), *line, torch.nn.MSELoss, training, epoch_end=lambda net: len(net.history) == 5
    )
    assert len(ended.history) == 5
