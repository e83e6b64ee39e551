"""Second-layer units that Taylor coefficients miss, found by what the others leave of the answers on a patch."""

from __future__ import annotations

import numpy as np

__all__ = ["completed"]

_CANDIDATES = 1500
_LARGEST_SHIFT, _MIRRORED = 5.5, 0.3  # of candidates in cell 0, and how far that in cell 1 is from its opposite
_LENGTHS = (0.5, 2.0)  # of candidates, times the median of those found
_ALIKE = 1e-6  # part of a candidate that is not what the others can do
_MORE = 3  # units more than looked for, at most
_FIRST, _AFTER, _SLOW = 25, 14, 0.02  # steps at first and after every new unit, and gain of one that is the last
_DROPPED, _MEND = 4, 8  # units whose absence is tried, and the steps each then gets
_LAST, _LAST_DAMPING = 25, 1e-26  # steps, and their first damping
_CYCLES, _NO_BETTER = 6, 0.7  # of growing and dropping, and misfit over the last one's after which no other follows
_SOLVED = 3e-12  # misfit with as many units as looked for that ends it
_DONE = 3e-15  # misfit that no step can lower


def completed(fit, shallow, n_units, rng):
    """All units of the shallow network: those known fitted, others added one by one, and what is too many dropped.

    Parameters
    ----------
    fit : PatchFit
    shallow : Shallow
        With most of the units.
    n_units : int
        m_2.
    rng : numpy.random.RandomState

    Returns
    -------
    Shallow
        Of m_2 units; whether they explain the answers is for the caller to see.

    Notes
    -----
    A unit that is all but saturated in both cells, ``|c| >= 4``, adds little more than an exponential of a few inputs,
    of size 1e-5: Taylor coefficients do not show it, answers that are exact to 1e-15 do. Of 1500 candidates the one is
    taken that explains most of what is left outside the tangent space of the units there are.
    """
    apart = fit.apart()
    shallow = apart.improved(shallow, _FIRST, slow=_SLOW, target=_DONE)
    misfit = np.inf
    for cycle in range(_CYCLES):
        while shallow.rows.shape[1] < n_units + (_MORE if cycle else 0):
            shallow = apart.improved(_with_best_candidate(apart, shallow, rng), _AFTER, slow=_SLOW, target=_DONE)
        while shallow.rows.shape[1] > n_units:
            shallow = _with_one_dropped(apart, shallow)
        if apart.misfit(shallow) > _DONE:
            shallow = apart.improved(shallow, _LAST, damping=_LAST_DAMPING, free=True, slow=_SLOW, target=_DONE)
        before, misfit = misfit, apart.misfit(shallow)
        if misfit < _SOLVED or misfit > _NO_BETTER * before:
            break
    return fit.improved(shallow, _LAST, damping=_LAST_DAMPING, free=True, slow=_SLOW)


def _with_best_candidate(fit, shallow, rng):
    """One unit more: the random one that explains most of what the others and their changes do not."""
    (k, m), (n, m_L) = shallow.rows.shape, fit.Y.shape
    J, left = fit.jacobian(shallow, 1e-3 * fit.misfit(shallow))
    J /= np.maximum(np.linalg.norm(J, axis=0), np.finfo(float).tiny)
    tangent = np.linalg.qr(J)[0]
    left = (left - tangent @ (tangent.T @ left)).reshape(m_L, n + m)[:, :n]
    tangent = tangent.reshape(m_L, n + m, -1)[:, :n]
    H, A = fit.outputs(shallow)
    Q = np.linalg.qr(np.column_stack([A, fit.constants]))[0]
    lengths = np.linalg.norm(shallow.rows, axis=0)
    typical = np.clip(lengths, *(part * np.median(lengths) for part in _LENGTHS))
    rows = rng.standard_normal((k, _CANDIDATES))
    rows *= rng.choice(typical, _CANDIDATES) / np.linalg.norm(rows, axis=0)
    shift = rng.uniform(-_LARGEST_SHIFT, _LARGEST_SHIFT, _CANDIDATES)
    shifts = np.stack([shift, _MIRRORED * rng.standard_normal(_CANDIDATES) - shift])
    new = np.tanh(H @ rows + shifts[fit.cells])
    new -= Q @ (Q.T @ new)
    new /= np.maximum(np.linalg.norm(new, axis=0), np.finfo(float).tiny)
    gains = np.zeros(_CANDIDATES)
    for there, basis in zip(left, tangent, strict=True):
        own = 1.0 - np.sum((basis.T @ new) ** 2, axis=0)
        gains += (there @ new) ** 2 / np.maximum(own, _ALIKE)
    best = [int(np.argmax(gains))]
    return shallow.beside(rows[:, best], shifts[:, best])


def _with_one_dropped(fit, shallow):
    """One unit less: the one whose absence the others mend best."""
    units = np.arange(shallow.rows.shape[1])
    without = [fit.misfit(shallow.units(units != j)) for j in units]
    tries = [fit.improved(shallow.units(units != j), _MEND, slow=_SLOW) for j in np.argsort(without)[:_DROPPED]]
    return min(tries, key=fit.misfit)
