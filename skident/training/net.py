"""The only file that knows skorch: build a net, seed it, fit it, on the right device."""

from __future__ import annotations

import copy

import numpy as np
import torch
from skorch import NeuralNet, NeuralNetRegressor
from skorch.callbacks import Callback, GradientNormClipping, LRScheduler, ProgressBar

__all__ = ["Callback", "fit_module", "fit_regressor", "resolve_device"]

_OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "lbfgs": torch.optim.LBFGS}


def resolve_device(device):
    """``auto`` as cuda where there is one, else cpu; other names as they are.

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


def fit_regressor(
    module,
    module_kwargs,
    X,
    Y,
    *,
    optimizer="sgd",
    lr=0.025,
    max_epochs=1000,
    batch_size=-1,
    device="cpu",
    dtype="float64",
    seed=0,
    callbacks=None,
    verbose=0,
):
    """Train a module on the mean squared error.

    Parameters
    ----------
    module : type
        A torch module class; it is built inside, after seeding.
    module_kwargs : dict
    X : ndarray of shape (n, k)
    Y : ndarray of shape (n, m_L)
        Two-dimensional: a vector would broadcast against the module's (n, 1).
    optimizer : {"sgd", "adam"}
    lr : float
    max_epochs : int
    batch_size : int, default=-1
        Rows a step; -1 is the full batch.
    device, dtype : str
    seed : int
        For initial weights and batches; torch's global stream is left as it was.
    callbacks : list, default=None
        skorch callbacks; copied, since training changes them.
    verbose : int

    Returns
    -------
    skorch.NeuralNetRegressor
        Trained; ``history`` holds the loss of every epoch, ``module_`` the module.
    """
    device = resolve_device(device)
    cuda = [torch.device(device)] if str(device).startswith("cuda") else []
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(seed)
        net = NeuralNetRegressor(
            module,
            criterion=torch.nn.MSELoss,
            optimizer=_OPTIMIZERS[optimizer],
            lr=lr,
            max_epochs=max_epochs,
            batch_size=batch_size,
            train_split=None,
            iterator_train__shuffle=batch_size != -1,
            callbacks=copy.deepcopy(callbacks),
            device=device,
            verbose=verbose,
            **{f"module__{name}": value for name, value in module_kwargs.items()},
        )
        # Copies: torch warns of tensors on read-only arrays.
        return net.fit(np.array(X, dtype=dtype, order="C"), np.array(Y, dtype=dtype, order="C"))


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


def fit_module(
    module,
    X,
    y,
    *,
    criterion,
    optimizer="adam",
    lr=1e-2,
    max_epochs=40,
    batch_size=64,
    weight_decay=0.0,
    momentum=0.9,
    clip=None,
    one_cycle=False,
    epoch_end=None,
    noise=0.0,
    noisy=None,
    device="cpu",
    seed=0,
    callbacks=None,
    verbose=0,
):
    """Train a module, in place, with any criterion.

    Parameters
    ----------
    module : torch.nn.Module
        Built already; ``module(X)`` and y go to the criterion.
    X, y : ndarray or torch.Tensor
        In the dtypes that module and criterion want. Tensors stay where they are, so that on a GPU no batch travels.
    criterion : type or torch.nn.Module
    optimizer : {"adam", "sgd", "lbfgs"}
        An epoch of "lbfgs" is 20 steps with line search; it wants the full batch and no clipping.
    lr, weight_decay, momentum : float
        `momentum` of ``sgd``; no weight decay for ``lbfgs``.
    max_epochs, batch_size : int
        A batch size of -1 is the full batch. A last batch of one row is left out, since batch norm refuses it.
    clip : float, default=None
        Largest norm of a gradient.
    one_cycle : bool
        Raise the rate to `lr` and lower it to almost zero, over all epochs; else it stays.
    epoch_end : callable, default=None
        ``epoch_end(net)`` after every epoch; True ends the training.
    noise : float
        Standard deviation of Gaussian noise on ``noisy(module)``'s parameters after every batch.
    device, seed, callbacks, verbose
        As for `fit_regressor`; ``verbose=2`` shows a progress bar too.

    Returns
    -------
    skorch.NeuralNet
    """
    device = resolve_device(device)
    cuda = [torch.device(device)] if str(device).startswith("cuda") else []
    n = len(X)
    n_batches = 1 if batch_size == -1 else -(-n // batch_size)
    drop_last = batch_size != -1 and n > batch_size and n % batch_size == 1
    steps = max_epochs * (n_batches - drop_last)
    added = [("clip", GradientNormClipping(clip))] if clip is not None else []
    if one_cycle:
        policy = torch.optim.lr_scheduler.OneCycleLR
        added.append(("rate", LRScheduler(policy, step_every="batch", max_lr=lr, total_steps=max(2, steps + 1))))
    added += [("noise", _Noise(noise, noisy))] if noise else []
    added += [("progress", ProgressBar())] if verbose > 1 else []
    added += copy.deepcopy(list(callbacks or []))
    added += [("epoch_end", _EpochEnd(epoch_end))] if epoch_end else []
    options = {
        "sgd": {"optimizer__momentum": momentum, "optimizer__weight_decay": weight_decay},
        "adam": {"optimizer__weight_decay": weight_decay},
        "lbfgs": {"optimizer__line_search_fn": "strong_wolfe", "optimizer__history_size": 30},
    }[optimizer]
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(seed)
        net = NeuralNet(
            module,
            criterion=criterion,
            optimizer=_OPTIMIZERS[optimizer],
            lr=lr,
            max_epochs=max_epochs,
            batch_size=batch_size,
            train_split=None,
            iterator_train=_Batches,
            iterator_train__shuffle=batch_size != -1,
            iterator_train__drop_last=drop_last,
            callbacks=added,
            device=device,
            verbose=min(verbose, 1),
            **options,
        )
        return net.fit(*(A if isinstance(A, torch.Tensor) else np.array(A, order="C") for A in (X, y)))
