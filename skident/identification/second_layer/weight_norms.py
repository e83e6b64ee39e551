"""Lengths of first-layer weights by vote: the shape near the hyperplane and tails at several places."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..saturating.tails import tail_norms
from .kernel.patch import rays_of_one_unit

__all__ = ["NormVote", "centred", "vote_on_norms"]

_PLACES = 6  # along every unit's hyperplane, at most: further ones for units without a majority
# How far a tail is followed, in units of 1 / |w|: known lengths may be too large by a factor of four.
_REACH = {"tanh": np.geomspace(0.05, 100.0, 28), "sigmoid": np.geomspace(0.05, 200.0, 30)}
_MARGIN = 500.0  # |z| of all other units where it begins
_ALIKE = 2e-3  # relative difference of two votes that are one
_OF_PROFILE = 1e-3  # what the shape near the hyperplane is good to
_MAJORITY = 3  # votes that agree are enough
_OFF_CENTRE = {"tanh": 1.0, "sigmoid": 2.0}  # pre-activation from which on a hyperplane is beside its unit's middle
_STEP = {"tanh": 40.0, "sigmoid": 80.0}  # pre-activation at which a unit beside its hyperplane is saturated at last


@dataclass(frozen=True)
class NormVote:
    """Units with the lengths that most looks agree on.

    Attributes
    ----------
    first : FirstLayer
        Weights stretched, shifts so that the hyperplanes stay.
    support : ndarray of int, shape (m_1,)
        How many looks agree on a unit's length, of up to thirteen; 1 is no majority.
    middles : ndarray of shape (m_1,)
        Pre-activations at which half of the answers' change across a unit is done.
    """

    first: object
    support: np.ndarray
    middles: np.ndarray


def vote_on_norms(oracle, first, activation, rng):
    """Lengths of first-layer units on which the profile and tails at several places agree.

    Parameters
    ----------
    oracle : Oracle
        With exact answers.
    first : FirstLayer
        Directions exactly, lengths within a factor of ten.
    activation : str
        tanh or sigmoid.
    rng : numpy.random.RandomState

    Returns
    -------
    NormVote

    Notes
    -----
    Where what follows is steep, the shape near a hyperplane misleads, and a single tail may be that of another slope of
    the answers; each gets a few units in a hundred wrong by a factor of two to ten. The votes of the profile and of the
    two tails at one place are counted, and of further places, six at most, as long as fewer than three agree; the best
    of the largest group is taken. 84 queries a unit and place, see `tail_norms`.

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
    lengths, m = first.norms, len(first.biases)
    votes, errors = [lengths], [np.full(m, _OF_PROFILE)]
    best, support, seen = lengths, np.ones(m, dtype=int), []
    for _ in range(_PLACES):
        open_ = np.flatnonzero(support < _MAJORITY)
        if len(open_) == 0:
            break
        sides, base = [], _places(first, open_, rng)
        for side in (1.0, -1.0):
            normals = side * first.directions[:, open_]
            tails = tail_norms(oracle, base, normals, lengths[open_], activation, _REACH[activation])
            found, error = np.full(m, np.nan), np.full(m, np.inf)
            found[open_], error[open_] = tails.norms, tails.errors
            votes.append(np.where(error < _OF_PROFILE, found, np.nan))
            errors.append(error)
            sides.append(tails)
        seen.append(_changes(*sides, open_, m))
        best, support = _count(np.array(votes), np.array(errors))
    stretch = best / lengths
    stretched = replace(first, weights=first.weights * stretch, biases=first.biases * stretch)
    return NormVote(stretched, support, best * _middles(seen, _STEP[activation] / best))


def centred(vote, activation):
    """The units of a vote, those that are far beside the middle of their step moved there.

    Parameters
    ----------
    vote : NormVote
    activation : str
        tanh or sigmoid.

    Returns
    -------
    FirstLayer

    Notes
    -----
    Where what follows is steep, the shape near a hyperplane may be that of a unit whose pre-activation is 6 there: the
    answers hardly change with it, and tell nothing about it. Half of their change is done where it is within one or so.
    """
    first = vote.first
    moves = np.where(np.abs(vote.middles) > _OFF_CENTRE[activation], vote.middles, 0.0)
    points = first.points + (first.directions * (moves / first.norms)).T
    return replace(first, biases=first.biases - moves, points=points)


def _changes(right, left, units, m):
    """Signed distances (m, n) from the hyperplanes, and how much the answers change there: nothing of other units."""
    s = np.concatenate([-left.distances[:, ::-1], right.distances], axis=1)
    Y = np.concatenate([left.outputs[:, ::-1], right.outputs], axis=1)
    places, changes = np.zeros((2, m, s.shape[1] - 1))
    places[units], changes[units] = 0.5 * (s[:, 1:] + s[:, :-1]), np.linalg.norm(np.diff(Y, axis=1), axis=2)
    return places, changes


def _middles(seen, farthest):
    """Signed distances (m,) at which half of the answers' change is done, of what is as near as the unit's own step."""
    places, changes = (np.concatenate(parts, axis=1) for parts in zip(*seen, strict=True))
    order = np.argsort(places, axis=1)
    places, done = (np.take_along_axis(A, order, axis=1) for A in (places, changes))
    done = np.cumsum(np.where(np.abs(places) < farthest[:, None], done, 0.0), axis=1)
    half = places[np.arange(len(places)), np.argmax(done >= 0.5 * done[:, -1:], axis=1)]
    return np.where(done[:, -1] > 0.0, half, 0.0)


def _places(first, units, rng):
    """A point on every unit's hyperplane where all others are far from theirs: (units, D)."""
    places = first.points[units].copy()
    for k, i in enumerate(units):
        base, rays, starts = rays_of_one_unit(
            first.weights, first.biases, i, 1, rng, margin=_MARGIN, farthest=10.0 * first.radius
        )
        if len(rays):
            places[k] = base + starts[0] * rays[0]
    return places


def _count(votes, errors):
    """The most precise vote of every unit's largest group (m,), and the size of that group (m,)."""
    with np.errstate(invalid="ignore"):
        alike = np.abs(votes[:, None] / votes[None] - 1.0) < _ALIKE
    sizes = alike.sum(axis=1)
    in_largest = (sizes == sizes.max(axis=0)) & np.isfinite(votes)
    chosen = np.argmin(np.where(in_largest, errors, np.inf), axis=0)
    units = np.arange(votes.shape[1])
    return votes[chosen, units], sizes[chosen, units]
