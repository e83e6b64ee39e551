"""When training is to end, and what a linear model reaches on the same rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from skident.base.linear_reference import linear_accuracy, linear_r2

from .rehearsal import rehearse

__all__ = ["Forecast", "forecast_training"]

_FEWEST_ROWS = 10  # that a linear model is asked about
_OUT_OF_THE_SADDLE, _LONGER = 150, 4  # epochs of a rehearsal with noise: these, and so many times those without
_WITHOUT_REHEARSAL = 100  # epochs where no network left the origin, but the one on all rows may


@dataclass(frozen=True)
class Forecast:
    """What is known before training.

    Attributes
    ----------
    n_epochs : int
        Of Adam.
    scores : tuple of two float
        R^2 or accuracy on held-out rows of the networks and of a linear model; NaN where not known.
    still_falling : bool
        Whether the held-out loss was still falling when epochs ran out.
    noise : tuple of float or None
        Standard deviations of the noise that inputs are to have in training, one a column.
    """

    n_epochs: int
    scores: tuple
    still_falling: bool
    noise: tuple | None = None


def forecast_training(X, Y, tensors, classes, plan):
    """Epochs and scores by networks, and a linear model, on parts of the rows.

    Parameters
    ----------
    X : ndarray (n, D)
        As it came.
    Y : ndarray (n, k) or (n,)
        Targets of mean zero and variance one, class numbers, or 0 and 1 in a column.
    tensors : tuple of two Tensor
        What the network sees, and its targets.
    classes : bool
        Whether Y are labels.
    plan : RehearsalPlan
        Without noise and, of labels, with the noise that it has, where that lowers the held-out loss: the log loss of
        classes that the rows' inputs separate soon stops falling on others; inputs with noise are not separated.

    Returns
    -------
    Forecast
    """
    row_losses, row_scores = (_class_losses, _hits) if classes else (_half_squares, _explained)
    found, noise = rehearse(*tensors, row_losses, row_scores, dataclasses.replace(plan, noise=None)), None
    if classes and plan.noise is not None and found is not None and found.score < 1.0:
        # Noise makes training longer, and not worth while where it takes much longer.
        most = min(plan.max_iter, _OUT_OF_THE_SADDLE + _LONGER * found.n_epochs)
        shaken = rehearse(*tensors, row_losses, row_scores, dataclasses.replace(plan, max_iter=most))
        if shaken is not None and shaken.lowest < found.lowest:
            falling = shaken.still_falling and most == plan.max_iter
            found, noise = dataclasses.replace(shaken, still_falling=falling), plan.noise
    linear = np.nan
    if len(X) >= _FEWEST_ROWS:
        labels = np.asarray(Y).reshape(len(X), -1)[:, 0].astype(int) if classes else None
        linear = linear_accuracy(X, labels, plan.folds) if classes else linear_r2(X, Y, plan.folds)
    if found is None:
        return Forecast(_WITHOUT_REHEARSAL, (np.nan, linear), False)
    return Forecast(found.n_epochs, (found.score, linear), found.still_falling, noise)


def _half_squares(outputs, Y):
    """``||f(x) - y||^2 / 2``, (K, n)."""
    return 0.5 * ((outputs - Y) ** 2).sum(dim=-1)


def _explained(outputs, Y):
    """One less the mean squared error of a row, whose mean over rows is R^2 where Y has variance one."""
    return 1.0 - ((outputs - Y) ** 2).mean(dim=-1)


def _class_losses(outputs, Y):
    """Cross-entropy, (K, n)."""
    if Y.ndim == 2:
        return functional.softplus(outputs[..., 0]) - Y[:, 0] * outputs[..., 0]
    chosen = outputs.gather(-1, Y.expand(len(outputs), -1)[..., None])[..., 0]
    return torch.logsumexp(outputs, dim=-1) - chosen


def _hits(outputs, Y):
    """One where the class is right, else zero, (K, n)."""
    if Y.ndim == 2:
        return ((outputs[..., 0] > 0) == (Y[:, 0] > 0.5)).to(outputs.dtype)
    return (outputs.argmax(dim=-1) == Y).to(outputs.dtype)
