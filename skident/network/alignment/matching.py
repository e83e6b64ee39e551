"""Permutations and signs of units that bring the blocks of two modules together.

Both modules are in their standard form, so that scales do not matter, or keep their scales. The objective is
``max sum_t <A_t, P_t B_t>`` over permutations and signs of every space of units: linear assignment in one space at a
time with all others fixed (coordinate descent), from several starts. The first start compares units by what no
permutation and no sign changes, their sorted weights: it undoes any symmetry that was applied to the same module.
"""

import functools
import itertools
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from skident.budget.constants import SUM_ROUNDING

from .symmetry import moved_block, standard_factors

_MAX_SWEEPS = 100  # budget; descents of trained networks end within ten
_MAX_FEATURES = 48  # means of sorted weights per unit: enough to distinguish a few thousand units
_TIE_BREAK = 1e-6  # weight of the weights' similarities beside those of outputs: decides units that never vary
_MAX_SCALE = 1e6  # factor of a unit: the square of a larger one leaves single precision
_MAX_ENUMERATED = 4  # factors whose signs are enumerated: 2^4 matrices (m, m)


@dataclass(frozen=True)
class Match:
    """Orders, one array per space, and signs, one array per factor, that take the units of b to those of a."""

    orders: list
    signs: list


@dataclass(frozen=True)
class Pair:
    """Corresponding blocks A, B (m, h, r) of two modules.

    `characters` holds, for each of their axes, the factors whose signs multiply the entries.
    """

    A: np.ndarray
    B: np.ndarray
    spaces: tuple[int, ...]
    characters: tuple[frozenset, ...]


class Matching:
    """The blocks of two modules, and matches of their units; `standard` brings both to standard form first."""

    def __init__(self, symmetry, a, b, standard=True):
        self.symmetry = symmetry
        ones = [np.ones(symmetry.sizes[factor.space]) for factor in symmetry.factors]
        self.standard = [standard_factors(symmetry, arrays) if standard else ones for arrays in (a, b)]
        self.pairs = []
        for block in symmetry.blocks:
            if block.trained:
                A, B = (moved_block(block, arrays, None, f) for arrays, f in zip((a, b), self.standard))
                self.pairs.append(Pair(A, B, block.spaces, _characters(block, symmetry.factors)))
        self.of_space = [[p for p in self.pairs if g in p.spaces] for g in range(len(symmetry.sizes))]
        self.total = sum(float((p.A**2).sum() + (p.B**2).sum()) for p in self.pairs)

    # -- one match -----------------------------------------------------------------------------------------------------

    def unmoved(self):
        """The match that leaves all units in place."""
        orders = [np.arange(m) for m in self.symmetry.sizes]
        return Match(orders, [np.ones(self.symmetry.sizes[factor.space]) for factor in self.symmetry.factors])

    def factors(self, match):
        """Factors (m,) of b's permuted units, one array per factor: a's scales and the signs of the match."""
        parts = zip(self.symmetry.factors, match.signs, *self.standard)
        scales = [(signs, b[match.orders[factor.space]] / a) for factor, signs, a, b in parts]
        # Weights that decayed to nothing keep their size: single precision holds no squares of what would undo that.
        return [signs * np.clip(c, 1.0 / _MAX_SCALE, _MAX_SCALE) for signs, c in scales]

    def _flips(self, space):
        """Factors of a space whose signs are free."""
        return [k for k, factor in enumerate(self.symmetry.factors) if factor.sign and factor.space == space]

    def squared_distance(self, match):
        """Squared distance between the blocks of a and the moved blocks of b."""
        gain = sum(float(np.vdot(p.A, _moved(p, match))) for p in self.pairs)
        return max(self.total - 2.0 * gain, 0.0)

    # -- one space -----------------------------------------------------------------------------------------------------

    def similarities(self, space, match, known=None):
        """Inner products (m, m) of the weights of a's and b's units in one space, with all others fixed.

        A dict by the factors whose signs change the products. Blocks that reach spaces outside `known` are left out.
        """
        found = {}
        for pair in self.of_space[space]:
            for axis, own in enumerate(pair.spaces):
                others = [k for k in range(len(pair.spaces)) if k != axis]
                if own != space or (known is not None and any(pair.spaces[k] not in known for k in others)):
                    continue
                B = _moved(pair, match, only=others)
                A, B = (np.moveaxis(C, axis, 0).reshape(C.shape[axis], -1) for C in (pair.A, B))
                character = pair.characters[axis]
                found[character] = found.get(character, 0.0) + A @ B.T
        return found

    def assigned(self, space, similarities, match):
        """The match with the best assignment and signs of one space, by its similarities."""
        if not similarities:
            return match
        score, signs = best_signs(similarities, self._flips(space))
        order = linear_sum_assignment(score, maximize=True)[1]
        orders, all_signs = list(match.orders), list(match.signs)
        orders[space] = order
        for factor, best in signs.items():
            all_signs[factor] = best[np.arange(len(order)), order]
        return Match(orders, all_signs)

    # -- starts --------------------------------------------------------------------------------------------------------

    def by_signatures(self):
        """Match units by their sorted weights, which no symmetry of the module changes."""
        match = self.unmoved()
        for space in range(len(self.symmetry.sizes)):
            features = [sides for pair in self.of_space[space] for sides in _signatures(pair, space)]
            A, B = (np.hstack(side) for side in zip(*features))
            match.orders[space][:] = linear_sum_assignment(cdist(A, B, "sqeuclidean"))[1]
        return self._with_signs(match)

    def _with_signs(self, match):
        """Signs for given orders: space after space, by the weights that connect it to earlier ones."""
        known = set()
        for space in range(len(self.symmetry.sizes)):
            flips = self._flips(space)
            similarities = self.similarities(space, match, known) if flips else {}
            paired = {s: np.diagonal(G[:, match.orders[space]])[:, None] for s, G in similarities.items()}
            for factor, signs in best_signs(paired, flips)[1].items() if paired else ():
                match.signs[factor][:] = signs[:, 0]
            known.add(space)
        return match

    def spreading(self, spaces):
        """Match units space after space, each by the weights that connect it to spaces matched already."""
        match, known = self.unmoved(), set()
        for space in spaces:
            match = self.assigned(space, self.similarities(space, match, known), match)
            known.add(space)
        return match

    def random(self, rng):
        """Random orders and signs."""
        match = self.unmoved()
        orders = [rng.permutation(len(order)) for order in match.orders]
        flips = zip(self.symmetry.factors, match.signs)
        return Match(orders, [rng.choice([-1.0, 1.0], len(ones)) if factor.sign else ones for factor, ones in flips])

    # -- descent -------------------------------------------------------------------------------------------------------

    def descended(self, match, rng):
        """Coordinate descent: assign the spaces in random order until none improves."""
        for _ in range(_MAX_SWEEPS):
            gained = 0.0
            for space in rng.permutation(len(self.symmetry.sizes)):
                similarities = self.similarities(space, match)
                moved = self.assigned(space, similarities, match)
                gain = self._agreement(space, similarities, moved) - self._agreement(space, similarities, match)
                if gain > SUM_ROUNDING * self.total:
                    match, gained = moved, gained + gain
            if gained == 0.0 or self.squared_distance(match) <= SUM_ROUNDING * self.total:
                break
        return match

    def _agreement(self, space, similarities, match):
        """Inner product of all blocks that have units of a space, a's and the moved b's."""
        if any(p.spaces == (space, space) for p in self.of_space[space]):  # not linear in the order of the space
            return sum(float(np.vdot(p.A, _moved(p, match))) for p in self.of_space[space])
        rows, columns = np.arange(len(match.orders[space])), match.orders[space]
        parts = (G[rows, columns] * signs_of(s, match.signs) for s, G in similarities.items())
        return sum(float(np.sum(part)) for part in parts)

    def by_similarities(self, similarities):
        """Match every space by given similarities, one dict per space; weights break ties."""
        match = self.unmoved()
        for weight in (0.0, _TIE_BREAK):
            for space, given in enumerate(similarities):
                both = dict(given)
                for s, G in self.similarities(space, match).items() if weight else ():
                    both[s] = both.get(s, 0.0) + weight * G / (np.abs(G).max() or 1.0)
                match = self.assigned(space, both, match)
        return match


def descents(symmetry, a, b, n_starts, rng):
    """Yield (orders, factors) of descents: from signatures, along the graph and back, and from random starts."""
    spaces = range(len(symmetry.sizes))
    standard, plain = (functools.cache(lambda s=s: Matching(symmetry, a, b, standard=s)) for s in (True, False))
    starts = [
        (standard, lambda matching: matching.by_signatures()),
        (plain, lambda matching: matching.spreading(spaces)),
        (standard, lambda matching: matching.spreading(spaces)),
        (plain, lambda matching: matching.by_signatures()),
        (plain, lambda matching: matching.unmoved()),
        (plain, lambda matching: matching.spreading(spaces[::-1])),
    ]
    starts += [(plain, lambda matching: matching.random(rng))] * max(0, n_starts - len(starts))
    for make, start in starts[:n_starts]:
        matching = make()
        match = matching.descended(start(matching), rng)
        yield match.orders, matching.factors(match)


def _characters(block, factors):
    """Per axis, the factors whose signs a block's entries have; one that multiplies twice does not count."""
    found = []
    for axis, powers in enumerate(block.powers):
        odd = [f for f, power in powers.items() if power % 2]
        odd += [block.norm.factor] if block.norm is not None and axis == 0 else []
        found.append(frozenset(f for f in odd if factors[f].sign and odd.count(f) % 2))
    return tuple(found)


def _moved(pair, match, only=(0, 1)):
    """b's block with the units of some axes in their new order and with their new signs."""
    B = pair.B
    for axis in only:
        if axis < len(pair.spaces):
            B = B.take(match.orders[pair.spaces[axis]], axis=axis)
            for c in pair.characters[axis]:
                B = B * (match.signs[c][:, None, None] if axis == 0 else match.signs[c][None, :, None])
    return B


def _signatures(pair, space):
    """Per axis of a pair along this space: features (m, q) of a's and of b's units."""
    for axis, own in enumerate(pair.spaces):
        if own == space:
            with_signs = any(pair.characters)
            yield [_sorted_weights(np.moveaxis(C, axis, 0), len(pair.spaces), with_signs) for C in (pair.A, pair.B)]


def _sorted_weights(C, n_spaces, with_signs):
    """Weights (m, h, r) of units, sorted along the other units; of many, means of neighbors in that order."""
    C = np.abs(C) if with_signs else C
    if n_spaces == 2:
        C = np.sort(C, axis=1)
        edges = np.unique(np.linspace(0, C.shape[1], min(C.shape[1], _MAX_FEATURES) + 1).astype(int))
        C = np.add.reduceat(C, edges[:-1], axis=1) / np.sqrt(np.diff(edges))[:, None]
    return C.reshape(len(C), -1)


def best_signs(similarities, flips):
    """Largest sum over the signs of all factors, entry by entry: ``max_s sum_S G_S prod_{f in S} s_f``.

    `similarities` are the G_S (m, m) by the factors S whose signs multiply them, `flips` the factors with free signs.
    Returns the maximum (m, m) and the signs (m, m) by factor. Most factors occur with at most one other one (before
    batch norm, the one after it): given that one's sign, theirs follow. The signs of the others are enumerated, or
    improved in turn if they are many.
    """
    shape = np.shape(next(iter(similarities.values())))
    leaves = _leaves(similarities, flips)
    core = [f for f in flips if f not in leaves]
    signs = {f: np.ones(shape) for f in flips}

    def slope(factor, signs):
        """Coefficient of a factor's sign in the sum."""
        parts = (G * signs_of(s - {factor}, signs) for s, G in similarities.items() if factor in s)
        return sum(parts, np.zeros(shape))

    def score(signs):
        return sum((G * signs_of(s, signs) for s, G in similarities.items()), np.zeros(shape))

    def with_leaves(signs):
        return {**signs, **{f: np.where(slope(f, signs) < 0.0, -1.0, 1.0) for f in leaves}}

    if len(core) > _MAX_ENUMERATED:
        for factor in (core + leaves) * 2:
            signs[factor] = np.where(slope(factor, signs) < 0.0, -1.0, 1.0)
        return score(signs), signs
    best = None
    for trial in itertools.product((1.0, -1.0), repeat=len(core)):
        new = with_leaves({**signs, **{f: np.full(shape, value) for f, value in zip(core, trial)}})
        value = score(new)
        if best is None:
            best, signs = value, new
        better = value > best
        best, signs = np.where(better, value, best), {f: np.where(better, new[f], signs[f]) for f in flips}
    return best, signs


def _leaves(similarities, flips):
    """Factors that occur with at most one other one in all products of signs, and never with another leaf."""
    leaves = []
    for factor in flips:
        met = frozenset().union(*(s for s in similarities if factor in s)) - {factor}
        if len(met) <= 1 and not met & set(leaves):
            leaves.append(factor)
    return leaves


def signs_of(factors, signs):
    """Product of the signs of some factors; 1.0 for none."""
    product = 1.0
    for factor in factors:
        product = product * signs[factor]
    return product
