"""Whether a fitted sum of squares is exactly the target: leave-one-out residuals at rounding level."""

import numpy as np
import torch

from skident.budget.constants import CHUNK_ENTRIES

from .solvers import jacobian

_RESIDUAL_TOL = 1e-7  # largest residual relative to the robust scale: a tenth of the error that `exact_` promises
_MAX_LEVERAGE = 0.999  # above, a sample is fitted by parameters that no other sample determines
_SAME_SAMPLE = 1e-3  # standard deviations of the inputs within which samples count as repeated
_NULL_EIGENVALUE = 1e-12  # of the Gram matrix, relative to the largest: rounding of P = 3000 products, about 4000 eps
_MOST_EIGENVALUES = 3000  # the eigenvalues of more take longer than the fit (budget)


@torch.no_grad()
def is_exact(module, samples):
    """Whether every sample is predicted to rounding, also with the parameters that the other samples determine.

    A polynomial with enough weights fits any few samples. A sample with residual r and leverage h therefore counts with
    its leave-one-out residual ``r / (1 - h)`` (to first order); a sample with leverage near one is no evidence, and
    repeated samples count as one. `samples` are in robust units, one output. False above 3000 parameters, which are not
    tested.
    """
    size = 1.0 + samples.y.abs()[:, 0]
    residuals = (module(samples.x) - samples.y).abs()[:, 0] / size
    if not float(residuals.max()) <= _RESIDUAL_TOL or sum(p.numel() for _, p in module.blocks()) > _MOST_EIGENVALUES:
        return False
    groups = np.unique(np.round(samples.x.cpu().numpy() / _SAME_SAMPLE), axis=0, return_inverse=True)[1].reshape(-1)
    leverage = np.bincount(groups, leverages(module, samples.x).cpu().numpy())[groups]
    slack = np.maximum(1.0 - leverage, 0.0)
    return bool((leverage <= _MAX_LEVERAGE).all() and (residuals.cpu().numpy() <= _RESIDUAL_TOL * slack).all())


def leverages(module, x):
    """Leverages (n,) in the linearized least squares problem of all parameters; O(n P^2 + P^3) for P parameters.

    Every sample's gradient is scaled to norm one, or a few large targets of high degree would take all leverage.
    Directions in which the outputs are constant, such as rotations of the last layer, do not contribute.
    """
    blocks = module.blocks()
    chunk = max(1, CHUNK_ENTRIES // sum(p.numel() for _, p in blocks))

    def gradients():
        for part in x.split(chunk):
            J = jacobian(module, blocks, part)[1][0]
            yield J / torch.linalg.vector_norm(J, dim=1, keepdim=True)  # the offset's derivative is one

    gram = sum(J.T @ J for J in gradients())
    scale = gram.diagonal().clamp(min=torch.finfo(x.dtype).tiny).sqrt()
    values, vectors = torch.linalg.eigh(gram / torch.outer(scale, scale))
    kept = values > _NULL_EIGENVALUE * values[-1]
    root = vectors[:, kept] / (scale[:, None] * values[kept].sqrt())
    return torch.cat([((J @ root) ** 2).sum(dim=1) for J in gradients()])
