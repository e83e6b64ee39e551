"""Training of torch modules by skorch: fits, devices, interrupts."""

import re
import signal

import numpy as np
import pytest
import torch
from skorch.callbacks import Callback, EarlyStopping
from torch import nn

from skident import HierarchicalQuadraticNetClassifier, NetworkCompletion, SaddleToSaddleClassifier
from skident.training.net import Training, fit_module, resolve_device


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


X = np.linspace(-1.0, 1.0, 33)[:, None]
Y = 3.0 * X + 1.0


def linear():
    module = nn.utils.skip_init(nn.Linear, 1, 1, dtype=torch.float64)  # draws nothing
    nn.init.zeros_(module.weight), nn.init.zeros_(module.bias)
    return module


def trained(callbacks=None, **options):
    training = Training(**{"max_epochs": 5, "batch_size": 8} | options)
    return fit_module(linear(), X, Y, nn.MSELoss, training, callbacks=callbacks)


def weight(net):
    return net.module_.weight.item()


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "lbfgs"])
def test_every_optimizer_fits_a_line(optimizer):
    options = {"lr": 1.0, "batch_size": -1} if optimizer == "lbfgs" else {"lr": 0.1, "max_epochs": 150}
    net = trained(optimizer=optimizer, **options)
    assert weight(net) == pytest.approx(3.0, abs=1e-3) and net.module_.bias.item() == pytest.approx(1.0, abs=1e-3)


def test_the_seed_decides_and_the_global_stream_is_left_alone():
    before = torch.random.get_rng_state()
    first, again, other = (weight(trained(seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert torch.equal(torch.random.get_rng_state(), before)


class Counter(Callback):
    """Counts rows; what skorch calls is a copy."""

    def __init__(self):
        self.sizes = []

    def on_batch_end(self, net, batch=None, training=None, **kwargs):
        net.history.record("sizes", [*net.history[-1].get("sizes", []), len(batch[0])])


def test_batches_and_callbacks():
    counter = Counter()
    net = trained([counter], max_epochs=1, batch_size=16)
    assert net.history[-1]["sizes"] == [16, 16]  # a last batch of one row is left out
    assert counter.sizes == []
    assert trained([counter], max_epochs=1, batch_size=10).history[-1]["sizes"] == [10, 10, 10, 3]
    assert trained([counter], max_epochs=1, batch_size=-1).history[-1]["sizes"] == [33]


def test_noise_moves_the_parameters_that_it_is_given():
    quiet, noisy = trained(lr=1e-9), trained(lr=1e-9, noise=0.1, noisy=lambda module: [module.weight])
    assert abs(weight(quiet)) < 1e-6 < 0.01 < abs(weight(noisy))
    assert abs(noisy.module_.bias.item()) < 1e-6


def test_devices():
    assert resolve_device("auto") in ("cpu", "cuda") and resolve_device("cpu") == "cpu"
    with pytest.raises(ValueError, match=r"device='nothing' cannot be used here: .* Use 'cpu' or 'auto'"):
        trained(device="nothing")


def test_callbacks_that_need_validation_samples_name_a_call_that_runs():
    """No fit holds out samples, so a loss of such is refused before the training."""
    x = torch.linspace(-1, 1, 20)[:, None]
    training = Training(optimizer="sgd", max_epochs=2)
    for given in ([EarlyStopping()], [("stop", EarlyStopping())], [EarlyStopping]):
        with pytest.raises(ValueError, match="monitors 'valid_loss', and no samples are held out") as caught:
            fit_module(torch.nn.Linear(1, 1), x, x, torch.nn.MSELoss, training, callbacks=given)
        remedy = eval(re.search(r"EarlyStopping\(.*?\)", str(caught.value))[0])
        fit_module(torch.nn.Linear(1, 1), x, x, torch.nn.MSELoss, training, callbacks=[remedy])
