"""Whether samples determine the units of a fit, or the fit only interpolates."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from .input_distribution import along_a_line
from .ridge_model import jacobian_blocks

__all__ = ["missing_evidence"]

_CHECKED_ROWS = 2**17  # of more rows, a part is checked
_ROWS_PER_SIDE = 8  # times the inputs + 1, rows on each side of a unit that enter the Gauss-Newton matrix
_MOST_PARAMETERS = 3000  # time: the check takes about 16 P^3 operations, 30 s at this size
_RANK = 1e-11  # eigenvalue of the Gauss-Newton matrix with unit diagonal: rounding of its products is 1e-13
_OWN = 1e-3  # share of a row that is left to the other rows: below, its leave-one-out residual has lost 3 digits


def missing_evidence(sample, model, rng):
    """Why rows that a model meets do not determine it, if so.

    Equal rows count once. Up to ``8 (k + 1)`` rows on each side of every unit enter, ``O(m k P^2)``: fewer rows can
    only lower the rank and raise leverages, and rows beyond them are predicted by these.
    """
    Z, _, w = sample.draw(_CHECKED_ROWS, rng).arrays(np.float64)
    Z = Z[w > 0]
    Z = Z[np.unique(along_a_line(Z), return_index=True)[1]]
    t = Z @ model.V + model.beta
    needed = Z.shape[1] + 2
    for unit, column in enumerate(t.T):
        active = int(np.sum(column > 0))
        if min(active, len(Z) - active) < needed:
            side, count = ("active", active) if active < needed else ("inactive", len(Z) - active)
            return f"unit {unit} is {side} on {count} of {len(Z)} rows, {needed} are needed"
    if model.n_parameters > _MOST_PARAMETERS:
        return f"{model.n_parameters} parameters are too many to check what the rows determine ({_MOST_PARAMETERS})"
    rows = _rows_of_units(t, _ROWS_PER_SIDE * (Z.shape[1] + 1))
    return _missing_rank(Z[rows], model)


def _rows_of_units(t, n_rows):
    """Indices of up to so many rows on each side of every unit, spread over all of them."""
    chosen = []
    for column in t.T:
        for side in (np.flatnonzero(column > 0), np.flatnonzero(column <= 0)):
            chosen.append(side[np.linspace(0, len(side) - 1, min(n_rows, len(side))).astype(int)])
    return np.unique(np.concatenate(chosen)) if chosen else np.arange(len(t))


def _missing_rank(Z, model):
    gram = sum(J.T @ J for J in jacobian_blocks(Z, model))
    scale = np.sqrt(np.diag(gram))
    gram = gram / np.outer(scale, scale)
    values = np.linalg.eigvalsh(gram)
    open_parameters = int(np.sum(values < _RANK * values[-1]))
    if open_parameters:
        return f"the rows leave {open_parameters} of {model.n_parameters} parameters open"
    root = np.linalg.cholesky(gram)
    alone = 0
    for J in jacobian_blocks(Z, model):
        leverage = np.sum(solve_triangular(root, (J / scale).T, lower=True, check_finite=False) ** 2, axis=0)
        alone += int(np.sum(leverage > 1.0 - _OWN))
    return f"{alone} of {len(Z)} rows are met by parameters that no other row determines" if alone else ""
