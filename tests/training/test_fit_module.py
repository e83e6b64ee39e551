"""The one training function: seeds, devices, callbacks, batches."""

import numpy as np
import pytest
import torch
from torch import nn

from skident.training.net import Callback, Training, fit_module, resolve_device

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
