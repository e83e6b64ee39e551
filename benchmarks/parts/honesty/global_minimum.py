"""False certificates of global optimality: offsets, ridges and further terms, against exact rational arithmetic."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np

import seed_ranges
from cases.exact_least_squares import exact_least, exact_loss, fractions
from common import format_table
from registry import part
from skident.landscape import LossTerms, landscape_certificate
from skident.landscape.convex_solver import solve_convex
from skident.landscape.descent import descend
from skident.landscape.problem import QuadraticProblem
from skident.landscape.quadratic_form import factorize

FIRST_SEED = seed_ranges.HONESTY_GLOBAL.start
TOL = Fraction(1e-10)
# Relative errors of W: at the optimum, where the loss of a good fit is 1e-10 of the variance above it, and far off.
OFF = (0.0, 1e-6, 1e-5, 1e-2)
KINDS = ("offset in y", "offset in y, collinear", "offsets in X and y", "y constant plus rounding")


def case(seed):
    """Small data, terms and output weights, by turns of the four kinds."""
    rng = np.random.RandomState(seed)
    kind = KINDS[seed % len(KINDS)]
    n, d = rng.randint(4, 17), rng.randint(1, 4)
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    terms = LossTerms(
        rng.choice([0.0, 10.0 ** rng.uniform(-12, 0)]),
        bool(rng.randint(3)),
        bool(rng.randint(2)),
        rng.choice([1.0, 30.0]),
    )
    offset = rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(3, 15)
    if kind == KINDS[1] and d > 1:
        X[:, -1] = X[:, 0] + 10.0 ** rng.uniform(-12, -3) * rng.standard_normal(n)
    if kind == KINDS[2]:
        X = X + 10.0 ** rng.uniform(0, 8, d)
    if kind == KINDS[3]:
        y = np.spacing(abs(offset)) * rng.randint(-2, 3, n)
    signs = ((1.0, -1.0), (1.0, -1.0), (1.0,), (-1.0,))[rng.randint(4)]
    return kind, X, y + offset, terms, np.repeat(signs, d)


def points(X, y, terms, v, seed):
    """A solver's optimum, and points near it."""
    problem, rng = QuadraticProblem(X, y, terms), np.random.RandomState(seed + 1_000_000)
    with np.errstate(all="ignore"):
        if len(set(v)) == 2:
            W = factorize(solve_convex(problem).M, v)[0]
        else:
            W = descend(problem, np.zeros((len(v), X.shape[1])), v, max_iter=200).W
    for off in OFF:
        yield W * (1.0 + off * rng.standard_normal(W.shape))


def unit_of(y, terms):
    """The exact loss of the best constant, or of 0 without intercept."""
    targets = [Fraction(t) for t in y.tolist()]
    mean = sum(targets, Fraction(0)) / len(targets) if terms.fit_intercept else 0
    return sum((t - mean) ** 2 for t in targets) / (2 * len(targets))


def check(seed):
    """Counts over the points of one case."""
    kind, X, y, terms, v = case(seed)
    counts = dict.fromkeys(("points", "global", "false", "above", "optimal", "missed"), 0)
    some = list(points(X, y, terms, v, seed))
    losses = [exact_loss(fractions(X), y, W, v, terms) for W in some]
    both = len(set(v)) == 2
    # For one sign the least loss known; a "global" above that by more than is promised is false all the same.
    least = min([exact_least(X, y, terms), *losses] if both else losses)
    none = TOL * unit_of(y, terms)
    for W, loss in zip(some, losses):
        certificate = landscape_certificate(W, v, X, y, terms=terms)
        optimal = loss - least <= none
        counts["points"] += 1
        counts["global"] += certificate.is_global
        counts["false"] += certificate.is_global and not optimal
        counts["above"] += Fraction(certificate.lower_bound) > least
        counts["above"] += Fraction(certificate.gap) < loss - Fraction(certificate.lower_bound)
        counts["optimal"] += both and optimal
        counts["missed"] += both and optimal and not certificate.is_global
    return kind, counts


@part("honesty", "global", seeds=seed_ranges.HONESTY_GLOBAL)
def run(trials=None, quick=False):
    """The four kinds of data by turns: 1000 cases, or 40."""
    trials = trials or (40 if quick else 1000)
    rows = {kind: {"data": kind, "cases": 0} for kind in KINDS}
    for seed in range(FIRST_SEED, FIRST_SEED + trials):
        start = time.process_time()
        kind, counts = check(seed)
        row = rows[kind]
        for key, value in {"cases": 1, **counts, "seconds": time.process_time() - start}.items():
            row[key] = row.get(key, 0) + value
    for row in rows.values():
        print(f"honesty, global: {row}", flush=True)
    return {"rows": list(rows.values())}


def tables(result):
    """One table."""
    header = ["data", "cases", "points", 'called "global"', "of these false", "bounds or gaps that do not hold"]
    header += ["optimal (both signs)", "of these undecided", "seconds"]
    keys = ("data", "cases", "points", "global", "false", "above", "optimal", "missed", "seconds")
    return format_table(header, [[row[key] for key in keys] for row in result["rows"] if row["cases"]])
