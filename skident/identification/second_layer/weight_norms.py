"""Weight norms of first-layer units from their tails at several places, with bias corrections for erf units."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import erfcx

from skident.optim import BatchedSeparableProblem, Ending, batched_levenberg_marquardt

from ..constants import DIFFERENCE_STEP
from ..query_points import query_block
from ..saturating.first_layer import FirstLayer
from ..saturating.norms import tail_norms
from .kernel.patch import rays_of_one_unit

__all__ = ["NormVote", "centered", "erf_norms_and_biases", "vote_on_norms"]

# Votes of tanh and sigmoid units.
_MAX_PLACES = 6  # budget along every unit's hyperplane: further ones for units without a majority
# How far a tail is followed, in units of 1 / |w|: known norms may be too large by a factor of four.
_REACH = {"tanh": np.geomspace(0.05, 100.0, 28), "sigmoid": np.geomspace(0.05, 200.0, 30)}
_MARGIN = 500.0  # |z| of all other units where it begins: they stay saturated along it
_MAX_PLACE_DISTANCE = 10.0  # of places, times the radius where hyperplanes were detected
_SAME_NORM = 2e-3  # relative difference of two votes that agree: twice what a tail that counts may err
_MAX_TAIL_ERROR = 1e-3  # relative, of a tail that counts, and of the profile near the hyperplane
_MAJORITY = 3  # votes that agree are enough
# Residual over the best one of a group up to which a vote counts for its median: the best residual of few outputs may
# belong to a tail whose norm is off by more.
_ACCURATE = 3.0
_OFF_CENTER = {"tanh": 1.0, "sigmoid": 2.0}  # pre-activation from which on a hyperplane is off its unit's center
_MAX_OFF_CENTER = {"tanh": 40.0, "sigmoid": 80.0}  # same at most: twice the pre-activation of a saturated unit
# Votes of erf units.
_ERF_PLACES = 2  # along every unit's hyperplane, each with a tail on both sides
_ERF_REACH = np.geomspace(0.02, 60.0, 40)  # how far a tail is followed, in units of 1 / |w|
_ERF_MARGIN = 300.0  # |z| of all other units where it begins
_MAX_ERF_DISTANCE = 1e6  # of places from the origin, at most half the oracle's reach
_TAIL_START = 3e-2  # relative deviation from the limit from which on a tail is fitted: its series converges
_TAIL_END = 1e-10  # same at its end
_MIN_DEVIATION = 1e-11 / 2.0**-52  # at its end, in units of the outputs' rounding: five digits
_N_NODES = 20  # budget of queries of a tail
_N_POWERS = 4  # of the series: 3e-2^5 is below rounding of the deviations' five digits
_NORM_GRID = np.geomspace(0.4, 2.5, 5)  # starts, times the norm as known
_BIAS_GRID = np.linspace(-1.2, 1.2, 5)  # starts
_SAME_ERF_VOTE = 1e-2  # difference of biases, and relative one of norms, of two votes that agree
_MAX_ERF_RESIDUAL = 1e-3  # relative, of a tail that counts


@dataclass(frozen=True)
class NormVote:
    """The `FirstLayer` with norms by vote, its hyperplanes unchanged; votes (m_1,) that agree on each norm.

    A `support` of 1 is no majority. `centers` (m_1,) are pre-activations where half of the outputs' change is done.
    """

    first: FirstLayer
    support: np.ndarray
    centers: np.ndarray


def vote_on_norms(oracle, first, activation, rng):
    """The `NormVote` of tanh or sigmoid units whose norms are known within a factor of ten, directions exactly.

    If what follows is steep, the profile near a hyperplane misleads, and a single tail may be that of another slope:
    each makes a few units in a hundred wrong by a factor of two to ten. The profile and the two tails at each of one to
    six places vote, as long as fewer than three agree; the median of the accurate ones of the
    largest group wins. 84 queries per unit
    and place.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.identification.second_layer.weight_norms import vote_on_norms
    >>> from skident.identification.saturating.first_layer import find_first_layer
    >>> from skident.oracle import Oracle
    >>> W = np.array([[3.0, 0.0], [4.0, -2.0]])
    >>> oracle, rng = Oracle(lambda X: np.tanh(X @ W).sum(axis=1), 2), np.random.RandomState(0)
    >>> vote = vote_on_norms(oracle, find_first_layer(oracle, n_units=2, rng=rng), "tanh", rng)
    >>> print(np.sort(vote.first.norms).round(6))
    [2. 5.]
    """
    norms, m = first.norms, len(first.biases)
    votes, errors = [norms], [np.full(m, _MAX_TAIL_ERROR)]
    best, support, profiles = norms, np.ones(m, dtype=int), []
    for _ in range(_MAX_PLACES):
        units = np.flatnonzero(support < _MAJORITY)
        if len(units) == 0:
            break
        sides, base = [], _places(first, units, rng)
        for side in (1.0, -1.0):
            normals = side * first.directions[:, units]
            tails = tail_norms(oracle, base, normals, norms[units], activation, _REACH[activation])
            vote, error = np.full(m, np.nan), np.full(m, np.inf)
            vote[units], error[units] = tails.norms, tails.errors
            votes.append(np.where(error < _MAX_TAIL_ERROR, vote, np.nan))
            errors.append(error)
            sides.append(tails)
        profiles.append(_changes(*sides, units, m))
        best, support = _elected(np.array(votes), np.array(errors))
    scaled = _scaled(first, best / norms)
    return NormVote(scaled, support, best * _centers(profiles, _MAX_OFF_CENTER[activation] / best))


def _scaled(first, factors):
    """The first layer with other norms and the same hyperplanes."""
    return replace(first, weights=first.weights * factors, biases=first.biases * factors)


def centered(vote, activation):
    """The `FirstLayer` of a vote, hyperplanes far off the center of their unit moved there.

    If what follows is steep, the profile near a hyperplane may be that of a unit whose pre-activation is 6 there: the
    outputs hardly change with it. The center, where half of their change is done, is accurate to about one.
    """
    first = vote.first
    moves = np.where(np.abs(vote.centers) > _OFF_CENTER[activation], vote.centers, 0.0)
    points = first.points + (first.directions * (moves / first.norms)).T
    return replace(first, biases=first.biases - moves, points=points)


def _changes(right, left, units, m):
    """Signed distances (m, n) from the hyperplanes and changes (m, n) of the outputs there; zeros for other units."""
    s = np.concatenate([-left.distances[:, ::-1], right.distances], axis=1)
    Y = np.concatenate([left.outputs[:, ::-1], right.outputs], axis=1)
    places, changes = np.zeros((2, m, s.shape[1] - 1))
    places[units], changes[units] = 0.5 * (s[:, 1:] + s[:, :-1]), np.linalg.norm(np.diff(Y, axis=1), axis=2)
    return places, changes


def _centers(profiles, farthest):
    """Signed distances (m,) where half of the outputs' change is done, of what is as near as the unit's own step."""
    places, changes = (np.concatenate(parts, axis=1) for parts in zip(*profiles, strict=True))
    order = np.argsort(places, axis=1)
    places, done = (np.take_along_axis(A, order, axis=1) for A in (places, changes))
    done = np.cumsum(np.where(np.abs(places) < farthest[:, None], done, 0.0), axis=1)
    half = places[np.arange(len(places)), np.argmax(done >= 0.5 * done[:, -1:], axis=1)]
    return np.where(done[:, -1] > 0.0, half, 0.0)


def _places(first, units, rng):
    """A point (units, D) on every unit's hyperplane where all others are far from theirs."""
    places, options = first.points[units].copy(), {"margin": _MARGIN, "farthest": _MAX_PLACE_DISTANCE * first.radius}
    for k, i in enumerate(units):
        base, rays, starts = rays_of_one_unit(first.weights, first.biases, i, 1, rng, **options)
        if len(rays):
            places[k] = base + starts[0] * rays[0]
    return places


def _elected(votes, errors):
    """Norms (m,) by votes (P, m) with errors (P, m), and how many agree."""
    with np.errstate(invalid="ignore"):
        agree = np.abs(votes[:, None] / votes[None] - 1.0) < _SAME_NORM
    accurate, support = _largest_group(agree, np.isfinite(votes), errors)
    return _median(votes, accurate), support


def _largest_group(agree, counts, errors):
    """Accurate votes (P, m) in each unit's largest group, that of its best vote if several tie, and its size (m,)."""
    sizes, units = agree.sum(axis=1), np.arange(agree.shape[2])
    in_largest = (sizes == sizes.max(axis=0)) & counts
    best = np.argmin(np.where(in_largest, errors, np.inf), axis=0)
    return agree[best, :, units].T & (errors <= _ACCURATE * errors[best, units]), sizes[best, units]


def _median(votes, accurate):
    """Medians (m,) of accurate votes (P, m); NaN for units without any."""
    return np.ma.median(np.ma.array(votes, mask=~accurate), axis=0).filled(np.nan)


def erf_norms_and_biases(oracle, first, rng):
    """The `FirstLayer` of erf units with norms by vote, bias corrections (m_1,), and how many tails agree (m_1,).

    With all other units saturated, the output at a distance s from unit i's hyperplane is an analytic function of
    ``erfc(z)``, ``z = |w_i| s + b_i``, whatever follows. As that falls like ``exp(-z^2)``, the tail determines both
    norm and bias. Directions are exact, norms within a factor of three; 240 queries per unit.
    """
    m, norms = len(first.biases), first.norms
    votes = np.full((2 * _ERF_PLACES, m, 3), np.nan)  # norm, bias, residual
    options = {"margin": _ERF_MARGIN, "farthest": 0.5 * min(oracle.reach, _MAX_ERF_DISTANCE)}
    for unit in range(m):
        base, rays, starts = rays_of_one_unit(first.weights, first.biases, unit, _ERF_PLACES, rng, **options)
        for k, point in enumerate(base + starts[:, None] * rays):
            for side, sign in enumerate((1.0, -1.0)):
                norm, bias, residual = _erf_tail(oracle, point, sign * first.directions[:, unit], norms[unit])
                votes[2 * k + side, unit] = norm, sign * bias, residual
    elected, corrections, support = _elected_pairs(votes, norms)
    return _scaled(first, elected / norms), corrections, support


def _elected_pairs(votes, norms):
    """Norms, biases and support (m,) by votes (P, m, 3); norms as known, and zeros, for units without a vote."""
    a, b, residual = np.moveaxis(np.where(votes[..., 2:] < _MAX_ERF_RESIDUAL, votes, np.nan), 2, 0)
    with np.errstate(invalid="ignore"):
        same_norm = np.abs(a[:, None] / a[None] - 1.0) < _SAME_ERF_VOTE
        agree = same_norm & (np.abs(b[:, None] - b[None]) < _SAME_ERF_VOTE)
    accurate, support = _largest_group(agree, np.isfinite(a), residual)
    elected, biases = _median(a, accurate), _median(b, accurate)
    has_vote = np.isfinite(elected)
    return np.where(has_vote, elected, norms), np.where(has_vote, biases, 0.0), np.where(has_vote, support, 0)


def _erf_tail(oracle, base, normal, norm):
    """Norm, bias and relative residual of one tail from a point along a normal (D,); infinite if there is no tail."""
    s = _ERF_REACH / norm
    Y = query_block(oracle, base + s[:, None] * normal)
    deviations = np.linalg.norm(Y - Y[-1], axis=1)
    height = max(deviations.max(), np.finfo(float).tiny)
    end = max(_TAIL_END, _MIN_DEVIATION * oracle.accuracy.eps * np.abs(Y).max() / height)
    above, inside = (np.flatnonzero(deviations > limit * height) for limit in (_TAIL_START, end))
    if min(len(above), len(inside)) == 0 or inside[-1] <= above[-1] + 1 or inside[-1] >= len(s) - 2:
        return norm, 0.0, np.inf
    nodes = np.linspace(s[above[-1]], s[inside[-1]], _N_NODES)
    problem = _tail_problem(nodes, query_block(oracle, base + nodes[:, None] * normal) - Y[-1])
    starts = np.array([(np.log(norm * a), b) for a in _NORM_GRID for b in _BIAS_GRID])
    with np.errstate(over="ignore"):  # gains over predictions that are lost in rounding
        fit = batched_levenberg_marquardt(problem, starts, Ending(max_iter=25, ftol=1e-6, rounding=1e-26))
    best = int(np.argmin(fit.cost))
    return float(np.exp(fit.x[best, 0])), float(fit.x[best, 1]), float(np.sqrt(fit.cost[best] / _N_NODES))


def _tail_problem(s, deviations):
    """Deviations (n, m_L) over their norms as power series of ``erfc(e^x0 s + x1)``, for many x (B, 2) at once."""
    sizes = np.maximum(np.linalg.norm(deviations, axis=1), np.finfo(float).tiny)

    def columns(x):
        z = np.exp(np.clip(x[:, :1], -30.0, 30.0)) * s + x[:, 1:]
        with np.errstate(over="ignore", invalid="ignore"):
            log_v = (np.log(erfcx(z)) - z**2)[..., None] * np.arange(1, _N_POWERS + 1) - np.log(sizes)[:, None]
            V = np.exp(log_v - log_v.max(axis=1, keepdims=True))
        return np.where(np.isfinite(V), V, 0.0)

    return BatchedSeparableProblem(columns, deviations / sizes[:, None], step=DIFFERENCE_STEP, longest=np.ones(2))
