"""Upper bounds of escape speeds at depth two, beside the speed that the analyzer finds."""

from __future__ import annotations

import time

import numpy as np
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_iris,
    load_wine,
    make_friedman1,
    make_friedman2,
    make_friedman3,
    make_moons,
)
from sklearn.preprocessing import scale

import seed_ranges
from common import format_table
from registry import part
from skident import SaddleEscapeAnalyzer
from skident.saddle import deep_escape_bound, fastest_shallow_escape

FIRST_SEED = seed_ranges.SADDLE_BOUNDS.start
TOL = 0.01  # gap at which a search ends, the default
BAR = 1.05  # bound over speed
NOISE = [(2, 60), (3, 60), (3, 100), (5, 60), (5, 100), (7, 40), (7, 60), (10, 20), (10, 40), (10, 60)]  # D, n


def noise(D, n, seed):
    """Gaussian inputs, and a gradient that has nothing to do with them: the hardest kind."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, D)), rng.standard_normal(n) / n


def of_targets(X, y):
    """Gradient at zero of half the mean squared error, for standardized inputs and centered targets."""
    X, y = scale(X), scale(np.asarray(y, dtype=float))
    return X, -y / len(y)


def products(seed):
    """Sign of a product of two of five inputs, which no linear function explains."""
    X = np.random.default_rng(seed).standard_normal((100, 5))
    return of_targets(X, np.sign(X[:, 0] * X[:, 1]))


TABLES = {
    "friedman1, 10, 100": lambda seed: of_targets(*make_friedman1(100, random_state=seed % 2**32)),
    "friedman1, 10, 300": lambda seed: of_targets(*make_friedman1(300, random_state=seed % 2**32)),
    "friedman2, 4, 200": lambda seed: of_targets(*make_friedman2(200, random_state=seed % 2**32)),
    "friedman3, 4, 200": lambda seed: of_targets(*make_friedman3(200, random_state=seed % 2**32)),
    "diabetes, 10, 442": lambda seed: of_targets(*load_diabetes(return_X_y=True)),
    "breast cancer, first 10, 569": lambda seed: of_targets(*(lambda X, y: (X[:, :10], y))(*_xy(load_breast_cancer))),
    "wine, first 10, class 1, 178": lambda seed: of_targets(*(lambda X, y: (X[:, :10], y == 1))(*_xy(load_wine))),
    "iris, 4, class 1, 150": lambda seed: of_targets(*(lambda X, y: (X, y == 1))(*_xy(load_iris))),
    "moons, 2, 200": lambda seed: of_targets(*make_moons(200, noise=0.2, random_state=seed % 2**32)),
    "sign of a product, 5, 100": products,
}


def _xy(load):
    return load(return_X_y=True)


@part("saddle", "bounds", seeds=seed_ranges.SADDLE_BOUNDS)
def run(trials=None, quick=False):
    """Twenty problems with two to ten inputs."""
    problems = [(f"noise, {D}, {n}", lambda seed, D=D, n=n: noise(D, n, seed)) for D, n in NOISE] + [*TABLES.items()]
    rows = []
    for i, (name, problem) in enumerate(problems[:2] if quick else problems[: trials or len(problems)]):
        seed = FIRST_SEED + i
        X, G = problem(seed)
        analyzer = SaddleEscapeAnalyzer(loss="gradient", depth=2, random_state=seed).fit(X, G)
        start = time.process_time()
        found = fastest_shallow_escape(X, G, tol=TOL, random_state=seed)
        seconds = time.process_time() - start
        row = {"problem": name, "seed": seed, "analyzer": analyzer.escape_speed_, "speed": found.speed}
        row |= {"ratio": found.upper_bound / analyzer.escape_speed_, "regions": found.n_regions, "cpu": seconds}
        deep = deep_escape_bound(X, G, random_state=seed)
        for depth in (3, 4):
            analyzer = SaddleEscapeAnalyzer(loss="gradient", depth=depth, random_state=seed).fit(X, G)
            row[f"depth {depth}"] = deep / analyzer.escape_speed_
        rows.append(row)
        print(row, flush=True)
    return {"rows": rows}


def tables(result):
    """A row per problem, and how many meet the bar."""
    header = [
        "problem: inputs, samples",
        "speed of the analyzer",
        "of the search",
        "bound / analyzer's speed",
        "regions",
    ]
    columns = ("problem", "analyzer", "speed", "ratio", "regions", "cpu", "depth 3", "depth 4")
    ratios = ("ratio", "depth 3", "depth 4")
    rows = [[f"{r[c]:.4f}" if c in ratios else r[c] for c in columns] for r in result["rows"]]
    met = sum(r["ratio"] <= BAR for r in result["rows"])
    line = f"Bound at most {BAR} times the analyzer's speed: {met} of {len(rows)}. The search ends at a gap of {TOL}."
    return "\n".join(
        [format_table([*header, "processor s", "bound of all depths / speed at depth 3", "at depth 4"], rows), "", line]
    )
