"""Signs of units that maximize their similarities."""

import itertools

import numpy as np

_MAX_ENUMERATED = 4  # factors whose signs are enumerated: 2^4 matrices (m, m)


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
