"""Signs of units that make them most alike."""

from __future__ import annotations

import itertools

import numpy as np

_ENUMERATED = 4


def best_signs(similarities, flips):
    """Largest sum over the signs of all factors, entry by entry: ``max_s sum_S G_S prod_{f in S} s_f``.

    Most factors meet no other one or a single one (in front of batch norm, that behind it): given the sign of that one
    theirs follows. The signs of the others are tried in all combinations, or, if they are many, improved in turn.

    Parameters
    ----------
    similarities : dict of frozenset of int to ndarray (m, m)
        G, by the factors S whose signs multiply it.
    flips : list of int
        All factors whose signs are free.

    Returns
    -------
    score : ndarray (m, m)
    signs : dict of int to ndarray (m, m)
        By factor.
    """
    shape = np.shape(next(iter(similarities.values())))
    leaves = _leaves(similarities, flips)
    core = [f for f in flips if f not in leaves]
    signs = {f: np.ones(shape) for f in flips}

    def slope(factor, signs):
        """What the sign of a factor multiplies."""
        parts = (G * signs_of(s - {factor}, signs) for s, G in similarities.items() if factor in s)
        return sum(parts, np.zeros(shape))

    def score(signs):
        return sum((G * signs_of(s, signs) for s, G in similarities.items()), np.zeros(shape))

    def with_leaves(signs):
        return {**signs, **{f: np.where(slope(f, signs) < 0.0, -1.0, 1.0) for f in leaves}}

    if len(core) > _ENUMERATED:
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
    """Factors that meet at most one other in every product of signs, none of them two leaves."""
    leaves = []
    for factor in flips:
        met = frozenset().union(*(s for s in similarities if factor in s)) - {factor}
        if len(met) <= 1 and not met & set(leaves):
            leaves.append(factor)
    return leaves


def signs_of(factors, signs):
    """The product of the signs of some factors.

    Parameters
    ----------
    factors : iterable of int
    signs : dict or list
        Arrays by factor.

    Returns
    -------
    ndarray or float
        1.0 for none.
    """
    product = 1.0
    for factor in factors:
        product = product * signs[factor]
    return product
