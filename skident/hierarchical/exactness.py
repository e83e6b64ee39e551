"""Whether a fitted sum of squares is the target: every sample is predicted by the other samples, to rounding."""

from __future__ import annotations

import numpy as np
import torch

from .solvers import jacobian

__all__ = ["is_exact", "leverages"]

_TOL = 1e-7  # largest residual, in robust units of the target: a tenth of the error that `exact_` promises
_UNTESTED = 0.999  # leverage above which a sample is fitted by parameters that no other sample determines
_SAME = 1e-3  # standard deviations of the inputs within which samples count as repeated
_NULL = 1e-12  # relative eigenvalue of the Gram matrix up to which rounding decides
_LARGEST = 3000  # parameters; the eigenvalues of more take longer than the fit
_CHUNK_ENTRIES = 4_000_000  # of the Jacobian that are held at once


@torch.no_grad()
def is_exact(module, rows):
    """Whether every sample is predicted to rounding, also by the parameters that the other samples determine.

    A polynomial with enough weights explains any few samples. So a sample with residual r and leverage h counts with
    ``r / (1 - h)``, its residual without itself (to first order), and with a leverage near one not at all: it is no
    evidence. Samples that repeat others count as one.

    Parameters
    ----------
    module : QuadraticDenseNet
        Sum form, fitted.
    rows : WeightedRows
        One output, in robust units; weights are not used.

    Returns
    -------
    bool
        False above 3000 parameters, where nothing is tested.
    """
    size = 1.0 + rows.y.abs()[:, 0]
    residuals = (module(rows.x) - rows.y).abs()[:, 0] / size
    if not float(residuals.max()) <= _TOL or sum(p.numel() for _, p in module.blocks()) > _LARGEST:
        return False
    groups = np.unique(np.round(rows.x.cpu().numpy() / _SAME), axis=0, return_inverse=True)[1].reshape(-1)
    leverage = np.bincount(groups, leverages(module, rows.x).cpu().numpy())[groups]
    left = np.maximum(1.0 - leverage, 0.0)
    return bool((leverage <= _UNTESTED).all() and (residuals.cpu().numpy() <= _TOL * left).all())


def leverages(module, x):
    """Leverages of samples in the linearised least squares problem of all parameters.

    Every sample has a gradient of norm one: large targets of high degree would leave nothing to the others.

    Parameters
    ----------
    module : QuadraticDenseNet
        One output.
    x : Tensor (n, d)

    Returns
    -------
    Tensor (n,)
        In [0, 1].

    Notes
    -----
    Cost: ``O(n P^2 + P^3)`` for P parameters. Directions in which nothing changes, as rotations of the last layer,
    have no part.
    """
    blocks = module.blocks()
    chunk = max(1, _CHUNK_ENTRIES // sum(p.numel() for _, p in blocks))

    def gradients():
        for part in x.split(chunk):
            J = jacobian(module, blocks, part)[1][0]
            yield J / torch.linalg.vector_norm(J, dim=1, keepdim=True)  # the offset's derivative is one

    gram = sum(J.T @ J for J in gradients())
    scale = gram.diagonal().clamp(min=torch.finfo(x.dtype).tiny).sqrt()
    values, vectors = torch.linalg.eigh(gram / torch.outer(scale, scale))
    kept = values > _NULL * values[-1]
    root = vectors[:, kept] / (scale[:, None] * values[kept].sqrt())
    return torch.cat([((J @ root) ** 2).sum(dim=1) for J in gradients()])
