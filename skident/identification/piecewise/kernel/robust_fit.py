"""Least squares on located kinks of which some belong to something else."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skident.budget import check_deadline

__all__ = ["NOISY", "ActiveSetFit", "active_set_fit"]

NOISY = 1e-11  # resolution of answers above which kinks are weighed, and more of them are located
_WITHIN = 6.0  # errors that a kink may be off by
_ROUNDS = 30


class ActiveSetFit(NamedTuple):
    """A solution of equations that are told with known errors.

    Attributes
    ----------
    solution : ndarray of shape (q,)
    kept : ndarray of bool, shape (n,)
        The equations that it fulfils.
    scatter : ndarray of shape (q, q)
        Its covariance, for independent errors of the equations kept.
    """

    solution: np.ndarray
    kept: np.ndarray
    scatter: np.ndarray


def active_set_fit(A, y, errors):
    """Solve ``A x = y`` by weighted least squares on the equations that can be fulfilled together.

    First the sum of ``|A x - y| / errors`` is minimised by reweighting, then that of the squares over equations that
    are off by six errors at most, until these stay the same.

    Parameters
    ----------
    A : ndarray of shape (n, q)
    y, errors : ndarray of shape (n,)

    Returns
    -------
    ActiveSetFit or None
        None where hardly more equations than unknowns agree.
    """
    A, y = A / errors[:, None], y / errors
    n, q = A.shape
    weight = np.ones(n)
    for _ in range(_ROUNDS):
        check_deadline()
        x = np.linalg.lstsq(A * weight[:, None], y * weight, rcond=1e-13)[0]
        weight = 1.0 / np.sqrt(np.maximum(np.abs(A @ x - y), 0.3))
    kept = np.zeros(n, dtype=bool)
    for _ in range(_ROUNDS):
        misfit = np.abs(A @ x - y)
        within = misfit <= _WITHIN * max(1.0, np.median(misfit))
        if within.sum() < q + 2 or np.array_equal(within, kept):
            break
        kept = within
        x = np.linalg.lstsq(A[kept], y[kept], rcond=1e-13)[0]
    if kept.sum() < max(q + 2, 0.5 * n):
        return None
    s, Vt = np.linalg.svd(A[kept], full_matrices=False)[1:]
    s = np.maximum(s, 1e-13 * s[0])
    return ActiveSetFit(x, kept, (Vt.T / s**2) @ Vt)
