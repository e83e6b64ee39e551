"""What to say of a training that is not to be relied on."""

from __future__ import annotations

from .forecast import describe_plateau

__all__ = ["doubt_of"]

_AS_GOOD = 0.03  # R^2 or accuracy that a linear model may be ahead by


def doubt_of(estimator, forecast, zero_loss):
    """The first of what there is to say against a training.

    Parameters
    ----------
    estimator : SaddleToSaddleBase
        Fitted.
    forecast : Forecast or None
        Where it trained to the end.
    zero_loss : float
        Of a network that answers zero.

    Returns
    -------
    str or None
    """
    n, here = estimator.n_iter_, describe_plateau(estimator.history_)
    if estimator.loss_ > 2.0 * zero_loss:
        return (
            f"after {n} epochs the loss is {estimator.loss_:.3g}, and {zero_loss:.3g} without any network: for inputs "
            "of this size the weights are not small. Scale X, or lower init_scale, relative_step or learning_rate."
        )
    if estimator.escape_step_ is None:
        return (
            f"training has not left the saddle at the origin after {n} epochs ({here}); raise max_iter or init_scale, "
            "or start from SaddleEscapeAnalyzer.initial_weights."
        )
    return _unfinished(estimator, here) if forecast is None else _poor(estimator, forecast)


def _unfinished(estimator, here):
    """Of a training that was to leave so many saddles."""
    n_left = max(len(estimator.saddles_) - 1, 0)
    if estimator.n_escapes == "all" or n_left >= estimator.n_escapes:
        return None
    return (
        f"training has left {n_left} of {estimator.n_escapes} saddles after {estimator.n_iter_} epochs and is still at "
        f"a plateau ({here}); raise max_iter."
    )


def _poor(estimator, forecast):
    """Of a training to the end."""
    (score, linear), name = forecast.scores, type(estimator).__name__
    if forecast.still_falling or forecast.n_epochs > estimator.n_iter_:
        return (
            f"the loss on held-out rows was still falling after max_iter={estimator.max_iter} epochs; raise max_iter."
        )
    if score < linear - _AS_GOOD:
        return (
            f"a linear model is better for these data: it scores {linear:.3f} on held-out rows, {name} {score:.3f}. "
            "There may be too few rows for a network, or max_iter too few epochs."
        )
    if score < _AS_GOOD:
        return f"on held-out rows {name} is hardly better than the mean of y (score {score:.3f})."
    return None
