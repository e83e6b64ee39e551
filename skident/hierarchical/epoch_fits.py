"""Fits by Adam and SGD: all layers together, in batches, by skorch."""

from __future__ import annotations

import copy
import dataclasses

from skident.training.net import fit_module

from .problem import Fit
from .solvers import set_trainable

__all__ = ["fit_by_epochs"]


def fit_by_epochs(problem, method, criterion, training, callbacks=None):
    """Adam or SGD on all unfixed layers together.

    Parameters
    ----------
    problem : Problem
    method : Method
    criterion : type
        Of the loss, a torch module.
    training : Training
        Its seed is drawn anew.
    callbacks : list of skorch callbacks, default=None

    Returns
    -------
    Fit
        With the skorch net; not finite if the loss of the last epoch is not.

    Raises
    ------
    ValueError
        If the device cannot be used here.
    """
    module = problem.build(method.readout, batch_norm=method.batch_norm)
    initial = copy.deepcopy(module)
    set_trainable(module, fixed=problem.fixed)
    training = dataclasses.replace(training, seed=problem.seed())
    x, y = problem.x.cpu().numpy(), problem.y.cpu().numpy()
    net = fit_module(module, x, y, criterion, training, callbacks=callbacks)
    history = [float(loss) for loss in net.history[:, "train_loss"]]
    return Fit(module.eval(), initial, history[-1:], history, l2=training.weight_decay, skorch_net=net)
