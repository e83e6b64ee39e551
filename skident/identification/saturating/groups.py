"""Directions of several first-layer units at once, from the derivatives where just these units move."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev

from skident.network import get_activation

from ..query_points import random_tangents
from .directions import UnitEstimate
from .norms import fit_shapes, unit_interval
from .step_fraction import StepFraction, as_of_tanh, solve_series

__all__ = ["group_size", "resolve_in_groups"]

_NODES, _RANGE = 10, 3.0  # positions along a step and how far in z they reach
_SHAPE_DEGREES = (1, 5)
_PROGRESS_DEGREE = 6
_VISIBLE = 2.0  # |z| up to which z can be read off the progress
_STEP = 1e-5  # of the forward differences, in z: their error, relative to the derivatives
_SATURATED = 12.0  # |z| that other units have at least: 1e-10 of them is left
_CANDIDATES = 100
_FRESH = (1.0, 0.5, 0.25)  # part of a group that is new, round after round; the others are known to be sound
_FAINT = 0.02  # of a step's height: a smaller derivative by z shows that the unit is not where it was thought to be
_WORST_CONDITION = 300.0
_OUT_OF_SPAN = 2e-5  # part of the derivatives that the group's units do not explain, beyond which others move too
_ERROR = 2e-5  # usual error of a direction's entries
_ALONG = 1e-2  # the same for the direction in which none of them should move
_ASIDE, _RESTLESS = 30.0, 3e-3  # way along a hyperplane, in z, and change of the answers that tells of another unit


def group_size(n_inputs, n_outputs, n_units):
    """Units to treat together, so that fewest queries are needed.

    Parameters
    ----------
    n_inputs, n_outputs, n_units : int
        D, m_L and n.

    Returns
    -------
    int
        The k that minimises ``k n + ceil(n / k) (D + 1)``, at most 0.8 m_L since the units' effects on the answers have
        to be told apart; 0 where units are better treated one by one.
    """
    sizes = np.arange(2, min(int(0.8 * n_outputs), n_inputs - 2, n_units) + 1)
    if len(sizes) == 0:
        return 0
    return int(sizes[np.argmin(sizes * n_units + np.ceil(n_units / sizes) * (n_inputs + 1))])


@dataclass
class _Partial:
    """Units as known in a subspace: ``z_i(x) = weights[i] . (basis^T x) + biases[i]``."""

    basis: np.ndarray
    weights: np.ndarray
    biases: np.ndarray
    heights: np.ndarray


def resolve_in_groups(ask, circle, steps, size, activation, rng, count):
    """One unit a step, their directions by groups.

    In a subspace of ``size + 1`` dimensions that holds the circle, every unit's weights are found by comparing steps,
    one query a direction. There the hyperplanes of `size` units meet in a line, far out on which all other units are
    saturated; at a point of it the derivatives by all other directions are combinations of those by the units'
    pre-activations, which are known from steps within the subspace.

    Parameters
    ----------
    ask : callable
        Points (n, D) to answers (n, m_L), exact ones.
    circle : Circle
        On which the steps were seen.
    steps : list of Step
    size : int
        As `group_size` gives it: below m_L.
    activation : str or Activation
    rng : numpy.random.RandomState
    count : callable
        ``count(name)`` is a context in which queries are counted under that name.

    Returns
    -------
    list of UnitEstimate or None
        One a step, with lengths; directions are good to about 1e-4. None where steps overlap or the group failed.

    Notes
    -----
    ``11 + size`` queries a step and ``D + 1`` a group, so ``n (11 + k + D / k)`` for n steps. Needs answers with more
    than `size` outputs, of which the units' effects are linearly independent, and steps of nearly all units.
    """
    D, found = len(circle.frame), [None] * len(steps)
    basis = np.linalg.qr(np.column_stack([circle.frame, rng.standard_normal((D, D - 2))]))[0]
    basis[:, :2] = circle.frame
    with count("profile"):
        shape = _Shape(ask, circle, steps, get_activation(activation))
    with count("matching"):
        part = shape.within(basis[:, : size + 1])
    known = np.flatnonzero(shape.good & np.isfinite(part.weights).all(axis=1))
    with count("check"):
        known = known[shape.lone(part, known, rng)]
    with count("matching"):
        todo = known
        for fresh in _FRESH:
            sound = [i for i in known if found[i] is not None]
            for members, point, null in _groups(part, todo, sound, known, size, fresh, rng):
                weights, misfit = _derivatives(ask, part, members, point, null, basis)
                for i, w in zip(members, weights):
                    if misfit < _OUT_OF_SPAN and found[i] is None:
                        # Where the step is the offset must hold to much less than 1.
                        bias = shape.shift[i] - w @ shape.base[i]
                        found[i] = UnitEstimate(w, bias, shape.base[i], _ERROR, misfit, sized=True)
            todo = np.array([i for i in todo if found[i] is None], dtype=int)
            if len(todo) == 0:
                break
    return found


class _Shape:
    """Steps sampled along the circle, their lengths, and how to read pre-activations off answers."""

    def __init__(self, ask, circle, steps, g):
        self._fraction, self._radius, self._g = StepFraction(ask, steps), circle.radius, g
        self.angles = np.array([s.centre for s in steps])
        rate = np.array([s.rate for s in steps])
        self.good = np.isfinite(rate)
        rate = np.where(self.good, rate, 1.0) / circle.radius
        self.base = circle.at(self.angles)
        # Rates are those of (1 + tanh z) / 2; another sigmoid has another slope at its centre.
        s = as_of_tanh(np.linspace(-_RANGE, _RANGE, _NODES), g)
        moves = np.linspace(-_RANGE, _RANGE, _NODES) / rate[:, None]
        along = moves[:, :, None] * circle.tangents(self.angles)[:, None]
        F = self._fraction.answers(self.base[:, None] + along)
        stretch, self.shift = fit_shapes(s, F, np.zeros(len(steps)), g, degrees=_SHAPE_DEGREES)
        self.rate = rate * np.exp(stretch) * (s[-1] / _RANGE)
        self._fit_curves(np.exp(stretch)[:, None] * s + self.shift[:, None], F)

    def _fit_curves(self, z, F):
        """Answers F (t, k, m_L) and their progress as polynomials in g at pre-activations z (t, k)."""
        heights = self._fraction.heights
        powers = chebyshev.chebvander(unit_interval(z, self._g), _PROGRESS_DEGREE)
        Q, R = np.linalg.qr(powers)
        curves = np.linalg.solve(R + 1e-13 * np.eye(R.shape[-1]), np.swapaxes(Q, 1, 2) @ F)
        left = np.linalg.norm(F - powers @ curves, axis=2).max(axis=1) / heights
        self.good &= (np.abs(self.shift) < 1.5) & (left < 1e-2)
        at_centre = chebyshev.chebvander(unit_interval(self.shift, self._g), _PROGRESS_DEGREE)
        self._centre = np.einsum("td,tdp->tp", at_centre, curves)
        self._curve = self._fraction.of_series(curves)

    def lone(self, part, index, rng):
        """Whether the answers stay as they are along a unit's hyperplane, within the subspace, (len(index),)."""
        W = part.weights[index]
        lengths = np.linalg.norm(W, axis=1, keepdims=True)
        aside = random_tangents(W / lengths, _ASIDE / lengths, rng)
        F = self._fraction.answers(self.base[index] + aside @ part.basis.T)
        return np.linalg.norm(F - self._centre[index], axis=1) < _RESTLESS * self._fraction.heights[index]

    def _read(self, index, U):
        """Pre-activations (t, k) at U (t, k, D), NaN where saturated."""
        y = solve_series(self._curve[:, index], self._fraction(index, U), 1.0)
        table = np.linspace(-1.5 * _VISIBLE * 2, 1.5 * _VISIBLE * 2, 4001)
        z = np.interp(y, unit_interval(table, self._g), table)
        return np.where(np.abs(z) < _VISIBLE, z, np.nan)

    def within(self, basis):
        """Weights in the subspace of `basis` (D, s), whose first two columns span the circle's plane, and biases."""
        t, s = len(self.angles), basis.shape[1]
        biases, weights = np.full(t, np.nan), np.full((t, s), np.nan)
        radial = np.stack([np.cos(self.angles), np.sin(self.angles)], axis=1)
        for fraction in (0.25, 0.6, 0.9):
            todo = np.flatnonzero(np.isnan(biases) & self.good)
            if len(todo):
                # Nearer by along the radius: z goes from `shift` to fraction * shift + (1 - fraction) * bias.
                z = self._read(todo, fraction * self.base[todo][:, None])[:, 0]
                biases[todo] = (z - fraction * self.shift[todo]) / (1.0 - fraction)
        tangent = np.stack([-radial[:, 1], radial[:, 0]], axis=1)
        weights[:, :2] = self.rate[:, None] * tangent + ((self.shift - biases) / self._radius)[:, None] * radial
        step = np.repeat(0.5 / self.rate[:, None], s - 2, axis=1)
        for _ in range(6):
            rows, columns = np.nonzero(np.isnan(weights[:, 2:]) & self.good[:, None])
            if len(rows) == 0:
                break
            U = self.base[rows] + step[rows, columns][:, None] * basis[:, 2 + columns].T
            z = self._read(rows, U[:, None])[:, 0]
            weights[rows, 2 + columns] = (z - self.shift[rows]) / step[rows, columns]
            step[rows, columns] *= 0.3
        return _Partial(basis, weights, biases, self._fraction.heights)


def _groups(part, todo, sound, known, size, fresh, rng):
    """Groups that hold all units of `todo`, a point where each group moves alone, a direction in which it rests.

    Of a group the part `fresh` comes from `todo`, the rest from `sound` units as far as there are some.
    """
    left = list(todo)
    while left:
        n_fresh = max(min(len(left), int(np.ceil(fresh * size))), size - len(sound))
        if n_fresh > len(left):
            return
        draw = lambda n, k: [rng.permutation(n)[:k] for _ in range(_CANDIDATES)]  # noqa: E731
        old = np.array(sound, dtype=int)[draw(len(sound), size - n_fresh)]
        candidates = np.concatenate([np.array(left)[draw(len(left), n_fresh)], old], axis=1)
        M, beta = part.weights[candidates], part.biases[candidates]
        _, singular, vh = np.linalg.svd(M)
        null, foot = vh[:, -1], -np.einsum("cij,cj->ci", np.linalg.pinv(M), beta)
        slope = np.abs(null @ part.weights[known].T)
        offset = np.abs(foot @ part.weights[known].T + part.biases[known])
        inside = np.any(known[None, :, None] == candidates[:, None, :], axis=2)
        way = np.where(inside, 0.0, (_SATURATED + offset) / np.maximum(slope, 1e-300)).max(axis=1)
        best = np.argmin(way * (1.0 + 0.1 * singular[:, 0] / singular[:, -1]))
        yield candidates[best], part.basis @ (foot[best] + way[best] * null[best]), part.basis @ null[best]
        left = [i for i in left if i not in candidates[best]]


def _derivatives(ask, part, members, point, null, basis):
    """Weights (k, D) of a group from forward differences, and the part of these that it does not explain.

    If a unit's weights in the subspace are wrong, the answers change along `null`, too.
    """
    W, s = part.weights[members], part.basis.shape[1]
    inner, outer = part.basis @ np.linalg.pinv(W), basis[:, s:]
    length = _STEP * np.sqrt(s) / np.linalg.norm(W, axis=1).mean()
    F = ask(np.concatenate([point[None], [point + length * null], point + _STEP * inner.T, point + length * outer.T]))
    k = len(members)
    A, B = (F[2 : k + 2] - F[0]).T / _STEP, (F[k + 2 :] - F[0]).T / length
    sizes = np.linalg.norm(A, axis=0)
    full = np.zeros((k, len(point)))
    if np.any(sizes < _FAINT * part.heights[members]) or np.linalg.cond(A / sizes) > _WORST_CONDITION:
        return full, np.inf
    rest = np.linalg.lstsq(A / sizes, B, rcond=None)[0] / sizes[:, None]
    usual = max(np.linalg.norm(B), np.finfo(float).tiny)
    along = np.linalg.norm(F[1] - F[0]) / length * np.sqrt(B.shape[1]) / usual
    misfit = max(np.linalg.norm(A @ rest - B) / usual, along * _OUT_OF_SPAN / _ALONG)
    return W @ part.basis.T + rest @ outer.T, misfit
