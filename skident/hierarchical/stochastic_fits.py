"""Training by Adam or SGD in mini-batches, with input noise selected by the log loss on held-out samples."""

import copy
import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from skident.base.better_models import BetterModel, better_model
from skident.base.linear_reference import linear_accuracy
from skident.budget.constants import FEWEST_COMPARED, INPUT_NOISE, N_FOLDS
from skident.training.net import fit_module

from .batched_training import Trial, trial_logits
from .problem import Fit
from .solvers import set_trainable
from .sum_fits import regressed_signs

_ENOUGH_SAMPLES = 300  # from here on a single third is held out (budget): the error of an accuracy is below .05
_SHORTER = 0.75  # fraction of the epochs for the trainings that select the noise (budget)


@dataclass(frozen=True)
class InputNoise:
    """Gaussian noise on the inputs during training."""

    level: float | str = 0.0  # standard deviation; "auto" selects it on held-out samples
    weight_decay: float = 0.0  # replaces the usual one when noise, itself a penalty, is on


@dataclass(frozen=True)
class NoiseSelection:
    """Selected noise level, and scores on held-out samples."""

    noise: float = 0.0  # standard deviation with the lower held-out log loss
    score: float = np.nan  # held-out accuracy with it; NaN if not measured
    linear: float = np.nan  # held-out accuracy of logistic regression; NaN if not measured
    better: BetterModel | None = None  # on the same held-out samples


def select_noise(problem, held_out_logits):
    """Select the noise level by training with and without noise on parts of the samples.

    Noise on inputs is a penalty on the slope of the network (Bishop 1995, "Training with noise is equivalent to
    Tikhonov regularization"). It helps if many inputs separate the classes, and harms if classes differ little in few
    inputs. The callable ``held_out_logits(trials)`` returns the logits of the samples that each pair (indices to hold
    out, noise level) holds out; `problem` has labels and samples in random order.
    """
    n = len(problem.x)
    if n < FEWEST_COMPARED:
        return NoiseSelection()
    folds = np.array_split(np.arange(n), N_FOLDS)[: 1 if n >= _ENOUGH_SAMPLES else None]
    found = {level: np.full((2, n), np.nan) for level in (0.0, INPUT_NOISE)}
    trials = [(torch.as_tensor(fold, device=problem.x.device), noise) for noise in found for fold in folds]
    for (fold, noise), logits in zip(trials, held_out_logits(trials)):
        found[noise][:, fold.cpu()] = _log_losses_and_wrong(logits, problem.y[fold])
    held, w = np.concatenate(folds), problem.sample_weights
    means = {
        noise: np.average(both[:, held], axis=1, weights=None if w is None else w[held])
        for noise, both in found.items()
    }
    # False for NaN, the loss if training with noise diverged.
    noise = INPUT_NOISE if means[INPUT_NOISE][0] < means[0.0][0] else 0.0
    X, y = problem.x.cpu().numpy(), problem.y.cpu().numpy()
    better = better_model(X, y, found[noise][1], folds, weights=w)
    return NoiseSelection(noise, float(1.0 - means[noise][1]), linear_accuracy(X, y, folds, w), better)


@torch.no_grad()
def _log_losses_and_wrong(logits, labels):
    """Log loss of each sample, and whether its class is wrong, (2, n)."""
    losses = functional.cross_entropy(logits, labels, reduction="none")
    return torch.stack([losses, (logits.argmax(1) != labels).to(losses.dtype)]).cpu().numpy()


def fit_stochastic(problem, method, criterion, training, callbacks=None, noise=InputNoise()):
    """Adam or SGD on all layers that are not fixed, with Gaussian input noise drawn anew at each step.

    A noise level of "auto" is selected on held-out samples if all layers start at random weights and none is fixed.
    """
    labels = not problem.y.is_floating_point()
    parallel = labels and method.solver == "sgd" and method.clips and training.clip is not None
    quiet, noisy = training, dataclasses.replace(training, weight_decay=noise.weight_decay)

    def held_out_logits(trials):
        short = dataclasses.replace(training, max_epochs=math.ceil(_SHORTER * training.max_epochs))
        if parallel:
            decays = [(noisy if level > 0 else quiet).weight_decay for _, level in trials]
            together = [Trial(fold, level, decay) for (fold, level), decay in zip(trials, decays)]
            return trial_logits(problem, together, short)
        return [_separate_logits(problem, method, criterion, short, trial) for trial in trials]

    level, noise_selection = noise.level, None
    if level == "auto":
        drawn = problem.start is None and not problem.fixed
        noise_selection = select_noise(problem, held_out_logits) if drawn else NoiseSelection()
        level = noise_selection.noise
    training = noisy if level > 0 else quiet
    module, initial, net = _trained(problem, method, criterion, training, level, callbacks)
    chosen = {"l2": training.weight_decay, "input_noise": level, "noise_selection": noise_selection, "skorch_net": net}
    return Fit(module, initial, net.history[-1:, "train_loss"], net.history[:, "train_loss"], **chosen)


@torch.no_grad()
def _separate_logits(problem, method, criterion, training, trial):
    """Logits of the held-out samples of a pair (indices, noise level), from one network trained on the others."""
    (fold, level), rest = trial, np.setdiff1d(np.arange(len(problem.x)), trial[0].cpu().numpy())
    with torch.enable_grad():
        module = _trained(problem.part(rest), method, criterion, training, level, None)[0]
    return module(problem.x[fold])


def _trained(problem, method, criterion, training, level, callbacks):
    """A trained network in evaluation mode, its initial state, and the skorch net."""
    module = problem.build(method.readout, batch_norm=method.clips)
    if method.readout == "sum" and problem.start is None:
        module.all_signs.copy_(regressed_signs(problem))
    initial = copy.deepcopy(module)
    set_trainable(module, fixed=problem.fixed)
    training = dataclasses.replace(training, seed=problem.seed())
    targets, criterion = problem.with_targets(criterion)
    module.input_noise = level
    net = fit_module(module, problem.x, targets, criterion, training, callbacks=callbacks)
    module.input_noise = 0.0
    return module.eval(), initial, net
