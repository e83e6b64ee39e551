"""Directions of several first-layer units at once, from derivatives at points where only these units move."""

from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev

from skident.budget import check_deadline
from skident.linalg import lapack, svd
from skident.network import get_activation
from skident.optim import fit_coefficients

from ..constants import CHECK_DISTANCE, SHORTER
from ..query_points import random_tangents
from .directions import UnitEstimate
from .norms import fit_shapes, unit_interval
from .step_fraction import StepFraction, as_of_tanh, solve_series

_NODES = 10  # positions along a step; budget: queries per unit
_STEP_RANGE = 3.0  # |z| up to which they reach: a step has done 99 % of its height
_SHAPE_DEGREES = (1, 5)  # of the downstream network in one unit's output, for the shape of a step: linear, or any
_FRACTION_DEGREE = 6  # of the fraction as a polynomial in the unit's output: 10 nodes leave 3 for the residual
_READABLE = 2.0  # |z| up to which z is read off the fraction: beyond, its slope is below a tenth of the largest
_TABLE_SIZE = 4001  # entries of the table that inverts the activation on three times that range: error 1e-6 of z
_MAX_Z_MIDDLE = 1.5  # |z| at the middle of a sound step
_MAX_FIT_ERROR = 1e-2  # of a step's height: residual of the polynomial of a sound step
_STEP = 1e-5  # of the forward differences, in z: their error, relative to the derivatives
_SATURATED = 12.0  # |z| that other units have at least: 1e-10 of them is left
_CANDIDATES = 100  # random groups from which the best conditioned is taken
# Part of a group that is new, round after round; the others have been recovered before. A bad unit spoils its group,
# so that later rounds have fewer new ones in each.
_NEW_SHARES = (1.0, 0.5, 0.25)
_MIN_DERIVATIVE = 0.02  # of a step's height: a smaller derivative by z means that the unit is not where it should be
_MAX_CONDITION = 300.0  # of the units' effects on the outputs: directions lose as many times their accuracy
_OUT_OF_SPAN = 2e-5  # part of the derivatives outside the span of the group's units, beyond which others move too
_DIRECTION_ERROR = 2e-5  # standard error of a direction's entries: the forward differences, times their conditioning
_ALONG_NULL = 1e-2  # tolerance, relative to a usual derivative, in the direction in which no unit of the group moves
_CONDITION_WEIGHT = 0.1  # of a group's condition number against its distance, when the best group is chosen
_MAX_TANGENTIAL = 3e-3  # change of the outputs over that distance, of a step's height, that means another unit
_RADIAL_FACTORS = (0.25, 0.6, 0.9)  # of the radius, at which z is read: until one is in the readable range
_TANGENT_SHIFT = 0.5  # change of z aimed at in the other directions of the subspace
_MATCH_ATTEMPTS = 6  # distances tried per direction


def group_size(n_inputs, n_outputs, n_units):
    """Units per group that minimize the queries ``k n + ceil(n / k) (D + 1)``; 0 if single units need fewer.

    At most 0.8 m_L, since the units' effects on the outputs must be linearly independent with a margin.
    """
    sizes = np.arange(2, min(int(0.8 * n_outputs), n_inputs - 2, n_units) + 1)
    if len(sizes) == 0:
        return 0
    return int(sizes[np.argmin(sizes * n_units + np.ceil(n_units / sizes) * (n_inputs + 1))])


@dataclass
class _Projected:
    """Units in a subspace: ``z_i(x) = weights[i] . (basis^T x) + biases[i]``, and the heights of their steps (n,)."""

    basis: np.ndarray
    weights: np.ndarray
    biases: np.ndarray
    heights: np.ndarray


def resolve_in_groups(query, circle, steps, size, activation, rng, count):
    """One `UnitEstimate` per step, directions good to about 1e-4; None if steps overlap or the group failed.

    In a subspace of ``size + 1`` dimensions that contains the circle, every unit's weights are recovered by matching
    steps, one query per direction. There the hyperplanes of `size` units meet in a line, far out on which all other
    units are saturated. At a point of it the derivatives in all other directions are combinations of those by the
    units' pre-activations, which are known from steps within the subspace.
    ``11 + size`` queries per step and ``D + 1`` per group. Needs exact outputs, more than `size` of them, and the steps
    of nearly all units. `size` is from `group_size`; ``count(name)`` is a context that counts queries.
    """
    D, estimates = len(circle.frame), [None] * len(steps)
    basis = lapack.qr(np.column_stack([circle.frame, rng.standard_normal((D, D - 2))]))[0]
    basis[:, :2] = circle.frame
    with count("profile"):
        shapes = _StepShapes(query, circle, steps, get_activation(activation))
    with count("matching"):
        part = shapes.within(basis[:, : size + 1])
    known = np.flatnonzero(shapes.good & np.isfinite(part.weights).all(axis=1))
    with count("check"):
        known = known[shapes.are_single(part, known, rng)]
    with count("matching"):
        todo = known
        for share in _NEW_SHARES:
            done = [i for i in known if estimates[i] is not None]
            for members, point, null in _groups(part, todo, done, known, size, share, rng):
                weights, residual = _derivatives(query, part, members, point, null, basis)
                for i, w in zip(members, weights):
                    if residual < _OUT_OF_SPAN and estimates[i] is None:
                        # At the step the pre-activation must hold to much less than 1.
                        bias = shapes.z_middle[i] - w @ shapes.base[i]
                        estimates[i] = UnitEstimate(w, bias, shapes.base[i], _DIRECTION_ERROR, residual, has_norm=True)
            todo = np.array([i for i in todo if estimates[i] is None], dtype=int)
            if len(todo) == 0:
                break
    return estimates


class _StepShapes:
    """Steps sampled along the circle, with the norms of their units, and a map from outputs to pre-activations."""

    def __init__(self, query, circle, steps, g):
        self._fraction, self._radius, self._g = StepFraction(query, steps), circle.radius, g
        self.angles = np.array([s.center for s in steps])
        rate = np.array([s.rate for s in steps])
        self.good = np.isfinite(rate)
        rate = np.where(self.good, rate, 1.0) / circle.radius
        self.base = circle.at(self.angles)
        # Rates are those of (1 + tanh z) / 2; another sigmoid has another slope at its center.
        s = as_of_tanh(np.linspace(-_STEP_RANGE, _STEP_RANGE, _NODES), g)
        moves = np.linspace(-_STEP_RANGE, _STEP_RANGE, _NODES) / rate[:, None]
        along = moves[:, :, None] * circle.tangents(self.angles)[:, None]
        F = self._fraction.outputs(self.base[:, None] + along)
        log_scale, self.z_middle = fit_shapes(s, F, np.zeros(len(steps)), g, degrees=_SHAPE_DEGREES)
        self.rate = rate * np.exp(log_scale) * (s[-1] / _STEP_RANGE)
        self._fit_curves(np.exp(log_scale)[:, None] * s + self.z_middle[:, None], F)

    def _fit_curves(self, z, F):
        """Fit outputs F (t, k, m_L) and their fractions by polynomials in g at pre-activations z (t, k)."""
        powers = chebyshev.chebvander(unit_interval(z, self._g), _FRACTION_DEGREE)
        fit = fit_coefficients(powers, F)
        left = np.linalg.norm(fit.residual, axis=2).max(axis=1) / self._fraction.heights
        self.good &= (np.abs(self.z_middle) < _MAX_Z_MIDDLE) & (left < _MAX_FIT_ERROR)
        at_center = chebyshev.chebvander(unit_interval(self.z_middle, self._g), _FRACTION_DEGREE)
        self._center = np.einsum("td,tdp->tp", at_center, fit.coefficients)
        self._curve = self._fraction.of_series(fit.coefficients)

    def are_single(self, part, index, rng):
        """Whether the outputs are constant along each unit's hyperplane within the subspace, (len(index),)."""
        W = part.weights[index]
        norms = np.linalg.norm(W, axis=1, keepdims=True)
        along = random_tangents(W / norms, CHECK_DISTANCE / norms, rng)
        F = self._fraction.outputs(self.base[index] + along @ part.basis.T)
        change = np.linalg.norm(F - self._center[index], axis=1)
        return change < _MAX_TANGENTIAL * self._fraction.heights[index]

    def _read(self, index, U):
        """Pre-activations (t, k) at U (t, k, D), NaN where saturated."""
        y = solve_series(self._curve[:, index], self._fraction(index, U), 1.0)
        table = np.linspace(-3.0 * _READABLE, 3.0 * _READABLE, _TABLE_SIZE)
        z = np.interp(y, unit_interval(table, self._g), table)
        return np.where(np.abs(z) < _READABLE, z, np.nan)

    def within(self, basis):
        """The units in the subspace of `basis` (D, s), whose first two columns span the circle's plane."""
        t, s = len(self.angles), basis.shape[1]
        biases, weights = np.full(t, np.nan), np.full((t, s), np.nan)
        radial = np.stack([np.cos(self.angles), np.sin(self.angles)], axis=1)
        for factor in _RADIAL_FACTORS:
            todo = np.flatnonzero(np.isnan(biases) & self.good)
            if len(todo):
                # Along the radius, z goes from `z_middle` to `factor * shift + (1 - factor) * bias`.
                z = self._read(todo, factor * self.base[todo][:, None])[:, 0]
                biases[todo] = (z - factor * self.z_middle[todo]) / (1.0 - factor)
        tangent = np.stack([-radial[:, 1], radial[:, 0]], axis=1)
        weights[:, :2] = self.rate[:, None] * tangent + ((self.z_middle - biases) / self._radius)[:, None] * radial
        step = np.repeat(_TANGENT_SHIFT / self.rate[:, None], s - 2, axis=1)
        for _ in range(_MATCH_ATTEMPTS):
            check_deadline()
            unit, column = np.nonzero(np.isnan(weights[:, 2:]) & self.good[:, None])
            if len(unit) == 0:
                break
            U = self.base[unit] + step[unit, column][:, None] * basis[:, 2 + column].T
            z = self._read(unit, U[:, None])[:, 0]
            weights[unit, 2 + column] = (z - self.z_middle[unit]) / step[unit, column]
            step[unit, column] *= SHORTER
        return _Projected(basis, weights, biases, self._fraction.heights)


def _groups(part, todo, done, known, size, share, rng):
    """Groups that together contain all units of `todo`: members, a point where they move alone, a null direction.

    The `share` of a group comes from `todo`, the rest from units that are `done`, as far as there are any.
    """
    left = list(todo)
    while left:
        n_new = max(min(len(left), int(np.ceil(share * size))), size - len(done))
        if n_new > len(left):
            return
        draw = lambda n, k: [rng.permutation(n)[:k] for _ in range(_CANDIDATES)]  # noqa: E731
        old = np.array(done, dtype=int)[draw(len(done), size - n_new)]
        candidates = np.concatenate([np.array(left)[draw(len(left), n_new)], old], axis=1)
        M, beta = part.weights[candidates], part.biases[candidates]
        _, singular, vh = svd(M)
        null, foot = vh[:, -1], -np.einsum("cij,cj->ci", lapack.pinv(M), beta)
        slope = np.abs(null @ part.weights[known].T)
        offset = np.abs(foot @ part.weights[known].T + part.biases[known])
        inside = np.any(known[None, :, None] == candidates[:, None, :], axis=2)
        # Along the null direction, all units outside the group are saturated from this distance on.
        distance = np.where(inside, 0.0, (_SATURATED + offset) / np.maximum(slope, 1e-300)).max(axis=1)
        best = np.argmin(distance * (1.0 + _CONDITION_WEIGHT * singular[:, 0] / singular[:, -1]))
        yield candidates[best], part.basis @ (foot[best] + distance[best] * null[best]), part.basis @ null[best]
        left = [i for i in left if i not in candidates[best]]


def _derivatives(query, part, members, point, null, basis):
    """Weights (k, D) of a group from forward differences at a point, and the part of these that it does not explain.

    If a unit's weights in the subspace are wrong, the outputs change along `null`, too.
    """
    W, s = part.weights[members], part.basis.shape[1]
    inner, outer = part.basis @ lapack.pinv(W), basis[:, s:]
    step = _STEP * np.sqrt(s) / np.linalg.norm(W, axis=1).mean()
    F = query(np.concatenate([point[None], [point + step * null], point + _STEP * inner.T, point + step * outer.T]))
    k = len(members)
    A, B = (F[2 : k + 2] - F[0]).T / _STEP, (F[k + 2 :] - F[0]).T / step
    sizes = np.linalg.norm(A, axis=0)
    full = np.zeros((k, len(point)))
    if np.any(sizes < _MIN_DERIVATIVE * part.heights[members]) or lapack.cond(A / sizes) > _MAX_CONDITION:
        return full, np.inf
    rest = lapack.lstsq(A / sizes, B, rcond=None)[0] / sizes[:, None]
    usual = max(np.linalg.norm(B), np.finfo(float).tiny)
    along_null = np.linalg.norm(F[1] - F[0]) / step * np.sqrt(B.shape[1]) / usual
    residual = max(np.linalg.norm(A @ rest - B) / usual, along_null * _OUT_OF_SPAN / _ALONG_NULL)
    return W @ part.basis.T + rest @ outer.T, residual
