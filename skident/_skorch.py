"""The only file that knows skorch: build a net, seed it, fit it, on the right device."""

from __future__ import annotations

import copy

import numpy as np
import torch
from skorch import NeuralNetRegressor

__all__ = ["fit_regressor", "resolve_device"]

_OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


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
