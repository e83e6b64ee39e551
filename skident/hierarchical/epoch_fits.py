"""Fits by Adam and SGD: all layers together, in batches, by skorch."""

from __future__ import annotations

import copy
import dataclasses

from skident.training.net import fit_module

from .input_noise import Rehearsed, rehearse_noise
from .problem import Fit
from .solvers import set_trainable

__all__ = ["fit_by_epochs"]


def fit_by_epochs(problem, method, criterion, training, callbacks=None, noise=0.0):
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
    noise : float or "auto", default=0
        Standard deviation of Gaussian noise on the inputs, drawn anew every step; "auto" lets held-out rows choose, for
        labels (`rehearse_noise`), where all layers are drawn and trained.

    Returns
    -------
    Fit
        With the skorch net; not finite if the loss of the last epoch is not.

    Raises
    ------
    ValueError
        If the device cannot be used here.
    """

    def train(part, noise, callbacks=None):
        return _trained(part, method, criterion, training, noise, callbacks)

    rehearsed = None
    if noise == "auto":
        drawn = problem.start is None and not problem.fixed
        rehearsed = rehearse_noise(problem, lambda part, noise: train(part, noise)[0]) if drawn else Rehearsed()
        noise = rehearsed.noise
    module, initial, net = train(problem, noise, callbacks)
    history = [float(loss) for loss in net.history[:, "train_loss"]]
    fit = Fit(module, initial, history[-1:], history, l2=training.weight_decay, skorch_net=net)
    return dataclasses.replace(fit, input_noise=noise, rehearsed=rehearsed)


def _trained(problem, method, criterion, training, noise, callbacks):
    """A new network in evaluation mode, what it was at the start, and the skorch net."""
    module = problem.build(method.readout, batch_norm=method.batch_norm)
    initial = copy.deepcopy(module)
    set_trainable(module, fixed=problem.fixed)
    training = dataclasses.replace(training, seed=problem.seed())
    x, y = problem.x.cpu().numpy(), problem.y.cpu().numpy()
    module.input_noise = noise
    net = fit_module(module, x, y, criterion, training, callbacks=callbacks)
    module.input_noise = 0.0
    return module.eval(), initial, net
