"""Training of torch modules by skorch, the only file that imports it: build a net, seed it, fit it on a device."""

from __future__ import annotations

import copy
import dis
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from skorch import NeuralNet
from skorch.callbacks import Callback, GradientNormClipping, LRScheduler, ProgressBar

__all__ = ["Callback", "Training", "WeightedLoss", "fit_module", "resolve_device"]

_OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "lbfgs": torch.optim.LBFGS}


def resolve_device(device):
    """The device to train on: "auto" is cuda if available, else cpu. ValueError if torch cannot use the device here."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device={device!r} cannot be used here: {reason} Use 'cpu' or 'auto'.") from error
    return device


@dataclass(frozen=True)
class Training:
    """How a module is trained."""

    optimizer: str = "adam"  # or "sgd", or "lbfgs": 20 steps with line search per epoch, on the full batch, no clipping
    lr: float = 1e-2
    max_epochs: int = 40
    batch_size: int = 64  # -1 is the full batch; a last batch of one sample is left out, batch norm refuses it
    weight_decay: float = 0.0  # not for lbfgs
    momentum: float = 0.9  # of sgd
    clip: float | None = None  # largest norm of a gradient
    one_cycle: bool = False  # raise the rate to `lr` and lower it to almost zero over all epochs, or keep it
    half_rate_after: float = math.inf  # epochs T: the rate is lr / (1 + t / T) after t of them
    noise: float = 0.0  # standard deviation of Gaussian noise on ``noisy(module)``'s parameters after every batch
    noisy: Callable | None = None
    device: str = "cpu"
    seed: int = 0  # of batches and noise; torch's global stream stays as it was
    verbose: int = 0  # 1 prints a line per epoch, 2 adds a progress bar

    def optimizer_options(self):
        """Options of the optimizer beside the rate, by skorch's names ``optimizer__...``."""
        return {
            "sgd": {"optimizer__momentum": self.momentum, "optimizer__weight_decay": self.weight_decay},
            "adam": {"optimizer__weight_decay": self.weight_decay},
            "lbfgs": {"optimizer__line_search_fn": "strong_wolfe", "optimizer__history_size": 30},
        }[self.optimizer]


class WeightedLoss(torch.nn.Module):
    """Mean over samples of a criterion's losses times weights, for targets that are pairs (y, weights)."""

    def __init__(self, criterion):
        super().__init__()
        self.losses = criterion(reduction="none")

    def forward(self, outputs, targets):
        """The loss of outputs and targets."""
        y, weights = targets
        losses = self.losses(outputs, y)
        return (weights * losses.reshape(len(losses), -1).mean(dim=1)).mean()


def _map_targets(function, y):
    """The function of y, or of each part of a pair (y, weights)."""
    return tuple(map(function, y)) if isinstance(y, tuple | list) else function(y)


class _Batches:
    """Batches as slices of two tensors: torch's DataLoader collects them row by row."""

    def __init__(self, dataset, batch_size, shuffle=False, drop_last=False):
        self.X, self.y = torch.as_tensor(dataset.X), _map_targets(torch.as_tensor, dataset.y)
        self.batch_size = len(self.X) if batch_size == -1 else batch_size
        self.shuffle, self.drop_last = shuffle, drop_last

    def __len__(self):
        n = len(self.X)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def __iter__(self):
        order = torch.randperm(len(self.X)) if self.shuffle else torch.arange(len(self.X))
        order = order.to(self.X.device)
        for i in range(len(self)):
            rows = order[i * self.batch_size : (i + 1) * self.batch_size]
            yield self.X[rows], _map_targets(lambda part, rows=rows: part[rows], self.y)


class _EpochEnd(Callback):
    """Calls ``function(net)`` after every epoch; True ends the training."""

    def __init__(self, function):
        self.function = function

    def on_epoch_end(self, net, **kwargs):
        if self.function(net):
            raise KeyboardInterrupt  # how skorch's own EarlyStopping ends a fit


class _Noise(Callback):
    """Gaussian noise on some of the module's parameters after every batch."""

    def __init__(self, scale, parameters):
        self.scale, self.parameters = scale, parameters

    @torch.no_grad()
    def on_batch_end(self, net, training=True, **kwargs):
        if training:
            for parameter in self.parameters(net.module_):
                parameter.add_(torch.randn_like(parameter), alpha=self.scale)


def fit_module(module, X, y, criterion, training, *, callbacks=None, epoch_end=None):
    """Train a torch module, in place, on ``criterion(module(X), y)`` and return the skorch net.

    X and y are arrays or tensors in the dtypes that module and criterion need, y in the shape of the outputs if the
    criterion would broadcast; tensors stay on their device. For a `WeightedLoss`, y is a pair (y, weights). `callbacks`
    of skorch are copied, because training changes them. ``epoch_end(net)`` is called after every epoch; True ends the
    training. ``history`` holds the loss of every epoch, ``module_`` the module. Ctrl-C is raised; a KeyboardInterrupt
    of a callback, such as skorch's `EarlyStopping`, ends the training.

    >>> import torch
    >>> from skident.training.net import Training, fit_module
    >>> x = torch.linspace(-1, 1, 64)[:, None]
    >>> training = Training(optimizer="sgd", lr=0.1, batch_size=-1, max_epochs=200)
    >>> net = fit_module(torch.nn.Linear(1, 1), x, 3 * x + 1, torch.nn.MSELoss, training)
    >>> print(round(net.module_.weight.item(), 3))
    3.0
    """
    device = resolve_device(training.device)
    cuda = [torch.device(device)] if str(device).startswith("cuda") else []
    drop_last = training.batch_size != -1 and len(X) > training.batch_size and len(X) % training.batch_size == 1
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(training.seed)
        net = NeuralNet(
            module,
            criterion=criterion,
            optimizer=_OPTIMIZERS[training.optimizer],
            lr=training.lr,
            max_epochs=training.max_epochs,
            batch_size=training.batch_size,
            train_split=None,
            iterator_train=_Batches,
            iterator_train__shuffle=training.batch_size != -1,
            iterator_train__drop_last=drop_last,
            callbacks=_callbacks(training, len(X), drop_last, callbacks, epoch_end),
            device=device,
            verbose=min(training.verbose, 1),
            # The log is a table of all columns, formatted at every epoch even if nothing is printed.
            **({} if training.verbose else {"callbacks__print_log": None}),
            **training.optimizer_options(),
        )
        # Copies: torch warns of tensors on read-only arrays.
        net = _run(net, *(_map_targets(_copied, A) for A in (X, y)))
    for epoch in net.history:
        del epoch["batches"]  # which grow with the rows
    return net


def _copied(A):
    """A tensor itself, or a copy of an array."""
    return A if isinstance(A, torch.Tensor) else np.array(A, order="C")


def _run(net, X, y):
    """``net.fit(X, y)``, except that Ctrl-C is raised: skorch returns a partial net, as for a callback that ends it."""
    net.initialize()
    net.notify("on_train_begin", X=X, y=y)
    try:
        net.fit_loop(X, y)
    except KeyboardInterrupt as interrupt:
        if not _raised_by_a_callback(interrupt):
            raise
    net.notify("on_train_end", X=X, y=y)
    return net


def _raised_by_a_callback(interrupt):
    """Whether a callback raised it, as callbacks do to end a training; Ctrl-C comes anywhere else."""
    trace = interrupt.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    by_statement = dis.opname[frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"
    return by_statement and isinstance(frame.f_locals.get("self"), Callback)


def _decay(half, t):
    """The rate after t epochs relative to the first one, if it is one half after `half` epochs."""
    return 1.0 / (1.0 + t / half)


def _check_monitors(callbacks):
    """Refuse callbacks that read a loss of validation samples, which no fit here has."""
    for named in callbacks:
        callback = named[1] if isinstance(named, tuple) else named
        callback = callback() if isinstance(callback, type) else callback
        monitor = getattr(callback, "monitor", None)
        if isinstance(monitor, str) and monitor.startswith("valid_"):
            name = type(callback).__name__
            raise ValueError(
                f"{name} monitors {monitor!r}, and no samples are held out for validation; use "
                f"{name}(monitor={monitor.replace('valid_', 'train_', 1)!r})."
            )


def _callbacks(training, n, drop_last, callbacks, epoch_end):
    """The caller's callbacks between those of the training."""
    added = [("clip", GradientNormClipping(training.clip))] if training.clip is not None else []
    if training.one_cycle:
        n_batches = 1 if training.batch_size == -1 else -(-n // training.batch_size)
        steps = training.max_epochs * (n_batches - drop_last)
        policy = torch.optim.lr_scheduler.OneCycleLR
        added.append(
            ("rate", LRScheduler(policy, step_every="batch", max_lr=training.lr, total_steps=max(2, steps + 1)))
        )
    if math.isfinite(training.half_rate_after):
        policy = torch.optim.lr_scheduler.LambdaLR
        added.append(("decay", LRScheduler(policy, lr_lambda=partial(_decay, training.half_rate_after))))
    added += [("noise", _Noise(training.noise, training.noisy))] if training.noise else []
    added += [("progress", ProgressBar())] if training.verbose > 1 else []
    _check_monitors(callbacks or [])
    added += copy.deepcopy(list(callbacks or []))
    return added + ([("epoch_end", _EpochEnd(epoch_end))] if epoch_end else [])
