"""Certificates of nearly collinear data against exact rational arithmetic."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np

import seed_ranges
from cases.exact_least_squares import dot, exact_least, exact_loss, fractions
from common import format_table
from registry import part
from skident.landscape import LossTerms, landscape_certificate
from skident.landscape.convex_solver import solve_convex
from skident.landscape.descent import descend
from skident.landscape.problem import QuadraticProblem
from skident.landscape.quadratic_form import factorize

FIRST_SEED = seed_ranges.LANDSCAPE_PROOFS.start
WELL_SEED = (seed_ranges.LANDSCAPE_PROOFS.start + seed_ranges.LANDSCAPE_PROOFS.stop) // 2
SIZES = ((60, 5), (200, 10), (1000, 20), (2500, 50))


def _orthogonal(X):
    """Rows of fractions in coordinates in which the inputs are orthogonal, exactly: Gram and Schmidt, powers of two."""
    columns = [list(c) for c in zip(*fractions(X))]
    for j in range(len(columns)):
        for k in range(j):
            size = dot(columns[k], columns[k])
            if size:
                ratio = dot(columns[j], columns[k]) / size
                columns[j] = [a - ratio * b for a, b in zip(columns[j], columns[k])]
        largest = max(map(abs, columns[j]))
        if largest:
            unit = Fraction(2) ** (largest.numerator.bit_length() - largest.denominator.bit_length())
            columns[j] = [a / unit for a in columns[j]]
    return [list(row) for row in zip(*columns)]


# -- cases -------------------------------------------------------------------------------------------------------------


def _case(seed, collinear):
    """Small data, options, output weights and some points: of solvers, and blind to the nearly collinear direction."""
    rng = np.random.RandomState(seed)
    n, d = rng.randint(3, 13), rng.randint(2, 5)
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    near = 10.0 ** rng.uniform(-15, -4)
    if collinear:
        X[:, -1] = X[:, 0] + near * rng.standard_normal(n)
        X = X * 10.0 ** rng.uniform(-8, 8) if rng.randint(2) else X * 10.0 ** rng.uniform(-8, 8, d)
        y = y * 10.0 ** rng.uniform(-8, 8)
    # A ridge is in units of the fourth power of the inputs.
    alpha = rng.choice([0.0, 0.0, 10.0 ** rng.uniform(-16, 0) * np.mean(np.abs(X[:, 0])) ** 4])
    terms = LossTerms(alpha, bool(rng.randint(2)), bool(rng.randint(2)), rng.choice([1.0, 30.0]))
    signs = ((1.0, -1.0), (1.0,), (-1.0,))[rng.randint(3)]
    return X, y, terms, np.repeat(signs, d)


def _points(X, y, terms, v):
    problem = QuadraticProblem(X, y, terms)
    with np.errstate(all="ignore"):
        W = factorize(solve_convex(problem).M, v)[0]
        yield W
        yield descend(problem, np.zeros((len(v), X.shape[1])), v, max_iter=200).W
        rest, blind = QuadraticProblem(X[:, :-1], y, terms), np.zeros((len(v), X.shape[1]))
        blind[:, :-1] = descend(rest, blind[:, :-1], v, max_iter=200).W
        yield blind


def _least_of_signs(X, y, terms, v):
    """The exact least loss for both signs; for one the exact loss of a good point, in orthogonal coordinates."""
    least = exact_least(X, y, terms)
    if len(set(v)) == 2:
        return least
    known = [exact_loss(fractions(X), y, np.zeros((1, X.shape[1])), v[:1], terms)]
    if terms.alpha == 0:
        rows = _orthogonal(X)
        Z, unit = np.array([[float(a) for a in row] for row in rows]), float(np.abs(y).max())
        found = descend(QuadraticProblem(Z, y / unit, terms), np.zeros((len(v), Z.shape[1])), v, max_iter=500)
        known.append(exact_loss(rows, y, found.W * np.sqrt(unit), v, terms))
    return min(known)


def check(X, y, terms, v):
    """Counts over some points of one case: calls, and what exact arithmetic says of them."""
    counts = dict.fromkeys(("points", "global", "undecided", "false", "above", "missed"), 0)
    problem, points = QuadraticProblem(X, y, terms), list(_points(X, y, terms, v))
    none = Fraction(1e-10) * Fraction(problem.target_value) + Fraction(problem.rounding)
    losses = [exact_loss(fractions(X), y, W, v, terms) for W in points]
    least = min([_least_of_signs(X, y, terms, v), *losses])
    for W, loss in zip(points, losses):
        certificate = landscape_certificate(W, v, X, y, terms=terms)
        optimal = loss - least <= none
        counts["points"] += 1
        counts["global"] += certificate.is_global
        counts["undecided"] += certificate.status == "undecided"
        counts["false"] += certificate.is_global and not optimal
        counts["above"] += Fraction(certificate.lower_bound) > least
        counts["above"] += Fraction(certificate.gap) < loss - Fraction(certificate.lower_bound)
        counts["missed"] += optimal and not certificate.is_global
    return counts


def _campaign(name, first, trials, collinear):
    total, start = {}, time.process_time()
    for seed in range(first, first + trials):
        counts = check(*_case(seed, collinear))
        total = {key: total.get(key, 0) + value for key, value in counts.items()}
    row = {"data": name, "cases": trials, **total, "seconds": time.process_time() - start}
    print(f"proofs: {row}", flush=True)
    return row


def _costs(quick):
    """Seconds of a certificate at an optimum, without terms, with terms, with terms and ridge."""
    rows = []
    both = {"fit_intercept": True, "fit_linear": True}
    for n, d in SIZES[: 2 if quick else None]:
        for name, terms in (("none", LossTerms()), ("linear", LossTerms(**both)), ("ridge", LossTerms(0.01, **both))):
            X, y = np.random.RandomState(WELL_SEED - 1).standard_normal((2, n, d))
            y, v = y[:, 0], np.repeat([1.0, -1.0], d)
            W = factorize(solve_convex(QuadraticProblem(X, y, terms)).M, v)[0]
            seconds = []
            for _ in range(3):
                start = time.process_time()
                certificate = landscape_certificate(W, v, X, y, terms=terms)
                seconds.append(time.process_time() - start)
            rows.append({"n": n, "d": d, "terms": name, "seconds": min(seconds), "certified": certificate.is_global})
    return rows


@part("landscape", "proofs", seeds=seed_ranges.LANDSCAPE_PROOFS)
def run(trials=None, quick=False):
    trials = trials or (30 if quick else 3000)
    rows = [
        _campaign("collinear to 1e-4 .. 1e-15, scales 1e-8 .. 1e8", FIRST_SEED, trials, True),
        _campaign("well conditioned", WELL_SEED, max(1, trials // 6), False),
    ]
    return {"rows": rows, "costs": _costs(quick)}


def tables(result):
    header = ["data", "cases", "points", "called global", "of these false", "bounds or gaps that do not hold"]
    header += ["undecided", "optimal, not called global", "seconds"]
    keys = ("data", "cases", "points", "global", "false", "above", "undecided", "missed", "seconds")
    proofs = format_table(header, [[row[key] for key in keys] for row in result["rows"]])
    costs = format_table(
        ["n", "d", "terms", "seconds a certificate", "certified"], [list(row.values()) for row in result["costs"]]
    )
    return f"{proofs}\n\n{costs}"
