"""Directions of first-layer weights that saturate, corrected by steps that leave all units but a few unchanged."""

import numpy as np

from skident.budget.constants import FAR_SATURATED, FEW_ROUNDINGS, FEW_ROUNDS, NO_EFFECT, ROUNDS
from skident.linalg import lapack, svd
from skident.oracle import NotIdentified

EXPONENTIAL_RATES = {"tanh": 2.0, "sigmoid": 1.0}  # limits are approached as exp(-rate z)
_SPREAD = 0.5  # standard deviation of the other pre-activations, over the rate: these units bend
_SHARE = 0.8  # units per group over outputs: their effects on the outputs must be linearly independent
_DIFFERENCE = 2e-5  # in pre-activations, of central differences: relative error 1e-10, of a correction
_BEST_CHANGE = 3e-8  # of a pre-activation by a step: the root of rounding, where both errors are equal
_STEPS = (1.0, 1000.0)  # in pre-activations: the first one, from unknown errors, and the longest one
_MODEL_ERROR = 1e-3  # relative, of curvatures by a network that is known roughly
_ROUNDINGS = 10.0  # of an output and of an input, in one change of outputs
_UNEXPLAINED = 0.2  # relative, of changes of the outputs by a group's moves: more means that other units moved


def correct_directions(oracle, weights, biases, activation, rng, *, behind=None):
    """First weights (D, m_1) whose directions are those of the model to rounding; norms stay. ``m_1 <= D``.

    In the coordinates ``z = W^T x + b`` and D - m_1 others, a true pre-activation is ``z_k + e_k + sum_j E_kj z_j``
    with small errors E, and an output depends on it only where unit k is not saturated. From a point at which g units
    bend and all others are saturated, a step along a coordinate of another unit, away from zero, changes the outputs by
    ``B E_gj`` times the step, with B (m_L, g) their derivatives by the g pre-activations. A group of ``0.8 m_L`` units
    takes D queries. Entries between units of a group follow from other groups. E_kk is the scale of a unit, and stays.
    About ``m_1 D / (0.8 m_L)`` queries per round. Errors shrink to their square times a step, and by another factor of
    1000 with `behind`, the network known so far as a function of pre-activations.

    Raises NotIdentified if the outputs change otherwise, as by a unit that is missing.
    """
    step, remaining = _STEPS[0] if behind is None else _STEPS[1], np.inf
    for _ in range(ROUNDS):
        place = _Places(oracle, weights, biases, activation, rng, behind, step)
        weights, change = _corrected(place)
        remaining = change**2 * step * (1.0 if behind is None else _MODEL_ERROR)
        if remaining < FEW_ROUNDINGS:
            break
        step = float(np.clip(_BEST_CHANGE / remaining, *_STEPS))
    return weights


def _corrected(place):
    """The weights after one round, and the largest entry of E."""
    W, m = place.weights, place.m
    groups, others = _groups(m, place.n_outputs)
    E = np.zeros((m, len(W)))  # by coordinates: those of the units, then the others
    outside = np.arange(m, len(W))
    for group in groups:
        steps = np.concatenate([np.setdiff1d(np.arange(m), group), outside])
        E[np.ix_(group, steps)] = place.errors(group, steps)
    for group in others:
        mates = [np.setdiff1d(groups[k // len(groups[0])], [k]) for k in group]
        steps = np.unique(np.concatenate(mates)).astype(int)
        if len(steps):
            found = place.errors(group, steps)
            for row, k in enumerate(group):
                E[k, mates[row]] = found[row, np.searchsorted(steps, mates[row])]
    return W + np.column_stack([W, place.outside]) @ E.T, float(np.abs(E).max(initial=0.0))


def _groups(m, n_outputs):
    """Groups of units, and further ones that have at most one unit of each of these."""
    size = min(m, max(1, int(_SHARE * n_outputs)))
    groups = [np.arange(first, min(first + size, m)) for first in range(0, m, size)]
    apart = [np.arange(rest, m, size) for rest in range(size if size > 1 else 0)]
    return groups, [units[first : first + size] for units in apart for first in range(0, len(units), size)]


class _Places:
    """Points at which a group of units bends and all others are saturated, and steps from there."""

    def __init__(self, oracle, weights, biases, activation, rng, behind, step):
        self.oracle, self.weights, self.biases, self.rng = oracle, weights, biases, rng
        self.behind, self.step, self.rate = behind, step, EXPONENTIAL_RATES[activation]
        self.m, self.n_outputs = weights.shape[1], oracle(np.zeros((1, len(weights)))).shape[1]
        self.outside = lapack.null_space(weights.T) * np.linalg.norm(weights, axis=0).mean()
        # Columns along which one coordinate changes by 1, the others by 0.
        self.columns = np.column_stack([lapack.pinv(weights.T), self.outside / (self.outside**2).sum(axis=0)])

    def errors(self, group, steps):
        """Entries of E (len(group), len(steps)) by steps along coordinates."""
        base, effects = self._best_conditioned(group)
        away = np.sign(np.concatenate([base, np.ones(len(self.columns) - self.m)]))[steps]
        x = self._at(base)
        outputs = self.oracle(x + self.step * away[:, None] * self.columns[:, steps].T)
        change = outputs - self.oracle(x[None])
        moves, left = self._moves(base, group, effects, change)
        size = np.abs(outputs).max() + np.abs(effects).sum() * np.linalg.norm(x) * np.linalg.norm(self.weights, 2)
        rounding = _ROUNDINGS * self.oracle.accuracy.eps * size * np.sqrt(len(steps))
        if left > _UNEXPLAINED * np.linalg.norm(change) + rounding:
            raise NotIdentified(
                "first layer", "directions", "the outputs change where all known units are saturated: one is missing"
            )
        return (moves / (self.step * away[:, None])).T

    def _at(self, z):
        """The input (D,) in the span of the weights with pre-activations z (m,)."""
        return self.columns[:, : self.m] @ (z - self.biases)

    def _best_conditioned(self, group):
        """Pre-activations (m,) of a point, and effects B (m_L, g) there; that of several with the largest effects."""
        best, found = -1.0, None
        moves = _DIFFERENCE / self.rate * self.columns[:, group].T
        for _ in range(ROUNDS):
            base = FAR_SATURATED / self.rate * self.rng.choice([-1.0, 1.0], self.m)
            base[group] = _SPREAD / self.rate * self.rng.standard_normal(len(group))
            x = self._at(base)
            effects = (self.oracle(x + moves) - self.oracle(x - moves)).T / (2.0 * _DIFFERENCE / self.rate)
            values = svd(effects, compute_uv=False)
            if values[-1] > best:
                best, found = values[-1], (base, effects)
        if not best > NO_EFFECT * np.linalg.norm(found[1]):
            raise NotIdentified("first layer", "directions", "a unit has no effect where all others are saturated")
        return found

    def _moves(self, base, group, effects, change):
        """Moves (s, g) of the group's pre-activations that change the outputs by `change` (s, m_L); what is left."""
        inverse = lapack.pinv(effects)
        moves = change @ inverse.T
        left = change - moves @ effects.T
        if self.behind is not None:
            before, Z = self.behind(base[None]), np.repeat(base[None], len(change), axis=0)
            slopes = self.behind.jacobian(base[None])[0][:, group]
            for _ in range(FEW_ROUNDS):
                Z[:, group] = base[group] + moves
                curved = self.behind(Z) - before - moves @ slopes.T
                moves = (change - curved) @ inverse.T
                left = change - curved - moves @ effects.T
        return moves, float(np.linalg.norm(left))
