"""Two units of one hidden ReLU layer with nearly equal hyperplanes, which a fit has as one unit.

Beyond both hyperplanes, one unit ``c z = c_1 z_1 + c_2 z_2`` is as good as the two. Between them, on either side of
where they meet, the fit is off by a tent: where ``z_1 > 0 > z_2``, by ``c_1 z_1`` if ``z < 0`` and ``-c_2 z_2`` if
``z > 0``, which gives both units.
"""

import numpy as np

from skident.fitting.errors_of_fit import FitSample
from skident.fitting.robust_polish import robust_polish
from skident.linalg import svd

from ...constants import REWEIGHTINGS, WITHIN_RADII, WRONG
from ..kernel.robust_fit import fit_outputs
from .units import ReLUUnits
from .unsigned import output_std, units_of, with_linear_part

_ON_PLANE = 12  # points of every hyperplane at which the fit is compared
_DOUBLE = 0.5  # share of wrong points from which a hyperplane is two
_AROUND = 0.25  # of points around one point of such a hyperplane, over its distance: they stay where one unit is active
_PER_UNKNOWN = 40  # points beside such a hyperplane per weight: most lie outside of the wedge
_OFFSETS = (-5.0, -0.5)  # powers of ten of their distances from it, over those from the center
_LEAST = 2.0  # wrong points on either side per weight
_MOST = 4  # units that are split (budget)


def with_split_units(oracle, fit, rows, rng):
    """A `RobustFit` without signs and its rows, with two units in place of one where the outputs show them.

    12 queries per unit, and 40 per weight of a unit that is split.
    """
    units = units_of(fit.network)
    for k in _double(oracle, fit, units, rng)[:_MOST]:
        units = units_of(fit.network)
        split = _split(oracle, fit, units, k, rng)
        if split is None:
            continue
        (first, second), around = split
        others = units.take(np.arange(len(units)) != k)
        more = _joined(rows, around)
        network, _ = with_linear_part(others.joined(first).joined(second), more)
        larger = robust_polish(network, more.inputs, more.outputs, more.std)
        before, after = (np.mean(_deviations(f, around) > WRONG) for f in (fit, larger))
        if after < _DOUBLE * before:
            fit, rows = larger, more
            # The new units come last: the indices of the others move.
            return with_split_units(oracle, fit, rows, rng)
    return fit, rows


def _double(oracle, fit, units, rng):
    """Indices of the units on whose hyperplanes the fit is wrong, the worst first."""
    m, n = len(units), _ON_PLANE
    U = _points(units, np.repeat(np.arange(m), n), rng, np.zeros(m * n))
    share = (_deviations(fit, _sample(oracle, fit, U)) > WRONG).reshape(m, n).mean(axis=1)
    worst = np.argsort(-share)
    return worst[share[worst] > _DOUBLE]


def _points(units, which, rng, offsets):
    """Random points (n, D) at offsets (n,) from the hyperplanes of units `which` (n,)."""
    U = rng.uniform(*WITHIN_RADII, (len(which), 1)) * rng.standard_normal((len(which), len(units.weights)))
    return _moved(units, which, U, offsets)


def _moved(units, which, U, offsets):
    """Points U (n, D) moved along normals to offsets (n,) from the hyperplanes of units `which` (n,)."""
    W, b = units.weights.T[which], units.biases[which]
    return U + (offsets - np.sum(U * W, axis=1) - b)[:, None] * W


def _sample(oracle, fit, U):
    U = oracle.representable(oracle.clip_to_range(U))
    Y = oracle(U)
    return FitSample(U, Y, output_std(oracle, fit.network, U, Y))


def _deviations(fit, rows):
    """Largest residual (n,) of every row, in standard deviations."""
    return np.max(np.abs(fit.network(rows.inputs) - rows.outputs) / (rows.std * max(fit.scale, 1.0)), axis=1)


def _split(oracle, fit, units, k, rng):
    """Two `ReLUUnits` in place of unit k, and the `FitSample` around its hyperplane; None if it is not two."""
    D = len(units.weights)
    n = _PER_UNKNOWN * (D + 1)
    foot = _sample(oracle, fit, _points(units, np.full(_ON_PLANE, k), rng, np.zeros(_ON_PLANE)))
    foot = foot.inputs[np.argmax(_deviations(fit, foot))]
    distance = np.linalg.norm(foot)
    U = foot + _AROUND * distance / np.sqrt(D) * rng.standard_normal((n, D))
    offsets = distance * rng.choice((-1.0, 1.0), n) * 10.0 ** rng.uniform(*_OFFSETS, n)
    around = _sample(oracle, fit, _moved(units, np.full(n, k), U, offsets))
    wrong = _deviations(fit, around) > WRONG
    z = around.inputs @ units.weights[:, k] + units.biases[k]
    parts = []
    for side in (-1.0, 1.0):
        chosen = wrong & (side * z > 0)
        if chosen.sum() < _LEAST * (D + 1):
            return None
        R = -side * (around.outputs - fit.network(around.inputs))[chosen]
        output = svd(R, full_matrices=False)[2][0]
        A = np.column_stack([around.inputs[chosen], np.ones(chosen.sum())])
        tol = around.std[chosen].max(axis=1) * max(fit.scale, 1.0)
        coef, _ = fit_outputs(A, (R @ output)[:, None], tol, explained=1.0, n_rounds=REWEIGHTINGS)
        norm = np.linalg.norm(coef[:D]) * np.sign(coef[:D, 0] @ units.weights[:, k])
        plane = coef[:, 0] / norm
        parts.append(ReLUUnits(plane[:D, None], plane[D:], norm * output[None], np.zeros(1)))
    return parts, around


def _joined(rows, others):
    return FitSample(*(np.concatenate(parts) for parts in zip(_parts(rows), _parts(others), strict=True)))


def _parts(rows):
    return rows.inputs, rows.outputs, np.broadcast_to(rows.std, rows.outputs.shape)
