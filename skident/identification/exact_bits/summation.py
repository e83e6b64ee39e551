"""The order in which a model adds the terms of its output in single precision, read off the rounding errors."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

BIAS = -1  # the term that is no unit's
_SHARES = (0.5, 1.5)  # of its size with which a rounding error is in the outputs: 1 with the right weights
_SHARE_TOL = 0.1  # `_SHARES` for the right weights, as errors correlate with others
_SHARE_ERRORS = 3.0  # standard errors of that share in addition


def rounded_to_single(values):
    """Values rounded to float32 numbers, in double precision."""
    return values.astype(np.float32).astype(float)


class _Merge(NamedTuple):
    """Two partial sums that are added: their places, which of them is an unrounded product, or none, and the place."""

    left: int
    right: int
    fused: int | None
    place: int


class _Term(NamedTuple):
    """A partial sum (n,): as rounded, without its own last rounding (products only), and what it is made of."""

    value: np.ndarray
    product: np.ndarray | None
    tree: object


@dataclass(frozen=True)
class Summation:
    """How ``sum_i a_i h_i + b`` is added.

    Attributes
    ----------
    tree : nested tuples of int
        Pairs of what is added; leaves are units, or `BIAS`, and ``(unit,)`` where a product is not rounded.
    merges : tuple
        The same, step by step, with fused multiplications.
    """

    tree: object
    merges: tuple

    def __call__(self, H, weights, bias):
        """Sums (n,) of hidden outputs H (n, m), as the model rounds them."""
        terms = _leaves(H, weights, bias)
        for merge in self.merges:
            terms[merge.place] = _Term(_added(terms.pop(merge.left), terms.pop(merge.right), merge), None, None)
        return next(iter(terms.values())).value


def find_summation(H, weights, bias, Y, *, exact=False):
    """The `Summation` of outputs Y (n,) of hidden outputs H (n, m) in single precision.

    Of all pairs of partial sums, the one whose rounding error explains the outputs' deviations from the exact sum best
    is merged; m times. Needs all weights nearly to their last bit: a deviation of Y that is linear in H may be taken
    out before. `exact` confirms that the weights are right, and rules more pairs out.
    """
    terms = _leaves(H, weights, bias)
    residual = Y - H @ weights - bias
    gains, merges = {}, []
    for place in range(len(terms), 2 * len(terms) - 1):
        for left in terms:
            for right in terms:
                if left < right and (left, right) not in gains:
                    gains[left, right] = _best_addition(terms, left, right, residual, exact)
        pair = max(gains, key=lambda key: gains[key][0])
        _, merge, error = gains[pair]
        merge = merge._replace(place=place)
        one, other = terms.pop(merge.left), terms.pop(merge.right)
        branches = tuple(
            (term.tree,) if merge.fused == at else term.tree for at, term in ((merge.left, one), (merge.right, other))
        )
        terms[place] = _Term(_added(one, other, merge), None, branches)
        merges.append(merge)
        residual = residual - error
        gains = {
            key: _gain(merge, error, residual, exact)
            for key, (_, merge, error) in gains.items()
            if not {*key} & {*pair}
        }
    return Summation(next(iter(terms.values())).tree, tuple(merges))


def leaf_order(tree, other):
    """Units of another tree in the places of the units of a tree of the same shape; None if shapes differ."""
    pairs = _paired(tree, other)
    if pairs is None:
        return None
    order = dict(pairs)
    return np.array([order[unit] for unit in range(len(order) - 1)])


def _paired(tree, other):
    """Pairs of leaves in the same places of two trees, whose branches may be exchanged; None if there are none."""
    if isinstance(tree, int) or isinstance(other, int):
        same_kind = isinstance(tree, int) and isinstance(other, int) and (tree == BIAS) == (other == BIAS)
        return [(tree, other)] if same_kind else None
    if len(tree) != len(other):
        return None
    for branches in (other, other[::-1])[: len(other)]:
        parts = [_paired(one, two) for one, two in zip(tree, branches, strict=True)]
        if None not in parts:
            return sum(parts, [])
    return None


def _leaves(H, weights, bias):
    products = H * weights
    terms = {i: _Term(rounded_to_single(p), p, i) for i, p in enumerate(products.T)}
    terms[len(weights)] = _Term(np.full(len(H), float(bias)), None, BIAS)
    return terms


def _added(left, right, merge):
    """The rounded sum of two terms."""
    one = left.product if merge.fused == merge.left else left.value
    other = right.product if merge.fused == merge.right else right.value
    return rounded_to_single(one + other)


def _best_addition(terms, left, right, residual, exact):
    """The way to add two terms whose rounding error explains a residual (n,) best: gain, merge and error."""
    ways = [None] + [place for place in (left, right) if terms[place].product is not None]
    found = []
    for fused in ways:
        merge = _Merge(left, right, fused, -1)
        one, other = terms[left], terms[right]
        total = sum(term.value if term.product is None else term.product for term in (one, other))
        found.append(_gain(merge, _added(one, other, merge) - total, residual, exact))
    return max(found, key=lambda gain: gain[0])


def _gain(merge, error, residual, exact):
    """Decrease of the sum of squares by an error, over its own size: how surely the residual contains it."""
    squares, product = error @ error, error @ residual
    if squares == 0.0:
        return -1.0, merge, error
    low, high = _SHARES
    if exact:
        tol = _SHARE_TOL + _SHARE_ERRORS * np.sqrt(residual @ residual / len(residual) / squares)
        low, high = 1.0 - tol, 1.0 + tol
    if not low < product / squares < high:
        return -np.inf, merge, error
    return (product - 0.5 * squares) / np.sqrt(squares), merge, error
