"""All first-layer units from one known patch: a walk across their hyperplanes, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from skident.budget import check_deadline
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from ...query_points import query_block
from ..assembling import RecoveredNetwork, preactivations_of
from .known_units import KnownUnits
from .new_units import TAILS, fit_new_unit, sensitivity, weights_from_tail
from .saturation_region import Cell, Wall, spread_points

__all__ = ["n_queries_of_extension", "extend_to_all_units"]

_LOOKS = 150  # points that are looked for on every wall
_FEWEST = 10  # of them that show a wall
_BASES = 300  # points from which others are looked for
_INSIDE, _TAIL, _ACROSS, _MORE = 3.0, 1.5, 3.5, 4  # answers an unknown: of the patch, of a row in tails, of a unit
_TRIES = 6  # rounds of looking for as many points as are wanted
_NEARLY = 0.3  # times the best unit's condition, down to which units are taken in the same round
_LEVELS = 3.5  # pre-activations across a unit
_FRUITLESS, _FARTHER = 3, 1.5  # rounds without a new unit, and how much farther out each of them follows tails
_MISFIT, _LAXER = 5e-5, 10.0  # of a unit, beyond which it is looked at again later, and how much more is taken then
_WRONG = 1e-4  # misfit of the network, all answers taken together, that the polish may not mend
_NEAR, _STEPS = 1e-6, 200  # misfit from which on the patch is fitted by more steps
_SURE_STEPS = 30  # by which it is fitted in any case
_PATCH = 3e-8  # misfit of the patch after that: wrong minima leave 1e-7 and more, and fits on the way improve it
_DOUBT, _GROWN = 1e-9, 1.6  # misfit of a unit, or times the units known, after which all is fitted again
_SOME = 4  # units, at least, that are new by then
_MOST = 1600  # parameters that are fitted at once; beyond, those of the newest units, where these are many
_LARGER, _NEWEST, _OLD = 1e-8, 6, 30  # misfit of a unit after which this is done, every so many, of at most so many


@dataclass
class _Walk:
    """What is known on the way, what is not, and all that was asked.

    Attributes
    ----------
    downstream : Downstream
    cell : Cell
    known : KnownUnits
    open : list of int
        Units that are not known.
    bases : ndarray of shape (p, D)
        Points of the cell.
    Z, Y : list of ndarray
        Pre-activations as known, and answers.
    n_sure, since : int
        Units that are not fitted again, and blocks of answers up to the last of them.
    n_refined : int
        Units known when some were fitted again.
    misfits : list of float
        Of units.
    """

    downstream: object
    cell: Cell
    known: KnownUnits
    open: list
    bases: np.ndarray
    Z: list = field(default_factory=list)
    Y: list = field(default_factory=list)
    n_sure: int = 0
    since: int = 0
    n_refined: int = 0
    misfits: list = field(default_factory=list)

    def others(self, unit):
        """Units that are not known, but one."""
        return np.array([i for i in self.open if i != unit], dtype=int)

    def preactivations(self, X):
        """As known."""
        return X @ self.downstream.weights + self.downstream.biases

    def lengthen(self, units, factors):
        """Lengths are known better."""
        weights, biases = self.downstream.weights.copy(), self.downstream.biases.copy()
        weights[:, units] *= factors
        biases[units] *= factors
        for Z in self.Z:
            Z[:, units] *= factors
        self.downstream = replace(self.downstream, weights=weights, biases=biases)
        self.cell = replace(self.cell, weights=weights, biases=biases)

    def keep(self, X, Z, Y):
        """Pre-activations and answers, for fits of all that is known, and points to begin from."""
        self.Z.append(Z)
        self.Y.append(Y)
        bases = np.concatenate([self.bases, X])
        self.bases = bases[self.downstream.rng.permutation(len(bases))[:_BASES]]

    def fit_all(self, **options):
        """Fit all that is known to all answers: see `KnownUnits.refined`."""
        self.known, factors = self.known.refined(
            *self.answers(), before_a_step=self.downstream.look_at_the_time, **options
        )
        self.lengthen(self.known.units, factors)

    def answers(self, since=0):
        """Pre-activations and answers of all blocks since one of them."""
        return np.concatenate(self.Z[since:]), np.concatenate(self.Y[since:])


@dataclass(frozen=True)
class _Look:
    """A wall as it is seen: its unit, the condition of its row's equations in tails, points and moves across there."""

    wall: Wall
    levels: np.ndarray
    score: float
    points: np.ndarray
    moves: np.ndarray


def n_queries_of_extension(widths, n_free):
    """Rows that a walk asks, about.

    Parameters
    ----------
    widths : tuple of int
        ``(m_1, m_2, m_L)``.
    n_free : int
        k, free units of the patch it begins from.

    Returns
    -------
    int
    """
    m_1, m_2, m_L = widths
    n_levels = len(TAILS["tanh"])
    a_unit = _n_rows(_TAIL * m_2, m_L) * n_levels + _n_rows(_ACROSS * (m_2 + 1), m_L)
    return _n_rows(_INSIDE * _n_parameters(n_free, m_2, m_L), m_L) + (m_1 - n_free) * a_unit


def _n_rows(n_answers, n_outputs):
    """Rows with so many answers."""
    return int(np.ceil(n_answers / n_outputs)) + _MORE


def _n_parameters(k, m_2, m_L):
    """Of known units and what follows."""
    return k + (k + 1) * m_2 + (m_2 + 1) * m_L


def extend_to_all_units(downstream, patch, callback=None):
    """All that follows a first layer, from one patch on which it is known.

    Parameters
    ----------
    downstream : Downstream
    patch : KnownPatch
    callback : callable, default=None
        ``callback(n_known, m_1)`` after every round.

    Returns
    -------
    RecoveredNetwork

    Raises
    ------
    NotIdentified
        If the patch does not explain its answers, or no wall of the cell of known units shows one more of them.

    Notes
    -----
    All units that are not known are saturated at fixed signs in a cell of their arrangement, and only one more beyond
    one of its walls: there the m_2 weights from that unit and its shift are all that is unknown. Answers in its tail
    are linear in the weights, which gives the start of Gauss-Newton on answers all across. Once it is known it may be
    anywhere, and the cell is larger. Errors grow from unit to unit and are taken back by fits of all known units to all
    answers; walls whose equations are best conditioned come first.
    """
    known = KnownUnits.from_patch(patch, downstream.activation)
    cell = Cell(downstream.weights, downstream.biases, patch.signs, downstream.activation, downstream.farthest)
    unknown = np.setdiff1d(np.arange(downstream.shape[1]), patch.free).tolist()
    walk = _Walk(downstream, cell, known, unknown, patch.point[None])
    _begin(walk)
    fruitless = 0
    while walk.open:
        check_deadline()
        n_open, looks = len(walk.open), _looks(walk, fruitless)
        for look in looks:
            _cross(walk, look, _MISFIT * _LAXER**fruitless)
            _refine(walk)
        fruitless = fruitless + 1 if len(walk.open) == n_open else 0
        if fruitless == _FRUITLESS:
            raise NotIdentified(
                "second layer", "unreachable", f"no way leads from the known patch to first-layer units {walk.open}"
            )
        if callback is not None:
            callback(downstream.shape[1] - len(walk.open), downstream.shape[1])
    return _second_layer(walk)


def _begin(walk):
    """Ask inside the cell, and fit the patch to that."""
    (k, m_2), m_L = walk.known.rows.shape, walk.downstream.n_outputs
    n = _n_rows(_INSIDE * _n_parameters(k, m_2, m_L), m_L)
    X = spread_points(walk.cell, walk.known, walk.others(None), walk.bases, 2 * n, walk.downstream.rng)
    Z, Y = walk.preactivations(X[:n]), walk.downstream.query(X[:n])
    walk.keep(X[:n], Z, Y)
    if walk.known.misfit(Z, Y) > _NEAR:
        walk.known = walk.known.fitted(Z, Y, _STEPS)
    walk.fit_all(max_iter=_SURE_STEPS)
    misfit = walk.known.misfit(*walk.answers())
    if not misfit < _PATCH:
        raise NotIdentified(
            "second layer", "residual", f"the patch does not explain answers of its cell: they misfit by {misfit:.1e}"
        )
    walk.n_sure, walk.since, walk.n_refined = k, 1, k


def _looks(walk, fruitless):
    """Walls whose equations are nearly as well conditioned as the best one's, the best first."""
    looks = [_look(walk, unit, fruitless) for unit in walk.open]
    looks = sorted((look for look in looks if look is not None), key=lambda look: -look.score)
    return [look for look in looks if look.score >= _NEARLY * looks[0].score]


def _look(walk, unit, fruitless):
    """A wall as it is seen; None where the cell has hardly any points there."""
    downstream, sign = walk.downstream, walk.cell.signs[unit]
    farther = _FARTHER * fruitless if downstream.theta is None else 0.0
    levels = sign * (TAILS[downstream.activation] + farther) - (_shift(walk, unit) or 0.0)
    wall = Wall(unit, levels[-1], levels[-1], abs(levels[0] - levels[-1]))
    points, moves = _crossings(walk, wall, _LOOKS, walk.bases, 1 + fruitless)
    if len(points) < _FEWEST:
        return None
    J = sensitivity(walk.known, walk.preactivations(points)).reshape(len(points) * downstream.n_outputs, -1)
    s = np.linalg.svd(J / np.maximum(np.linalg.norm(J, axis=0), np.finfo(float).tiny), compute_uv=False)
    return _Look(wall, levels, s[-1] / s[0] if len(J) >= J.shape[1] else 0.0, points, moves)


def _on_wall(walk, wall, n, bases, tries):
    """Up to n points on a wall, at least."""
    parts, count = [np.zeros((0, bases.shape[1]))], 0
    for _ in range(tries):
        found = spread_points(walk.cell, walk.known, walk.others(wall.unit), bases, n, walk.downstream.rng, wall)
        parts.append(found)
        count += len(found)
        bases = np.concatenate([bases, found])
        if count >= n:
            break
    return np.concatenate(parts)


def _crossings(walk, wall, n, bases, tries):
    """Points on a wall from which nothing but its unit moves, and how."""
    points = _on_wall(walk, wall, n, bases, tries)
    return walk.cell.crossings(points, wall, walk.known.units, walk.others(wall.unit))


def _cross(walk, look, largest):
    """One more unit, if it leaves no larger misfit of the answers."""
    row = _row_in_tail(walk, look)
    if row is None:
        return
    downstream, unit, sign, shift = (
        walk.downstream,
        look.wall.unit,
        walk.cell.signs[look.wall.unit],
        _shift(walk, look.wall.unit),
    )
    middle = 0.0 if shift is None else -shift
    n = _n_rows(_ACROSS * (len(row) + 1), downstream.n_outputs)
    wall = Wall(unit, middle - _LEVELS, middle + _LEVELS)
    points = _on_wall(walk, wall, n, np.concatenate([walk.bases, look.points]), _TRIES)
    points = points[downstream.rng.permutation(len(points))[:n]]
    Z, Y = walk.preactivations(points), downstream.query(points)
    found = fit_new_unit(walk.known, unit, Z, Y, row, sign, shift)
    if found.misfit < largest:
        walk.lengthen(unit, found.stretch)
        Z[:, unit] *= found.stretch
        walk.keep(points, Z, Y)
        walk.misfits.append(found.misfit)
        walk.known = walk.known.joined_by(unit, sign, found.row, found.shift)
        walk.open.remove(unit)


def _row_in_tail(walk, look):
    """The row that a unit's tail tells; None where it is hardly seen."""
    downstream, unit, m_2 = walk.downstream, look.wall.unit, walk.known.rows.shape[1]
    n, points, moves = _n_rows(_TAIL * m_2, downstream.n_outputs), look.points, look.moves
    if len(points) < n:
        more = _crossings(walk, look.wall, 2 * n, np.concatenate([walk.bases, points]), _TRIES)
        points, moves = (np.concatenate(part) for part in zip((points, moves), more, strict=True))
    points, moves = points[:n], moves[:n]
    if len(points) * downstream.n_outputs < m_2:
        return None
    along = points[:, None] + (look.levels - look.levels[-1])[:, None] * moves[:, None]
    levels = look.levels + (_shift(walk, unit) or 0.0)
    Z = walk.preactivations(along[:, 0])
    return weights_from_tail(walk.known, Z, query_block(downstream.query, along), levels, walk.cell.signs[unit])


def _shift(walk, unit):
    """Of a unit, where it is known beforehand."""
    return (
        None
        if walk.downstream.theta is None
        else preactivations_of(walk.downstream.activation, walk.downstream.theta[unit])
    )


def _refine(walk):
    """Fit all that is known again where units have become many or errors large."""
    k, n_newest = len(walk.known.units), len(walk.known.units) - walk.n_sure
    doubtful = k >= walk.n_refined + _SOME and walk.misfits[-1] > _DOUBT
    if not (doubtful or k > _GROWN * walk.n_sure) or n_newest == 0:
        return
    if _n_parameters(k, walk.known.rows.shape[1], walk.downstream.n_outputs) < _MOST:
        walk.fit_all()
        walk.n_sure, walk.since = k, len(walk.Z)
    elif k - walk.n_refined >= _NEWEST and walk.misfits[-1] > _LARGER:
        signs = walk.cell.signs[walk.known.units[-n_newest:]]
        walk.known = walk.known.newest_refined(*walk.answers(walk.since), n_newest, signs)
        if n_newest >= _OLD:
            walk.n_sure, walk.since = k, len(walk.Z)
    else:
        return
    walk.n_refined = k


def _second_layer(walk):
    """The network, fitted once more where it is not yet right."""
    n_parameters = _n_parameters(*walk.known.rows.shape, walk.downstream.n_outputs)
    if n_parameters < _MOST and walk.known.misfit(*walk.answers()) > _WRONG:
        walk.fit_all()
    downstream, known = walk.downstream, walk.known
    order = np.argsort(known.units)
    weights = [downstream.weights, known.rows[order], known.readout]
    biases = [downstream.biases + known.shifts[order], known.biases, known.offset]
    misfit = known.misfit(*walk.answers())
    if not misfit < _WRONG:
        raise NotIdentified(
            "second layer", "residual", f"the network found on the walk misfits its answers by {misfit:.1e}"
        )
    return RecoveredNetwork(
        FeedforwardNetwork(weights, biases, downstream.activation), misfit, {"units": max(walk.misfits)}
    )
