"""Lines through regions where units of the next layer change their signs that hardly do so elsewhere."""

import numpy as np

from skident.budget.constants import FEW_STEPS, TINY

from ...constants import RADII
from .critical_set import GRID, lines_between

_POOL = 6000  # random points from which the search of extreme points begins
_STARTS = 30  # of aimed lines, per extreme point
_FIRST_MOVE = 0.3  # over the distance from the center
_STEP_RATIO = 0.75  # of successive ones
_BEST = 5  # points among which an extreme one is chosen: lines should differ
_MOST_LARGE = 3  # outputs that dominate together: at points with a single active one, units show little
_MORE_LARGE = 0.2  # probability that a further one does


def aimed_lines(prefix, n_lines, rng, n_grid=GRID):
    """`Lines` between points where few outputs of a `KnownPrefix` are large beside its others.

    A unit of the next layer that is active, or inactive, nearly everywhere changes its sign where those inputs dominate
    that have weights of the rarer sign.
    """
    X = rng.choice(RADII, (_POOL, 1)) * rng.standard_normal((_POOL, prefix.n_inputs))
    H = prefix.outputs(X)
    chosen = np.array([_extreme_point(prefix, X, H, target, rng) for target in _targets(prefix, 2 * n_lines, rng)])
    return lines_between(*np.split(chosen, 2), n_grid)


def _targets(prefix, n, rng):
    """Directions (n, m) of outputs with one to three nonzero entries, those of linear units with either sign.

    The first ones are single outputs, in random order; each of them takes part in about as many as the others.
    """
    m = len(prefix.biases[-1])
    single = np.concatenate([np.eye(m), -np.eye(m)[m - prefix.linear[-1] :]])
    found = np.concatenate([single[rng.permutation(len(single))] for _ in range(-(-n // len(single)))])[:n]
    for _ in range(_MOST_LARGE - 1):
        found = found + (rng.uniform(size=n) < _MORE_LARGE)[:, None] * single[rng.randint(len(single), size=n)]
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), TINY)


def _extreme_point(prefix, X, H, target, rng):
    """A point (D,) where the component of the outputs along `target` (m,) is large relative to all.

    X (q, D) are points with outputs H (q, m) from which the search begins.
    """

    def component(H):
        return H @ target / np.maximum(np.linalg.norm(H, axis=1), TINY)

    value = component(H)
    best = np.argpartition(-value, _STARTS)[:_STARTS]
    P, value, step = X[best], value[best], _FIRST_MOVE
    for _ in range(FEW_STEPS):
        size = np.linalg.norm(P, axis=1, keepdims=True) / np.sqrt(P.shape[1])
        moved = P + step * size * rng.standard_normal(P.shape)
        new = component(prefix.outputs(moved))
        P, value, step = np.where((new > value)[:, None], moved, P), np.maximum(new, value), step * _STEP_RATIO
    return P[rng.choice(np.argsort(-value)[:_BEST])]
