"""The linear functions whose largest a unit takes, from the hyperplanes on which two of them tie."""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

_ONE_FUNCTION = 30.0  # errors of the jumps within which two linear functions are one
_SAME = 1e-8  # relative difference that is rounding
_TIED = 1e-6  # difference of tied terms at a point of their facet, over the largest, that is rounding
_PARALLEL = 1e-4  # difference of two unit directions of the outputs that is rounding


@dataclass(frozen=True)
class Maxout:
    """A unit ``outgoing max_k terms_k . (x, 1)``: terms (k, D + 1), of which the first is 0, and outgoing (m_L,)."""

    terms: np.ndarray
    outgoing: np.ndarray

    def which(self, X1):
        """The index (n,) of the largest term at points (n, D + 1)."""
        return np.argmax(X1 @ self.terms.T, axis=1)

    def __call__(self, X1):
        return np.max(X1 @ self.terms.T, axis=1)[:, None] * self.outgoing


def units_of_facets(facets):
    """`Maxout` units whose terms tie on all hyperplanes of `Facets`, up to a linear function; and how many have three.

    Where three terms tie, three facets meet, whose jumps a, b and c satisfy ``a - b = c`` up to their signs. Terms
    ``0, a, b`` then have these ties, and other facets of the unit add a term each, tied with two known ones at least.
    Hyperplanes that are in no such triple belong to a ReLU unit each, ``max(0, a)``.
    """
    unused, units = set(range(len(facets))), []
    while unused:
        first = min(unused, key=lambda i: facets.errors[i])
        units.append(_unit_of(facets, first, unused))
    return units, sum(len(unit.terms) > 2 for unit in units)


def _unit_of(facets, first, unused):
    """The unit of one facet, whose facets are removed from the unused ones."""
    alike = facets.outgoing @ facets.outgoing[first] > 1.0 - _PARALLEL
    mine = [i for i in sorted(unused) if alike[i]]
    terms, edges = [np.zeros(facets.n_inputs + 1), facets.jumps[first]], {first: (0, 1)}
    used = _may_have_more_facets(facets, first, np.array(mine))
    while used:
        used = False
        for j in mine:
            if j in edges:
                continue
            tie = _tie(facets, terms, j)
            if tie is None:
                new = _new_term(facets, terms, edges, j, mine)
                if new is None:
                    continue
                terms.append(new)
                tie = _tie(facets, terms, j)
            edges[j], used = tie, True
    unused -= set(edges)
    return Maxout(np.array(terms), facets.outgoing[first])


def _may_have_more_facets(facets, first, mine):
    """Whether a jump of the facets `mine` is that of the first one, or their sum or difference another one's jump.

    Of the slopes only: ``O(n log n)`` for n facets, where `_matches` compares all triples.
    """
    others = mine[mine != first]
    if len(others) == 0:
        return False
    a, B = facets.jumps[first, :-1], facets.jumps[others, :-1]
    allowed = np.linalg.norm(facets.jumps[:, :-1], axis=1) * (_SAME + _ONE_FUNCTION * facets.errors)
    tree = cKDTree(np.vstack([B, -B]))
    nearest = tree.query(np.vstack([a[None], a + B, a - B]), distance_upper_bound=2.0 * allowed[mine].max())[0]
    return bool(np.isfinite(nearest).any())


def _matches(facets, differences, mine, beside=None):
    """Which of the facets `mine` have a linear function (n, D + 1) as their jump, up to the sign: a mask (n, k).

    `beside` is a facet whose errors the functions have, too.
    """
    jumps, sides = facets.jumps[mine], np.array([1.0, -1.0])[:, None, None, None]
    off = np.abs(differences[:, None] - sides * jumps)
    sizes = np.linalg.norm(facets.jumps[:, :-1], axis=1)
    allowed, distance = sizes * (_SAME + _ONE_FUNCTION * facets.errors), 1.0 + np.linalg.norm(facets.points, axis=1)
    more, far = (0.0, 0.0) if beside is None else (allowed[beside], distance[beside])
    slope = np.linalg.norm(off[..., :-1], axis=3) < allowed[mine] + more
    constant = off[..., -1] < (allowed[mine] + more) * np.maximum(distance[mine], far)
    return (slope & constant).any(axis=0)


def _tie(facets, terms, j):
    """Two terms (k, l) that tie on facet j, or None."""
    pairs = np.array([(m, k) for k in range(len(terms)) for m in range(k)])
    differences = np.array([terms[k] - terms[m] for m, k in pairs])
    found = np.flatnonzero(_matches(facets, differences, np.array([j]))[:, 0])
    return tuple(pairs[found[0]]) if len(found) else None


def _new_term(facets, terms, edges, j, mine):
    """A term that ties with a known one on facet j and with another one on a further facet, or None.

    Tied terms are the largest ones on the known facets, which excludes the mirror image of a triple.
    """
    further = np.array([i for i in mine if i != j], dtype=int)
    for k in range(len(terms)):
        for side in (1.0, -1.0):
            new = terms[k] + side * facets.jumps[j]
            others = np.array([new - term for m, term in enumerate(terms) if m != k])
            tied = {**edges, j: (k, len(terms))}
            if (
                len(further)
                and _matches(facets, others, further, j).any()
                and _are_largest(facets, [*terms, new], tied)
            ):
                return new
    return None


def _are_largest(facets, terms, edges):
    """Whether the terms that tie on facets are the largest ones at a point of each."""
    which, pairs = np.array([*edges]), np.array([*edges.values()])
    values = np.column_stack([facets.points[which], np.ones(len(which))]) @ np.array(terms).T
    tied = np.take_along_axis(values, pairs, axis=1).min(axis=1)
    return bool(np.all(values.max(axis=1) - tied <= _TIED * np.abs(values).max(axis=1)))
