"""Ridge regression on all terms of degree two: a start and the signs for layer 2."""

import numpy as np
import torch

from skident.budget.constants import LARGEST_ORDER
from skident.linalg.kernel_ridge import ridge_path

_RIDGES = np.logspace(-10, 2, 25)  # relative to the trace of the kernel, half decades from rounding on
_LEAST_EIGENVALUE = 1e-3  # relative to the largest: units with zero weights would have zero gradient and stay there
_SMALL_EIGENVALUE = 1e-2  # relative to the largest: a negative one below it is the regression's error


def _ridge(x, y, w):
    """Dual coefficients (n,) and leave-one-out residuals (n,) of y (n,) with the kernel ``(1 + <x, x'> / d)^2``.

    The residuals have factors w (n,).
    """
    kernel = (1.0 + x @ x.T / x.shape[1]) ** 2
    residuals, dual = ridge_path(kernel, y[:, None], _RIDGES * (w * w @ np.diag(kernel)), roots=w)
    best = np.argmin(np.sum(residuals**2, axis=(1, 2)))
    return dual[best, :, 0], residuals[best, :, 0]


def signed_root(M, k, n_last, signed=True):
    """W (<= k, q) and signs s with ``W^T diag(s) W`` near M (q, q), and the eigenvalues by size.

    From the block without the last inputs, whose eigenvalues give the signs; W and s are None if it is zero. Of the
    positive eigenvalues only, unless `signed`.
    """
    q = len(M)
    known = q - n_last if q - n_last >= k else q
    values, vectors = torch.linalg.eigh(M[:known, :known])
    order = (values.abs() if signed else values).argsort(descending=True)
    values, vectors = values[order], vectors[:, order]
    largest = float(values[0].abs() if signed else values[0])
    if not largest > 0.0:
        return None, None, values
    kept = min(k, known)
    negative = values[:kept] < -_SMALL_EIGENVALUE * largest
    signs = torch.where(negative & signed, -1.0, 1.0).to(M.dtype)
    sizes, V = (signs * values[:kept]).clamp(min=_LEAST_EIGENVALUE * largest).sqrt(), vectors[:, :kept]
    return torch.cat([V * sizes, signs * (M[:known, known:].T @ (V / sizes))]).T, signs, values


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
    M = torch.as_tensor((z.T * coefs) @ z / z.shape[1] ** 2).to(layer) / module.alphas[0]
    W, signs, _ = signed_root(M, len(layer), 0)
    layer.zero_()
    if W is not None:
        layer[: len(W), : W.shape[1]] = W
        module.signs[0][: len(W)] = signs
