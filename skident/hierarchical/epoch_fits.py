"""Fits by Adam and SGD: all layers together, in batches, by skorch."""

from __future__ import annotations

import copy
import dataclasses

from skident.training.net import fit_module

from .input_noise import InputNoise, Rehearsed, rehearse_noise
from .problem import Fit
from .solvers import set_trainable

__all__ = ["fit_by_epochs"]

NO_NOISE = InputNoise()


def fit_by_epochs(problem, method, criterion, training, callbacks=None, noise=NO_NOISE):
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
    noise : InputNoise, default=NO_NOISE
        Gaussian, drawn anew every step; "auto" lets held-out rows choose, for labels (`rehearse_noise`), where all
        layers are drawn and trained.

    Returns
    -------
    Fit
        With the skorch net; not finite if the loss of the last epoch is not.

    Raises
    ------
    ValueError
        If the device cannot be used here.
    """
    quiet, noisy = training, dataclasses.replace(training, weight_decay=noise.weight_decay)

    def rehearsal(part, level):
        kind = noisy if level > 0 else quiet
        short = dataclasses.replace(kind, max_epochs=-(-3 * kind.max_epochs // 4))
        return _trained(part, method, criterion, short, level, None)[0]

    level, rehearsed = noise.level, None
    if level == "auto":
        drawn = problem.start is None and not problem.fixed
        rehearsed = rehearse_noise(problem, rehearsal) if drawn else Rehearsed()
        level = rehearsed.noise
    training = noisy if level > 0 else quiet
    module, initial, net = _trained(problem, method, criterion, training, level, callbacks)
    history = [float(loss) for loss in net.history[:, "train_loss"]]
    fit = Fit(module, initial, history[-1:], history, l2=training.weight_decay, skorch_net=net)
    return dataclasses.replace(fit, input_noise=level, rehearsed=rehearsed)


def _trained(problem, method, criterion, training, level, callbacks):
    """A new network in evaluation mode, what it was at the start, and the skorch net."""
    module = problem.build(method.readout, batch_norm=method.batch_norm)
    initial = copy.deepcopy(module)
    set_trainable(module, fixed=problem.fixed)
    training = dataclasses.replace(training, seed=problem.seed())
    x, y = problem.x.cpu().numpy(), problem.y.cpu().numpy()
    module.input_noise = level
    net = fit_module(module, x, y, criterion, training, callbacks=callbacks)
    module.input_noise = 0.0
    return module.eval(), initial, net
