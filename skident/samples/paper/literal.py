"""Algorithms 4 and 5 of Awasthi et al. (2021) to the letter, on raw Hermite moments."""

import numpy as np

from skident.budget import require_memory
from skident.budget.constants import MATRIX_ENTRIES
from skident.linalg import hermite_features, n_symmetric_entries
from skident.samples.learning import judged
from skident.samples.ridges import RidgeFit, regress_on_ridges, without_ridges
from skident.samples.tensor_stage import TensorStage, residual_curvature
from skident.samples.unit_signs import SignedFit, as_relu, sign_values

from .decomposition import decomposition_bytes, recover_up_to_signs
from .scalars import fix_signs


def _moments(Z, y, w, orders):
    sums = []
    for k in orders:
        rows = max(1, MATRIX_ENTRIES // n_symmetric_entries(Z.shape[1], k))
        starts = range(0, len(Z), rows)
        sums.append(sum((w * y)[s : s + rows] @ hermite_features(Z[s : s + rows], k) for s in starts))
    return tuple(sums)


def raw_tensors(sample, highest):
    """Packed means of ``y He_k(z)`` for k = 1 to highest, nothing subtracted.

    ``O(n C(k + highest, highest))`` for k coordinates; blocks of features of 16 MB.
    """
    orders = range(1, highest + 1)
    return {k: T / sample.total for k, T in zip(orders, sample.reduce(_moments, orders))}


def learn_literally(sample, n_units, *, order, rng):
    """Algorithm 4 of Awasthi et al. (2021), for order 1 with the margins of Algorithm 3, followed by Algorithm 5.

    The regression of Algorithm 5 takes units with either sign, so that those of Algorithm 3 only show as margins.
    """
    require_memory(decomposition_bytes(sample.dim, order), f"tensors of order {2 * order + 2} over {sample.dim} inputs")
    # T_0 to T_4 for order 1, to T_6 for order 2. The mean of y, which is T_0, is left to the regression.
    tensors = raw_tensors(sample, 2 * order + 2)
    found = recover_up_to_signs(tensors, order, n_units=n_units, method="literal", rng=rng)
    regression = regress_on_ridges(sample, found.W.T, found.b)
    curvature = residual_curvature(sample, without_ridges(np.zeros(sample.dim)))
    spectrum = np.linalg.eigvalsh(curvature.matrix)
    spectrum = spectrum[np.argsort(-np.abs(spectrum), kind="stable")]
    stage = TensorStage([regression], spectrum, curvature.noise, int(np.sum(np.abs(spectrum) > curvature.noise)))
    if order == 1:
        _, margins = fix_signs(tensors[1], found.W, found.b, found.a, literal=True)
    else:
        margins = np.minimum(np.abs(sign_values(regression.model)), 1.0)
    signed = SignedFit(RidgeFit(as_relu(regression.model), regression.rss, 0, "max_iter"), margins)
    losses = np.array([regression.rss / sample.total])
    return judged(sample, signed, regression.model, stage, losses, True, rng)
