"""Sums of squares with signs: quadratic forms from few samples, and hierarchical targets."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from cases.hierarchical_targets import timed
from common import format_table
from registry import part
from skident import HierarchicalQuadraticNet
from skident.datasets import make_hierarchical_target

FIRST_SEED = seed_ranges.HIERARCHICAL_SIGNED.start
_FORMS = [(rank, noise) for rank in (2, 3) for noise in (0.0, 0.05)]
_TARGETS = [(10, (3,), 2000), (10, (3, 2), 2000), (20, (3,), 4000), (20, (3, 2), 4000)]
_TRIALS = 10


def form(seed, rank, noise, d=15, n=200):
    """Samples of a quadratic form, signs in turn, and held-out samples without noise."""
    rng = np.random.default_rng(seed)
    W, X, Z = rng.standard_normal((d, rank)) / d**0.5, rng.standard_normal((n, d)), rng.standard_normal((3000, d))
    signs = np.where(np.arange(rank) < seed % (rank + 1), -1.0, 1.0)
    y, z = ((V @ W) ** 2 @ signs for V in (X, Z))
    return X, y + noise * y.std() * rng.standard_normal(n), Z, z


def hierarchical(seed, d, widths, n, signed=True):
    """Samples of a target half of whose units are subtracted, or none."""
    target = make_hierarchical_target(d, widths, signed=signed, random_state=seed)
    X, Z = target.sample(n, random_state=seed + 500), target.sample(5000, random_state=seed + 501)
    return X, target(X), Z, target(Z)


def row(name, widths, cases, bar, solver="auto"):
    """One minus R^2 of each case, and how many are below a bar."""
    errors, seconds = [], []
    for X, y, Z, z in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            net, spent = timed(HierarchicalQuadraticNet(widths=widths, solver=solver, random_state=0).fit, X, y)
        errors.append(1.0 - net.score(Z, z))
        seconds.append(spent)
    result = {"case": name, "n": len(errors), "right": sum(e < bar for e in errors), "bar": bar}
    return {**result, "worst": max(errors), "seconds": float(np.median(seconds))}


@part("hierarchical", "signed", seeds=seed_ranges.HIERARCHICAL_SIGNED)
def run(trials, quick):
    trials, rows = 1 if quick else trials or _TRIALS, []
    for i, (rank, noise) in enumerate(_FORMS):
        cases = [form(FIRST_SEED + 100 * i + k, rank, noise) for k in range(trials)]
        rows.append(row(f"form of rank {rank}, d = 15, N = 200, noise {noise:g}", (rank,), cases, 0.02))
    for i, (d, widths, n) in enumerate(_TARGETS, start=len(_FORMS)):
        cases = [hierarchical(FIRST_SEED + 100 * i + k, d, widths, n) for k in range(trials)]
        rows.append(row(f"d = {d}, widths {widths}, N = {n}", widths, cases, 1e-6))
        rows.append(row(f"the same, solver lbfgs, d = {d}, widths {widths}", widths, cases, 1e-6, "lbfgs"))
        for signed in (True, False) if d == 10 else ():
            cases = [hierarchical(FIRST_SEED + 100 * i + k, d, widths, n, signed) for k in range(trials)]
            name = f"Algorithm 1, d = {d}, widths {widths}, {'half' if signed else 'none'} subtracted"
            rows.append(row(name, widths, cases, 1e-3, "algorithm1"))
    return {"rows": rows}


def tables(result):
    header = ["target", "right", "of", "1 - R^2 below", "largest 1 - R^2", "seconds"]
    keys = ("case", "right", "n", "bar", "worst", "seconds")
    return format_table(header, [[r[k] for k in keys] for r in result["rows"]])
