"""Signs of the second layer's units, from outputs, though some units are missing."""

import numpy as np

from skident.budget.constants import FEW_STEPS, TINY
from skident.linalg import lapack, svd

_LEAST_ERROR = 1e-6  # of a sample over the largest, below which its weight grows no more
_SIGN_ERROR = 0.1  # difference of a sign from 1 or -1 from which it is not determined
_LEAST_OUTPUTS = 3  # that determine signs after others are projected out
_GUESSES = 4  # of directions of missing units, each from signs by the one before


def determined(signs):
    """Whether all signs (m,), solutions of linear equations, are near 1 or -1."""
    return bool(np.all(np.abs(np.abs(signs) - 1.0) < _SIGN_ERROR))


def second_layer_signs(Z, left, U, others):
    """Signs s (m_2,) with ``left = sum_j s_j z_j u_j`` and constants: Z (n, m_2), left (n, m_L), U (m_2, m_L).

    Units that are missing add a multiple of their own u to the outputs, where they are active. Those directions that
    are known, `others` (q, m_L), are projected out, and as many more as needed: the largest ones of the errors.
    """
    mL = U.shape[1]
    for n_more in range(max(1, mL - len(others) - _LEAST_OUTPUTS + 1)):
        guessed = np.empty((0, mL))
        for _ in range(_GUESSES if n_more else 1):
            basis = svd(np.concatenate([others, guessed]))[2][min(len(others) + len(guessed), mL - 1) :].T
            signs = _robust_signs(Z, left @ basis, U @ basis)
            if determined(signs):
                return signs
            whole = left - (Z * signs) @ U
            guessed = svd(whole - whole.mean(axis=0), full_matrices=False)[2][: n_more + 1]
    return signs


def _robust_signs(Z, left, U):
    """Signs (m_2,) by reweighted least squares: samples at which missing units are active count less."""
    m, mL = U.shape
    A = np.hstack([np.einsum("nj,jp->npj", Z, U).reshape(-1, m), np.tile(np.eye(mL), (len(Z), 1))])
    sizes = np.maximum(np.linalg.norm(A, axis=0), TINY)
    A /= sizes
    weights = np.ones(len(Z))
    for _ in range(FEW_STEPS):
        rows = np.repeat(weights, mL)
        solution = lapack.lstsq(A * rows[:, None], left.ravel() * rows)[0]
        signs = solution[:m] / sizes[:m]
        if determined(signs):
            break
        errors = np.linalg.norm(left - (A @ solution).reshape(left.shape), axis=1)
        weights = 1.0 / np.sqrt(np.maximum(errors, max(_LEAST_ERROR * errors.max(), TINY)))
    return signs
