"""Texts of convergence warnings after training, with the extrapolated step of the next escape."""

import math

import numpy as np

from skident.budget.constants import CONSTANT_TOL, ESCAPE_DROP

_HARDLY_BETTER = 0.03  # R^2 or accuracy below which nothing was learned
_DIVERGED = 2.0  # final loss relative to that of zero outputs
_N_RECORDS = 4  # last records that the expected escape is extrapolated from
_MAX_EXPONENT = 50.0  # keeps the extrapolated rate finite
_FAR = 1e9  # steps; later escapes are not reported


def diagnose(estimator, stopping, zero_loss):
    """The first problem of a finished training as a message, or None.

    `stopping` is the choice of epochs, None with `n_escapes`; `zero_loss` is the loss at zero outputs.
    """
    n, here = estimator.n_iter_, describe_plateau(estimator.history_)
    if estimator.loss_ > _DIVERGED * zero_loss:
        return (
            f"after {n} epochs the loss is {estimator.loss_:.3g}, and {zero_loss:.3g} without any network: for inputs "
            "of this size the weights are not small. Scale X, or lower init_scale, relative_step or learning_rate."
        )
    if estimator.escape_step_ is None:
        return (
            f"training has not left the saddle at the origin after {n} epochs ({here}); raise max_iter or init_scale, "
            "or start from SaddleEscapeAnalyzer.initial_weights."
        )
    return _unfinished(estimator, here) if stopping is None else _low_scores(estimator, stopping)


def _unfinished(estimator, here):
    """Message if fewer saddles than `n_escapes` were left."""
    n_left = max(len(estimator.saddles_) - 1, 0)
    if estimator.n_escapes == "all" or n_left >= estimator.n_escapes:
        return None
    return (
        f"training has left {n_left} of {estimator.n_escapes} saddles after {estimator.n_iter_} epochs and is still at "
        f"a plateau ({here}); raise max_iter."
    )


def _low_scores(estimator, stopping):
    """Message if training stopped too early, or held-out scores are low."""
    score, name = stopping.scores[0], type(estimator).__name__
    if stopping.still_falling or stopping.n_epochs > estimator.n_iter_:
        return f"the held-out loss was still falling after max_iter={estimator.max_iter} epochs; raise max_iter."
    if score < _HARDLY_BETTER and stopping.better is None:
        return f"on held-out samples {name} is hardly better than the mean of y (score {score:.3f})."
    return None


def expected_escape(steps, losses):
    """Step at which the loss will have fallen by 2 % more, if its decrease keeps growing exponentially.

    On the way out of a saddle the loss falls at a rate r that grows exponentially, ``r exp(g t)``; it falls by D within
    ``log(1 + g D / r) / g``. inf if the loss does not fall, or for fewer than four records.
    """
    t, loss = np.asarray(steps, dtype=float)[-_N_RECORDS:], np.asarray(losses, dtype=float)[-_N_RECORDS:]
    if len(t) < _N_RECORDS or not np.isfinite(loss).all():
        return math.inf
    fall = -np.diff(loss) / np.diff(t)
    if fall[-1] <= 0:
        return math.inf
    middles, drop = 0.5 * (t[1:] + t[:-1]), ESCAPE_DROP * abs(loss[-1])
    growth = float(np.polyfit(middles, np.log(fall), 1)[0]) if (fall > 0).all() else 0.0
    rate = fall[-1] * math.exp(min(max(growth, 0.0) * (t[-1] - middles[-1]), _MAX_EXPONENT))
    wait = math.log1p(growth * drop / rate) / growth if growth > CONSTANT_TOL else drop / rate
    return float(t[-1] + wait)


def describe_plateau(history):
    """Loss and expected escape of a record, as text."""
    step = expected_escape(history["steps"], history["losses"])
    when = f"escape expected at step {step:.0f}" if step < _FAR else "no escape in sight"
    return f"loss {history['losses'][-1]:.4g}, {when}"
