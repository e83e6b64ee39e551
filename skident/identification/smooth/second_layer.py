"""Directions of second-layer units from square-free derivatives on faces of the cube of first-layer outputs.

Where k units are free and all others are saturated, the mixed derivative of the outputs by different free units S is
``T_S(s) = sum_k c_k(s) prod_{i in S} W_ik`` at signs s of the others, whatever the biases and norms of the first layer
are: they only scale rows of W. Over all s, the rows T span the square-free powers of the second layer's units.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from skident.linalg import lapack, svd
from skident.linalg.products import vectors_of_products
from skident.oracle import NotIdentified

from .derivatives import Stencils, curvature, square_free
from .design import cheapest_design, fill
from .products import LEAST, Products, clear_gaps, scaled_rows

__all__ = ["SecondLayer", "find_second_layer"]

_FACES = 4  # first faces and guesses of the width (budget)
_NARROWEST = 3  # first-layer units per unit of the narrowest second layer that is designed for
_GUESS_GROWTH = 1.5  # of the width, up to more than m_1: it takes twice the queries
_GAP = 0.1  # ratio of neighboring singular values that ends the span of the units
_FLOOR = 1e-6  # relative rounding of derivatives above which they count less
_ERRORS = 10.0  # distance from the span of a unit's power, in gaps: the errors of the derivatives
_CONTEXTS = (0.8, 1.1, 1.4, 2.0)  # places times outputs, over the guess, until a gap is clear
_FARTHEST = 0.1  # same at most
_SPARE = 4  # places in addition
_SPANS = 3  # gaps at which units are sought (budget): weak units leave further ones behind the clearest
_SURPLUS = 3  # rows beyond the width: their singular values show the errors
_CHOICES = 30  # random sets of free units that are compared
_MISMATCH = 5e-2  # relative residual of the further units
_FACES_PER_UNIT = 4  # of a further unit (budget)
_STEPS = {2: 4.0, 3: 4.0, 4: 4.0}  # of order p, times eps^(1 / (p + 2)): truncation against rounding
_STEP_FACTORS = 2.0 ** np.arange(-2, 7)  # steps that are compared
_STEP_PLACES = 6  # at which they are compared
_SMALL = 1e-2  # derivative over the largest one below which its relative change does not matter
_ACCURATE = 1e-5  # change of the derivatives with the step above which two steps are extrapolated
_PARTNERS = 3  # units beside which a curvature of order three is measured
_CURVED = 3  # highest order of derivatives with curvatures


@dataclass
class SecondLayer:
    """Second-layer units up to scales of rows and columns, and what determines these.

    `U` (m_1, m_2): weights over a norm per column, times the slope of the first-layer unit at its hyperplane per row;
    `curvature` (m_1,): g'' / g' there, NaN if it was not measured. `coefficients`, `levels`: lists of the coefficients
    (n, P, m_2) of order `order` and the pre-activations (n, m_1) at all places.
    """

    U: np.ndarray
    curvature: np.ndarray
    order: int
    coefficients: list = field(default_factory=list)
    levels: list = field(default_factory=list)


def first_guess(cube, width=None):
    """The width for which faces are designed first: the one given, or the largest up to m_1; None if there is none."""
    D, m = cube.shape
    widest = m // 2 if m >= 2 * D else m  # designs for as many units as m_1 take many queries then
    widths = range(widest, m // _NARROWEST, -1) if width is None else [width]
    return next((w for w in widths if cheapest_design(D, m, w, cube.n_outputs) is not None), None)


def find_second_layer(cube, width=None):
    """The `SecondLayer` behind a cube if one hidden layer and a linear output follow; its `width` if that is known.

    Raises NotIdentified with the reason.
    """
    D, m = cube.shape
    guess = first_guess(cube, width)
    step, failed, said = None, "rank", "no design"
    for attempt in range(_FACES):
        design = None if guess is None else cheapest_design(D, m, guess, cube.n_outputs)
        if design is None:
            break
        face = _FirstFace(cube, design, guess, attempt, step)
        step = face.step
        found, said = face.units()
        if found is not None:
            left = _add_further_units(cube, face, design, found)
            if left < _MISMATCH:
                return found
            failed, said = "residual", f"further first-layer units leave {left:.0e}"
        elif face.crowded or attempt:
            guess = _larger_guess(cube, guess, face)
    raise NotIdentified("second layer", failed, f"derivatives on faces show no second layer: {said}")


def _larger_guess(cube, guess, face):
    """The width that a crowded face shows, if its gap is clear; else a larger one with a design, or None."""
    D, m = cube.shape
    most = face.rank if face.counted else int(_GUESS_GROWTH * guess) if guess <= m else guess
    return next((w for w in range(most, guess, -1) if cheapest_design(D, m, w, cube.n_outputs) is not None), None)


@dataclass(frozen=True)
class _Step:
    """Step of differences, and whether two steps are extrapolated."""

    size: float
    twice: bool

    @classmethod
    def best(cls, cube, face, sets, order):
        """Where a derivative at some places changes least, relative to its size, when the step is halved."""
        stencils = Stencils.of([square_free(sets[cube.rng.randint(len(sets))])], len(face.free))
        sizes = _STEPS[order] * np.finfo(float).eps ** (1.0 / (order + 2)) * _STEP_FACTORS
        T = np.array([stencils.derivatives(cube, face[:_STEP_PLACES], size)[0][..., 0] for size in sizes])
        scale = np.abs(T[2]) + _SMALL * np.abs(T[2]).max() + np.finfo(float).tiny
        once, twice = (np.sqrt(np.mean((np.diff(A, axis=0) / scale) ** 2, axis=(1, 2))) for A in (T, _extrapolated(T)))
        if once.min() <= _ACCURATE:
            return cls(_between(sizes, once), False)
        return cls(_between(sizes, twice), True)

    def derivatives(self, cube, face, stencils):
        """Derivatives and rounding at the points of a face."""
        T, rounding = stencils.derivatives(cube, face, self.size)
        if self.twice:
            T = _extrapolated(np.array([T, stencils.derivatives(cube, face, 2.0 * self.size)[0]]))[0]
        return T, rounding


def _between(sizes, changes):
    """The size with the least changes to both neighbors: from rounding on one side, truncation on the other."""
    return float(sizes[1 + int(np.argmin(changes[:-1] * changes[1:]))])


def _extrapolated(T):
    """Derivatives without the error of the square of the step, from each two steps h and 2 h."""
    return (4.0 * T[:-1] - T[1:]) / 3.0


class _FirstFace:
    """Derivatives by the first free units, and their spectrum."""

    def __init__(self, cube, design, guess, attempt, step):
        self.cube, self.order, k = cube, design.order, design.n_free
        self.twice, self.curved, guess = design.twice, None, guess + design.n_lower
        self.free = _free_units(cube, k, design.group)
        self.products = Products(k, self.order, self.twice)
        n = int(np.ceil(_CONTEXTS[-1] * guess / cube.n_outputs)) + _SPARE
        face = cube.face(self.free, n, held=self.twice)
        if not len(face.points):
            raise NotIdentified("second layer", "saturation", "no far inputs saturate the other first-layer units.")
        self.step = _Step.best(cube, face, self.products.sets, self.order) if step is None else step
        stencils = Stencils.of(self.products.stencils + self.curvatures(range(k)), k)
        parts, done = [], 0
        for share in _CONTEXTS[int(self.twice or attempt > 0) :]:
            last, done = done, min(int(np.ceil(share * guess / cube.n_outputs)) + _SPARE, len(face.points))
            parts.append(self.step.derivatives(cube, face[last:done], stencils))
            self.T, rounding = (np.concatenate(part) for part in zip(*parts, strict=True))
            self.levels = face.Z[:done]
            self._spectrum(rounding)
            n_products = len(self.products) + design.n_lower
            if not self.vague or self.T.shape[0] * cube.n_outputs >= n_products + _SURPLUS + _SPARE:
                break

    def _spectrum(self, rounding):
        """Rank of the derivatives, and whether more places may make it clear: `vague`, or units are too many."""
        d = len(self.products)
        if self.twice:
            self.curved = self.products.curvatures(self.T, len(self.free))
        C = self.products.values(self.T, self.curved).reshape(-1, d)
        rounding = np.linalg.norm(np.finfo(float).eps * rounding[..., :d].reshape(-1, d), axis=1)
        s, Vt = svd(scaled_rows(C, rounding, _FLOOR), full_matrices=False)[1:]
        ranks, gaps = clear_gaps(s)
        self.rank, self.gap = int(ranks[0]), gaps[0]
        most = min(fill(*self.cube.shape) * d, d - len(self.free), len(C) - _SURPLUS)
        self.spans = [(gap, Vt[:rank].T) for rank, gap in zip(ranks, gaps, strict=True) if gap < _GAP and rank <= most]
        self.crowded = self.rank > fill(*self.cube.shape) * d or self.rank + len(self.free) > d
        self.vague = self.gap > _GAP or self.rank > len(C) - _SURPLUS
        self.counted = not self.vague and self.rank < d

    def units(self):
        """The `SecondLayer` with rows of the free units, or None and the reason."""
        d, k, m = len(self.products), len(self.free), self.cube.shape[1]
        if not self.spans:
            return None, f"{self.rank} units for {d} products (gap {self.gap:.0e})"
        V = np.zeros((0, k))
        for gap, span in self.spans[:_SPANS]:
            farthest = min(_ERRORS * gap, _FARTHEST)
            V, _ = vectors_of_products(span, k, self.products.indices, self.cube.rng, farthest)
            if len(V) == span.shape[1]:
                break
        else:
            return None, f"{len(V)} units in their span"
        found = SecondLayer(np.zeros((m, len(V))), np.full(m, np.nan), self.order)
        found.U[self.free] = V.T
        c = self.products.values(self.T, self.curved) @ lapack.pinv(self.products.of(V))
        self.keep(found, c, self.T, self.levels, range(k), self.free)
        return found, ""

    def keep(self, found, c, T, levels, local, units):
        """Store coefficients of a face, and the curvatures of some of its units, whose stencils come last."""
        found.coefficients.append(c)
        found.levels.append(levels)
        at = T.shape[-1] - len(self.curvatures(local))
        for i, unit in zip(local, units, strict=True) if self.order <= _CURVED else ():
            partners = self._partners(i)
            second, first = (T[..., at + j : at + 2 * len(partners) : 2] for j in (0, 1))
            at += 2 * len(partners)
            # T_iiR = sum_k c_k W_Rk W_ik^2 + kappa T_iR
            powers = np.array([np.prod(found.U[self.free[list(R)]], axis=0) for R in partners])
            left = second - c @ (powers * found.U[unit] ** 2).T
            found.curvature[unit] = np.sum(left * first) / max(np.sum(first**2), np.finfo(float).tiny)

    def curvatures(self, units):
        """Stencils of two derivatives by a unit and p - 2 others, and of one by it and these."""
        if self.order > _CURVED:
            return []
        return [s for i in units for R in self._partners(i) for s in (curvature(i, R), square_free((i, *R)))]

    def _partners(self, i):
        """Sets of p - 2 units beside which the curvature of a unit is measured."""
        return [()] if self.order == 2 else [(r,) for r in range(len(self.free)) if r != i][:_PARTNERS]


def _free_units(cube, k, group):
    """The k first free units: of random ones, those beside which all others can be free too, then the best conditioned.

    Where k + 1 free units leave one direction only, a unit that is nearly parallel to a face is saturated far away.
    """
    D, m = cube.shape
    unit = cube.weights / np.linalg.norm(cube.weights, axis=0)
    choices = [cube.rng.permutation(m)[:k] for _ in range(_CHOICES)]
    lone = m > D and group == 1 and D - k == 2

    def cost(free):
        if not lone:
            return 0, lapack.cond(unit[:, free])
        rest = np.setdiff1d(np.arange(m), free)
        return sum(not len(cube.face(np.append(free, i), 1).points) for i in rest), lapack.cond(unit[:, free])

    return min(choices, key=cost)


def _add_further_units(cube, first, design, found):
    """Rows of U of all other units, which are linear in the known ones; the largest relative residual.

    A group whose places leave errors, as where steep units of the second layer are saturated, is parted: fewer free
    units have more places.
    """
    rest, worst = cube.rng.permutation(np.setdiff1d(np.arange(cube.shape[1]), first.free)), 0.0
    groups = np.array_split(rest, -(-len(rest) // design.group)) if len(rest) else []
    groups = [(units, []) for units in groups]
    while groups:
        units, equations = groups.pop()
        n_places = design.n_further + (design.n_further > 1)  # one place alone has more equations than units
        x, error = _further_units(cube, first, units, n_places, equations, found)
        if error > _MISMATCH and len(units) > 1:
            groups += [(half, []) for half in np.array_split(units, 2)]
        elif error > _MISMATCH and len(equations) < _FACES_PER_UNIT:
            groups.append((units, equations))
        else:
            found.U[units], worst = x, max(worst, error)
            first.keep(found, *equations[-1][2:], units)
    return worst


def _further_units(cube, first, units, n_places, equations, found):
    """Rows of U of some units by least squares, and their relative residual; appends to the equations of earlier faces.

    ``T_Si = sum_k c_k W_Sk W_ik`` for sets S of p - 1 known units.
    """
    known = len(first.free)
    if first.free.size + len(units) == cube.shape[1] <= cube.shape[0]:  # a last unit is not free: it makes the places
        known -= 1
    own, local = Products(known, first.order, first.twice), known + np.arange(len(units))
    beside = [Products(known, first.order, first.twice, (i,)) for i in local]
    face = cube.face(np.concatenate([first.free[:known], units]), n_places)
    parts = [own.stencils, *(products.stencils for products in beside)]
    ends = np.cumsum([len(part) for part in parts])
    stencils = Stencils.of([s for part in parts for s in part] + first.curvatures(local), known + len(units))
    T = first.step.derivatives(cube, face, stencils)[0]
    V = found.U[first.free[:known]].T
    c = own.values(T, first.curved) @ lapack.pinv(own.of(V))
    A = (c[:, :, None] * beside[0].of(V).T).reshape(-1, V.shape[0])
    B = [products.values(T[..., end:], first.curved) for products, end in zip(beside, ends, strict=False)]
    B = np.stack(B, axis=-1).reshape(-1, len(units))
    equations.append((A, B, c, T, face.Z, local))
    A, B = (np.concatenate([e[j] for e in equations]) for j in (0, 1))
    if not len(A):
        return np.zeros((len(units), A.shape[1])), np.inf
    scale = np.maximum(np.linalg.norm(A, axis=0), np.finfo(float).tiny)
    x, _, rank, _ = lapack.lstsq(A / scale, B, rcond=LEAST)
    left = np.linalg.norm(A / scale @ x - B) / max(np.linalg.norm(B), np.finfo(float).tiny)
    return (x / scale[:, None]).T, left if rank == len(scale) else np.inf
