"""The quadratic form of a network and its factors, gradients in M and W, and the directions that output signs allow.

Layouts: hidden weights `W` (k, d), one unit per row; output weights `v` (k,); ``M = W^T D_v W`` (d, d).
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class OutputSigns:
    """Signs of a network's output weights, and thereby the directions in which its units can move M."""

    plus: bool = True  # whether there are units with v > 0
    minus: bool = True  # whether there are units with v < 0

    @classmethod
    def of(cls, v):
        """The signs that occur among output weights."""
        return cls(bool((v > 0).any()), bool((v < 0).any()))

    def descent_part(self, values):
        """Eigenvalues (d,) of the gradient with respect to M that allow descent; the others as 0.

        Negative ones if there are units with v > 0, positive ones if there are units with v < 0.
        """
        negative = np.minimum(values, 0.0) if self.plus else 0.0
        positive = np.maximum(values, 0.0) if self.minus else 0.0
        return negative + positive + 0.0 * values


BOTH_SIGNS = OutputSigns()


def quadratic_form(W, v):
    """The quadratic form ``M = W^T D_v W`` of a network."""
    return W.T @ (v[:, None] * W)


def weight_gradient(W, v, gradient):
    """The loss's gradient ``2 D_v W G`` (k, d) with respect to W, from the one G with respect to M."""
    return 2.0 * v[:, None] * (W @ gradient)


def factorize(M, v):
    """Hidden weights W (k, d) with ``W^T D_v W = M`` as far as the signs of v allow, and the norm of the rest.

    Rows are orthogonal, one eigenvector each, eigenvalues of largest magnitude first; units with v = 0 are unused. The
    rest is above rounding if M has more eigenvalues of a sign than v has entries.
    """
    values, vectors = np.linalg.eigh(0.5 * (M + M.T))
    W, lost = np.zeros((len(v), len(M))), 0.0
    for sign in (1.0, -1.0):
        units = np.flatnonzero(sign * v > 0)
        order = np.argsort(-sign * values, kind="stable")
        order = order[sign * values[order] > 0]
        used = order[: len(units)]
        units = units[: len(used)]
        W[units] = np.sqrt(values[used] / v[units])[:, None] * vectors[:, used].T
        lost += float(np.sum(values[order[len(used) :]] ** 2))
    return W, float(np.sqrt(lost))


def check_point(W, v, X, y):
    """W (k, d), v (k,), X (n, d) and y (n,) as finite float64 arrays of matching shapes; torch parameters too."""
    arrays = []
    for name, array, ndim in (("W", W, 2), ("v", v, 1), ("X", X, 2), ("y", y, 1)):
        array = array.detach().cpu() if hasattr(array, "detach") else array
        if np.iscomplexobj(array):
            raise ValueError(f"{name} is complex; a certificate is about real networks and data.")
        array = np.asarray(array, dtype=np.float64)
        if array.ndim != ndim:
            raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}.")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has values that are not finite; a certificate needs finite numbers.")
        arrays.append(array)
    (k, d), n = arrays[0].shape, len(arrays[2])
    if arrays[1].shape != (k,) or arrays[2].shape[1] != d or len(arrays[3]) != n:
        hint = " W has one unit a row; it looks transposed." if arrays[1].shape == (d,) else ""
        raise ValueError(
            f"shapes must be W (k, d), v (k,), X (n, d), y (n,); got {', '.join(str(a.shape) for a in arrays)}.{hint}"
        )
    if 0 in (k, d, n):
        raise ValueError(f"W, X and y must not be empty, got k = {k} units, d = {d} inputs, n = {n} rows.")
    return arrays
