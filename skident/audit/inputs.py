"""Inputs of an audit: for every hidden unit of the reference, points at which it varies."""

from dataclasses import dataclass, field

import numpy as np

from skident.budget.constants import STEPS
from skident.network import calculus, get_activation

_FLAT = 1e-3  # slope, beside the largest one, of a unit that rests or saturates
_CLEAR = 0.1  # of the way from the least to the largest effect, by which a unit shows, or rests
_STARTS = 8  # of the search for inputs at which a unit varies (budget)
_MOST_LEVELS = 256  # distinct values of a column that is queried at these only: those of 8 bits
_ROWS_PER_LEVEL = 4  # rows of X per distinct value of such a column, at least: numbers with all digits hardly repeat


@dataclass(frozen=True)
class InputBox:
    """The range of the columns of X, and which values they take in it; no queries elsewhere.

    Attributes
    ----------
    low, high : ndarray of shape (D,)
    integer : ndarray of bool, shape (D,)
        Columns of integers with many values: any integer of the range.
    levels : dict
        Sorted values of each column that has few, by its number.
    """

    low: np.ndarray
    high: np.ndarray
    integer: np.ndarray | bool = False
    levels: dict = field(default_factory=dict)

    @classmethod
    def of(cls, X):
        """The box of some rows.

        X (n, D).
        """
        levels = {}
        for column, values in enumerate(X.T):
            distinct = np.unique(values)
            if 1 < len(distinct) <= min(_MOST_LEVELS, len(X) / _ROWS_PER_LEVEL):
                levels[column] = distinct
        integer = np.all(np.rint(X) == X, axis=0)
        integer[list(levels)] = False
        return cls(X.min(axis=0), X.max(axis=0), integer, levels)

    @property
    def constant(self):
        """Columns that do not vary, ndarray of int."""
        return np.flatnonzero(self.high <= self.low)

    def inside(self, X):
        """Rows moved to the nearest point of the box."""
        return np.clip(X, self.low, self.high)

    def allowed(self, X):
        """Rows moved to the nearest values that the columns may take."""
        X = self.inside(X)
        X = np.where(self.integer, np.rint(X), X)
        for column, levels in self.levels.items():
            above = np.clip(np.searchsorted(levels, X[:, column]), 1, len(levels) - 1)
            low, high = levels[above - 1], levels[above]
            X[:, column] = np.where(X[:, column] - low < high - X[:, column], low, high)
        return X


def candidate_inputs(X, box, n, rng):
    """Rows of X, rows mixed from their columns, even ones in the box, and corners of it: about a quarter each.

    X (k, D); returns (n, D).
    """
    rows, D = X[rng.permutation(len(X))[: -(-n // 4)]], X.shape[1]
    others, kinds = n - len(rows), rng.randint(3, size=(n - len(rows), 1))
    mixed = X[rng.randint(len(X), size=(others, D)), np.arange(D)]
    even = box.allowed(box.low + (box.high - box.low) * rng.uniform(size=(others, D)))
    corners = np.where(rng.randint(2, size=(others, D)) == 1, box.high, box.low)
    return np.vstack([rows, np.where(kinds == 0, mixed, np.where(kinds == 1, even, corners))])


def inputs_on_both_sides(network, candidates, box, rng):
    """Candidates, and more of them where a unit does the same at all: either it moves at none, or it rests at none.

    candidates (n, D); returns (n or more, D).

    Projected gradient steps on the unit's pre-activation, up and down, from the candidates where it is largest and
    smallest: exact for the first layer, a local search for deeper ones. No queries.
    """
    _, jets = calculus.forward_jets(network.weights, network.biases, network.activations, candidates, order=1)
    found = []
    for layer, jet in enumerate(jets[:-1]):
        slope = np.abs(jet[1])
        moves = slope > _FLAT * max(slope.max(), np.finfo(float).tiny)
        for unit in np.flatnonzero(moves.all(axis=0) | ~moves.any(axis=0)):
            starts = candidates[rng.permutation(len(candidates))[:_STARTS]]
            found += [_pushed(network, layer, unit, starts, sign, box) for sign in (1.0, -1.0)]
    return np.vstack([candidates, *map(box.allowed, found)])


def _pushed(network, layer, unit, U, sign, box):
    """Points moved so that a unit's pre-activation grows (or shrinks), within the box."""
    weights, biases = network.weights[: layer + 1], network.biases[: layer + 1]
    weights, biases = (*weights[:-1], weights[-1][:, [unit]]), (*biases[:-1], biases[-1][[unit]])
    activations = [*network.activations[:layer], get_activation("identity")]
    width = box.high - box.low
    for step in 0.5 ** np.arange(0, 6, 6 / STEPS):
        slope = calculus.jacobian(weights, biases, activations, U)[:, 0]
        direction = slope * width**2
        length = np.abs(direction / np.where(width > 0, width, 1.0)).max(axis=1, keepdims=True)
        U = box.inside(U + sign * step * direction / np.where(length > 0, length, 1.0))
    return U


def chosen_inputs(effects, n, n_each, rng):
    """Rows at which every hidden unit shows, and is distinguished from the others."""
    served, n_candidates = [], len(effects.outputs)
    pool = max(n_each, n_candidates // 8)
    for layer in range(len(effects.layers) - 1):
        strengths = effects.strength(layer)
        for strength, order in zip(strengths.T, np.argsort(strengths, axis=0, kind="stable").T, strict=True):
            low, high = strength[order[0]], strength[order[-1]]
            shows = order[-pool:][strength[order[-pool:]] >= low + _CLEAR * (high - low)]
            rests = order[:pool][strength[order[:pool]] <= high - _CLEAR * (high - low)]
            served.append(order[-1])
            served.extend(rng.permutation(shows)[: (n_each + 1) // 2])
            served.extend(rng.permutation(rests)[: n_each // 2])
    served = np.array(list(dict.fromkeys(served)), dtype=int)
    served = served[rng.permutation(len(served))[:n]]
    others = np.setdiff1d(np.arange(n_candidates), served)
    return np.concatenate([served, rng.permutation(others)[: n - len(served)]])
