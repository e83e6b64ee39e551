"""Whether a classifier is to be trained with noise on its inputs, by the log loss on held-out rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch.nn import functional

from skident.base.linear_reference import linear_accuracy

__all__ = ["InputNoise", "Rehearsed", "rehearse_noise", "warn_of_linear"]

_NOISE = 0.5  # standard deviations of the inputs
_FOLDS, _ENOUGH_ROWS, _FEWEST_ROWS = 3, 300, 10  # from so many rows on a single third is held out; so few are not
_BEHIND_LINEAR = 0.03  # accuracy


@dataclass(frozen=True)
class InputNoise:
    """Noise on the inputs of a training.

    Attributes
    ----------
    level : float or "auto"
        Standard deviation; "auto" lets held-out rows choose.
    weight_decay : float
        With noise, which is a penalty of its own; without, it is the training's.
    """

    level: float | str = 0.0
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Rehearsed:
    """What networks on parts of the rows say.

    Attributes
    ----------
    noise : float
        Standard deviation that had the lower held-out loss.
    score, linear : float
        Accuracy with it on held-out rows, and of logistic regression; NaN where nobody asked.
    n_held : int
        Held-out rows.
    """

    noise: float = 0.0
    score: float = np.nan
    linear: float = np.nan
    n_held: int = 0


def rehearse_noise(problem, train):
    """Train with and without noise on parts of the rows.

    Noise on inputs is a penalty on the slope of the network [1]_, which helps where many inputs tell the classes, and
    harms where classes are close to each other in few; so held-out rows decide.

    Parameters
    ----------
    problem : Problem
        Of labels, its rows in random order.
    train : callable
        ``train(part, noise) -> module`` in evaluation mode.

    Returns
    -------
    Rehearsed

    References
    ----------
    .. [1] C. M. Bishop, "Training with noise is equivalent to Tikhonov regularization", Neural Computation 1995.
    """
    n = len(problem.x)
    if n < _FEWEST_ROWS:
        return Rehearsed()
    folds = np.array_split(np.arange(n), _FOLDS)[: 1 if n >= _ENOUGH_ROWS else None]
    n_held, found = sum(map(len, folds)), {}
    for noise in (0.0, _NOISE):
        measured = [_held_out(problem, fold, train, noise) for fold in folds]
        found[noise] = np.sum(measured, axis=0) / n_held
    # Not a number, where training exploded, is no reason for noise.
    noise = _NOISE if found[_NOISE][0] < found[0.0][0] else 0.0
    linear = linear_accuracy(problem.x.cpu().numpy(), problem.y.cpu().numpy(), folds)
    return Rehearsed(noise, float(found[noise][1]), linear, n_held)


def _held_out(problem, fold, train, noise):
    """Sum of log losses, and number of right answers, on the rows of a fold."""
    rest = np.setdiff1d(np.arange(len(problem.x)), fold)
    module = train(problem.part(rest), noise)
    with torch.no_grad():
        logits, labels = module(problem.x[fold]), problem.y[fold]
        return np.array(
            [float(functional.cross_entropy(logits, labels, reduction="sum")), int((logits.argmax(1) == labels).sum())]
        )


def warn_of_linear(rehearsed, name):
    """Say where logistic regression is better by more than chance.

    Parameters
    ----------
    rehearsed : Rehearsed
    name : str
        Of the estimator.

    Warns
    -----
    ConvergenceWarning
        If it is, on the held-out rows by more than .03 and two standard errors.
    """
    if not rehearsed.n_held:
        return
    mean = (rehearsed.score + rehearsed.linear) / 2
    chance = 2.0 * np.sqrt(2.0 * mean * (1.0 - mean) / rehearsed.n_held)
    if rehearsed.score < rehearsed.linear - max(_BEHIND_LINEAR, chance):
        warnings.warn(
            f"{name}: a linear model is better for these data: it scores {rehearsed.linear:.3f} on held-out rows, the "
            f"network {rehearsed.score:.3f}. There may be too few rows for a network, or max_epochs too few epochs.",
            ConvergenceWarning,
            stacklevel=6,
        )
