"""One hidden layer of ReLU units with a linear part: pairs of units that no signs of the others replace."""

import numpy as np

from skident.linalg import lapack, svd
from skident.network import FeedforwardNetwork

from ...constants import RANK_TOL
from ..kernel.signs import linear_part_matrix

_SKIP_TOL = 1e-11  # linear part relative to the whole, below which it is rounding of refined units


def network_with_linear_part(units, linear, output_error):
    """The network ``sum_i c_i |z_i| / 2 + g . u`` of `ReLUUnits` in ReLU units, and how many only make its linear part.

    As ``|z| = 2 relu(z) - z``, the signs of the units are free: those nearest to the linear part ``2 g`` (m_L, D) are
    taken. A pair ``relu(v . u) - relu(-v . u)`` per direction v makes what is left; no activation boundary belongs to
    it. `output_error` (m_L,) is the unit of the outputs. Constants are not set.
    """
    M = linear_part_matrix(units.weights, units.outgoing)
    signs = np.where(lapack.lstsq(M, linear.ravel(), rcond=RANK_TOL)[0] < 0, -1.0, 1.0)
    skip = 0.5 * (linear - (units.outgoing.T * signs) @ units.weights.T)
    left, sizes, right = svd(skip, full_matrices=False)
    kept = sizes > _SKIP_TOL * max(np.linalg.norm(linear), np.linalg.norm(units.outgoing))
    V, outgoing = right[kept].T, (left[:, kept] * sizes[kept]).T
    weights = [np.hstack([units.weights * signs, V, -V]), np.vstack([units.outgoing, outgoing, -outgoing])]
    biases = [np.concatenate([units.biases * signs, np.zeros(2 * int(kept.sum()))]), np.zeros(len(output_error))]
    return FeedforwardNetwork([weights[0], weights[1] * output_error], biases, "relu"), 2 * int(kept.sum())
