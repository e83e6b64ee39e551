"""The only file that knows skorch: build a net, seed it, fit it, on the right device."""

from __future__ import annotations

import copy
import dis
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from skorch import NeuralNet
from skorch.callbacks import Callback, GradientNormClipping, LRScheduler, ProgressBar

__all__ = ["Callback", "Training", "fit_module", "resolve_device"]

_OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "lbfgs": torch.optim.LBFGS}


def resolve_device(device):
    """The device to train on.

    Parameters
    ----------
    device : str
        ``auto`` is cuda where there is one, else cpu.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        If torch does not know the device, or has none like it here.
    """
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
    """How a module is trained.

    Attributes
    ----------
    optimizer : {"adam", "sgd", "lbfgs"}
        An epoch of "lbfgs" is 20 steps with line search; it wants the full batch and no clipping.
    lr, weight_decay, momentum : float
        `momentum` of ``sgd``; no weight decay for ``lbfgs``.
    max_epochs, batch_size : int
        A batch size of -1 is the full batch. A last batch of one row is left out, since batch norm refuses it.
    clip : float or None
        Largest norm of a gradient.
    one_cycle : bool
        Raise the rate to `lr` and lower it to almost zero, over all epochs; else it stays.
    noise : float
        Standard deviation of Gaussian noise on ``noisy(module)``'s parameters after every batch.
    noisy : callable or None
    device : str
    seed : int
        Of batches and noise; torch's global stream is left as it was.
    verbose : int
        1 prints a line an epoch, 2 shows a progress bar too.
    """

    optimizer: str = "adam"
    lr: float = 1e-2
    max_epochs: int = 40
    batch_size: int = 64
    weight_decay: float = 0.0
    momentum: float = 0.9
    clip: float | None = None
    one_cycle: bool = False
    noise: float = 0.0
    noisy: Callable | None = None
    device: str = "cpu"
    seed: int = 0
    verbose: int = 0

    def optimizer_options(self):
        """What skorch passes on to the optimizer, beside the rate.

        Returns
        -------
        dict
            By skorch's names, ``optimizer__...``.
        """
        return {
            "sgd": {"optimizer__momentum": self.momentum, "optimizer__weight_decay": self.weight_decay},
            "adam": {"optimizer__weight_decay": self.weight_decay},
            "lbfgs": {"optimizer__line_search_fn": "strong_wolfe", "optimizer__history_size": 30},
        }[self.optimizer]


class _Batches:
    """Batches as slices of two tensors: what torch's DataLoader gives row by row, at the cost of an indexing."""

    def __init__(self, dataset, batch_size, shuffle=False, drop_last=False):
        self.X, self.y = torch.as_tensor(dataset.X), torch.as_tensor(dataset.y)
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
            yield self.X[rows], self.y[rows]


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
    """Train a module, in place, with any criterion.

    Parameters
    ----------
    module : torch.nn.Module
        Built already; ``module(X)`` and y go to the criterion.
    X, y : ndarray or torch.Tensor
        In the dtypes that module and criterion want, y shaped like the module's outputs where the criterion would
        broadcast. Tensors stay where they are, so that on a GPU no batch travels.
    criterion : type or torch.nn.Module
    training : Training
    callbacks : list, default=None
        skorch callbacks; copied, since training changes them.
    epoch_end : callable, default=None
        ``epoch_end(net)`` after every epoch; True ends the training.

    Returns
    -------
    skorch.NeuralNet
        Trained; ``history`` holds the loss of every epoch, none of the batches, ``module_`` the module.

    Raises
    ------
    ValueError
        If the device cannot be used here.
    KeyboardInterrupt
        On Ctrl-C; one that a callback raises, as skorch's `EarlyStopping` does, ends the training instead.

    Examples
    --------
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
            **training.optimizer_options(),
        )
        # Copies: torch warns of tensors on read-only arrays.
        net = _run(net, *(A if isinstance(A, torch.Tensor) else np.array(A, order="C") for A in (X, y)))
    for epoch in net.history:
        del epoch["batches"]  # which grow with the rows
    return net


def _run(net, X, y):
    """``net.fit(X, y)``, which would take Ctrl-C for a callback that ends the training, and return a partial net."""
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
    """Whether a callback raised it, which is how they end a training; an interrupt from outside comes anywhere else."""
    trace = interrupt.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    by_statement = dis.opname[frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"
    return by_statement and isinstance(frame.f_locals.get("self"), Callback)


def _callbacks(training, n, drop_last, callbacks, epoch_end):
    """The caller's callbacks between those that the training asks for."""
    added = [("clip", GradientNormClipping(training.clip))] if training.clip is not None else []
    if training.one_cycle:
        n_batches = 1 if training.batch_size == -1 else -(-n // training.batch_size)
        steps = training.max_epochs * (n_batches - drop_last)
        policy = torch.optim.lr_scheduler.OneCycleLR
        added.append(
            ("rate", LRScheduler(policy, step_every="batch", max_lr=training.lr, total_steps=max(2, steps + 1)))
        )
    added += [("noise", _Noise(training.noise, training.noisy))] if training.noise else []
    added += [("progress", ProgressBar())] if training.verbose > 1 else []
    added += copy.deepcopy(list(callbacks or []))
    return added + ([("epoch_end", _EpochEnd(epoch_end))] if epoch_end else [])
