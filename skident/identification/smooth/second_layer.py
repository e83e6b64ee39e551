"""Directions of second-layer units from square-free derivatives on faces of the cube of first-layer outputs.

Where k units are free and all others are saturated, the mixed derivative of the outputs by different free units S is
``T_S(s) = sum_k c_k(s) prod_{i in S} W_ik`` at signs s of the others, whatever the biases and norms of the first layer
are: they only scale rows of W. Over all s, the rows T span the square-free powers of the second layer's units.
"""

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from skident.linalg import lapack, svd
from skident.oracle import NotIdentified

from .cube import preactivations_of
from .derivatives import Stencils, mixed
from .design import cheapest_design
from .levels import Levels
from .products import LEAST, LEAST_OF_LEVELS, Products, clear_gaps, scaled_rows

_FACES = 4  # first faces and guesses of the width (budget)
_NARROWEST = 3  # first-layer units per unit of the narrowest second layer that is designed for
_GUESS_GROWTH = 1.5  # of the width, up to more than m_1: it takes twice the queries
_GAP = 0.1  # ratio of neighboring singular values that ends the span of the units
_FLOOR = 1e-6  # relative rounding of derivatives above which they count less
_ERRORS = 10.0  # distance from the span of a unit's power, in gaps: the errors of the derivatives
_CONTEXTS = (0.8, 1.1, 1.4, 2.0)  # places times outputs, over the guess, until a gap is clear
_FARTHEST = 0.1  # `_ERRORS` gaps at most
_SPARE = 4  # places in addition
_SPANS = 3  # gaps at which units are sought (budget): weak units leave further ones behind the clearest
_SURPLUS = 3  # rows beyond the width: their singular values show the errors
_CHOICES = 60  # random sets of free units that are compared
_RAYS_OF_CHOICE = 100  # rays of each (budget)
_FARTHEST_LEVEL = 0.6  # output of a free unit at its levels, of outputs in [-1, 1]
_MISMATCH = 5e-2  # relative residual of the further units
_FACES_PER_UNIT = 4  # of a further unit (budget)
_STEPS = {2: 4.0, 3: 4.0, 4: 4.0}  # of order p, times eps^(1 / (p + 2)): truncation against rounding
_STEP_FACTORS = 2.0 ** np.arange(-2, 7)  # steps that are compared
_LARGEST_STEP = 0.2  # of outputs in [-1, 1]; those that are chosen are a quarter at most
_STEP_PLACES = 6  # at which they are compared
_SMALL = 1e-2  # derivative over the largest one below which its relative change does not matter
_ACCURATE = 1e-5  # change of the derivatives with the step above which two steps are extrapolated
_PARTNERS = 3  # sets of units beside which a curvature is measured


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
    widths = range(m, m // _NARROWEST, -1) if width is None else [width]
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
            left = _add_further_units(face, found)
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
        stencils = Stencils.of([mixed(sets[cube.rng.randint(len(sets))])], len(face.free))
        sizes = _STEPS[order] * np.finfo(float).eps ** (1.0 / (order + 2)) * _STEP_FACTORS
        sizes = sizes[sizes < _LARGEST_STEP]
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
        self.cube, self.design, self.order, k = cube, design, design.order, design.n_free
        self.free = _free_units(cube, k)
        self.products = Products(k, self.order, "once" if design.levels else "", (), design.n_joint)
        n = int(np.ceil(_CONTEXTS[-1] * guess * design.n_joint / cube.n_outputs)) + _SPARE + 2 * k * design.levels
        face = cube.face(self.free, n)
        if not len(face.points):
            raise NotIdentified("second layer", "saturation", "no far inputs saturate the other first-layer units.")
        if design.levels:
            face = face.at_levels(_levels(cube, n, k))
        self.step = _Step.best(cube, face, self.products.sets, self.order) if step is None else step
        self.bent = {} if design.levels else dict(enumerate(self.free))
        stencils = Stencils.of(self.products.stencils + _curvatures(self.bent, k, self.order), k)
        parts, done = [], 0
        for share in _CONTEXTS[2 if design.levels else int(attempt > 0) :]:
            last, done = done, min(int(np.ceil(n * share / _CONTEXTS[-1])), len(face.points))
            parts.append(self.step.derivatives(cube, face[last:done], stencils))
            self.T, rounding = (np.concatenate(part) for part in zip(*parts, strict=True))
            self.levels = face.Z[:done]
            self._spectrum(rounding, guess)
            if not self.vague or len(self.rows) >= self.rows.shape[1] + _SURPLUS + _SPARE:
                break

    def _spectrum(self, rounding, guess):
        """Rank of the derivatives, and whether more places may make it clear: `vague`, or units are too many."""
        products, of_levels = self.products, (None, None)
        if self.design.levels:
            levels = Levels(self.cube.g, self.levels[:, self.free])
            n_rows, d = products.rows(self.T[..., : len(products)]).shape
            most = min(self.design.most(d), n_rows - len(self.free) - _SURPLUS)
            self.x = levels.fitted(products, self.T, guess, most, self.cube.rng)
            of_levels = levels.relative(np.nan_to_num(self.x))
        self.C = products.values(self.T, *of_levels)
        rounding = np.finfo(float).eps * rounding[..., : len(products)]
        rounding = np.linalg.norm(products.rows(rounding), axis=1)
        self.rows = scaled_rows(products.rows(self.C), rounding, _FLOOR)
        s, Vt = svd(self.rows, full_matrices=False)[1:]
        ranks, gaps = clear_gaps(s, LEAST_OF_LEVELS if self.design.levels else LEAST)
        self.rank, self.gap, d = int(ranks[0]), gaps[0], self.rows.shape[1]
        most = min(self.design.most(d), len(self.rows) - _SURPLUS)
        self.spans = [(gap, Vt[:rank].T) for rank, gap in zip(ranks, gaps, strict=True) if gap < _GAP and rank <= most]
        unclear = self.design.levels and np.isnan(self.x).any()
        self.spans = [] if unclear else self.spans
        self.crowded = unclear or self.rank > self.design.most(d)
        self.vague = unclear or self.gap > _GAP or self.rank > len(self.rows) - _SURPLUS
        self.counted = not self.vague and self.rank < d

    def units(self):
        """The `SecondLayer` with rows of the free units, or None and the reason."""
        k, m = len(self.free), self.cube.shape[1]
        if not self.spans:
            return None, f"{self.rank} units for {self.rows.shape[1]} products (gap {self.gap:.0e})"
        W = np.zeros((0, k))
        for gap, span in self.spans[:_SPANS]:
            W, V = self.products.units(span, self.cube.rng, min(_ERRORS * gap, _FARTHEST))
            if len(W) == span.shape[1]:
                break
        else:
            return None, f"{len(W)} units in their span"
        self.W, self.V = W, V
        found = SecondLayer(np.zeros((m, len(W))), np.full(m, np.nan), self.order)
        found.U[self.free] = W.T
        self.norms, self.shifts = np.ones(m), np.zeros(m)
        found.coefficients.append(self.products.coefficients(self.C, W, V))
        found.levels.append(self.levels)
        self.bend(found, found.coefficients[0], self.T, self.bent, k, self.order)
        if self.design.levels:
            norms, biases = np.exp(self.x[:k]), self.x[k:]
            _, slope, bend = self.cube.g.jet(np.append(biases, 0.0), 2)
            found.U[self.free] *= (norms * slope[:k] / slope[k])[:, None]
            found.curvature[self.free] = norms * bend[:k] / slope[:k]
            self.norms[self.free], self.shifts[self.free] = norms, biases
            self.cube = self.cube.rescaled(self.norms, self.shifts)
            if self.design.further_order != self.order:
                self.step = self._further_step()
        return found, ""

    def _further_step(self):
        """The step of derivatives of another order by known units."""
        known, order = self.design.n_known, self.design.further_order
        free = self.free[:known]
        face = self.cube.face(free, _STEP_PLACES).at_levels(_levels(self.cube, _STEP_PLACES, known))
        return _Step.best(self.cube, face, Products(known, order, "any").sets, order)

    def bend(self, found, c, T, local, n_known, order):
        """Store curvatures of units `local` (a dict) of a face, whose stencils come last, given coefficients c."""
        low, high = self.cube.g.limits
        factor = 2.0 / (high - low) * self.cube.g.jet(np.zeros(1), 1)[1][0]
        at = T.shape[-1] - len(_curvatures(local, n_known, order))
        for i, unit in local.items():
            partners = _partners(i, n_known, order)
            second, first = (T[..., at + j : at + 2 * len(partners) : 2] for j in (0, 1))
            at += 2 * len(partners)
            # T_iiR = sum_k c_k W_Rk W_ik^2 + kappa T_iR
            powers = np.array([np.prod(self.W[:, list(R)], axis=1) for R in partners])
            left = second - c @ (powers * found.U[unit] ** 2).T
            found.curvature[unit] = factor * np.sum(left * first) / max(np.sum(first**2), np.finfo(float).tiny)


def _partners(unit, n_known, order):
    """Sets of p - 2 known units beside which the curvature of a unit is measured."""
    return list(combinations((r for r in range(n_known) if r != unit), order - 2))[:_PARTNERS]


def _curvatures(units, n_known, order):
    """Stencils of two derivatives by a unit and p - 2 known ones, and of one by it and these."""
    return [mixed(S) for i in units for R in _partners(i, n_known, order) for S in ((i, i, *R), (i, *R))]


def _levels(cube, n, k):
    """Pre-activations (n, k) of free units all over the part of their outputs where derivatives are accurate."""
    return preactivations_of(cube.g, cube.rng.uniform(-_FARTHEST_LEVEL, _FARTHEST_LEVEL, (n, k)))


def _free_units(cube, k):
    """The k first free units: of random ones, the best conditioned with the nearest places.

    Rounding of far inputs is a change of all pre-activations there.
    """
    unit = cube.weights / np.linalg.norm(cube.weights, axis=0)

    def cost(free):
        points = cube.face(free, 2, _RAYS_OF_CHOICE).points
        distance = np.linalg.norm(points, axis=1).max() if len(points) and cube.shape[1] > len(unit) else 1.0
        return distance * lapack.cond(unit[:, free]) if len(points) else np.inf

    return min((cube.rng.permutation(cube.shape[1])[:k] for _ in range(_CHOICES)), key=cost)


def _add_further_units(first, found):
    """Rows of U of all other units, which are linear in the known ones; the largest relative residual.

    A group whose places leave errors, as where steep units of the second layer are saturated, is parted: fewer free
    units have more places.
    """
    cube, design = first.cube, first.design
    rest, worst = cube.rng.permutation(np.setdiff1d(np.arange(cube.shape[1]), first.free)), 0.0
    groups = np.array_split(rest, -(-len(rest) // design.group)) if len(rest) else []
    groups = [(units, []) for units in groups]
    while groups:
        units, equations = groups.pop()
        n_places = design.n_further + (design.n_further > 1)  # one place alone has more equations than units
        x, error = _further_units(first, units, n_places, equations, found)
        if error > _MISMATCH and len(units) > 1:
            groups += [(half, []) for half in np.array_split(units, 2)]
        elif error > _MISMATCH and len(equations) < _FACES_PER_UNIT:
            groups.append((units, equations))
        else:
            found.U[units], worst = x, max(worst, error)
            c, T, levels = equations[-1][2:]
            first.bend(found, c, T, dict(enumerate(units, design.n_known)), design.n_known, design.further_order)
            if design.further_order == design.order:
                found.coefficients.append(c)
                found.levels.append((levels - first.shifts) / first.norms)
    return worst


def _further_units(first, units, n_places, equations, found):
    """Rows of U of some units by least squares, and their relative residual; appends to the equations of earlier faces.

    ``T_Si = sum_k c_k W_Sk W_ik`` for sets S of p - 1 known units.
    """
    cube, design, n = first.cube, first.design, len(units)
    known, order, kind = design.n_known, design.further_order, "any" if design.levels else ""
    own = Products(known, order, kind, (), design.n_joint)
    beside = [Products(known, order, kind, (known + i,), design.n_joint) for i in range(n)]
    face = cube.face(np.concatenate([first.free[:known], units]), n_places)
    if design.levels and len(face.points):
        face = face.at_levels(np.hstack([_levels(cube, n_places, known), np.zeros((n_places, n))]))
    stencils = own.stencils + [s for products in beside for s in products.stencils]
    stencils = Stencils.of(stencils + _curvatures(known + np.arange(n), known, order), known + n)
    T = first.step.derivatives(cube, face, stencils)[0]
    W, V = first.W[:, :known], first.V
    c = own.coefficients(T[..., : len(own)], W, V)
    A = (c[:, :, None] * np.prod(W[:, beside[0].indices], axis=2).T).reshape(-1, len(W))
    B = T[..., len(own) : len(own) + n * len(beside[0])].reshape(*T.shape[:2], n, len(beside[0]))
    B = np.swapaxes(B, 2, 3).reshape(-1, n)
    equations.append((A, B, c, T, face.Z))
    A, B = (np.concatenate([e[j] for e in equations]) for j in (0, 1))
    if not len(A):
        return np.zeros((n, A.shape[1])), np.inf
    scale = np.maximum(np.linalg.norm(A, axis=0), np.finfo(float).tiny)
    x, _, rank, _ = lapack.lstsq(A / scale, B, rcond=LEAST)
    left = np.linalg.norm(A / scale @ x - B) / max(np.linalg.norm(B), np.finfo(float).tiny)
    return (x / scale[:, None]).T, left if rank == len(scale) else np.inf
