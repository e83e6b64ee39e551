"""Fits whose loss is not finite: which layer it was, and the one error that says so."""

from __future__ import annotations

import torch

__all__ = ["exploding_layer", "require_finite"]


@torch.no_grad()
def exploding_layer(module, x):
    """The first layer whose squares are not finite; where all are, the one with the largest.

    Parameters
    ----------
    module : QuadraticDenseNet or DistilledQuadraticNet
    x : Tensor (n, d)

    Returns
    -------
    int
        l.
    """
    squared = module.squared(x)
    for layer, features in squared.items():
        if not bool(torch.isfinite(features**2).all()):
            return layer
    return max(squared, key=lambda layer: float(squared[layer].abs().max()))


def require_finite(fit, x):
    """The fit, if its loss is finite.

    Parameters
    ----------
    fit : Fit
    x : Tensor (n, d)
        What it was fitted on.

    Returns
    -------
    Fit

    Raises
    ------
    ValueError
        If the loss exploded, with the layer of the fit's own module at which it did.
    """
    if fit.finite:
        return fit
    raise ValueError(
        f"the loss exploded (it is not finite), first at layer {exploding_layer(fit.module, x)} of layers 2, ..., "
        f"{len(fit.module.connections) + 1}. Lower lr, take fewer layers, or remove outliers from X."
    )
