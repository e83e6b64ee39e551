"""Ridge regression on all terms of degree two: a start and the signs for layer 2."""

from __future__ import annotations

import numpy as np
import torch

from skident.budget.constants import LARGEST_ORDER, MIN_GAP

__all__ = ["LEAST_EIGENVALUE", "start_from_degree_two"]

_RIDGES = np.logspace(-10, 2, 25)  # relative to the largest eigenvalue of the kernel, half decades from rounding on
LEAST_EIGENVALUE = 1e-3  # relative to the largest: units with zero weights would have zero gradient and stay there


def _ridge(x, y, w):
    """Dual coefficients (n,) and leave-one-out residuals (n,) of y (n,) with the kernel ``(1 + <x, x'> / d)^2``.

    The residuals have factors w (n,).
    """
    kernel, y = w[:, None] * w * (1.0 + x @ x.T / x.shape[1]) ** 2, w * y
    values, U = np.linalg.eigh(kernel)
    kept = values > np.finfo(float).eps * len(x) * values[-1]
    values, U = values[kept], U[:, kept]
    left = U.T @ y
    best, coefs = None, None
    for ridge in _RIDGES * values[-1]:
        shrunk = values / (values + ridge)
        residual = (y - U @ (shrunk * left)) / np.maximum(1.0 - (U * U) @ shrunk, MIN_GAP)
        if best is None or residual @ residual < best @ best:
            best, coefs = residual, w * (U @ (left / (values + ridge)))
    return coefs, best


@torch.no_grad()
def start_from_degree_two(module, samples):
    """Set layer 2 of a sum-form module to the main eigenpairs of a quadratic form, by ridge regression.

    ``W^T diag(s) W`` is the part of degree two of rank k, in the inputs x alone or in all inputs of layer 2, whichever
    has the lower leave-one-out error. The first `LARGEST_ORDER` samples are used: they come in random order.
    """
    part = samples.first(LARGEST_ORDER)
    y, w, layer, d = part.y[:, 0].cpu().numpy(), part.factors[:, 0].cpu().numpy(), module.weights[0], module.n_features
    h = module.gather(module.start(part.x), 2).cpu().numpy()
    fits = [(z, *_ridge(z, y - y.mean(), w)) for z in (h[:, :d], h)]
    z, coefs, _ = min(fits, key=lambda fit: fit[2] @ fit[2])
    values, vectors = np.linalg.eigh((z.T * coefs) @ z / z.shape[1] ** 2 / float(module.alphas[0]))
    order = np.argsort(-np.abs(values))[: len(layer)]
    sizes = np.sqrt(np.maximum(np.abs(values[order]), LEAST_EIGENVALUE * np.abs(values[order[0]])))
    layer.zero_()
    layer[: len(order), : z.shape[1]] = torch.as_tensor((vectors[:, order] * sizes).T)
    module.signs[0][: len(order)] = torch.as_tensor(np.where(values[order] < 0.0, -1.0, 1.0))
