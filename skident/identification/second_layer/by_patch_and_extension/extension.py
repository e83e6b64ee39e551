"""Extension from one known patch to all first-layer units, across their hyperplanes, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.budget import check_deadline
from skident.linalg import svd
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from ...constants import MAX_RESIDUAL, PATCH_STEPS
from ...query_points import query_block
from ..downstream import RecoveredNetwork
from .known_units import TAILS, fit_new_unit, refit_newest, sensitivity, weights_from_tail
from .saturation_regions import SaturationRegion, Wall, spread_points

__all__ = ["extend_to_all_units", "n_queries_of_extension"]

# Points and queries.
_N_WALL_POINTS = 150  # budget of points per wall, no queries
_MIN_WALL_POINTS = 10  # below, a wall is too small a part of the region
_N_BASES = 300  # budget of points kept, from which others are searched
_MAX_ROUNDS = 6  # budget of searches for as many points as are needed
_OUTPUTS_ON_PATCH = 3.0  # per unknown of the patch: overdetermined, so that a wrong minimum shows
_OUTPUTS_IN_TAIL = 1.5  # per unknown weight of a unit
_OUTPUTS_ACROSS = 3.5  # per unknown of a unit
_MORE_POINTS = 4  # in addition to each of these
_MAX_LEVEL = 3.5  # pre-activations across a unit: outputs up to 0.998
# Order of units.
_NEARLY_BEST = 0.3  # inverse condition over that of the best unit, down to which units are taken in one round
_MAX_FRUITLESS = 3  # rounds without a new unit
_FARTHER = 1.5  # pre-activation by which tails are farther out after each of them: the bias may be off by so much
# Residuals, relative. The polish converges from 1e-4.
_MAX_UNIT_RESIDUAL = 5e-5  # of a unit, beyond which it is tried again later
_LAXER = 10.0  # factor of that bound after each fruitless round
_MAX_PATCH_RESIDUAL = 3e-8  # of the patch: wrong minima leave 1e-7 and more, and later fits improve it
# Fits of all known units.
_ROUGH_PATCH = 1e-6  # residual of the patch above which it is fitted from a rough start first
_PATCH_STEPS = 30  # budget of the accurate fit of the patch
_GOOD_UNIT_RESIDUAL = 1e-9  # of the last unit, above which all are fitted again
_MIN_NEW_UNITS = 4  # by then
_GROWTH = 1.6  # factor of known units after which all are fitted in any case
_MAX_PARAMETERS = 1600  # of a fit of all; beyond, a step takes seconds, and only the newest units are fitted
_GOOD_NEWEST_RESIDUAL = 1e-8  # of the last unit, above which these are
_NEWEST_STRIDE = 6  # new units after which this happens
_MAX_NEWEST = 30  # units that are fitted so; older ones stay


def n_queries_of_extension(widths, n_free):
    """Approximate number of queries for widths ``(m_1, m_2, m_L)``, from a patch of k free units."""
    m_1, m_2, m_L = widths
    n_levels = len(TAILS["tanh"])
    per_unit = _n_points(_OUTPUTS_IN_TAIL * m_2, m_L) * n_levels + _n_points(_OUTPUTS_ACROSS * (m_2 + 1), m_L)
    return _n_points(_OUTPUTS_ON_PATCH * _n_parameters(n_free, m_2, m_L), m_L) + (m_1 - n_free) * per_unit


def _n_points(n_values, n_outputs):
    """Points with so many output values."""
    return int(np.ceil(n_values / n_outputs)) + _MORE_POINTS


def _n_parameters(k, m_2, m_L):
    """Number of parameters of k known units, m_2 second-layer units and m_L outputs."""
    return k + (k + 1) * m_2 + (m_2 + 1) * m_L


def extend_to_all_units(downstream, patch, callback=None):
    """The network downstream, from a `KnownPatch`; ``callback(n_known, m_1)`` after every round.

    All unknown units are saturated at fixed signs in a region of their arrangement, and just one more is free beyond
    one of its walls: there its m_2 weights and bias correction are all that is unknown. Outputs in its tail are linear
    in the weights, which starts a fit to outputs all across. Then it may have any output, and the region is larger.
    Errors grow from unit to unit and are removed by fits of all known units to all outputs; walls whose equations are
    best conditioned come first. Raises NotIdentified.
    """
    extension = _Extension(downstream, patch)
    extension.fit_patch()
    n_fruitless = 0
    while extension.unknown:
        check_deadline()
        n_unknown = len(extension.unknown)
        for view in extension.best_views(n_fruitless):
            extension.cross(view, _MAX_UNIT_RESIDUAL * _LAXER**n_fruitless)
            extension.refine()
        n_fruitless = n_fruitless + 1 if len(extension.unknown) == n_unknown else 0
        if n_fruitless == _MAX_FRUITLESS:
            message = f"no unit beyond the known ones could be added: first-layer units {extension.unknown} are left"
            raise NotIdentified("second layer", "unreachable", message)
        if callback is not None:
            callback(downstream.shape[1] - len(extension.unknown), downstream.shape[1])
    return extension.network()


@dataclass(frozen=True)
class _WallView:
    """Points (n, D) on a unit's wall, moves across it there, levels of its tail, inverse condition of its equations."""

    wall: Wall
    levels: np.ndarray
    inverse_condition: float
    points: np.ndarray
    moves: np.ndarray


class _Extension:
    """Known and unknown units, their region, and all outputs so far.

    `Z` and `Y` are blocks of pre-activations (n, m_1) as known and of outputs (n, m_L). The first `n_settled` units are
    fitted no more in fits of the newest ones, which see the blocks from `first_block` on.
    """

    def __init__(self, downstream, patch):
        self.region, self.known = SaturationRegion(downstream, patch.signs), patch.known
        self.unknown = np.setdiff1d(np.arange(downstream.shape[1]), patch.known.units).tolist()
        self.bases, self.Z, self.Y, self.residuals = patch.point[None], [], [], []
        self.n_settled = self.n_refined = len(patch.known.units)
        self.first_block = 1

    @property
    def downstream(self):
        return self.region.downstream

    def others(self, unit=None):
        """Unknown units, except one."""
        return np.array([i for i in self.unknown if i != unit], dtype=int)

    def data(self, first_block=0):
        """Pre-activations and outputs of all blocks from one on."""
        return np.concatenate(self.Z[first_block:]), np.concatenate(self.Y[first_block:])

    def keep(self, X, Z, Y):
        """Add a block of data, and points (n, D) to search from."""
        self.Z.append(Z)
        self.Y.append(Y)
        bases = np.concatenate([self.bases, X])
        self.bases = bases[self.downstream.rng.permutation(len(bases))[:_N_BASES]]

    def rescale(self, units, factors):
        """Correct the weight norms of units."""
        for Z in self.Z:
            Z[:, units] *= factors
        self.region = SaturationRegion(self.downstream.rescaled(units, factors), self.region.signs)

    def fit_all(self, max_iter=2):
        """Fit all known units and their norms to all outputs."""
        check = self.downstream.check_deadline
        self.known, factors = self.known.refined(*self.data(), max_iter=max_iter, check_deadline=check)
        self.rescale(self.known.units, factors)

    def fit_patch(self):
        """Query the region, and fit the patch to the outputs; raises NotIdentified if it does not explain them."""
        (k, m_2), m_L = self.known.W2.shape, self.downstream.n_outputs
        n = _n_points(_OUTPUTS_ON_PATCH * _n_parameters(k, m_2, m_L), m_L)
        X = spread_points(self.region, self.known, self.others(), self.bases, 2 * n)[:n]
        Z, Y = self.downstream.preactivations(X), self.downstream.query(X)
        self.keep(X, Z, Y)
        if self.known.relative_residual(Z, Y) > _ROUGH_PATCH:
            self.known = self.known.fitted(Z, Y, PATCH_STEPS)
        self.fit_all(_PATCH_STEPS)
        residual = self.known.relative_residual(*self.data())
        if not residual < _MAX_PATCH_RESIDUAL:
            message = f"the patch does not explain outputs of its saturation region: residual {residual:.1e}"
            raise NotIdentified("second layer", "residual", message)

    def best_views(self, n_fruitless):
        """Walls whose equations are nearly as well conditioned as the best one's, the best first."""
        views = [self.view(unit, n_fruitless) for unit in self.unknown]
        views = sorted((view for view in views if view is not None), key=lambda view: -view.inverse_condition)
        return [view for view in views if view.inverse_condition >= _NEARLY_BEST * views[0].inverse_condition]

    def view(self, unit, n_fruitless):
        """The `_WallView` of a unit; None if the region has hardly any points there."""
        downstream, sign = self.downstream, self.region.signs[unit]
        farther = _FARTHER * n_fruitless if downstream.center_outputs is None else 0.0
        levels = sign * (TAILS[downstream.activation] + farther) - (downstream.correction(unit) or 0.0)
        wall = Wall(unit, levels[-1], levels[-1], abs(levels[0] - levels[-1]))
        points, moves = self.crossings(wall, _N_WALL_POINTS, self.bases, 1 + n_fruitless)
        if len(points) < _MIN_WALL_POINTS:
            return None
        J = sensitivity(self.known, downstream.preactivations(points)).reshape(len(points) * downstream.n_outputs, -1)
        s = svd(J / np.maximum(np.linalg.norm(J, axis=0), np.finfo(float).tiny), compute_uv=False)
        return _WallView(wall, levels, s[-1] / s[0] if len(J) >= J.shape[1] else 0.0, points, moves)

    def wall_points(self, wall, n, bases, max_rounds):
        """Points (n', D) on a wall; n of them, or fewer after the last round."""
        parts, count = [np.zeros((0, bases.shape[1]))], 0
        for _ in range(max_rounds):
            found = spread_points(self.region, self.known, self.others(wall.unit), bases, n, wall)
            parts.append(found)
            count += len(found)
            bases = np.concatenate([bases, found])
            if count >= n:
                break
        return np.concatenate(parts)

    def crossings(self, wall, n, bases, max_rounds):
        """Points on a wall from which its unit alone can change, and moves that change it."""
        points = self.wall_points(wall, n, bases, max_rounds)
        return self.region.crossings(points, wall, self.known.units, self.others(wall.unit))

    def cross(self, view, max_residual):
        """Add the unit of a wall, if it leaves at most that residual."""
        weights = self.weights_in_tail(view)
        if weights is None:
            return
        downstream, unit = self.downstream, view.wall.unit
        sign, correction = self.region.signs[unit], downstream.correction(unit)
        middle = -(correction or 0.0)
        n = _n_points(_OUTPUTS_ACROSS * (len(weights) + 1), downstream.n_outputs)
        wall = Wall(unit, middle - _MAX_LEVEL, middle + _MAX_LEVEL)
        X = self.wall_points(wall, n, np.concatenate([self.bases, view.points]), _MAX_ROUNDS)
        X = X[downstream.rng.permutation(len(X))[:n]]
        Z, Y = downstream.preactivations(X), downstream.query(X)
        found = fit_new_unit(self.known, unit, Z, Y, weights, sign, correction)
        if found.residual < max_residual:
            self.rescale(unit, found.norm_factor)
            Z[:, unit] *= found.norm_factor
            self.keep(X, Z, Y)
            self.residuals.append(found.residual)
            self.known = self.known.joined_by(unit, sign, found.weights, found.correction)
            self.unknown.remove(unit)

    def weights_in_tail(self, view):
        """Second-layer weights (m_2,) from the tail of a unit; None if too few points have one."""
        downstream, unit, m_2 = self.downstream, view.wall.unit, self.known.W2.shape[1]
        n, points, moves = _n_points(_OUTPUTS_IN_TAIL * m_2, downstream.n_outputs), view.points, view.moves
        if len(points) < n:
            more = self.crossings(view.wall, 2 * n, np.concatenate([self.bases, points]), _MAX_ROUNDS)
            points, moves = (np.concatenate(part) for part in zip((points, moves), more, strict=True))
        points, moves = points[:n], moves[:n]
        if len(points) * downstream.n_outputs < m_2:
            return None
        along = points[:, None] + (view.levels - view.levels[-1])[:, None] * moves[:, None]
        Z, levels = downstream.preactivations(along[:, 0]), view.levels + (downstream.correction(unit) or 0.0)
        return weights_from_tail(self.known, Z, query_block(downstream.query, along), levels, self.region.signs[unit])

    def refine(self):
        """Fit known units again if many are new or errors are large; only the newest ones if that is too slow."""
        k, n_newest = len(self.known.units), len(self.known.units) - self.n_settled
        n_new = k - self.n_refined
        inaccurate = n_new >= _MIN_NEW_UNITS and self.residuals[-1] > _GOOD_UNIT_RESIDUAL
        if n_newest == 0 or not (inaccurate or k > _GROWTH * self.n_settled):
            return
        if _n_parameters(k, self.known.W2.shape[1], self.downstream.n_outputs) < _MAX_PARAMETERS:
            self.fit_all()
            self.n_settled, self.first_block = k, len(self.Z)
        elif n_new >= _NEWEST_STRIDE and self.residuals[-1] > _GOOD_NEWEST_RESIDUAL:
            signs = self.region.signs[self.known.units[-n_newest:]]
            self.known = refit_newest(self.known, *self.data(self.first_block), signs)
            if n_newest >= _MAX_NEWEST:
                self.n_settled, self.first_block = k, len(self.Z)
        else:
            return
        self.n_refined = k

    def network(self):
        """The `RecoveredNetwork`, all of it fitted once more if it does not explain all outputs."""
        n_parameters = _n_parameters(*self.known.W2.shape, self.downstream.n_outputs)
        if n_parameters < _MAX_PARAMETERS and self.known.relative_residual(*self.data()) > MAX_RESIDUAL:
            self.fit_all()
        downstream, known, residual = self.downstream, self.known, self.known.relative_residual(*self.data())
        if not residual < MAX_RESIDUAL:
            message = f"the network recovered by extension leaves a relative residual of {residual:.1e}"
            raise NotIdentified("second layer", "residual", message)
        order = np.argsort(known.units)
        weights = [downstream.weights, known.W2[order], known.output_weights]
        biases = [downstream.biases + known.corrections[order], known.biases, known.offset]
        network = FeedforwardNetwork(weights, biases, downstream.activation)
        return RecoveredNetwork(network, residual, {"units": max(self.residuals)})
