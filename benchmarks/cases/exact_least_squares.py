"""Least squares of quadratic networks in exact rational arithmetic: smallest loss, and loss at given weights."""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def fractions(a):
    return [[Fraction(x) for x in row] for row in np.atleast_2d(a).tolist()]


def dot(a, b):
    return sum((x * y for x, y in zip(a, b)), Fraction(0))


def _least_squares(columns, y, penalties):
    """Exact minimum of ``||C t - y||^2 + sum_k penalties_k t_k^2``: Gauss's elimination, dependent columns left out."""
    G = [[dot(a, b) for b in columns] + [dot(a, y)] for a in columns]
    for k, penalty in enumerate(penalties):
        G[k][k] += penalty
    least, left = dot(y, y), list(range(len(columns)))
    for _ in range(len(columns)):
        k = next((k for k in left if G[k][k] != 0), None)
        if k is None:
            break
        left.remove(k)
        least -= G[k][-1] ** 2 / G[k][k]
        for i in left:
            if G[i][k] != 0:
                ratio = G[i][k] / G[k][k]
                G[i] = [a - ratio * b for a, b in zip(G[i], G[k])]
    return least


def _side_columns(rows, terms):
    """Columns of linear and constant terms, with what their coefficients cost."""
    n, d = len(rows), len(rows[0])
    columns = [[row[j] for row in rows] for j in range(d)] if terms.fit_linear else []
    costs = [n * Fraction(terms.alpha) / Fraction(terms.linear_weight)] * len(columns)
    if terms.fit_intercept:
        columns, costs = [*columns, [Fraction(1)] * n], [*costs, Fraction(0)]
    return columns, costs


def exact_least(X, y, terms):
    """The least loss over all symmetric M."""
    rows, targets = fractions(X), fractions(y)[0]
    n, d = X.shape
    pairs = [(i, j) for i in range(d) for j in range(i, d)]
    columns = [[row[i] * row[j] for row in rows] for i, j in pairs]
    costs = [n * Fraction(terms.alpha) / (1 if i == j else 2) for i, j in pairs]
    side, side_costs = _side_columns(rows, terms)
    return _least_squares(columns + side, targets, costs + side_costs) / (2 * n)


def exact_loss(rows, y, W, v, terms):
    """The loss of units W (k, d) on rows of fractions, linear and constant terms at their best."""
    n, weights, targets = len(rows), fractions(W), fractions(y)[0]
    outputs = [dot([Fraction(a) for a in v], [dot(w, row) ** 2 for w in weights]) for row in rows]
    columns, costs = _side_columns(rows, terms)
    loss = _least_squares(columns, [t - o for t, o in zip(targets, outputs)], costs) / (2 * n)
    if terms.alpha:
        d, scaled = len(rows[0]), [[Fraction(a) * x for x in w] for a, w in zip(v.tolist(), weights)]
        M = [[sum((s[i] * w[j] for s, w in zip(scaled, weights)), Fraction(0)) for j in range(d)] for i in range(d)]
        loss += Fraction(terms.alpha) / 2 * sum(m * m for row in M for m in row)
    return loss
